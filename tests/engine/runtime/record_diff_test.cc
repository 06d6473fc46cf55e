// Records compared, and costs fitted to them.
#include "engine/runtime/record_diff.h"

#include <cmath>

#include <gtest/gtest.h>

#include "engine/runtime/calibrate.h"

namespace plumbline {
namespace {

// Two ranks, two layers a stage: forwards of 2 us a layer, backwards of 3, a head of 5 and 7 on the last stage;
// messages of 1000 bytes that take 1100 ns once both ends have begun.
RunRecord small_record() {
  RunRecord record;
  record.ranks = record.stages = 2;
  record.streams = {"compute", "pp"};
  const auto label = [&](const char* name, KernelKind kind, int stage) {
    EventLabel row;
    row.name = name;
    row.kernel = kind;
    row.stage = stage;
    record.labels.push_back(row);
  };
  label("F.0", KernelKind::kForward, 0);
  label("F.1", KernelKind::kForward, 1);
  label("B.0", KernelKind::kBackward, 0);
  label("B.1", KernelKind::kBackward, 1);
  for (const EndpointKind kind : {EndpointKind::kSend, EndpointKind::kRecv}) {
    EventLabel row;
    row.communication = true;
    row.name = kind == EndpointKind::kSend ? "send.activation.1" : "recv.activation.1";
    row.endpoint = kind;
    row.stage = 1;
    row.slot = SlotKind::kActivation;
    row.bytes = 1000;
    record.labels.push_back(row);
  }
  for (std::int32_t step = 0; step < 2; ++step) {
    const Nanoseconds t = step * 100'000;
    StepRow row;
    row.step = step;
    row.loss = 2.0 - step;
    row.begin = t;
    row.end = t + 50'000;
    row.params_digest = 7;
    record.steps.push_back(row);
    const auto event = [&](Rank rank, std::uint32_t of, Nanoseconds start, Nanoseconds end, Rank peer = -1) {
      record.events.push_back({step, rank, of, static_cast<std::uint16_t>(of >= 4 ? 1 : 0), 0, peer,
                               t + start, t + start, t + end});
    };
    event(0, 0, 0, 4'000);
    event(0, 4, 4'000, 7'100, 1);
    event(0, 2, 30'000, 36'000);
    event(1, 5, 6'000, 7'100, 0);
    event(1, 1, 8'000, 17'000);
    event(1, 3, 17'000, 30'000);
  }
  return record;
}

TEST(RecordDiff, EqualRecordsAreEqualAndADifferenceIsFound) {
  const RunRecord a = small_record();
  RunRecord b = a;
  RecordDiff diff = diff_records(a, b);
  EXPECT_TRUE(diff.same_numbers());
  EXPECT_TRUE(diff.same_order());
  EXPECT_EQ(4, diff.same_orders);
  EXPECT_TRUE(diff.header.empty());
  EXPECT_DOUBLE_EQ(1.0, diff.makespan);
  b.steps[1].loss = 1.5;
  std::swap(b.events[0], b.events[2]);  // rank 0, step 0: the backward before the forward
  diff = diff_records(a, b);
  EXPECT_FALSE(diff.same_numbers());
  EXPECT_EQ(1, diff.numbers[0].first);
  EXPECT_DOUBLE_EQ(1.0 / 3.0, diff.numbers[0].largest);
  ASSERT_EQ(1u, diff.orders.size());
  EXPECT_EQ(0, diff.orders[0].rank);
  EXPECT_EQ("compute", diff.orders[0].stream);
  EXPECT_EQ(0, diff.orders[0].first);
  EXPECT_NE(std::string::npos, diff.orders[0].b.find("B.0"));
}

TEST(RecordDiff, NumbersWithinATolerance) {
  const RunRecord a = small_record();
  RunRecord b = a;
  b.steps[0].loss = 2.0 * (1 + 1e-6);
  b.steps[1].loss = 1.0 * (1 + 3e-6);
  b.steps[1].params_digest = 8;
  Tolerance tolerance;
  tolerance.rule = NumbersRule::kRelative;
  tolerance.loss = tolerance.grad_norm = 2e-6;
  RecordDiff diff = diff_records(a, b, tolerance);
  EXPECT_EQ(0, diff.numbers[0].equal);
  EXPECT_EQ(1, diff.numbers[0].within) << "the second step is further apart";
  EXPECT_FALSE(diff.numbers_hold());
  tolerance.loss = 4e-6;
  EXPECT_TRUE(diff_records(a, b, tolerance).numbers_hold()) << "digests are of bits, and not judged";
  EXPECT_FALSE(diff_records(a, b).numbers_hold());
  tolerance.rule = NumbersRule::kDerived;
  tolerance.loss = 2e-6;
  EXPECT_TRUE(diff_records(a, b, tolerance).numbers_hold()) << "a derived tolerance grows by the step";
  b.steps[0].scale = 2.0;
  EXPECT_FALSE(diff_records(a, b, tolerance).numbers_hold()) << "scales are powers of two";
  b = a;
  b.steps[1].loss = std::nan("");
  EXPECT_FALSE(diff_records(a, b, tolerance).numbers_hold()) << "nothing is near a NaN";
  b = a;
  b.steps[0].skipped = true;
  EXPECT_FALSE(diff_records(a, b, tolerance).numbers_hold());
}

// By hand: one layer of width 4 with one head, sequences of 2, ffn 16, vocabulary 8, one microbatch of one sequence:
// 2 x 4 + 2 x 4 + 4 + 2 x 2 + 4 + 16 = 44 in the layer, 2 x 4 + 8 + 2 at the ends.
TEST(Tolerance, IsDerivedFromSummandsAndPrecision) {
  RunConfig config;
  config.model.layers = 1;
  config.model.hidden = 4;
  config.model.heads = 1;
  config.model.seq_length = 2;
  config.model.ffn_hidden = 16;
  config.model.vocab = 8;
  config.schedule.microbatches = 1;
  RunRecord record = small_record();
  for (StepRow& row : record.steps) row.lr = 0.5;
  const Tolerance fp32 = derived_tolerance(config, record);
  EXPECT_DOUBLE_EQ(12 * 0x1p-24 * std::sqrt(62.0), fp32.loss);
  EXPECT_DOUBLE_EQ(12 * 0x1p-24 * std::sqrt(3 * 62.0 + 2.0), fp32.grad_norm);
  EXPECT_DOUBLE_EQ(2 * fp32.loss, fp32.at(fp32.loss, 1));
  EXPECT_NEAR(2 * (0.5 + 0.5) * 0.1 / std::sqrt(0.001), fp32.parameter, 1e-9);
  config.train.precision = Precision::kBf16;
  const Tolerance bf16 = derived_tolerance(config, record);
  EXPECT_DOUBLE_EQ(fp32.loss + 12 * 0x1p-8 * std::sqrt(15.0 / 2.0), bf16.loss);
  config.optimizer.rule = OptimizerRule::kSgd;
  EXPECT_EQ(0.0, derived_tolerance(config, record).parameter);
  for (const char* wrong : {"", "near", "0", "-1e-3", "nan", "inf"})
    EXPECT_FALSE(tolerance_from(wrong, config, record)) << wrong;
  EXPECT_DOUBLE_EQ(1e-5, tolerance_from("1e-5", config, record)->loss);
}

TEST(Calibrate, FindsTheCostsThatTheRecordWasMadeWith) {
  RunRecord record = small_record();
  EXPECT_EQ(0, join_messages(record));
  EXPECT_EQ(6'000, record.events[1].ready) << "both ends have begun when the receive has";
  RunConfig config;
  config.parallel.pp = 2;
  config.model.layers = 4;
  const Result<Calibration> fitted = calibrate(record, config);
  ASSERT_TRUE(fitted) << fitted.error().text();
  EXPECT_DOUBLE_EQ(2'000.0, fitted->forward_layer);
  EXPECT_DOUBLE_EQ(5'000.0, fitted->forward_head);
  EXPECT_DOUBLE_EQ(3'000.0, fitted->backward_layer);
  EXPECT_DOUBLE_EQ(7'000.0, fitted->backward_head);
  EXPECT_EQ(1'100, fitted->link.latency) << "one size of message: all of it is latency";
  config.parallel.pp = 4;
  EXPECT_EQ((std::vector<Nanoseconds>{2'000, 2'000, 2'000, 7'000}), fitted->time_of(config).forward);
}

// A record whose kernels know their computing time and shared cores goes through a file and a merge.
TEST(Record, CoresAndComputingTimeAreKept) {
  RunRecord record = small_record();
  record.cores = 2;
  record.ranks_a_machine = 2;
  for (RunEvent& event : record.events)
    if (event.label < 4) event.cpu = event.end - event.start - 100;
  record.pipeline_coordinate = {0, 1};
  record.replica = {0, 0};
  const Result<RunRecord> read = parse_record(serialize_record(record), "r");
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(2, read->cores);
  EXPECT_EQ(2, read->ranks_a_machine);
  EXPECT_EQ(record.events, read->events);
  RunRecord other = record;
  other.cores = 4;
  other.events.clear();
  const Result<RunRecord> merged = merge_records({record, other});
  ASSERT_TRUE(merged) << merged.error().text();
  EXPECT_EQ(2, merged->cores);
  other.cores = 0;
  EXPECT_FALSE(merge_records({record, other})) << "a part that does not know its cores";
}

}  // namespace
}  // namespace plumbline

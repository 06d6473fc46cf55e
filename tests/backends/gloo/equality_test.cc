// The same run on the simulator and over Gloo: losses, scales, norms and digests of every step are the same bits.
#include <mutex>
#include <optional>

#include "tests/backends/gloo/ranks.h"
#include "tests/engine/train/small_run.h"

namespace plumbline {
namespace {

using test::Layout;

// Everything that arithmetic decides; times are not.
void expect_same_numbers(const RunRecord& expected, const RunRecord& measured) {
  ASSERT_EQ(expected.steps.size(), measured.steps.size());
  for (std::size_t i = 0; i < expected.steps.size(); ++i) {
    StepRow row = measured.steps[i];
    row.begin = expected.steps[i].begin;
    row.end = expected.steps[i].end;
    EXPECT_EQ(expected.steps[i], row)
        << "step " << i << ": loss " << row.loss << " against " << expected.steps[i].loss;
  }
  EXPECT_EQ(expected.program_digest, measured.program_digest);
}

// Records of all ranks.
std::vector<RunRecord> run_over_gloo(const RunConfig& config, int exit_code) {
  std::vector<RunRecord> records(static_cast<std::size_t>(config.parallel.pp * config.parallel.dp));
  test::on_ranks(static_cast<int>(records.size()), [&](gloo::Transport& transport) {
    const std::unique_ptr<ControlChannel> channel = gloo::control_channel(transport);
    RankStatus status;
    Trainer::Options options;
    options.driver = gloo::driver(transport, status, 0);
    options.channel = channel.get();
    const std::unique_ptr<Trainer> trainer = test::make_trainer(config, std::move(options));
    ASSERT_NE(nullptr, trainer);
    const Result<TrainOutcome> outcome = trainer->run();
    ASSERT_TRUE(outcome) << outcome.error().text();
    EXPECT_EQ(exit_code, outcome->exit_code);
    records[static_cast<std::size_t>(transport.rank())] = trainer->record();
  });
  return records;
}

void expect_equal_runs(const RunConfig& config) {
  const std::unique_ptr<Trainer> simulated = test::make_trainer(config);
  ASSERT_NE(nullptr, simulated);
  const Result<TrainOutcome> outcome = simulated->run();
  ASSERT_TRUE(outcome) << outcome.error().text();
  const std::vector<RunRecord> records = run_over_gloo(config, outcome->exit_code);
  for (const RunRecord& record : records) expect_same_numbers(simulated->record(), record);
  // Operations of each rank: as many, and the same, in each communicator's order.
  const Result<RunRecord> merged = merge_records(records);
  ASSERT_TRUE(merged) << merged.error().text();
  EXPECT_EQ(simulated->record().events.size(), merged->events.size());
  EXPECT_EQ("gloo", merged->backend);
}

RunConfig short_config(const Layout& layout, Precision precision) {
  RunConfig config = test::small_config(layout, precision);
  config.model.layers = layout.pp * layout.vp * 2 > 8 ? 12 : 8;
  if (layout.pp == 3) config.model.layers = 6;
  config.train.iterations = 3;
  config.train.eval_iterations = 1;
  return config;
}

TEST(GlooEqualsSimulator, OneFOneB) {
  expect_equal_runs(short_config({ScheduleKind::kOneFOneB, 2, 1, 4, 1}, Precision::kFp32));
  expect_equal_runs(short_config({ScheduleKind::kOneFOneB, 3, 1, 4, 1}, Precision::kFp16));
  expect_equal_runs(short_config({ScheduleKind::kOneFOneB, 2, 1, 4, 2}, Precision::kBf16));
  expect_equal_runs(short_config({ScheduleKind::kOneFOneB, 4, 1, 4, 1}, Precision::kFp32));
}

TEST(GlooEqualsSimulator, Interleaved) {
  RunConfig plain = short_config({ScheduleKind::kInterleaved, 2, 2, 4, 1}, Precision::kFp32);
  plain.schedule.p2p = P2pStyle::kSeparate;
  expect_equal_runs(plain);
  RunConfig replicated = short_config({ScheduleKind::kInterleaved, 2, 2, 4, 2}, Precision::kFp16);
  replicated.schedule.p2p = P2pStyle::kSeparate;
  expect_equal_runs(replicated);
}

// Batched calls with pp = 2 and two chunks pair the wrong messages: both backends say so, and stop.
TEST(GlooEqualsSimulator, CrossedLabelsAreFound) {
  expect_equal_runs(short_config({ScheduleKind::kInterleaved, 2, 2, 4, 1}, Precision::kFp32));
}

TEST(GlooEqualsSimulator, GPipe) {
  expect_equal_runs(short_config({ScheduleKind::kGpipe, 2, 1, 4, 2}, Precision::kFp32));
  expect_equal_runs(short_config({ScheduleKind::kGpipe, 4, 1, 4, 1}, Precision::kBf16));
}

TEST(GlooEqualsSimulator, DistributedOptimizerWithOverlaps) {
  RunConfig config = short_config({ScheduleKind::kOneFOneB, 2, 1, 4, 2}, Precision::kBf16);
  config.optimizer.distributed = true;
  config.optimizer.overlap_grad_reduce = true;
  config.optimizer.overlap_param_gather = true;
  expect_equal_runs(config);
}

TEST(GlooEqualsSimulator, AnInjectedOverflowIsSkippedOnAllRanks) {
  RunConfig config = short_config({ScheduleKind::kOneFOneB, 2, 1, 4, 2}, Precision::kFp16);
  config.faults.overflow.push_back({1, 2});
  expect_equal_runs(config);
}

TEST(GlooEqualsSimulator, StrictHostOrderAndBlockingLaunches) {
  RunConfig config = short_config({ScheduleKind::kOneFOneB, 2, 1, 4, 1}, Precision::kFp32);
  config.sim.cross = CrossComm::kStrict;
  config.sim.launch_blocking = true;
  expect_equal_runs(config);
}

TEST(GlooEqualsSimulator, ToyContributionsArriveOnce) {
  RunConfig config = test::toy_config({ScheduleKind::kInterleaved, 2, 2, 4, 2}, Precision::kFp32);
  config.model.layers = 8;
  config.schedule.p2p = P2pStyle::kSeparate;
  config.train.iterations = 3;
  config.train.eval_iterations = 0;
  expect_equal_runs(config);
}

}  // namespace
}  // namespace plumbline

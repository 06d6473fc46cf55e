#include "engine/config/num_microbatches.h"

#include <limits>
#include <string>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/support/oracle.h"

namespace plumbline {
namespace {

using Json = nlohmann::json;
using Batch = NumMicrobatches::Batch;

NumMicrobatches::Shape shape_of(const Json& line) {
  return {line["micro_batch_size"].get<std::int64_t>(), line["data_parallel_size"].get<std::int64_t>()};
}

Result<NumMicrobatches> make(const Json& line) {
  if (line["kind"] == "constant") {
    return NumMicrobatches::constant(line["global_batch_size"].get<std::int64_t>(), shape_of(line),
                                     line["decrease"].get<bool>());
  }
  if (line["kind"] == "rampup_legacy") {
    return NumMicrobatches::ramp_up(line["global_batch_size"].get<std::int64_t>(),
                                    {line["start"].get<std::int64_t>(), line["increment"].get<std::int64_t>(),
                                     line["ramp_samples"].get<std::int64_t>()},
                                    shape_of(line), line["decrease"].get<bool>());
  }
  const std::int64_t seq = line["seq_length"].is_null() ? 0 : line["seq_length"].get<std::int64_t>();
  Result<NumMicrobatches::Steps> steps =
      NumMicrobatches::parse_steps(line["schedule"].get<std::string>(), seq);
  PL_TRY(steps);
  if (line.contains("parsed")) {
    EXPECT_EQ(Json(*steps), line["parsed"]) << line.dump();
  }
  return NumMicrobatches::steps(*steps, shape_of(line));
}

struct Seen {
  int refused = 0, rows = 0, refused_rows = 0, zero_rows = 0;
};

// One recorded [consumed, num, current(, running)], or [consumed, "error:..."].
void compare(const NumMicrobatches& made, const Json& row, bool check, Seen& seen, const Json& line) {
  const Result<Batch> batch = made.at(row[0].get<std::int64_t>(), check);
  ++seen.rows;
  if (row[1].is_string()) {
    ++seen.refused_rows;
    EXPECT_FALSE(batch) << row.dump() << " of " << line.dump();
  } else if (row[1] == 0) {  // the departure: a step without a microbatch is refused
    ++seen.zero_rows;
    EXPECT_FALSE(batch) << row.dump() << " of " << line.dump();
  } else {
    ASSERT_TRUE(batch) << batch.error().text() << " at " << row.dump() << " of " << line.dump();
    EXPECT_EQ(batch->num_microbatches, row[1].get<std::int64_t>()) << row.dump() << " of " << line.dump();
    EXPECT_EQ(batch->current, row[2].get<std::int64_t>()) << row.dump() << " of " << line.dump();
    EXPECT_EQ(batch->running, row[row.size() > 3 ? 3 : 2].get<std::int64_t>()) << row.dump();
  }
}

TEST(NumMicrobatches, EqualsMegatronOnEveryRecordedLine) {
  Seen seen;
  const auto replay = [&](const Json& line) {
    const Result<NumMicrobatches> made = make(line);
    if (line.contains("error")) {
      ++seen.refused;
      EXPECT_FALSE(made) << line.dump();
      return;
    }
    ASSERT_TRUE(made) << made.error().text() << " for " << line.dump();
    if (line["kind"] == "constant") {
      compare(*made, Json::array({0, line["num_micro"], line["current"], line["running"]}), true, seen, line);
      return;
    }
    if (line.contains("init")) {  // upstream's first value is computed without the check
      Json init = line["init"];
      init.insert(init.begin(), 0);
      compare(*made, init, false, seen, line);
    }
    for (const Json& row : line["rows"])
      compare(*made, row, line["consistency_check"].get<bool>(), seen, line);
  };
  EXPECT_EQ(test::for_each_line("oracles/megatron/num_microbatches.jsonl.gz", replay), 732);
  EXPECT_EQ(seen.refused, 279);
  EXPECT_EQ(seen.rows, 5631);
  EXPECT_EQ(seen.refused_rows, 68);
  EXPECT_EQ(seen.zero_rows, 85);
}

TEST(NumMicrobatches, MessagesSayTheRule) {
  const auto made = NumMicrobatches::steps({{0, 16}, {100, 30}}, {4, 2});
  ASSERT_TRUE(made);
  EXPECT_EQ(
      made->at(100).error().text(),
      "the global batch of 30 after 100 samples must be a multiple of micro batch size 4 * data-parallel "
      "size 2; change one of them");
  EXPECT_EQ(made->at(100, false)->num_microbatches, 3);
  EXPECT_EQ(
      NumMicrobatches::steps({{0, 4}}, {4, 2})->at(7, false).error().text(),
      "the global batch of 4 after 7 samples must be at least micro batch size 4 * data-parallel size 2; "
      "change one of them");
  EXPECT_EQ(
      NumMicrobatches::ramp_up(32, {32, 8, 100}, {1, 1}, false).error().text(),
      "the batch ramps up from 32 by 8 to 32; the way must be a whole number of increments, at least one");
  EXPECT_EQ(NumMicrobatches::steps({{0, 8}, {10, 16}, {10, 32}}, {1, 1}).error().text(),
            "threshold 10 of the batch schedule follows 10; thresholds (in samples) must grow");
  EXPECT_FALSE(made->at(-1));
  EXPECT_FALSE(NumMicrobatches::constant(0, {1, 1}, true));
  EXPECT_FALSE(NumMicrobatches::constant(8, {0, 1}, false));
  EXPECT_FALSE(NumMicrobatches::constant(8, {std::int64_t{1} << 40, std::int64_t{1} << 40}, false));
}

TEST(NumMicrobatches, ThresholdsAreReadExactly) {
  const auto first = [](const char* text, std::int64_t seq = 0) -> std::int64_t {
    const auto steps = NumMicrobatches::parse_steps(text, seq);
    return steps ? steps->front().first : -1;
  };
  EXPECT_EQ(first("1.001K:1"), 1001);  // 1000.9999999999999 as a product of doubles
  EXPECT_EQ(first("2.50k:1"), 2500);
  EXPECT_EQ(first("3B:1"), 3'000'000'000);
  EXPECT_EQ(first("0.5T:1"), 500'000'000'000);
  EXPECT_EQ(first("7.0:1"), 7);
  EXPECT_EQ(first("1M:1", 1024), 976);
  for (const char* bad : {"1.5:1", "K:1", ".5K:1", "1.0005K:1", "-1:1", "1e3:1", "1KK:1", ":1", "1:", "1", "",
                          ",", "1:x", "99999999T:1", "1 :2"}) {
    EXPECT_EQ(first(bad), -1) << bad;
  }
}

// Public report L21: a samples-based scheduler must count the ramp-up's smaller batches.
TEST(NumMicrobatches, ReportL21RampUpShortensTheDecayInSamples) {
  const auto made = NumMicrobatches::ramp_up(16, {8, 8, 160}, {1, 1}, false);
  ASSERT_TRUE(made);
  EXPECT_EQ(made->samples_for(100).value(), 1440);  // not 1600
  EXPECT_EQ(made->samples_for(10).value(), 80);     // not 160
  EXPECT_EQ(made->iterations_for(1440).value(), 100);
  const auto plan = made->plan(0, 100);
  ASSERT_TRUE(plan);
  EXPECT_EQ(*plan, (NumMicrobatches::Plan{{0, {8, 8, 8}}, {20, {16, 16, 16}}}));
  // Resumed in the middle of the ramp.
  EXPECT_EQ(made->plan(80, 90).value(), (NumMicrobatches::Plan{{0, {8, 8, 8}}, {10, {16, 16, 16}}}));
}

TEST(NumMicrobatches, PlanHasAnEntryForEveryStretch) {
  const auto made = NumMicrobatches::steps({{0, 16}, {40, 32}, {100, 16}}, {4, 2});
  ASSERT_TRUE(made);
  EXPECT_EQ(made->plan(0, 8).value(),
            (NumMicrobatches::Plan{{0, {2, 16, 16}}, {3, {4, 32, 32}}, {5, {2, 16, 16}}}));
  EXPECT_EQ(made->plan(0, 3).value(), (NumMicrobatches::Plan{{0, {2, 16, 16}}}));
  EXPECT_TRUE(made->plan(0, 0)->empty());
  EXPECT_EQ(made->samples_for(8).value(), 3 * 16 + 2 * 32 + 3 * 16);
  EXPECT_EQ(made->iterations_for(47).value(), 2);
  EXPECT_EQ(made->iterations_for(0).value(), 0);
}

TEST(NumMicrobatches, PlanRefusesOnlyWhatTheRunReaches) {
  const auto made = NumMicrobatches::steps({{0, 16}, {32, 20}}, {4, 2});
  ASSERT_TRUE(made);
  EXPECT_TRUE(made->plan(0, 2));
  EXPECT_FALSE(made->plan(0, 3));
  EXPECT_FALSE(made->iterations_for(100));
  const auto huge = NumMicrobatches::constant(std::int64_t{1} << 60, {1, 1}, false);
  EXPECT_FALSE(huge->plan(0, 100));
  EXPECT_EQ(huge->iterations_for((std::int64_t{1} << 62) + 5).value(), 4);
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  const auto endless = NumMicrobatches::ramp_up(16, {8, 8, kMax}, {1, 1}, false);
  EXPECT_EQ(endless->plan(0, 1000).value(), (NumMicrobatches::Plan{{0, {8, 8, 8}}}));
  EXPECT_GT(endless->iterations_for(kMax).value(), kMax / 9);  // the ramp rounds up to its end in double
}

NumMicrobatches random_schedule() {
  using rc::gen::inRange;
  const NumMicrobatches::Shape shape{*inRange(1, 5), *inRange(1, 5)};
  const std::int64_t unit = shape.micro_batch_size * shape.data_parallel_size;
  const bool decrease = *rc::gen::arbitrary<bool>();
  const std::int64_t grain = decrease ? 1 : unit;  // without decreasing, every batch has to be a multiple
  switch (*inRange(0, 3)) {
    case 0:
      return NumMicrobatches::constant(unit + grain * *inRange(0, 20), shape, decrease).value();
    case 1: {
      const std::int64_t start = unit + grain * *inRange(0, 8), step = grain * *inRange(1, 5);
      return NumMicrobatches::ramp_up(start + step * *inRange(1, 9), {start, step, *inRange(1, 400)}, shape,
                                      decrease)
          .value();
    }
    default: {
      NumMicrobatches::Steps steps{{0, unit}};
      for (int more = *inRange(0, 4); more > 0; --more)
        steps.emplace_back(steps.back().first + *inRange(1, 60), unit * *inRange(1, 9));
      return NumMicrobatches::steps(steps, shape).value();
    }
  }
}

RC_GTEST_PROP(NumMicrobatches, PlansAreTheRunStepByStep, ()) {
  const NumMicrobatches made = random_schedule();
  const std::int64_t begin = *rc::gen::inRange(0, 500), iterations = *rc::gen::inRange(0, 60);
  const NumMicrobatches::Plan plan = made.plan(begin, iterations).value();
  std::int64_t consumed = begin;
  std::size_t entry = 0;
  for (std::int64_t i = 0; i < iterations; ++i) {
    if (entry < plan.size() && plan[entry].first == i) ++entry;
    RC_ASSERT(entry > 0u);
    const Batch batch = made.at(consumed).value();
    RC_ASSERT(batch == plan[entry - 1].second);
    consumed += batch.running;
  }
  RC_ASSERT(entry == plan.size());
  if (begin == 0) RC_ASSERT(made.samples_for(iterations).value() == consumed);
  // iterations_for is the inverse: exactly there, one less just below.
  const std::int64_t samples = made.samples_for(iterations).value();
  RC_ASSERT(made.iterations_for(samples).value() == iterations);
  if (iterations > 0) RC_ASSERT(made.iterations_for(samples - 1).value() == iterations - 1);
}

}  // namespace
}  // namespace plumbline

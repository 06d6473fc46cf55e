// Runs whose stages compute in LibTorch's arithmetic against runs in the engine's: apart by what tolerance.h derives,
// and not further. This is the arithmetic of a device, and the bound that a device's runs are held to.
#include "engine/model/arithmetic.h"

#include <cmath>

#include <gtest/gtest.h>

#include "engine/runtime/record_diff.h"
#include "engine/runtime/tolerance.h"
#include "tests/engine/train/small_run.h"

namespace plumbline {
namespace {

using test::Layout;

RunRecord record_of(const RunConfig& config, bool libtorch) {
  use_libtorch_arithmetic(libtorch);
  const std::unique_ptr<Trainer> trainer = test::make_trainer(config);
  const Result<TrainOutcome> outcome = trainer->run();
  use_libtorch_arithmetic(false);
  EXPECT_TRUE(outcome && outcome->exit_code == 0);
  return std::move(trainer->record());
}

class ArithmeticRuns : public testing::TestWithParam<Precision> {};

TEST_P(ArithmeticRuns, AreApartByTheDerivedToleranceAtMost) {
  for (const Layout& layout : std::vector<Layout>{{ScheduleKind::kOneFOneB, 2, 1, 4, 1},
                                                  {ScheduleKind::kInterleaved, 2, 2, 4, 1},
                                                  {ScheduleKind::kGenerator, 2, 1, 4, 1}}) {
    RunConfig config = test::small_config(layout, GetParam());
    config.train.iterations = 8;
    if (layout.kind == ScheduleKind::kGenerator) config.schedule.generator = "zb-h1";
    if (layout.vp > 1) config.schedule.p2p = P2pStyle::kSeparate;
    SCOPED_TRACE(layout.name());
    const RunRecord engine = record_of(config, false), libtorch = record_of(config, true);
    const Tolerance tolerance = derived_tolerance(config, engine);
    const RecordDiff diff = diff_records(engine, libtorch, tolerance);
    EXPECT_TRUE(diff.numbers_hold()) << tolerance.why;
    double most = 0.0;
    const std::vector<StepRow> a = test::training_rows(engine), b = test::training_rows(libtorch);
    for (std::size_t i = 0; i < a.size(); ++i) {
      const double apart = std::abs(a[i].loss - b[i].loss) / std::abs(a[i].loss);
      most = std::max(most, apart / tolerance.at(tolerance.loss, static_cast<int>(i)));
      EXPECT_EQ(a[i].skipped, b[i].skipped);
    }
    EXPECT_GT(most, 0.0) << "another arithmetic has other bits";
    RecordProperty("share_of_the_tolerance", std::to_string(most));
  }
}
INSTANTIATE_TEST_SUITE_P(Train, ArithmeticRuns,
                         testing::Values(Precision::kFp32, Precision::kFp16, Precision::kBf16));

}  // namespace
}  // namespace plumbline

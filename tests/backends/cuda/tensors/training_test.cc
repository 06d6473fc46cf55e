// Training with the real workers, LibTorch on the CPU, on CUDA streams of the doubles: the numbers of every step must
// be the simulator's, bit for bit.
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "backends/cuda/tensors/step_driver.h"
#include "tests/backends/cuda/doubles.h"
#include "tests/engine/train/small_run.h"

namespace plumbline::cuda {
namespace {

using test::Layout;

class SteppingClock final : public HostClock {
 public:
  explicit SteppingClock(const Doubles& on) : on_(on) {}
  Nanoseconds now() override { return on_.now() + waited_; }
  void idle() override {
    if (on_.step() == 0) waited_ += 1000000000;
  }

 private:
  const Doubles& on_;
  Nanoseconds waited_ = 0;
};

std::vector<StepRow> trained(const RunConfig& config, Trainer::Options options) {
  const std::unique_ptr<Trainer> trainer = test::make_trainer(config, std::move(options));
  if (trainer == nullptr) return {};
  const Result<TrainOutcome> outcome = trainer->run();
  EXPECT_TRUE(outcome) << outcome.error().text();
  if (outcome) {
    EXPECT_EQ(outcome->exit_code, 0);
    EXPECT_TRUE(outcome->toy.empty());
  }
  std::vector<StepRow> rows = trainer->record().steps;
  for (StepRow& row : rows) row.begin = row.end = 0;  // the one thing that differs
  return rows;
}

void expect_equal_training(const RunConfig& config, Level level) {
  const std::vector<StepRow> sim = trained(config, {});
  const Doubles& on = doubles(config.parallel.pp * config.parallel.dp);
  const std::string file = PLUMBLINE_DOUBLES;
  CudaRunOptions run;
  run.level = level;
  run.libraries = {.cudart = file, .driver = file, .nccl = file, .nvtx = file};
  run.timeout = 1000000000;
  run.make_clock = [&on](const Libraries&) { return std::make_unique<SteppingClock>(on); };
  Result<DriverFactory> factory = driver(run);
  ASSERT_TRUE(factory) << factory.error().text();
  Trainer::Options options;
  options.driver = std::move(*factory);
  const std::vector<StepRow> cuda = trained(config, std::move(options));
  ASSERT_EQ(sim.size(), cuda.size());
  ASSERT_FALSE(sim.empty());
  for (std::size_t i = 0; i < sim.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(sim[i].loss, cuda[i].loss);
    EXPECT_EQ(sim[i].grad_norm, cuda[i].grad_norm);
    EXPECT_EQ(sim[i].scale_after, cuda[i].scale_after);
    EXPECT_EQ(sim[i].skipped, cuda[i].skipped);
    EXPECT_EQ(sim[i].params_digest, cuda[i].params_digest);
    EXPECT_EQ(sim[i].optimizer_digest, cuda[i].optimizer_digest);
  }
}

TEST(CudaTraining, GivesTheSimulatorsNumbers) {
  for (const Layout& layout : std::vector<Layout>{{ScheduleKind::kOneFOneB, 2, 1, 4, 2},
                                                  {ScheduleKind::kInterleaved, 2, 2, 4, 1},
                                                  {ScheduleKind::kGpipe, 2, 1, 3, 1}}) {
    for (const Precision precision : {Precision::kFp32, Precision::kFp16, Precision::kBf16}) {
      SCOPED_TRACE(layout.name());
      RunConfig config = test::small_config(layout, precision);
      config.train.iterations = 2;
      expect_equal_training(config, Level::kNccl);
    }
  }
}

TEST(CudaTraining, GivesTheSimulatorsNumbersInLoopback) {
  const Layout layout{ScheduleKind::kOneFOneB, 2, 1, 4, 2};
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    RunConfig config = test::small_config(layout, precision);
    config.train.iterations = 2;
    expect_equal_training(config, Level::kLoopback);
  }
  RunConfig toy = test::toy_config({ScheduleKind::kInterleaved, 2, 2, 4, 1}, Precision::kFp16);
  toy.train.iterations = 3;
  expect_equal_training(toy, Level::kLoopback);
}

// A gradient that is made infinite skips the step on both sides.
TEST(CudaTraining, AgreesOnAnOverflow) {
  RunConfig config = test::small_config({ScheduleKind::kOneFOneB, 2, 1, 4, 1}, Precision::kFp16);
  config.train.iterations = 3;
  config.loss_scale.initial = 4294967296.0;
  expect_equal_training(config, Level::kNccl);
}

}  // namespace
}  // namespace plumbline::cuda

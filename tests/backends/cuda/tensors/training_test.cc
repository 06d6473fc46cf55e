// Training with the real workers, LibTorch on the CPU, on CUDA streams of the doubles: the numbers of every step must
// be the simulator's, bit for bit.
#include <algorithm>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "engine/model/arithmetic.h"
#include "tests/backends/cuda/tensors/on_doubles.h"
#include "tests/engine/train/small_run.h"

namespace plumbline::cuda {
namespace {

using test::Layout;

struct Trained {
  std::vector<StepRow> rows;
  int exit_code = -1;
};

Trained trained(const RunConfig& config, Trainer::Options options) {
  const std::unique_ptr<Trainer> trainer = test::make_trainer(config, std::move(options));
  if (trainer == nullptr) return {};
  const Result<TrainOutcome> outcome = trainer->run();
  EXPECT_TRUE(outcome) << outcome.error().text();
  if (outcome) {
    EXPECT_TRUE(outcome->toy.empty());
  }
  return {trainer->record().steps, outcome ? outcome->exit_code : -1};
}

void expect_equal_rows(const std::vector<StepRow>& sim, const std::vector<StepRow>& cuda) {
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

void expect_equal_training(const RunConfig& config, Level level, int exit_code = 0) {
  const auto [sim, sim_code] = trained(config, {});
  EXPECT_EQ(sim_code, exit_code);
  Trainer::Options options;
  options.driver = driver_on_doubles(config, level);
  const auto [cuda, cuda_code] = trained(config, std::move(options));
  EXPECT_EQ(cuda_code, exit_code);
  expect_equal_rows(sim, cuda);
}

// Stages with a place of their own, for which the doubles have the CPU: LibTorch's arithmetic, parameters and gradients
// in managed memory, no memory for stashes. The simulator's stages in host memory, with the same arithmetic.
void expect_equal_on_device(const RunConfig& config, Level level) {
  use_libtorch_arithmetic(true);
  const std::vector<StepRow> sim = trained(config, {}).rows;
  CudaRunOptions run = run_on_doubles(config, level);
  Trainer::Options options;
  auto place = compute_on_device(run, nullptr);
  ASSERT_TRUE(place) << place.error().text();
  options.place = std::move(*place);
  options.driver = driver_of(run);
  const std::vector<StepRow> cuda = trained(config, std::move(options)).rows;
  use_libtorch_arithmetic(false);
  expect_equal_rows(sim, cuda);
}

TEST(CudaTraining, GivesTheSimulatorsNumbers) {
  for (const Layout& layout : std::vector<Layout>{{ScheduleKind::kOneFOneB, 2, 1, 4, 2},
                                                  {ScheduleKind::kInterleaved, 4, 2, 4, 1},
                                                  {ScheduleKind::kGpipe, 2, 1, 3, 1}}) {
    for (const Precision precision : {Precision::kFp32, Precision::kFp16, Precision::kBf16}) {
      SCOPED_TRACE(layout.name());
      RunConfig config = test::small_config(layout, precision);
      config.train.iterations = 2;
      expect_equal_training(config, Level::kNccl);
    }
  }
}

class OneDevice : public testing::TestWithParam<Level> {};

TEST_P(OneDevice, GivesTheSimulatorsNumbers) {
  const Layout layout{ScheduleKind::kOneFOneB, 2, 1, 4, 2};
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    RunConfig config = test::small_config(layout, precision);
    config.train.iterations = 2;
    expect_equal_training(config, GetParam());
  }
  RunConfig toy = test::toy_config({ScheduleKind::kInterleaved, 4, 2, 4, 1}, Precision::kFp16);
  toy.train.iterations = 3;
  expect_equal_training(toy, GetParam());
}
INSTANTIATE_TEST_SUITE_P(CudaTraining, OneDevice, testing::Values(Level::kLoopback, Level::kSelfSend),
                         [](const auto& level) {
                           return level.param == Level::kLoopback ? "Loopback" : "SelfSend";
                         });

TEST(CudaTraining, StagesOnADeviceGiveTheSimulatorsNumbers) {
  for (const Layout& layout : std::vector<Layout>{{ScheduleKind::kOneFOneB, 2, 1, 4, 2},
                                                  {ScheduleKind::kInterleaved, 4, 2, 4, 1},
                                                  {ScheduleKind::kGenerator, 2, 1, 4, 1},
                                                  {ScheduleKind::kGpipe, 2, 1, 3, 1}}) {
    for (const Precision precision : {Precision::kFp32, Precision::kFp16, Precision::kBf16}) {
      SCOPED_TRACE(layout.name());
      RunConfig config = test::small_config(layout, precision);
      config.train.iterations = 2;
      if (layout.kind == ScheduleKind::kGenerator) config.schedule.generator = "zb-h1";
      expect_equal_on_device(config, Level::kNccl);
    }
  }
}

TEST(CudaTraining, StagesOnADeviceTakeWhatTheOptimizerDoes) {
  RunConfig config = test::small_config({ScheduleKind::kOneFOneB, 2, 1, 4, 2}, Precision::kBf16);
  config.train.iterations = 3;
  config.optimizer.distributed = true;  // parameters in slots
  expect_equal_on_device(config, Level::kNccl);
  config.optimizer.overlap_grad_reduce = config.optimizer.overlap_param_gather = true;
  expect_equal_on_device(config, Level::kNccl);
  config.optimizer.distributed = config.optimizer.overlap_param_gather = false;
  config.optimizer.overlap_grad_reduce = false;
  config.memory.recompute = Recompute::kFull;
  expect_equal_on_device(config, Level::kLoopback);
  config.memory.recompute = Recompute::kSelective;
  expect_equal_on_device(config, Level::kSelfSend);
}

// A device whose work is done when it is enqueued, as far as its stream has got: what is before it on the stream must
// be there, so that only Programs in which no rank waits for one that is enqueued later can run on it.
class PromptDevice final : public TensorDevice {
 public:
  struct Calls {
    int entered = 0, reserved = 0, synchronized = 0;
    Bytes bytes = 0;
  };
  PromptDevice(const Doubles& on, Calls& calls) : on_(on), calls_(calls) {}
  at::Device device() const override { return at::kCPU; }
  std::shared_ptr<void> enter(StreamHandle stream) override {
    ++calls_.entered;
    while (on_.libraries->cuda.cudaStreamQuery(stream) != kCudaSuccess) {
      if (on_.step() == 0) break;
    }
    EXPECT_EQ(kCudaSuccess, on_.libraries->cuda.cudaStreamQuery(stream));
    return nullptr;
  }
  Status reserve(Bytes bytes) override {
    ++calls_.reserved;
    calls_.bytes = std::max(calls_.bytes, bytes);
    return {};
  }
  Status synchronize(StreamHandle /*stream*/) override {
    ++calls_.synchronized;
    return {};
  }

 private:
  const Doubles& on_;
  Calls& calls_;
};

// The path of a real device: stages are launched where they are enqueued, everything else from its stream; what is
// needed later is reserved, and each stage runs once, before the first step.
TEST(CudaTraining, StagesThatAreEnqueuedGiveTheSimulatorsNumbers) {
  for (const Layout& layout : std::vector<Layout>{{ScheduleKind::kOneFOneB, 1, 1, 4, 2},
                                                  {ScheduleKind::kGpipe, 1, 1, 3, 1},
                                                  {ScheduleKind::kForwardOnly, 2, 1, 4, 2}}) {
    SCOPED_TRACE(layout.name());
    RunConfig config = test::small_config(layout, Precision::kFp16);
    config.train.iterations = 3;
    use_libtorch_arithmetic(true);
    const std::vector<StepRow> sim = trained(config, {}).rows;
    CudaRunOptions run = run_on_doubles(config, Level::kNccl);
    Trainer::Options options;
    auto place = compute_on_device(run, nullptr);
    ASSERT_TRUE(place) << place.error().text();
    const Doubles& on = doubles(config.parallel.pp * config.parallel.dp);
    PromptDevice::Calls calls;
    run.make_kernels = [&](const Libraries& loaded, Rank, Worker& worker) {
      return std::make_unique<DeviceKernels>(loaded, dynamic_cast<StageWorker&>(worker),
                                             std::make_unique<PromptDevice>(on, calls));
    };
    options.place = std::move(*place);
    options.driver = driver_of(run);
    const std::vector<StepRow> cuda = trained(config, std::move(options)).rows;
    use_libtorch_arithmetic(false);
    expect_equal_rows(sim, cuda);
    const int ranks = config.parallel.pp * config.parallel.dp;
    EXPECT_EQ(calls.reserved, ranks) << "once a rank: an evaluation needs no more";
    EXPECT_EQ(calls.synchronized, ranks);
    const bool stashes = layout.kind != ScheduleKind::kForwardOnly;
    EXPECT_EQ(stashes, calls.bytes > 0) << "what stashes stand for";
  }
}

// Batched calls with pp = 2 and two chunks pair the wrong messages. The bytes arrive; that they are others' is said.
TEST(CudaTraining, FindsCrossedLabels) {
  RunConfig config = test::small_config({ScheduleKind::kInterleaved, 2, 2, 4, 1}, Precision::kFp32);
  config.train.iterations = 2;
  expect_equal_training(config, Level::kNccl, 4);
}

// NCCL and several ranks on one device: only where NCCL can, and has been told to (N71).
TEST(CudaLevel, RanksShareADeviceInNcclOnlyIfItIsToldTo) {
  static_cast<void>(doubles(2));
  const std::string file = PLUMBLINE_DOUBLES;
  const LibraryPaths paths{.cudart = file, .driver = file, .nccl = file, .nvtx = file};
  ASSERT_TRUE(level_for(2, std::nullopt, paths));
  EXPECT_EQ(Level::kNccl, level_for(2, std::nullopt, paths)->level);
  EXPECT_EQ(Level::kLoopback, level_for(4, std::nullopt, paths)->level);
  ::setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
  const Result<Placement> old = level_for(4, Level::kNccl, paths);
  ASSERT_FALSE(old);
  EXPECT_NE(std::string::npos, old.error().message.find("this is NCCL 2.28.9")) << old.error().message;
  ::setenv("PLUMBLINE_DOUBLE_NCCL", "23007", 1);
  const Result<Placement> shared = level_for(4, Level::kNccl, paths);
  ASSERT_TRUE(shared) << shared.error().text();
  EXPECT_EQ(Level::kShared, shared->level);
  EXPECT_EQ(2, shared->devices);
  EXPECT_EQ(Level::kNccl, level_for(2, Level::kNccl, paths)->level) << "there is one for each";
  ::unsetenv("NCCL_MULTI_RANK_GPU_ENABLE");
  EXPECT_FALSE(level_for(4, Level::kNccl, paths));
  ::unsetenv("PLUMBLINE_DOUBLE_NCCL");
}

// A loss scale that no gradient survives: every step is skipped, on both sides, and the run says so.
TEST(CudaTraining, AgreesOnAnOverflow) {
  RunConfig config = test::small_config({ScheduleKind::kOneFOneB, 2, 1, 4, 1}, Precision::kFp16);
  config.train.iterations = 3;
  config.loss_scale.initial = 4294967296.0;
  expect_equal_training(config, Level::kNccl, 1);
}

}  // namespace
}  // namespace plumbline::cuda

// Training with stages on a device, several ranks on it by loopback, against the simulator with stages on the host:
// every cell of schedule x pipeline x replicas x precision. Order must be the same, numbers within the derived
// tolerance. In CI the doubles stand for the device; with PLUMBLINE_GPU=1 (./dev gpu-test) it is the first GPU, and
// each run's record is written to $PLUMBLINE_GPU_OUT.
#include <cmath>
#include <cstdlib>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine/model/arithmetic.h"
#include "engine/runtime/record_diff.h"
#include "tests/backends/cuda/tensors/on_doubles.h"
#include "tests/engine/train/small_run.h"
#ifdef PLUMBLINE_HAVE_CUDA_TENSORS
#include "backends/cuda/tensors/device/tensor_device.h"
#endif

namespace plumbline::cuda {
namespace {

using test::Layout;

bool on_gpu() { return std::getenv("PLUMBLINE_GPU") != nullptr; }

TensorDeviceMaker maker() {
#ifdef PLUMBLINE_HAVE_CUDA_TENSORS
  if (on_gpu()) return tensor_device;
#endif
  return nullptr;
}

CudaRunOptions run_on_device(const RunConfig& config) {
  if (!on_gpu()) return run_on_doubles(config, Level::kLoopback);
#ifdef PLUMBLINE_HAVE_CUDA_TENSORS
  set_up_device_tensors();
#endif
  CudaRunOptions run;
  run.level = Level::kLoopback;
  run.timeout = Nanoseconds{60} * 1000000000;
  return run;
}

RunRecord record_of(const RunConfig& config, Trainer::Options options, int exit_code = 0) {
  const std::unique_ptr<Trainer> trainer = test::make_trainer(config, std::move(options));
  if (trainer == nullptr) return {};
  const Result<TrainOutcome> outcome = trainer->run();
  EXPECT_TRUE(outcome) << outcome.error().text();
  if (outcome) {
    EXPECT_EQ(exit_code, outcome->exit_code);
  }
  return std::move(trainer->record());
}

RunRecord on_device(const RunConfig& config) {
  use_libtorch_arithmetic(true);
  CudaRunOptions run = run_on_device(config);
  Trainer::Options options;
  auto place = compute_on_device(run, maker());
  EXPECT_TRUE(place) << place.error().text();
  if (!place) return {};
  options.place = std::move(*place);
  options.driver = driver_of(run);
  RunRecord record = record_of(config, std::move(options));
  use_libtorch_arithmetic(false);
  return record;
}

void keep(const RunRecord& record, const std::string& name) {
  const char* folder = std::getenv("PLUMBLINE_GPU_OUT");
  if (folder == nullptr) return;
  Result<RecordWriter> writer = RecordWriter::create(fmt::format("{}/{}.plmb", folder, name), record);
  ASSERT_TRUE(writer) << writer.error().text();
  EXPECT_TRUE(writer->append(record));
  EXPECT_TRUE(writer->finish(record));
}

std::string text_of(const RecordDiff& diff) {
  std::string out = diff.tolerance.why;
  for (const NumberDiff& number : diff.numbers)
    out += fmt::format("\n  {}: {} of {} within {:.2g}, at most {:.2g} apart", number.what, number.within,
                       number.steps, number.limit, number.largest);
  for (const OrderDiff& order : diff.orders)
    out += fmt::format("\n  rank {}, {}: at {}: '{}' against '{}'", order.rank, order.stream, order.first,
                       order.a, order.b);
  return out;
}

const char* name_of(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::kOneFOneB:
      return "1f1b";
    case ScheduleKind::kInterleaved:
      return "interleaved";
    case ScheduleKind::kGpipe:
      return "gpipe";
    default:
      return "forward-only";
  }
}

struct Size {
  int pp, dp;
};

class DeviceRuns : public ::testing::TestWithParam<Size> {};

TEST_P(DeviceRuns, AreTheSimulatorsWithinTheDerivedTolerance) {
  const auto [pp, dp] = GetParam();
  for (const ScheduleKind kind : {ScheduleKind::kOneFOneB, ScheduleKind::kInterleaved, ScheduleKind::kGpipe,
                                  ScheduleKind::kForwardOnly}) {
    for (const Precision precision : {Precision::kFp32, Precision::kFp16, Precision::kBf16}) {
      const bool interleaved = kind == ScheduleKind::kInterleaved;
      RunConfig config = test::small_config({kind, pp, interleaved ? 2 : 1, pp == 2 ? 2 : 4, dp}, precision);
      if (interleaved) {
        config.schedule.microbatches = pp;
        config.schedule.p2p = P2pStyle::kSeparate;
      }
      config.model.layers = interleaved ? 2 * pp : pp;
      config.train.iterations = 2;
      config.train.eval_iterations = kind == ScheduleKind::kForwardOnly ? 1 : 0;
      const std::string name =
          fmt::format("{}-pp{}dp{}-{}", name_of(kind), pp, dp, static_cast<int>(precision));
      SCOPED_TRACE(name);
      const RunRecord host = record_of(config, {});
      const RunRecord device = on_device(config);
      ASSERT_FALSE(host.steps.empty());
      const RecordDiff diff = diff_records(host, device, derived_tolerance(config, host));
      EXPECT_TRUE(diff.header.empty()) << diff.header.front();
      EXPECT_TRUE(diff.numbers_hold()) << text_of(diff);
      EXPECT_TRUE(diff.same_order()) << text_of(diff);
      EXPECT_GT(diff.same_orders, 0);
      keep(host, name + "-sim");
      keep(device, name);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Cells, DeviceRuns,
                         ::testing::Values(Size{2, 1}, Size{2, 2}, Size{3, 1}, Size{4, 1}, Size{4, 2}),
                         [](const auto& size) {
                           return fmt::format("pp{}dp{}", size.param.pp, size.param.dp);
                         });

// An overflow is found in gradients that the device made, by all ranks, and the step is skipped as in the simulator.
TEST(DeviceRuns, SkipTheStepsThatTheSimulatorSkips) {
  RunConfig config = test::small_config({ScheduleKind::kOneFOneB, 2, 1, 4, 1}, Precision::kFp16);
  config.train.iterations = 6;
  config.train.eval_iterations = 0;
  config.faults.overflow.push_back({1, 3});
  const RunRecord host = record_of(config, {});
  const RunRecord device = on_device(config);
  ASSERT_EQ(host.steps.size(), device.steps.size());
  int skipped = 0;
  for (std::size_t i = 0; i < host.steps.size(); ++i) {
    EXPECT_EQ(host.steps[i].skipped, device.steps[i].skipped) << i;
    EXPECT_EQ(host.steps[i].scale_after, device.steps[i].scale_after) << i;
    skipped += host.steps[i].skipped ? 1 : 0;
  }
  EXPECT_EQ(1, skipped);
}

// A model of a size at which a device is busy: for its times, and that training gets somewhere. GPU only.
TEST(DeviceRuns, TrainAModelThatKeepsAGpuBusy) {
  if (!on_gpu()) GTEST_SKIP() << "for a GPU";
  for (const int pp : {2, 4}) {
    RunConfig config = test::small_config({ScheduleKind::kOneFOneB, pp, 1, 8, 1}, Precision::kBf16);
    config.model.hidden = 1024;
    config.model.heads = 16;
    config.model.seq_length = 512;
    config.model.init_std = 0.02;
    config.train.micro_batch_size = 4;
    config.train.iterations = 10;
    config.train.eval_iterations = 0;
    config.optimizer.lr = 3e-4;
    const RunRecord device = on_device(config);
    ASSERT_EQ(10u, device.steps.size());
    EXPECT_LT(device.steps.back().loss, device.steps.front().loss);
    keep(device, fmt::format("busy-pp{}", pp));
  }
}

}  // namespace
}  // namespace plumbline::cuda

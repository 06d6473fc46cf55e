// Calibration on shared cores against a run whose costs are known, because the simulator made it.
#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "engine/config/validate.h"
#include "engine/program/lower.h"
#include "engine/runtime/calibrate.h"
#include "sim/run.h"

namespace plumbline {
namespace {

constexpr int kLayers = 12;

// The truth: 2 ms and 4 ms a layer, a head of 3 and 5 ms, two cores whose neighbours cost a fifth.
RunConfig truth(ScheduleKind kind, int pp, int vp, int microbatches) {
  RunConfig config;
  config.schedule.kind = kind;
  config.schedule.chunks = vp;
  config.schedule.p2p = vp > 1 ? P2pStyle::kSeparate : P2pStyle::kBatched;
  config.parallel.pp = pp;
  config.schedule.microbatches = microbatches;
  config.model.layers = kLayers;
  config = validate(config).value();
  const auto stages = static_cast<std::size_t>(config.stages());
  config.time.forward.assign(stages, 2'000'000 * kLayers / config.stages());
  config.time.backward.assign(stages, 4'000'000 * kLayers / config.stages());
  config.time.forward.back() += 3'000'000;
  config.time.backward.back() += 5'000'000;
  config.time.optimizer = 1'200'000 / pp;
  config.time.link = {150'000, 1e9};
  config.time.cores = 2;
  config.time.interference = 0.2;
  return config;
}

RunRecord record_of(const RunConfig& config, int steps) {
  const Program program = program_of(config, default_sizes(config)).value();
  return simulate_run(config, program, steps).value().record;
}

double step_of(const RunRecord& record) {
  return static_cast<double>(record.steps.back().end - record.steps.back().begin);
}

TEST(Calibrate, OnSharedCoresPredictsOtherLayouts) {
  const RunConfig base = truth(ScheduleKind::kOneFOneB, 2, 1, 8);
  RunRecord record = record_of(base, 4);
  record.cores = 2;
  record.ranks_a_machine = 2;
  // Two ranks on two cores: a kernel computes as long as it takes.
  for (RunEvent& event : record.events)
    if (!record.labels[event.label].communication) event.cpu = event.end - event.start;
  const Result<Calibration> fitted = calibrate(record, base);
  ASSERT_TRUE(fitted) << fitted.error().text();
  EXPECT_EQ(2, fitted->cores);
  EXPECT_NEAR(0.2, fitted->interference, 0.01);
  EXPECT_NEAR(2e6, fitted->forward_layer, 2e4);
  EXPECT_NEAR(4e6, fitted->backward_layer, 4e4);
  EXPECT_NEAR(3e6, fitted->forward_head, 2e5);
  EXPECT_EQ(0.0, fitted->host);
  EXPECT_EQ(1.0, fitted->share);

  for (RunConfig other : {truth(ScheduleKind::kOneFOneB, 3, 1, 6), truth(ScheduleKind::kOneFOneB, 4, 1, 8),
                          truth(ScheduleKind::kGpipe, 4, 1, 8), truth(ScheduleKind::kInterleaved, 3, 2, 6)}) {
    const double wanted = step_of(record_of(other, 1));
    other.time = fitted->time_of(other);
    const double predicted = step_of(record_of(other, 1));
    EXPECT_NEAR(1.0, predicted / wanted, 0.01) << other.parallel.pp << " ranks";
    other.time.cores = 0;  // what ignoring the cores would say
    EXPECT_LT(step_of(record_of(other, 1)) / wanted, 0.9);
  }
}

// A core that somebody else took: kernels take twice as long as they compute. Costs are what they compute.
TEST(Calibrate, TimeTakenByOthersIsNoCost) {
  const RunConfig base = truth(ScheduleKind::kOneFOneB, 2, 1, 8);
  RunConfig alone = base;
  alone.time.cores = 0;
  RunRecord record = record_of(alone, 3);
  record.cores = 2;
  record.ranks_a_machine = 2;
  for (RunEvent& event : record.events)
    if (!record.labels[event.label].communication) event.cpu = (event.end - event.start) / 2;
  const Result<Calibration> fitted = calibrate(record, base);
  ASSERT_TRUE(fitted) << fitted.error().text();
  EXPECT_NEAR(1e6, fitted->forward_layer, 1e3);
  EXPECT_NEAR(2e6, fitted->backward_layer, 1e3);
  EXPECT_NEAR(0.0, fitted->interference, 1e-3);
  EXPECT_NEAR(0.5, fitted->share, 1e-3);
}

}  // namespace
}  // namespace plumbline

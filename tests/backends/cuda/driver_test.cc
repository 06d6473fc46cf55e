// The driver layer on the doubles against the simulator: the same Programs must execute the same operations in the
// same order on the same bytes, and stand still for the same reason.
#include "backends/cuda/driver.h"

#include <algorithm>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "backends/cuda/loopback_transport.h"
#include "props/faults.h"
#include "props/generators.h"
#include "tests/backends/cuda/compare.h"
#include "tests/sim/random_program.h"

namespace plumbline::cuda {
namespace {

TEST(CudaDriver, ExecutesWhatTheSimulatorDoes) {
  struct Case {
    ScheduleKind kind;
    int chunks;
  };
  for (const Case& row : {Case{ScheduleKind::kOneFOneB, 1}, Case{ScheduleKind::kInterleaved, 2},
                          Case{ScheduleKind::kGpipe, 1}, Case{ScheduleKind::kForwardOnly, 1}}) {
    for (const int pp : {2, 3, 4}) {
      for (const int dp : {1, 2}) {
        for (const Precision precision : {Precision::kFp32, Precision::kFp16, Precision::kBf16}) {
          const RunConfig config = config_of(row.kind, pp, dp, row.chunks, precision);
          const Result<Program> program = program_of(config);
          ASSERT_TRUE(program) << program.error().text();
          SCOPED_TRACE(props::config_words(config));
          const LinkedProgram linked = link_program(*program).value();
          const Outcome sim = simulated(linked, config, 2);
          const Outcome cuda = driven(linked, config, 2);
          expect_same(sim, cuda);
          EXPECT_TRUE(cuda.judged.empty()) << cuda.judged.front().why;
          EXPECT_FALSE(cuda.stuck.has_value());
          EXPECT_TRUE(sim.steps.front().completed);
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

RC_GTEST_PROP(CudaDriver, ExecutesRandomConfigurationsAsTheSimulatorDoes, ()) {
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  RunConfig config = props::random_config(seed, {4, 2, 6, 2});
  const Result<Program> program = program_of(config);
  RC_PRE(program.has_value());
  const LinkedProgram linked = link_program(*program).value();
  const Outcome sim = simulated(linked, config, 1);
  RC_PRE(!sim.refused);
  const Outcome cuda = driven(linked, config, 1);
  RC_ASSERT(sim.steps.front().completed == cuda.steps.front().completed);
  if (!sim.steps.front().completed) {
    expect_same_standstill(sim, cuda);
  } else {
    expect_same(sim, cuda);
  }
  RC_ASSERT(!::testing::Test::HasFailure());
}

// Programs of any calls, half of them damaged: the verdict, and of a standstill the same witness.
RC_GTEST_PROP(CudaDriver, JudgesRandomProgramsAsTheSimulatorDoes, ()) {
  const Program program = test::random_program();
  RunConfig config;
  config.time.link = {1000, 1e9};
  if (*rc::gen::arbitrary<bool>()) config.sim.cross = CrossComm::kStrict;
  if (*rc::gen::arbitrary<bool>()) config.sim.connect = Connect::kCold;
  const LinkedProgram linked = link_program(program).value();
  const Outcome sim = simulated(linked, config, 1);
  RC_PRE(!sim.refused);
  const Outcome cuda = driven(linked, config, 1);
  const bool crossed = std::any_of(sim.steps.front().findings.begin(), sim.steps.front().findings.end(),
                                   [](const Finding& f) { return f.kind == FindingKind::kCrossWired; });
  // The driver's communicators are nonblocking: they tell of connections that do not fit, where a blocking call stands.
  if (cuda.refused) {
    RC_ASSERT(crossed);
    return;
  }
  RC_ASSERT(sim.steps.size() == cuda.steps.size());
  RC_TAG(sim.steps.front().completed);
  if (sim.steps.front().completed) {
    RC_ASSERT(cuda.steps.front().completed);
    RC_ASSERT(order_of(sim.record) == order_of(cuda.record));
  } else {
    expect_same_standstill(sim, cuda);
    RC_ASSERT(!::testing::Test::HasFailure());
  }
}

RC_GTEST_PROP(CudaDriver, StandsStillForTheSimulatorsReasonInSchedulesWithAFault, ()) {
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  const RunConfig config = props::random_config(seed, {4, 2, 4, 1});
  const Result<Program> whole = program_of(config);
  RC_PRE(whole.has_value());
  const auto kind =
      *rc::gen::element(props::FaultKind::kDrop, props::FaultKind::kDuplicate, props::FaultKind::kWrongPeer);
  const auto fault = props::inject(*whole, kind, seed);
  RC_PRE(fault.has_value());
  const Result<LinkedProgram> linked = link_program(fault->program);
  RC_PRE(linked.has_value());
  const Outcome sim = simulated(*linked, config, 1);
  RC_PRE(!sim.refused);
  RC_PRE(!sim.steps.front().completed);
  const Outcome cuda = driven(*linked, config, 1);
  expect_same_standstill(sim, cuda);
  RC_ASSERT(!::testing::Test::HasFailure());
}

Outcome looped(const LinkedProgram& linked, const RunConfig& config, int steps, Mover mover) {
  return driven_by(linked, config, steps, true, [&](const std::vector<LocalRank>& ranks) {
    return std::make_unique<LoopbackTransport>(ranks, mover);
  });
}

class CudaOneDevice : public testing::TestWithParam<Mover> {};
INSTANTIATE_TEST_SUITE_P(CudaLoopback, CudaOneDevice, testing::Values(Mover::kCopy, Mover::kSelfSend),
                         [](const auto& mover) { return mover.param == Mover::kCopy ? "Copy" : "SelfSend"; });

TEST_P(CudaOneDevice, ExecutesWhatTheSimulatorDoes) {
  struct Case {
    ScheduleKind kind;
    int chunks;
  };
  for (const Case& row : {Case{ScheduleKind::kOneFOneB, 1}, Case{ScheduleKind::kInterleaved, 2},
                          Case{ScheduleKind::kGpipe, 1}, Case{ScheduleKind::kForwardOnly, 1}}) {
    for (const auto& [pp, dp] : {std::pair(2, 1), std::pair(3, 1), std::pair(4, 1), std::pair(2, 2)}) {
      for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
        const RunConfig config = config_of(row.kind, pp, dp, row.chunks, precision);
        const Program program = program_of(config).value();
        SCOPED_TRACE(props::config_words(config));
        const LinkedProgram linked = link_program(program).value();
        expect_same(simulated(linked, config, 2), looped(linked, config, 2, GetParam()));
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

// A deadlock hangs on the device as it does in NCCL, is found, and is released by the counters.
RC_GTEST_PROP(CudaLoopback, JudgesRandomProgramsAsTheSimulatorDoes, ()) {
  const Program program = test::random_program();
  const RunConfig config;
  const LinkedProgram linked = link_program(program).value();
  const Outcome sim = simulated(linked, config, 1);
  RC_PRE(!sim.refused);
  const Outcome cuda = looped(linked, config, 1, *rc::gen::element(Mover::kCopy, Mover::kSelfSend));
  RC_PRE(!cuda.refused);  // ends of different size, which it refuses when the second one is enqueued
  RC_TAG(sim.steps.front().completed);
  if (sim.steps.front().completed) {
    RC_ASSERT(cuda.steps.size() == 1u);
    RC_ASSERT(cuda.steps.front().completed);
    RC_ASSERT(order_of(sim.record) == order_of(cuda.record));
  } else {
    expect_same_standstill(sim, cuda);
    RC_ASSERT(!::testing::Test::HasFailure());
  }
}

TEST(CudaLoopback, RefusesMoreStreamsThanTheDeviceHasQueues) {
  const RunConfig config = config_of(ScheduleKind::kOneFOneB, 16, 1, 1, Precision::kFp32);
  const Program program = program_of(config).value();
  const LinkedProgram linked = link_program(program).value();
  const Doubles& on = doubles(1);
  std::vector<LocalRank> ranks;
  for (std::uint32_t r = 0; r < 16; ++r) ranks.push_back({r, {on.libraries, 0}});
  LoopbackTransport transport(ranks);
  const Status status = transport.set_program(linked);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(status.error().message, testing::HasSubstr("32 hardware queues"));
}

// A kernel that fails ends the run with its own words.
TEST(CudaDriver, AFailingKernelEndsTheStep) {
  const RunConfig config = config_of(ScheduleKind::kOneFOneB, 2, 1, 1, Precision::kFp32);
  const Program program = program_of(config).value();
  const LinkedProgram linked = link_program(program).value();
  class Failing final : public Worker {
    Status launch(const KernelCall& call, SlotStore&) override {
      return call.rank == 1 ? Status(fail(ErrorCode::kState, "no more paper")) : Status();
    }
  };
  const Doubles& on = doubles(2);
  Failing worker;
  HostKernels kernels(*on.libraries, worker);
  std::vector<LocalRank> local{{0, {on.libraries, 0}}, {1, {on.libraries, 1}}};
  LocalIds ids;
  NcclTransport transport(local, ids);
  CudaBackend backend({{local[0], &kernels}, {local[1], &kernels}}, transport, {});
  DoubleClock clock(on, 1000000);
  CudaDriver driver(backend, clock, {1000000, default_model()});
  ASSERT_TRUE(driver.set_program(linked));
  RunRecord record = record_for(program);
  const Result<SimStep> step = driver.run_step(0, record);
  ASSERT_FALSE(step);
  EXPECT_EQ(step.error().message, "no more paper");
  EXPECT_FALSE(driver.run_step(1, record));
}

}  // namespace
}  // namespace plumbline::cuda

// Programs with CUDA graphs on the doubles: captured once, replayed, and the same as in the simulator.
#include "engine/program/graphs.h"

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "backends/cuda/loopback_transport.h"
#include "props/generators.h"
#include "sim/examine.h"
#include "tests/backends/cuda/compare.h"
#include "tests/sim/random_program.h"
#include "tests/sim/tiny_program.h"

namespace plumbline::cuda {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

// Live memory, what every kernel read, decisions and digests are those of the Program without graphs; only times and
// so the order across streams may differ.
void expect_same_data(const Outcome& plain, const Outcome& graphs) {
  ASSERT_EQ(plain.steps.size(), graphs.steps.size());
  for (std::size_t s = 0; s < plain.steps.size(); ++s) {
    EXPECT_TRUE(graphs.steps[s].completed);
    EXPECT_EQ(plain.steps[s].decisions, graphs.steps[s].decisions);
  }
  EXPECT_EQ(plain.digests, graphs.digests);
  EXPECT_EQ(order_of(plain.record), order_of(graphs.record));
}

TEST(CudaGraphs, ExecuteWhatTheSimulatorDoes) {
  struct Case {
    ScheduleKind kind;
    int chunks;
  };
  // Megatron's combined calls let the host wait after each, so that graphs stand between them; the others are in one
  // with what they belong to.
  for (const Case& row : {Case{ScheduleKind::kOneFOneB, 1}, Case{ScheduleKind::kInterleaved, 2},
                          Case{ScheduleKind::kGpipe, 1}, Case{ScheduleKind::kForwardOnly, 1}}) {
    for (const int pp : {2, 3, 4}) {
      for (const int dp : {1, 2}) {
        for (const P2pStyle p2p : {P2pStyle::kBatched, P2pStyle::kSeparate}) {
          RunConfig config = config_of(row.kind, pp, dp, row.chunks, Precision::kFp16);
          config.schedule.p2p = p2p;
          const bool waits = p2p == P2pStyle::kBatched;
          if (waits && row.kind == ScheduleKind::kForwardOnly) continue;  // with nothing between the waits
          if (waits && row.chunks > 1 && pp == 2) continue;  // messages would cross, as Megatron knows
          const Program plain = program_of(config).value();
          config.schedule.cuda_graphs = true;
          const Program program = program_of(config).value();
          SCOPED_TRACE(props::config_words(config));
          const LinkedProgram linked = link_program(program).value();
          const Outcome sim = simulated(linked, config, 3);
          const Outcome cuda = driven(linked, config, 3);
          expect_same(sim, cuda);
          expect_same_data(simulated(link_program(plain).value(), config, 3), sim);
          EXPECT_TRUE(cuda.judged.empty()) << cuda.judged.front().why;
          // What the first step captured serves the others.
          ASSERT_FALSE(cuda.captures.empty());
          EXPECT_GT(cuda.captures.front(), 0u);
          EXPECT_THAT(cuda.captures, Each(cuda.captures.front()));
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

// Calls that put something on a stream.
long long enqueued = 0;
template <auto Field>
struct Counted;
template <typename... P, int (*CudaApi::*Field)(P...)>
struct Counted<Field> {
  static inline int (*real)(P...) = nullptr;
  static int call(P... arguments) {
    ++enqueued;
    return real(arguments...);
  }
  static void in(CudaApi& api) {
    real = api.*Field;
    api.*Field = &call;
  }
};

std::shared_ptr<const Libraries> counting(const Libraries& libraries) {
  auto out = std::make_shared<Libraries>(libraries);
  Counted<&CudaApi::cudaEventRecord>::in(out->cuda);
  Counted<&CudaApi::cudaStreamWaitEvent>::in(out->cuda);
  Counted<&CudaApi::cudaMemsetAsync>::in(out->cuda);
  Counted<&CudaApi::cudaLaunchHostFunc>::in(out->cuda);
  Counted<&CudaApi::cudaGraphLaunch>::in(out->cuda);
  return out;
}

// Everything that runs a Program on the doubles.
struct Bench {
  Bench(const Program& program, const NcclModel& graphs, std::shared_ptr<const Libraries> given = nullptr,
        const RunConfig& config = {})
      : linked(link_program(program).value()),
        on(doubles(static_cast<int>(program.threads.size()), config_toml(config))),
        libraries(given ? std::move(given) : on.libraries),
        workers(program.threads.size()) {
    for (std::uint32_t r = 0; r < workers.size(); ++r) {
      kernels.push_back(std::make_unique<HostKernels>(*libraries, workers[r]));
      local.push_back({r, {libraries, static_cast<int>(r)}});
      served.push_back({local.back(), kernels.back().get()});
    }
    transport = std::make_unique<NcclTransport>(local, ids);
    backend = std::make_unique<CudaBackend>(served, *transport, CudaOptions{});
    driver = std::make_unique<CudaDriver>(*backend, clock,
                                          DriverOptions{kTimeout, model_of(config.sim), nullptr, graphs});
  }
  static constexpr Nanoseconds kTimeout = 1000000000;
  LinkedProgram linked;
  const Doubles& on;
  std::shared_ptr<const Libraries> libraries;
  std::vector<TraceWorker> workers;
  std::vector<std::unique_ptr<HostKernels>> kernels;
  std::vector<LocalRank> local;
  std::vector<ServedRank> served;
  LocalIds ids;
  std::unique_ptr<NcclTransport> transport;
  std::unique_ptr<CudaBackend> backend;
  DoubleClock clock{on, kTimeout};
  std::unique_ptr<CudaDriver> driver;
};

// The point of it: a replay is one call, whatever it holds.
TEST(CudaGraphs, AReplayIsOneCall) {
  for (const int microbatches : {8, 32}) {
    RunConfig config = config_of(ScheduleKind::kOneFOneB, 2, 1, 1, Precision::kBf16);
    config.schedule.microbatches = microbatches;
    config.schedule.p2p = P2pStyle::kSeparate;
    config.schedule.cuda_graphs = true;
    const Program program = program_of(config).value();
    Bench bench(program, certification_model(), counting(*doubles(2).libraries));
    ASSERT_TRUE(bench.driver->set_program(bench.linked));
    RunRecord record = record_for(program);
    std::vector<long long> calls;
    for (int step = 0; step < 3; ++step) {
      const long long before = enqueued;
      const Result<SimStep> done = bench.driver->run_step(step, record);
      ASSERT_TRUE(done) << done.error().text();
      EXPECT_TRUE(done->completed);
      EXPECT_EQ(bench.backend->captures(), 2u);  // one a rank
      calls.push_back(enqueued - before);
    }
    EXPECT_GT(calls[0], 40 * microbatches / 8);
    // Each rank: the step's begin, the graph, the graph's end.
    EXPECT_EQ(calls[1], 2 * 3);
    EXPECT_EQ(calls[2], 2 * 3);
  }
}

TEST(CudaGraphs, AnOverflowBetweenGraphsTakesTheOtherArm) {
  RunConfig config = config_of(ScheduleKind::kOneFOneB, 2, 2, 1, Precision::kFp16);
  config.schedule.p2p = P2pStyle::kSeparate;
  config.schedule.cuda_graphs = true;
  const Program program = program_of(config).value();
  const LinkedProgram linked = link_program(program).value();
  const std::set<int> overflows{1, 3};
  const Outcome sim = simulated(linked, config, 5, overflows);
  const Outcome cuda = driven(linked, config, 5, overflows);
  expect_same(sim, cuda);
  ASSERT_EQ(cuda.steps.size(), 5u);
  for (std::size_t s = 0; s < 5; ++s)
    for (const auto& decisions : cuda.steps[s].decisions)
      EXPECT_EQ(decisions, std::vector<std::uint8_t>{
                               static_cast<std::uint8_t>(overflows.contains(static_cast<int>(s)))});
  // The arm is captured when it is taken for the first time, and replayed then.
  EXPECT_LE(cuda.captures[0], cuda.captures[1]);
  EXPECT_EQ(cuda.captures[1], cuda.captures[4]);
}

Status set_program(const Program& program, const NcclModel& model = certification_model()) {
  Bench bench(program, model);
  const long long before = bench.on.calls();
  Status status = bench.driver->set_program(bench.linked);
  if (!status) EXPECT_EQ(bench.on.calls(), before);  // nothing was made, nothing captured
  return status;
}

// Both send first. With room for the messages that runs; sends of a graph have none (N37).
TEST(CudaGraphs, WhatStandsStillAsGraphsIsRefusedBeforeItIsCaptured) {
  test::TinyProgram tiny(2);
  const int comm = tiny.comm("c", {0, 1});
  const int stream = tiny.stream("s");
  for (const Rank rank : {0, 1}) {
    tiny.launch(rank);
    tiny.group(rank, stream, {test::send(comm, 1 - rank, 8, 0)}, kAfterCompute);
    tiny.group(rank, stream, {test::recv(comm, 1 - rank, 8, 1)}, kComputeWaits);
  }
  const Program& plain = tiny.finish();
  const Program program = with_graphs(plain).value();
  const NcclModel eager = model_named("eager_2MiB").value();
  const auto completes = [&](const Program& what) {
    return examine_mode(link_program(what).value(), eager, TimeModel{}).value().completes;
  };
  EXPECT_TRUE(completes(plain));
  EXPECT_FALSE(completes(program));
  for (const NcclModel& model : {eager, certification_model()}) {
    const Status status = set_program(program, model);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kState);
    EXPECT_THAT(status.error().message,
                AllOf(HasSubstr("nothing is captured"), HasSubstr("N18"), HasSubstr(model.name()),
                      HasSubstr("rank 0"), HasSubstr("rank 1")));
  }
}

// The order of two graphs on one rank decides: as single calls both orders complete.
TEST(CudaGraphs, AGraphThatHasToEndBeforeTheOtherBeginsIsRefused) {
  test::TinyProgram tiny(2);
  tiny.program().extras.graphs = true;
  const int there = tiny.comm("there", {0, 1});
  const int back = tiny.comm("back", {0, 1});
  const int a = tiny.stream("a");
  const int b = tiny.stream("b");
  const auto bracket = [&](Rank rank, unsigned which) {
    tiny.add(rank, ItemOp::kGraph, kNoMicrobatch, 0, which, 0);
  };
  bracket(0, 0);
  tiny.group(0, a, {test::recv(there, 1)});
  bracket(0, 1);
  tiny.group(0, kComputeStream, {test::send(back, 1)});
  tiny.group(1, a, {test::recv(back, 0)});
  tiny.sync_stream(1, a);
  tiny.group(1, b, {test::send(there, 0)});
  const Status status = set_program(tiny.finish(), default_model());
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("N18"));
}

// Collectives in different order: NCCL may run them beside each other, and need not. Who is sure that it does, and is
// wrong, has a step that stands still inside a graph, and ends.
TEST(CudaGraphs, AStandstillInAGraphIsFoundAndReleased) {
  test::TinyProgram tiny(2);
  const int c = tiny.comm("c", {0, 1});
  const int d = tiny.comm("d", {0, 1});
  const int s = tiny.stream("s");
  const int t = tiny.stream("t");
  tiny.group(0, s, {test::all_reduce(c)}).group(0, t, {test::all_reduce(d)});
  tiny.group(1, t, {test::all_reduce(d)}).group(1, s, {test::all_reduce(c)});
  const Program program = with_graphs(tiny.finish()).value();
  RunConfig config;
  for (const CrossComm cross : {CrossComm::kFree, CrossComm::kStrict}) {
    config.sim.cross = cross;
    Bench bench(program, default_model(), nullptr, config);
    const Status ready = bench.driver->set_program(bench.linked);
    ASSERT_TRUE(ready) << ready.error().text();
    RunRecord record = record_for(program);
    const Result<SimStep> step = bench.driver->run_step(0, record);
    ASSERT_TRUE(step) << step.error().text();
    EXPECT_EQ(step->completed, cross == CrossComm::kFree);
    EXPECT_EQ(bench.backend->captures(), 2u);
    if (step->completed) continue;
    ASSERT_FALSE(step->findings.empty());
    EXPECT_EQ(step->findings.front().kind, FindingKind::kDeadlock);
    EXPECT_EQ(step->findings.front().cause, "cycle");
    EXPECT_EQ(bench.on.incomplete(), 0);
  }
}

TEST(CudaGraphs, AreRefusedWhereAReplayWouldNotBeWhatWasCaptured) {
  RunConfig config = config_of(ScheduleKind::kOneFOneB, 2, 1, 1, Precision::kFp32);
  config.schedule.cuda_graphs = true;
  const Program program = program_of(config).value();
  const LinkedProgram linked = link_program(program).value();
  class OnTheDevice final : public StageKernels {
   public:
    std::optional<MemoryKind> memory(const SlotClass& /*slot*/) const override { return MemoryKind::kDevice; }
    Status bind(const SlotClass& /*slot*/, const SlotMemory& /*memory*/, StreamHandle /*stream*/) override {
      return {};
    }
    Status launch(const KernelCall& /*call*/, const std::vector<std::pair<SlotRef, SlotMemory>>& /*slots*/,
                  StreamHandle /*stream*/) override {
      return {};
    }
  };
  const Doubles& on = doubles(2);
  TraceWorker worker;
  HostKernels host(*on.libraries, worker);
  OnTheDevice device;
  const auto refusal = [&](StageKernels& kernels, bool loopback) {
    std::vector<LocalRank> local;
    std::vector<ServedRank> served;
    for (std::uint32_t r = 0; r < 2; ++r) {
      local.push_back({r, {on.libraries, loopback ? 0 : static_cast<int>(r)}});
      served.push_back({local.back(), &kernels});
    }
    LocalIds ids;
    std::unique_ptr<Transport> transport;
    if (loopback) transport = std::make_unique<LoopbackTransport>(local, Mover::kCopy);
    if (!loopback) transport = std::make_unique<NcclTransport>(local, ids);
    const Status status = CudaBackend(served, *transport, {}).set_program(linked);
    return status ? std::string() : status.error().message;
  };
  EXPECT_THAT(refusal(host, true), AllOf(HasSubstr("--cuda-level nccl"), HasSubstr("loopback")));
  EXPECT_THAT(refusal(device, false), HasSubstr("--compute host"));
}

RC_GTEST_PROP(CudaGraphs, KeepTheDataOfRandomConfigurations, ()) {
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  RunConfig config = props::random_config(seed, {4, 2, 6, 2});
  const Result<Program> plain = program_of(config);
  RC_PRE(plain.has_value());
  const Result<Program> program = with_graphs(*plain);
  RC_PRE(program.has_value());
  const LinkedProgram linked = link_program(*program).value();
  const Outcome sim = simulated(linked, config, 2);
  RC_PRE(!sim.refused);
  const Outcome before = simulated(link_program(*plain).value(), config, 2);
  RC_ASSERT(!before.refused);
  RC_TAG(sim.steps.back().completed);
  if (!sim.steps.back().completed) return;
  expect_same_data(before, sim);
  RC_PRE(config.sim.connect != Connect::kCold);  // which the doubles do not capture
  const ModeVerdict judged = examine_mode(linked, certification_model(), TimeModel{}).value();
  RC_PRE(judged.completes && judged.findings.empty());
  const Outcome cuda = driven(linked, config, 2);
  expect_same(sim, cuda);
  RC_ASSERT(!::testing::Test::HasFailure());
}

// Programs of any calls as graphs: they only ever wait for more.
RC_GTEST_PROP(CudaGraphs, OfRandomProgramsWaitForMore, ()) {
  const Program plain = test::random_program();
  const Result<Program> program = with_graphs(plain);
  RC_ASSERT(program.has_value());
  const auto completes = [&](const Program& what) {
    return examine_mode(link_program(what).value(), default_model(), TimeModel{}).value().completes;
  };
  const bool graphs = completes(*program);
  RC_TAG(graphs);
  if (graphs) RC_ASSERT(completes(plain));
}

}  // namespace
}  // namespace plumbline::cuda

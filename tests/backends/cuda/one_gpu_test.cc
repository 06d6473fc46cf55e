// What one GPU can show: several ranks on it by loopback, and the rules of NCCL that a communicator of one rank
// decides. In CI this runs on the doubles; with PLUMBLINE_GPU=1 on the device, with the real libraries (./dev
// gpu-test), and then each run's record is written to $PLUMBLINE_GPU_OUT.
#include <cstdlib>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/cuda/loopback_transport.h"
#include "engine/program/lower.h"
#include "engine/schedule/generator.h"
#include "tests/backends/cuda/driven.h"
#include "tests/engine/program/config.h"
#include "tests/sim/tiny_program.h"

namespace plumbline::cuda {
namespace {

using ::testing::HasSubstr;

bool on_gpu() { return std::getenv("PLUMBLINE_GPU") != nullptr; }

// The device, or its double.
class OneGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!on_gpu()) {
      const Doubles& on = doubles(1);
      on.polls_step(1);
      libraries = on.libraries;
      return;
    }
    ASSERT_TRUE(raise_connections());
    static const Result<std::shared_ptr<const Libraries>> loaded =
        load_libraries({.nccl = true, .memory_operations = true});
    ASSERT_TRUE(loaded) << loaded.error().text();
    libraries = *loaded;
    int count = 0;
    ASSERT_EQ(libraries->cuda.cudaGetDeviceCount(&count), 0);
    ASSERT_GE(count, 1);
  }

  // Runs the Program in loopback, all ranks on device 0.
  Outcome run(const LinkedProgram& linked, int steps, Nanoseconds timeout, Mover mover = Mover::kCopy) {
    return run_by(linked, steps, timeout, [&](const std::vector<LocalRank>& local) {
      return std::make_unique<LoopbackTransport>(local, mover);
    });
  }

  template <typename MakeTransport>
  Outcome run_by(const LinkedProgram& linked, int steps, Nanoseconds timeout, MakeTransport transport_of) {
    Outcome out;
    out.record = record_for(*linked.program);
    out.record.backend = "cuda";
    std::vector<TraceWorker> workers(linked.program->threads.size());
    std::vector<std::unique_ptr<HostKernels>> kernels;
    std::vector<LocalRank> local;
    std::vector<ServedRank> served;
    for (std::uint32_t r = 0; r < workers.size(); ++r) {
      kernels.push_back(std::make_unique<HostKernels>(*libraries, workers[r]));
      local.push_back({r, {libraries, 0}});
      served.push_back({local.back(), kernels.back().get()});
    }
    const std::unique_ptr<Transport> transport = transport_of(local);
    CudaBackend backend(served, *transport, {});
    const std::unique_ptr<HostClock> clock = steady_clock();
    CudaDriver driver(backend, *clock, {timeout, default_model()});
    const Status ready = driver.set_program(linked);
    EXPECT_TRUE(ready) << ready.error().text();
    for (int s = 0; ready && s < steps; ++s) {
      Result<SimStep> step = driver.run_step(s, out.record);
      EXPECT_TRUE(step) << step.error().text();
      if (!step) break;
      out.steps.push_back(std::move(*step));
      out.captures.push_back(backend.captures());
      if (!out.steps.back().completed) break;
    }
    for (const TraceWorker& worker : workers) {
      out.lines.push_back(worker.lines);
      out.digests.push_back(worker.digest());
    }
    return out;
  }

  void keep(const RunRecord& record, const std::string& name) const {
    const char* folder = std::getenv("PLUMBLINE_GPU_OUT");
    if (folder == nullptr) return;
    Result<RecordWriter> writer = RecordWriter::create(std::string(folder) + "/" + name + ".plrec", record);
    ASSERT_TRUE(writer) << writer.error().text();
    EXPECT_TRUE(writer->append(record));
    EXPECT_TRUE(writer->finish(record));
  }

  std::shared_ptr<const Libraries> libraries;
};

struct Shape {
  const char* name;
  ScheduleKind kind;
  int chunks, pp, dp;
  Precision precision;
};

using Loopback = OneGpu;

TEST_F(Loopback, ExecutesWhatTheSimulatorDoes) {
  for (const Shape& shape :
       std::vector<Shape>{{"1f1b", ScheduleKind::kOneFOneB, 1, 2, 1, Precision::kFp32},
                          {"1f1b-4", ScheduleKind::kOneFOneB, 1, 4, 1, Precision::kBf16},
                          {"1f1b-dp", ScheduleKind::kOneFOneB, 1, 2, 2, Precision::kFp16},
                          {"interleaved", ScheduleKind::kInterleaved, 2, 3, 1, Precision::kFp32},
                          {"gpipe", ScheduleKind::kGpipe, 1, 4, 1, Precision::kFp16},
                          {"forward", ScheduleKind::kForwardOnly, 1, 4, 1, Precision::kBf16},
                          {"1f1b-8", ScheduleKind::kOneFOneB, 1, 4, 2, Precision::kFp32},
                          {"interleaved-8", ScheduleKind::kInterleaved, 2, 4, 2, Precision::kBf16}}) {
    SCOPED_TRACE(shape.name);
    RunConfig config = test::config_of(shape.kind, shape.pp, shape.chunks, 2 * shape.pp, 0, shape.dp);
    config.train.precision = shape.precision;
    const Schedule schedule = schedule_of(config).value();
    ModelSizes sizes = default_sizes(config);
    sizes.activation = on_gpu() ? 1 << 20 : 256;
    const Program program = lower(config, schedule, sizes).value();
    const LinkedProgram linked = link_program(program).value();
    const Outcome sim = simulated(linked, config, 2);
    const Outcome cuda = run(linked, 2, Nanoseconds{20} * 1000000000);
    ASSERT_EQ(cuda.steps.size(), 2u);
    EXPECT_TRUE(cuda.steps.back().completed);
    EXPECT_EQ(sim.lines, cuda.lines);
    EXPECT_EQ(sim.digests, cuda.digests);
    EXPECT_EQ(order_of(sim.record), order_of(cuda.record));
    keep(cuda.record, shape.name);
    // The same with NCCL's own kernels between the waits.
    const Outcome sent = run(linked, 2, Nanoseconds{20} * 1000000000, Mover::kSelfSend);
    ASSERT_EQ(sent.steps.size(), 2u);
    EXPECT_TRUE(sent.steps.back().completed);
    EXPECT_EQ(sim.digests, sent.digests);
    EXPECT_EQ(order_of(sim.record), order_of(sent.record));
    keep(sent.record, std::string(shape.name) + "-self-send");
  }
}

// Eight ranks have more streams than a device has queues: those of collectives become one, where that cannot hang.
TEST_F(Loopback, RanksShareTheStreamsOfTheirCollectives) {
  const auto streams = [&](int pp, int dp) -> Result<int> {
    const RunConfig config = test::config_of(ScheduleKind::kOneFOneB, pp, 1, 2 * pp, 0, dp);
    const Program program = lower(config, schedule_of(config).value(), default_sizes(config)).value();
    const LinkedProgram linked = link_program(program).value();
    std::vector<LocalRank> local;
    for (std::uint32_t r = 0; r < program.threads.size(); ++r) local.push_back({r, {libraries, 0}});
    LoopbackTransport transport(local);
    PL_TRY(transport.set_program(linked));
    PL_TRY(transport.set_program(linked));  // nothing new
    return transport.streams();
  };
  const Result<int> four = streams(4, 1), eight = streams(4, 2);
  ASSERT_TRUE(four && eight);
  EXPECT_GT(*four, 3 * 4) << "each has its own";
  EXPECT_EQ(*eight, 3 * 8) << "computations, messages, collectives";
}

// It was refused once, and the second time taken for done: copies then went to where nothing had been made.
TEST_F(Loopback, AProgramThatWasRefusedIsRefusedAgain) {
  const RunConfig config = test::config_of(ScheduleKind::kOneFOneB, 8, 1, 8, 0, 2);
  const Program program = lower(config, schedule_of(config).value(), default_sizes(config)).value();
  const LinkedProgram linked = link_program(program).value();
  std::vector<LocalRank> local;
  for (std::uint32_t r = 0; r < program.threads.size(); ++r) local.push_back({r, {libraries, 0}});
  LoopbackTransport transport(local);
  for (int time = 0; time < 2; ++time) {
    const Status refused = transport.set_program(linked);
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message,
                HasSubstr("32 hardware queues, and 16 ranks of this Program need 48"));
  }
}

TEST_F(Loopback, ADeadlockIsFoundAndReleased) {
  test::TinyProgram tiny(2);
  const int c = tiny.comm("c", {0, 1});
  const int s = tiny.stream("s");
  tiny.group(0, s, {test::send(c, 1, 64)}).group(0, s, {test::recv(c, 1, 64)});
  tiny.group(1, s, {test::send(c, 0, 64)}).group(1, s, {test::recv(c, 0, 64)});
  const Program program = tiny.finish();
  const LinkedProgram linked = link_program(program).value();
  const Outcome out = run(linked, 1, on_gpu() ? Nanoseconds{5} * 1000000000 : 200000000);
  ASSERT_EQ(out.steps.size(), 1u);
  EXPECT_FALSE(out.steps[0].completed);
  ASSERT_FALSE(out.steps[0].findings.empty());
  EXPECT_EQ(out.steps[0].findings[0].cause, "cycle");
  EXPECT_EQ(out.steps[0].findings[0].cycle.size(), 4u);
}

// A communicator of one rank.
class NcclAlone : public OneGpu {
 protected:
  void SetUp() override {
    OneGpu::SetUp();
    if (HasFatalFailure()) return;
    device = {libraries, 0};
    auto made = Stream::create(device);
    ASSERT_TRUE(made) << made.error().text();
    stream = std::move(*made);
    auto memory = Memory::allocate(device, MemoryKind::kHost, 4096);
    ASSERT_TRUE(memory) << memory.error().text();
    buffer = std::move(*memory);
    UniqueId id{};
    ASSERT_EQ(nccl().ncclGetUniqueId(&id), kNcclSuccess);
    CommConfig config;
    config.blocking = 0;
    ASSERT_EQ(nccl().ncclCommInitRankConfig(&comm, 1, id, 0, &config), kNcclInProgress);
    ASSERT_EQ(settled(), kNcclSuccess);
  }
  void TearDown() override {
    if (comm != nullptr) nccl().ncclCommAbort(comm);
    wait();
  }
  const NcclApi& nccl() const { return libraries->nccl; }
  int settled() const {
    int code = kNcclInProgress;
    for (int i = 0; i < 1000000 && code == kNcclInProgress; ++i) nccl().ncclCommGetAsyncError(comm, &code);
    return code;
  }
  void wait() const {
    for (int i = 0; i < 1000000; ++i) {
      if (libraries->cuda.cudaStreamQuery(stream.get()) == kCudaSuccess) return;
    }
  }
  float* floats() const { return reinterpret_cast<float*>(buffer.get()); }

  Device device;
  Stream stream;
  Memory buffer;
  CommHandle comm = nullptr;
};

TEST_F(NcclAlone, AnUnknownTypeFailsTheWholeGroup) {  // N10: the source, not the documentation
  floats()[0] = 1.0f;
  floats()[1] = 2.0f;
  nccl().ncclGroupStart();
  EXPECT_EQ(nccl().ncclAllReduce(floats(), floats() + 1, 1, 7, 0, comm, stream.get()), kNcclSuccess);
  EXPECT_EQ(nccl().ncclAllReduce(floats(), floats() + 1, 1, 99, 0, comm, stream.get()), kNcclInvalidArgument);
  EXPECT_EQ(nccl().ncclGroupEnd(), kNcclInvalidArgument);
  wait();
  EXPECT_EQ(floats()[1], 2.0f);
}

TEST_F(NcclAlone, AGroupThatNobodyOpenedCannotEnd) {  // N8
  EXPECT_EQ(nccl().ncclGroupEnd(), kNcclInvalidUsage);
}

TEST_F(NcclAlone, APeerOutOfRangeIsRefused) {  // N27
  EXPECT_EQ(nccl().ncclSend(floats(), 1, 7, 1, comm, stream.get()), kNcclInvalidArgument);
}

TEST_F(NcclAlone, OneRanksCollectiveIsACopy) {  // N61
  floats()[0] = 3.0f;
  floats()[8] = 0.0f;
  EXPECT_THAT(nccl().ncclAllReduce(floats(), floats() + 8, 1, 7, 0, comm, stream.get()),
              ::testing::AnyOf(kNcclSuccess, kNcclInProgress));
  EXPECT_EQ(settled(), kNcclSuccess);
  wait();
  EXPECT_EQ(floats()[8], 3.0f);
}

TEST_F(NcclAlone, AMessageToOneselfNeedsBothEndsInAGroup) {  // N25
  floats()[0] = 4.0f;
  nccl().ncclGroupStart();
  EXPECT_EQ(nccl().ncclSend(floats(), 1, 7, 0, comm, stream.get()), kNcclSuccess);
  EXPECT_EQ(nccl().ncclRecv(floats() + 8, 1, 7, 0, comm, stream.get()), kNcclSuccess);
  EXPECT_THAT(nccl().ncclGroupEnd(), ::testing::AnyOf(kNcclSuccess, kNcclInProgress));
  EXPECT_EQ(settled(), kNcclSuccess);
  wait();
  EXPECT_EQ(floats()[8], 4.0f);
}

TEST_F(NcclAlone, AnAbortedCommunicatorIsOver) {  // N77, N87
  EXPECT_EQ(nccl().ncclCommAbort(comm), kNcclSuccess);
  comm = nullptr;
}

// A rank alone: what a graph's capture holds - host functions, clears, edges between streams, times, and NCCL's
// copies, of a collective of one and of messages to oneself.
class GraphsAlone : public OneGpu {
 protected:
  Outcome replayed(const LinkedProgram& linked) {
    LocalIds ids;
    return run_by(linked, 4, Nanoseconds{20} * 1000000000, [&](const std::vector<LocalRank>& local) {
      return std::make_unique<NcclTransport>(local, ids);
    });
  }
};

TEST_F(GraphsAlone, ReplayWhatTheSimulatorDoes) {
  RunConfig config = test::config_of(ScheduleKind::kOneFOneB, 1, 1, 6);
  config.train.precision = Precision::kFp16;
  config.schedule.cuda_graphs = true;
  ModelSizes sizes = default_sizes(config);
  sizes.stash.assign(1, on_gpu() ? 1 << 20 : 256);
  const Program program = lower(config, schedule_of(config).value(), sizes).value();
  const LinkedProgram linked = link_program(program).value();
  const Outcome sim = simulated(linked, config, 4);
  const Outcome cuda = replayed(linked);
  ASSERT_EQ(cuda.steps.size(), 4u);
  EXPECT_EQ(sim.lines, cuda.lines);
  EXPECT_EQ(sim.digests, cuda.digests);
  EXPECT_EQ(order_of(sim.record), order_of(cuda.record));
  EXPECT_EQ(cuda.captures, std::vector<std::size_t>(4, cuda.captures.front()));
  keep(cuda.record, "graphs");
}

TEST_F(GraphsAlone, ReplayMessagesToOneself) {
  test::TinyProgram tiny(1);
  tiny.program().extras.graphs = true;
  const int comm = tiny.comm("self", {0});
  const int stream = tiny.stream("s");
  tiny.add(0, ItemOp::kGraph, kNoMicrobatch, 0, 0, 0);
  for (int i = 0; i < 3; ++i) {
    tiny.launch(0);
    tiny.group(0, stream, {test::send(comm, 0, 4096, i), test::recv(comm, 0, 4096, i)},
               kAfterCompute | kComputeWaits);
  }
  tiny.add(0, ItemOp::kGraph, kNoMicrobatch, 0, 1, 0);
  const LinkedProgram linked = link_program(tiny.finish()).value();
  const Outcome cuda = replayed(linked);
  ASSERT_EQ(cuda.steps.size(), 4u);
  EXPECT_TRUE(cuda.steps.back().completed);
  EXPECT_EQ(cuda.captures, std::vector<std::size_t>(4, 1));
  keep(cuda.record, "graphs-self");
}

}  // namespace
}  // namespace plumbline::cuda

// One Program, executed twice: by the simulator, and by the CUDA driver on the doubles. Both sides get the same
// workers, whose output depends on every byte they read, and the same times.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "backends/cuda/driver.h"
#include "backends/cuda/nccl_transport.h"
#include "engine/base/hash.h"
#include "engine/config/explain.h"
#include "engine/program/link.h"
#include "sim/nccl_model.h"
#include "sim/simulator.h"
#include "tests/backends/cuda/doubles.h"

namespace plumbline::cuda {

// Notes a digest of what each kernel reads, and writes bytes that follow from it.
class TraceWorker final : public Worker {
 public:
  struct Line {
    unsigned kernel = 0;
    int microbatch = 0;
    std::uint64_t read = 0;
    bool operator==(const Line&) const = default;
  };
  std::vector<Line> lines;
  std::map<std::string, SlotMemory> persistent;
  std::set<int> overflows;  // which of its checks of gradients find one, from 0 on
  int checks = 0;

  Status bind(const SlotClass& slot, const SlotMemory& memory) override {
    persistent[slot.name] = memory;
    return {};
  }
  Status launch(const KernelCall& call, SlotStore& slots) override {
    const Kernel& kernel = call.program->kernels[call.kernel];
    const auto memory = [&](std::uint16_t slot) {
      const bool many = call.program->slots[slot].per_microbatch;
      return slots.slot({slot, many ? call.microbatch : kNoMicrobatch});
    };
    Hasher hash;
    hash.i64(call.rank);
    hash.i64(call.kernel);
    hash.i64(call.microbatch);
    for (const auto* list : {&kernel.reads, &kernel.frees}) {
      for (const std::uint16_t slot : *list) {
        const SlotMemory read = memory(slot);
        hash.u64(hash64(read.data, static_cast<std::size_t>(read.bytes)));
      }
    }
    const std::uint64_t digest = hash.digest();
    lines.push_back({call.kernel, call.microbatch, digest});
    for (const std::uint16_t slot : kernel.writes) {
      const SlotMemory written = memory(slot);
      const SlotKind kind = call.program->slots[slot].kind;
      if (kind == SlotKind::kFoundInf || kind == SlotKind::kLocalFoundInf) {
        const float found = overflows.contains(checks) ? 1.0f : 0.0f;
        std::memcpy(written.data, &found,
                    std::min<std::size_t>(sizeof found, static_cast<std::size_t>(written.bytes)));
        continue;
      }
      for (Bytes i = 0; i < written.bytes; ++i)
        written.data[i] ^=
            static_cast<std::byte>((digest >> (8 * (i % 8))) + static_cast<std::uint64_t>(i) * 7);
    }
    if (kernel.kind == KernelKind::kUnscaleCheck) ++checks;
    return {};
  }
  std::uint64_t digest() const {
    Hasher hash;
    for (const auto& [name, memory] : persistent)
      hash.u64(hash64(memory.data, static_cast<std::size_t>(memory.bytes)));
    return hash.digest();
  }
};

// Tells the doubles how long the next host function takes.
class TimedKernels final : public StageKernels {
 public:
  TimedKernels(const Doubles& on, Worker& worker, TimeModel time)
      : on_(on), time_(std::move(time)), inner_(*on.libraries, worker) {}
  std::optional<MemoryKind> memory(const SlotClass& slot) const override { return inner_.memory(slot); }
  Status bind(const SlotClass& slot, const SlotMemory& memory, StreamHandle stream) override {
    return inner_.bind(slot, memory, stream);
  }
  Status launch(const KernelCall& call, const std::vector<std::pair<SlotRef, SlotMemory>>& slots,
                StreamHandle stream) override {
    on_.next_takes(time_.kernel(call.rank, call.program->kernels[call.kernel]));
    return inner_.launch(call, slots, stream);
  }
  Result<std::shared_ptr<void>> capture(const KernelCall& call,
                                        const std::vector<std::pair<SlotRef, SlotMemory>>& slots,
                                        StreamHandle stream) override {
    on_.next_takes(time_.kernel(call.rank, call.program->kernels[call.kernel]));
    return inner_.capture(call, slots, stream);
  }
  bool can_be_captured() const override { return true; }
  std::optional<Error> error_so_far() override { return inner_.error_so_far(); }

 private:
  const Doubles& on_;
  TimeModel time_;
  HostKernels inner_;
};

// The doubles' time. Where nothing can happen any more, waiting for it takes the rest of the timeout.
class DoubleClock final : public HostClock {
 public:
  DoubleClock(const Doubles& on, Nanoseconds timeout) : on_(on), timeout_(timeout) {}
  Nanoseconds now() override { return on_.now() + waited_; }
  void idle() override {
    if (on_.step() != 0) return;
    if (!stuck) stuck = on_.verdict(true);
    waited_ += timeout_;
  }
  // The doubles' own verdict at the moment when nothing moved.
  std::optional<Verdict> stuck;

 private:
  const Doubles& on_;
  Nanoseconds timeout_;
  Nanoseconds waited_ = 0;
};

struct Outcome {
  std::vector<SimStep> steps;
  RunRecord record;
  std::vector<std::vector<TraceWorker::Line>> lines;  // by rank
  std::vector<std::uint64_t> digests;                 // of persistent memory, by rank
  std::optional<Verdict> stuck;                       // the doubles'
  bool refused = false;                               // the run ended in an error that the test allows
  std::vector<std::size_t> captures;                  // after each step
  std::vector<Finding> judged;                        // findings of the doubles, of runs that completed
};

inline Outcome simulated(const LinkedProgram& linked, const RunConfig& config, int steps,
                         const std::set<int>& overflows = {}) {
  Outcome out;
  out.record = record_for(*linked.program);
  std::vector<TraceWorker> workers(linked.program->threads.size());
  for (TraceWorker& worker : workers) worker.overflows = overflows;
  std::vector<Worker*> pointers;
  for (TraceWorker& worker : workers) pointers.push_back(&worker);
  SimOptions options;
  options.model = model_of(config.sim);
  options.time = TimeModel(config);
  Simulator simulator(linked, options, pointers);
  for (int s = 0; s < steps; ++s) {
    Result<SimStep> step = simulator.run_step(s, out.record);
    out.refused = !step;
    if (!step) return out;
    out.steps.push_back(std::move(*step));
    if (!out.steps.back().completed) break;
  }
  for (const TraceWorker& worker : workers) {
    out.lines.push_back(worker.lines);
    out.digests.push_back(worker.digest());
  }
  return out;
}

// `transport_of` makes the transport for the ranks, on `devices` devices.
template <typename MakeTransport>
Outcome driven_by(const LinkedProgram& linked, const RunConfig& config, int steps, bool one_device,
                  MakeTransport transport_of, const std::set<int>& overflows = {}) {
  constexpr Nanoseconds kTimeout = 1000000000;
  Outcome out;
  out.record = record_for(*linked.program);
  const auto ranks = static_cast<int>(linked.program->threads.size());
  const Doubles& on = doubles(one_device ? 1 : ranks, config_toml(config));
  std::vector<TraceWorker> workers(linked.program->threads.size());
  for (TraceWorker& worker : workers) worker.overflows = overflows;
  std::vector<std::unique_ptr<TimedKernels>> kernels;
  std::vector<LocalRank> local;
  std::vector<ServedRank> served;
  for (int r = 0; r < ranks; ++r) {
    kernels.push_back(
        std::make_unique<TimedKernels>(on, workers[static_cast<std::size_t>(r)], TimeModel(config)));
    local.push_back({static_cast<std::uint32_t>(r), {on.libraries, one_device ? 0 : r}});
    served.push_back({local.back(), kernels.back().get()});
  }
  {
    const std::unique_ptr<Transport> transport = transport_of(local);
    CudaBackend backend(served, *transport, {});
    DoubleClock clock(on, kTimeout);
    CudaDriver driver(backend, clock, {kTimeout, model_of(config.sim)});
    const Status ready = driver.set_program(linked);
    EXPECT_TRUE(ready) << ready.error().text();
    for (int s = 0; ready && s < steps; ++s) {
      Result<SimStep> step = driver.run_step(s, out.record);
      out.captures.push_back(backend.captures());
      // The second: connections that do not fit each other end a nonblocking communicator's call (N2a, N82).
      const auto says = [&](const char* words) {
        return !step && step.error().message.find(words) != std::string::npos;
      };
      out.refused = says("differ") || says("ncclInternalError");
      EXPECT_TRUE(step || out.refused) << step.error().text();
      if (!step) break;
      out.steps.push_back(std::move(*step));
      if (!out.steps.back().completed) break;
    }
    out.stuck = clock.stuck;
    if (!out.stuck) out.judged = on.findings(false);
    for (const TraceWorker& worker : workers) {
      out.lines.push_back(worker.lines);
      out.digests.push_back(worker.digest());
    }
  }
  return out;
}

inline Outcome driven(const LinkedProgram& linked, const RunConfig& config, int steps,
                      const std::set<int>& overflows = {}) {
  LocalIds ids;
  return driven_by(
      linked, config, steps, false,
      [&](const std::vector<LocalRank>& ranks) { return std::make_unique<NcclTransport>(ranks, ids); },
      overflows);
}

// What each stream of each rank executed, in order.
using StreamOrder = std::map<std::tuple<int, Rank, int>, std::vector<std::tuple<std::uint32_t, int, Rank>>>;
inline StreamOrder order_of(const RunRecord& record) {
  StreamOrder out;
  for (const RunEvent& event : record.events)
    out[{event.step, event.rank, event.stream}].emplace_back(event.label, event.microbatch, event.peer);
  return out;
}

}  // namespace plumbline::cuda

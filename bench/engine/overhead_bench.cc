// What the engine takes beside the computations, in runs over Gloo of two ranks as threads of this process:
//
//   empty      kernels that do nothing: `us_item`, computing time of the host's thread for an item of the Program; the
//              aim is 3
//   two_ms     every stage call computes for 2 ms: `engine_%`, what the host's thread computes beside them, over them;
//              the aim is 1. `items_call` items of the Program belong to a stage call. `pipeline_%` is how much longer
//              a step took than the schedule's own (M + P - 1) * (F + B): it has messages and wake-ups in it too, and
//              on a busy machine whatever else ran.
//
// Times of threads, so that other programs do not count (except in pipeline_%). Transport threads are not the engine.
#if PLUMBLINE_HAVE_GLOO

#include <algorithm>
#include <chrono>
#include <ctime>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>

#include "backends/gloo/driver.h"
#include "backends/gloo/transport.h"
#include "backends/processes/store.h"
#include "engine/base/assert.h"
#include "engine/config/validate.h"
#include "engine/program/lower.h"

namespace plumbline {
namespace {

constexpr int kRanks = 2;
constexpr double kCall = 2e-3;

double thread_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Computes for so long in every forward and backward.
class Spinning final : public Worker {
 public:
  explicit Spinning(double seconds) : seconds_(seconds) {}
  Status launch(const KernelCall& call, SlotStore&) override {
    const KernelKind kind = call.program->kernels[call.kernel].kind;
    if (seconds_ == 0.0 || (kind != KernelKind::kForward && kind != KernelKind::kBackward)) return {};
    const double begin = thread_seconds();
    double now = begin;
    while (now - begin < seconds_) now = thread_seconds();
    spun += now - begin;
    ++calls;
    return {};
  }
  double spun = 0.0;
  int calls = 0;

 private:
  double seconds_;
};

struct Measured {
  double host = 0.0;  // of rank 0's thread, all steps
  double spun = 0.0;
  double wall = 0.0;
  int calls = 0;
  double items = 0.0;
};

Measured measure(int microbatches, double seconds, int steps) {
  RunConfig config;
  config.parallel.pp = kRanks;
  config.schedule.microbatches = microbatches;
  config.model.layers = kRanks;
  const Result<RunConfig> valid = validate(config, {}, Purpose::kSim);
  PL_ASSERT(valid.has_value());
  ModelSizes sizes = default_sizes(*valid);
  sizes.activation = 64;
  LowerOptions lowering;
  lowering.tail = StepTail::kSchedule;
  const Result<Program> program = program_of(*valid, sizes, lowering);
  PL_ASSERT(program.has_value());
  const Result<LinkedProgram> linked = link_program(*program);
  PL_ASSERT(linked.has_value());
  Result<std::unique_ptr<processes::Store>> store = processes::Store::serve(0);
  PL_ASSERT(store.has_value());
  Measured out;
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      auto transport = gloo::connect({"127.0.0.1", (*store)->port()}, "bench", rank, kRanks, 20.0);
      PL_ASSERT_MSG(transport.has_value(), transport ? std::string() : transport.error().text());
      Spinning worker(seconds);
      RankStatus status;
      const auto driver = gloo::driver(**transport, status, 0)(*valid, *linked, {&worker});
      RunRecord record = record_for(*program);
      PL_ASSERT(driver->run_step(0, record).has_value());  // the first step makes the tables
      worker.spun = 0.0;
      worker.calls = 0;
      const double begin = thread_seconds();
      const auto start = std::chrono::steady_clock::now();
      for (int step = 1; step <= steps; ++step) PL_ASSERT(driver->run_step(step, record).has_value());
      if (rank != 0) return;
      out.wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      out.host = thread_seconds() - begin - worker.spun;
      out.spun = worker.spun;
      out.calls = worker.calls;
      out.items = static_cast<double>(program->thread_items(0).size()) * steps;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return out;
}

void EngineOverhead(benchmark::State& state) {
  Measured empty, busy;
  constexpr int kMicrobatches = 32, kSteps = 3;
  for (auto _ : state) {
    empty = measure(512, 0.0, 5);
    busy = measure(kMicrobatches, kCall, kSteps);
  }
  state.counters["us_item"] = empty.host * 1e6 / empty.items;
  state.counters["engine_%"] = busy.host / busy.spun * 100.0;
  state.counters["items_call"] = busy.items / busy.calls;
  const double ideal = (kMicrobatches + kRanks - 1) * 2 * kCall * kSteps;
  state.counters["pipeline_%"] = (busy.wall / ideal - 1.0) * 100.0;
}
BENCHMARK(EngineOverhead)->Iterations(1)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace plumbline

#endif

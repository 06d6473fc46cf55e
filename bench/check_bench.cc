// How fast the checker proves a Program: from the Program in memory to the complete Verdict (link included),
// beside a bare max-plus recurrence over as many 8-byte records in the same process, which is about what one
// visit an operation costs at least. Rounds alternate between the two, so that a noisy machine disturbs both
// alike.
#include <algorithm>
#include <cstdint>
#include <ctime>
#include <vector>

#include <benchmark/benchmark.h>

#include "engine/program/link.h"
#include "engine/program/lower.h"
#include "sim/verify/check.h"

namespace plumbline {
namespace {

constexpr int kRounds = 15;

RunConfig config_of(ScheduleKind kind, int pp, int chunks, int microbatches) {
  RunConfig config;
  config.schedule.kind = kind;
  config.parallel.pp = pp;
  config.schedule.chunks = chunks;
  config.schedule.microbatches = microbatches;
  config.schedule.group_size = pp;
  config.model.layers = pp * chunks;
  config.grid = *RankGrid::create({1, 1, 1, 1, pp});
  return config;
}

// Processor time of this thread: the same as wall time on an idle machine, and still a measure on a busy one.
double seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// One record an operation: own rank, the rank it depends on, cost.
std::vector<std::uint64_t> recurrence_records(const Program& program, std::int64_t operations) {
  std::vector<std::uint64_t> records;
  records.reserve(static_cast<std::size_t>(operations));
  const auto ranks = static_cast<std::uint64_t>(program.threads.size());
  for (std::int64_t i = 0; i < operations; ++i) {
    const std::uint64_t own = static_cast<std::uint64_t>(i) / 6 % ranks;
    records.push_back(own | (own + 1) % ranks << 16 | static_cast<std::uint64_t>(i % 7 + 1) << 32);
  }
  return records;
}

std::int64_t recurrence(const std::vector<std::uint64_t>& records, std::vector<std::int64_t>& time) {
  for (const std::uint64_t record : records) {
    std::int64_t& own = time[record & 0xFFFF];
    own = std::max(own, time[record >> 16 & 0xFFFF]) + static_cast<std::int64_t>(record >> 32);
  }
  return time.front();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void check_rate(benchmark::State& state, ScheduleKind kind, int pp, int chunks, int microbatches,
                StepTail tail) {
  const RunConfig config = config_of(kind, pp, chunks, microbatches);
  LowerOptions lowering;
  lowering.tail = tail;
  const Result<Program> program = program_of(config, default_sizes(config), lowering);
  if (!program) return state.SkipWithError(program.error().text().c_str());
  const ProgramSize size = program_size(*program);
  const auto operations = static_cast<double>(size.operations());
  const std::vector<std::uint64_t> records = recurrence_records(*program, size.operations());
  std::vector<std::int64_t> time(program->threads.size());
  CheckOptions options;
  options.time = TimeModel(config);
  std::vector<double> checks, linear, ratios;
  for (auto _ : state) {
    for (int round = 0; round < kRounds; ++round) {
      double start = seconds();
      benchmark::DoNotOptimize(recurrence(records, time));
      linear.push_back(operations / (seconds() - start) / 1e6);
      start = seconds();
      const Result<LinkedProgram> linked = link_program(*program);
      if (!linked) return state.SkipWithError(linked.error().text().c_str());
      const Result<Verdict> verdict = check_program(*linked, options);
      checks.push_back(operations / (seconds() - start) / 1e6);
      ratios.push_back(checks.back() / linear.back());
      if (!verdict || !verdict->holds() || verdict->operations != size.operations()) {
        return state.SkipWithError("the verdict is not what it should be");
      }
    }
  }
  state.counters["Mops"] = operations / 1e6;
  state.counters["best_Mops/s"] = *std::max_element(checks.begin(), checks.end());
  state.counters["median_Mops/s"] = median(checks);
  state.counters["recurrence_Mops/s"] = median(linear);
  state.counters["ratio"] = median(ratios);
  state.counters["B/op"] = static_cast<double>(size.bytes) / operations;
}

BENCHMARK_CAPTURE(check_rate, 1f1b_64x1024, ScheduleKind::kOneFOneB, 64, 1, 1024, StepTail::kTrain)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(check_rate, 1f1b_512x1024, ScheduleKind::kOneFOneB, 512, 1, 1024, StepTail::kTrain)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(check_rate, interleaved_8x4x512, ScheduleKind::kInterleaved, 8, 4, 512, StepTail::kTrain)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace plumbline

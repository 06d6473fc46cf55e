// How fast the checker proves a Program: from the Program in memory to the complete Verdict (link included),
// beside a bare max-plus recurrence over as many 8-byte records in the same process, which is about what one
// visit an operation costs at least. Rounds alternate between the two, so that a noisy machine disturbs both
// alike.
#include <benchmark/benchmark.h>

#include "bench/check_programs.h"

namespace plumbline::bench {
namespace {

constexpr int kRounds = 21;

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

void check_rate(benchmark::State& state, const Shape& shape, bool reread = false) {
  Result<Program> program = program_of_shape(shape);
  if (program && reread) program = reread_with_ranks_permuted(std::move(*program), 7);
  if (!program) return state.SkipWithError(program.error().text().c_str());
  const ProgramSize size = program_size(*program);
  const auto operations = static_cast<double>(size.operations());
  const std::vector<std::uint64_t> records = recurrence_records(*program, size.operations());
  std::vector<std::int64_t> time(program->threads.size());
  CheckOptions options;
  options.time = TimeModel(config_of(shape));
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
  const double memory = extra_memory([&] {
    const LinkedProgram linked = link_program(*program).value();
    benchmark::DoNotOptimize(check_program(linked, options));
  });
  state.counters["Mops"] = operations / 1e6;
  state.counters["best_Mops/s"] = *std::max_element(checks.begin(), checks.end());
  state.counters["median_Mops/s"] = median(checks);
  state.counters["recurrence_Mops/s"] = median(linear);
  state.counters["ratio_best"] = *std::max_element(ratios.begin(), ratios.end());
  state.counters["ratio"] = median(ratios);
  state.counters["B/op"] = static_cast<double>(size.bytes) / operations;
  state.counters["extra_B/op"] = memory / operations;
}

constexpr Shape k64{ScheduleKind::kOneFOneB, 64, 1, 1024};
constexpr Shape k128{ScheduleKind::kOneFOneB, 128, 1, 512};
constexpr Shape k512{ScheduleKind::kOneFOneB, 512, 1, 1024};
constexpr Shape kChunks{ScheduleKind::kInterleaved, 8, 4, 512};
constexpr Shape kOverlap{ScheduleKind::kInterleaved, 8, 4, 512, 1, P2pStyle::kSeparate};
BENCHMARK_CAPTURE(check_rate, 1f1b_64x1024, k64)->Iterations(1)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(check_rate, 1f1b_128x512, k128)->Iterations(1)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(check_rate, 1f1b_512x1024, k512)->Iterations(1)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(check_rate, 1f1b_64x1024_reread_permuted, k64, true)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(check_rate, 1f1b_512x1024_reread_permuted, k512, true)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(check_rate, interleaved_8x4x512, kChunks)->Iterations(1)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(check_rate, interleaved_8x4x512_overlap, kOverlap)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace plumbline::bench

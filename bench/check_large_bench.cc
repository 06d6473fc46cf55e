// The checker on steps of thousands of ranks - every rank with items of its own, items shared by replicas, and by
// quotient - and on many small Programs, on one core and on all.
#include <atomic>
#include <chrono>
#include <thread>

#include <benchmark/benchmark.h>

#include "bench/check_programs.h"
#include "sim/verify/quotient.h"

namespace plumbline::bench {
namespace {

enum class Form { kMaterialised, kShared, kQuotient };

void check_large(benchmark::State& state, const Shape& shape, Form form) {
  Result<Program> program = program_of_shape(shape);
  if (!program) return state.SkipWithError(program.error().text().c_str());
  if (form == Form::kMaterialised) materialise(*program);
  const std::int64_t operations = program_size(*program).operations();
  CheckOptions options;
  options.time = TimeModel(config_of(shape));
  std::vector<double> times;
  Result<Verdict> verdict = fail(ErrorCode::kUnsupported, "not checked");
  const double memory = extra_memory([&] {
    for (auto _ : state) {
      for (int round = 0; round < (form == Form::kQuotient ? 15 : 5); ++round) {
        const double start = seconds();
        if (form == Form::kQuotient) {
          verdict = check_quotient(*program, options);
        } else {
          const LinkedProgram linked = link_program(*program).value();
          verdict = check_program(linked, options);
        }
        times.push_back(seconds() - start);
      }
    }
  });
  if (!verdict) return state.SkipWithError(verdict.error().text().c_str());
  if (!verdict->holds() || verdict->operations != operations)
    return state.SkipWithError("the verdict is not what it should be");
  state.counters["Mops"] = static_cast<double>(operations) / 1e6;
  state.counters["best_ms"] = 1e3 * *std::min_element(times.begin(), times.end());
  state.counters["median_ms"] = 1e3 * median(times);
  state.counters["program_MB"] = static_cast<double>(program_size(*program).bytes) / 1e6;
  state.counters["extra_MB"] = memory / 1e6;
}

constexpr Shape k16384{ScheduleKind::kOneFOneB, 16, 1, 128, 1024};
constexpr Shape k100M{ScheduleKind::kInterleaved, 64, 4, 512, 128};
#define ROW(name, shape, form) \
  BENCHMARK_CAPTURE(check_large, name, shape, form)->Iterations(1)->Unit(benchmark::kMillisecond)
ROW(16384_ranks_shared, k16384, Form::kShared);
ROW(16384_ranks_materialised, k16384, Form::kMaterialised);
ROW(16384_ranks_quotient, k16384, Form::kQuotient);
ROW(100M_shared, k100M, Form::kShared);
ROW(100M_quotient, k100M, Form::kQuotient);
ROW(100M_materialised, k100M, Form::kMaterialised);

// 2,000 Programs of pp 8, m 8, no two alike: ranks are renamed at random.
void check_small(benchmark::State& state, unsigned workers) {
  const Shape shape{ScheduleKind::kOneFOneB, 8, 1, 8};
  const Result<Program> model = program_of_shape(shape);
  if (!model) return state.SkipWithError(model.error().text().c_str());
  std::vector<Program> programs;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    Result<Program> program = reread_with_ranks_permuted(*model, seed);
    if (!program) return state.SkipWithError(program.error().text().c_str());
    programs.push_back(std::move(*program));
  }
  CheckOptions options;
  options.time = TimeModel(config_of(shape));
  std::vector<double> times;
  for (auto _ : state) {
    for (int round = 0; round < 15; ++round) {
      const auto start = std::chrono::steady_clock::now();
      const double own = seconds();
      const std::vector<Result<Verdict>> verdicts = check_programs(programs, options, workers);
      const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      times.push_back(workers == 1 ? seconds() - own : wall);
      for (const Result<Verdict>& verdict : verdicts) {
        if (!verdict || !verdict->holds()) return state.SkipWithError("a verdict is not what it should be");
      }
    }
  }
  state.counters["best_us"] = 1e6 * *std::min_element(times.begin(), times.end()) / 2000.0;
  state.counters["median_us"] = 1e6 * median(times) / 2000.0;
}
BENCHMARK_CAPTURE(check_small, 2000_different_one_core, 1)->Iterations(1)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(check_small, 2000_different_all_cores, 0)->Iterations(1)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace plumbline::bench

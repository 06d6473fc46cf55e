// How fast schedules are made and timed. Generators that follow a rule: actions a second, from the
// arguments to the Schedule in memory. Generators that search: milliseconds at 16 ranks and 128
// microbatches. The evaluator: actions a second. Processor time of this thread, best of several rounds.
#include <algorithm>
#include <ctime>
#include <string>

#include <benchmark/benchmark.h>

#include "engine/program/lower.h"
#include "engine/schedule/evaluate.h"
#include "engine/schedule/generator.h"

namespace plumbline {
namespace {

constexpr int kRounds = 9;

double seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

GeneratorArgs args_of(int ranks, int chunks, int microbatches) {
  GeneratorArgs args;
  args.ranks = ranks;
  args.chunks = chunks;
  args.microbatches = microbatches;
  args.costs = StageCosts{{10}, {12}, {8}, {}, {}, 2};
  return args;
}

template <typename Work>
double best_seconds(Work work) {
  double best = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    const double start = seconds();
    work();
    best = std::min(best, seconds() - start);
  }
  return best;
}

void generate(benchmark::State& state, const std::string& name, int ranks, int chunks, int microbatches) {
  const GeneratorArgs args = args_of(ranks, chunks, microbatches);
  const auto generator = find_generator(name);
  if (!generator) return state.SkipWithError(generator.error().text().c_str());
  const Result<Schedule> schedule = (*generator)->make(args);
  if (!schedule) return state.SkipWithError(schedule.error().text().c_str());
  const auto actions = static_cast<double>(schedule->actions.size());
  double making = 0, timing = 0;
  for (auto _ : state) {
    making = best_seconds([&] { benchmark::DoNotOptimize((*generator)->make(args)); });
    timing = best_seconds([&] { benchmark::DoNotOptimize(evaluate(*schedule, args.costs)); });
  }
  state.counters["actions"] = actions;
  state.counters["generate_ms"] = making * 1e3;
  state.counters["generate_Mactions/s"] = actions / making / 1e6;
  state.counters["evaluate_Mactions/s"] = actions / timing / 1e6;
}

// From a configuration to the Program: generator, communication, tables, items. An action is what the schedule's
// grammar calls one - a computation, a send or a receive; the few collectives of the step's tail are not counted.
// Computations alone are told too.
// `generator` empty: the calls that Megatron makes of this kind of schedule; else that order with calls by rule.
void to_program(benchmark::State& state, ScheduleKind kind, const std::string& generator, int ranks,
                int chunks, int microbatches) {
  RunConfig config;
  config.schedule.kind = kind;
  config.schedule.generator = generator;
  config.parallel.pp = ranks;
  config.schedule.chunks = chunks;
  config.schedule.microbatches = microbatches;
  config.schedule.group_size = ranks;
  config.model.layers = ranks * chunks;
  config.grid = *RankGrid::create({1, 1, 1, 1, ranks});
  const ModelSizes sizes = default_sizes(config);
  const Result<Program> program = program_of(config, sizes);
  if (!program) return state.SkipWithError(program.error().text().c_str());
  const ProgramSize size = program_size(*program);
  const auto actions = static_cast<double>(size.computations + size.sends + size.receives);
  double time = 0;
  for (auto _ : state) time = best_seconds([&] { benchmark::DoNotOptimize(program_of(config, sizes)); });
  state.counters["actions"] = actions;
  state.counters["program_ms"] = time * 1e3;
  state.counters["program_Mactions/s"] = actions / time / 1e6;
  state.counters["program_Mcomputations/s"] = static_cast<double>(size.computations) / time / 1e6;
}

BENCHMARK_CAPTURE(generate, interleaved_8x4x128, "interleaved", 8, 4, 128)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(generate, interleaved_8x4x512, "interleaved", 8, 4, 512)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(generate, interleaved_8x4x2048, "interleaved", 8, 4, 2048)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(generate, 1f1b_64x1024, "1f1b", 64, 1, 1024)->Iterations(1)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(generate, zb_h1_64x1024, "zb-h1", 64, 1, 1024)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(generate, zb_v_16x128, "zb-v", 16, 2, 128)->Iterations(1)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(generate, dualpipe_v_16x128, "dualpipe-v", 16, 2, 128)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(generate, zb_auto_16x128, "zb-auto", 16, 1, 128)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(generate, zbv_auto_16x128, "zbv-auto", 16, 2, 128)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(generate, v_min_16x128, "v-min", 16, 2, 128)->Iterations(1)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(generate, v_half_16x128, "v-half", 16, 2, 128)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(generate, v_auto_16x128, "v-auto", 16, 2, 128)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(generate, hanayo_16x4x128, "hanayo", 16, 4, 128)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(to_program, interleaved_8x4x128, ScheduleKind::kInterleaved, "", 8, 4, 128)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(to_program, interleaved_8x4x512, ScheduleKind::kInterleaved, "", 8, 4, 512)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(to_program, interleaved_8x4x2048, ScheduleKind::kInterleaved, "", 8, 4, 2048)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(to_program, torch_interleaved_8x4x512, ScheduleKind::kGenerator, "torch-interleaved", 8, 4,
                  512)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(to_program, zb_h1_64x1024, ScheduleKind::kGenerator, "zb-h1", 64, 1, 1024)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(to_program, dualpipe_16x128, ScheduleKind::kGenerator, "dualpipe", 16, 1, 128)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace plumbline

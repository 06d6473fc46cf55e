// Operations a second of the simulator, timing only: combined 1F1B calls, 64 ranks, 256 microbatches.
#include <benchmark/benchmark.h>

#include "engine/config/validate.h"
#include "engine/program/link.h"
#include "engine/program/lower.h"
#include "sim/simulator.h"

namespace plumbline {
namespace {

void simulate_one_f_one_b(benchmark::State& state, const NcclModel& model, bool record_events) {
  RunConfig config;
  config.parallel.pp = static_cast<int>(state.range(0));
  config.schedule.microbatches = static_cast<int>(state.range(1));
  config.model.layers = config.parallel.pp;
  const Result<RunConfig> valid = validate(config);
  if (!valid) return state.SkipWithError(valid.error().text().c_str());
  config = *valid;
  const Result<Program> program = program_of(config, default_sizes(config));
  if (!program) return state.SkipWithError(program.error().text().c_str());
  const LinkedProgram linked = link_program(*program).value();
  SimOptions options;
  options.model = model;
  options.time = TimeModel(config);
  options.record_events = options.record_memory = record_events;
  Simulator simulator(linked, options);
  for (auto _ : state) {
    RunRecord record;
    const Result<SimStep> step = simulator.run_step(0, record);
    if (!step || !step->completed) return state.SkipWithError("the step does not complete");
    benchmark::DoNotOptimize(record);
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations()) *
                          program_size(*program).operations());
}

void BM_SimulateDefault(benchmark::State& state) { simulate_one_f_one_b(state, default_model(), false); }
void BM_SimulateCertification(benchmark::State& state) {
  simulate_one_f_one_b(state, certification_model(), false);
}
void BM_SimulateRecorded(benchmark::State& state) { simulate_one_f_one_b(state, default_model(), true); }
BENCHMARK(BM_SimulateDefault)->Args({8, 64})->Args({64, 256})->Unit(benchmark::kMillisecond);
BENCHMARK(BM_SimulateCertification)->Args({64, 256})->Unit(benchmark::kMillisecond);
BENCHMARK(BM_SimulateRecorded)->Args({64, 256})->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace plumbline

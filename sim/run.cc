#include "sim/run.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "engine/base/hash.h"
#include "engine/config/explain.h"
#include "engine/program/link.h"
#include "sim/nccl_model.h"
#include "sim/simulator.h"

namespace plumbline {
namespace {

// The same fold as the checker's: over all threads, the rank and its items.
std::uint64_t trace_hash_of(const Program& program) {
  Hasher trace;
  for (std::size_t t = 0; t < program.threads.size(); ++t) {
    const std::span<const Item> items = program.thread_items(t);
    trace.i64(program.threads[t].rank);
    trace.u64(hash64(items.data(), items.size() * sizeof(Item)));
  }
  return trace.digest();
}

StepRow step_row(const RunConfig& config, const SimStep& step, int number) {
  StepRow row;
  row.step = number;
  row.iteration = number + 1;
  row.loss = std::numeric_limits<double>::quiet_NaN();  // there are no tensors
  row.consumed_samples = static_cast<std::int64_t>(number + 1) * config.schedule.microbatches *
                         config.parallel.dp * config.train.micro_batch_size;
  row.begin = step.begin;
  row.end = step.end;
  return row;
}

void add_memory(const RunRecord& record, const Program& program, Bytes limit, Verdict& verdict) {
  verdict.memory.resize(program.threads.size());
  for (const MemoryPoint& point : record.memory) {
    RankMemory& memory = verdict.memory[static_cast<std::size_t>(point.rank)];
    memory.peak = std::max(memory.peak, point.live);
  }
  if (limit <= 0) return;
  for (std::size_t t = 0; t < verdict.memory.size(); ++t) {
    if (verdict.memory[t].peak <= limit) continue;
    Finding finding;
    finding.kind = FindingKind::kMemoryLimit;
    finding.operations.push_back({program.threads[t].rank, -1, -1, "its step"});
    finding.why = "Rank " + std::to_string(t) + " reaches " + format_bytes(verdict.memory[t].peak) +
                  ", the limit is " + format_bytes(limit) + ".";
    verdict.findings.push_back(std::move(finding));
  }
}

}  // namespace

Result<SimOutcome> simulate_run(const RunConfig& config, const Program& program, int steps) {
  const Result<LinkedProgram> linked = link_program(program);
  if (!linked) return tl::unexpected(linked.error());
  SimOutcome outcome;
  outcome.record = record_for(program);
  outcome.record.backend = "sim";
  outcome.record.schedule = program.name;
  outcome.record.config = config_toml(config);
  outcome.record.seed = config.train.seed;

  SimOptions options;
  options.model = model_of(config.sim);
  options.time = TimeModel(config);
  options.numerics = numerics_of(config.sim);
  ModeVerdict mode;
  mode.mode = options.model.name();
  Simulator simulator(*linked, std::move(options));
  for (int number = 0; number < steps && mode.completes; ++number) {
    Result<SimStep> step = simulator.run_step(number, outcome.record);
    if (!step) return tl::unexpected(step.error());
    mode.completes = step->completed;
    // Steps are alike: what the first one shows, the others would only repeat.
    if (number == 0 || !step->completed) {
      mode.findings.insert(mode.findings.end(), step->findings.begin(), step->findings.end());
    }
    if (step->completed) {
      mode.makespan = step->end;
      outcome.record.steps.push_back(step_row(config, *step, number));
    }
  }
  outcome.verdict.program = program.name;
  outcome.verdict.operations = program_size(program).operations();
  outcome.verdict.trace_hash = trace_hash_of(program);
  add_memory(outcome.record, program, config.memory.limit, outcome.verdict);
  outcome.verdict.modes.push_back(std::move(mode));
  if (!outcome.verdict.modes.front().completes) outcome.record.verdict_json = verdict_json(outcome.verdict);
  return outcome;
}

}  // namespace plumbline

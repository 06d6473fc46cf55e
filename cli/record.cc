// `record dump`: what a run's record holds, as text or JSON.
#include <cmath>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/common/command.h"
#include "cli/common/exit_codes.h"
#include "cli/common/output.h"
#include "cli/record_diff.h"
#include "cli/record_file.h"
#include "engine/base/hash.h"
#include "engine/base/json_writer.h"
#include "engine/base/units.h"
#include "engine/runtime/timers.h"

namespace plumbline::cli {
namespace {

struct Options {
  std::vector<std::string> words;
  bool events = false;
  bool json = false;
  std::string tolerance = "bitwise";
};

void header_json(const RunRecord& record, JsonWriter& json) {
  json.field("format", kRunRecordVersion).field("producer", record.producer).field("backend", record.backend);
  json.field("schedule", record.schedule).field("command", record.command).field("seed", record.seed);
  json.field("program_digest", hex64(record.program_digest)).field("data_digest", record.data_digest);
  if (record.resumed_from > 0) json.field("resumed_from", record.resumed_from);
  json.field("ranks", record.ranks).field("stages", record.stages).field("microbatches", record.microbatches);
  json.field("digest", hex64(record.digest())).field("completed", record.verdict_json.empty());
  json.field("event_count", static_cast<std::int64_t>(record.events.size()));
  json.field("memory_count", static_cast<std::int64_t>(record.memory.size())).field("config", record.config);
}

void step_json(const StepRow& step, JsonWriter& json) {
  json.begin_object()
      .field("step", step.step)
      .field("iteration", step.iteration)
      .field("evaluation", step.evaluation);
  json.field("skipped", step.skipped).field("loss", step.loss).field("scale", step.scale);
  json.field("scale_after", step.scale_after).field("grad_norm", step.grad_norm).field("lr", step.lr);
  if (step.zeros >= 0) json.field("zeros", step.zeros);
  json.field("consumed_samples", step.consumed_samples).field("params_digest", hex64(step.params_digest));
  json.field("optimizer_digest", hex64(step.optimizer_digest))
      .field("begin", step.begin)
      .field("end", step.end);
  json.end_object();
}

void event_json(const RunRecord& record, const RunEvent& event, JsonWriter& json) {
  json.begin_object().field("step", event.step).field("rank", event.rank);
  json.field("what", record.labels[event.label].name).field("stream", record.streams[event.stream]);
  json.field("microbatch", event.microbatch).field("peer", event.peer);
  json.field("start", event.start).field("ready", event.ready).field("end", event.end).end_object();
}

std::string as_json(const RunRecord& record, bool events) {
  JsonWriter json;
  json.begin_object();
  header_json(record, json);
  json.key("steps").begin_array();
  for (const StepRow& step : record.steps) step_json(step, json);
  json.end_array();
  if (events) {
    json.key("events").begin_array();
    for (const RunEvent& event : record.events) event_json(record, event, json);
    json.end_array();
  }
  return json.end_object().text();
}

std::string number_or_dash(double value, bool known) { return known ? fmt::format("{:.6g}", value) : "-"; }

void print_steps(const RunRecord& record) {
  Table table{{"step", "iter", "kind", "loss", "scale", "grad norm", "lr", "time", "parameters"}, {}};
  for (const StepRow& step : record.steps) {
    table.rows.push_back({std::to_string(step.step), std::to_string(step.iteration),
                          step.evaluation ? "eval"
                          : step.skipped  ? "skipped"
                                          : "train",
                          number_or_dash(step.loss, !std::isnan(step.loss)), fmt::format("{:g}", step.scale),
                          number_or_dash(step.grad_norm, step.grad_norm >= 0.0),
                          fmt::format("{:.4g}", step.lr), format_duration(step.end - step.begin),
                          step.params_digest == 0 ? "-" : hex64(step.params_digest)});
  }
  print(layout(table, 200));
}

void print_events(const RunRecord& record) {
  Table table{{"step", "rank", "stream", "what", "mb", "peer", "start ns", "ready ns", "end ns"}, {}};
  const auto or_dash = [](std::int32_t value) {
    return value < 0 ? std::string("-") : std::to_string(value);
  };
  for (const RunEvent& event : record.events) {
    table.rows.push_back({std::to_string(event.step), std::to_string(event.rank),
                          record.streams[event.stream], record.labels[event.label].name,
                          or_dash(event.microbatch), or_dash(event.peer), std::to_string(event.start),
                          std::to_string(event.ready), std::to_string(event.end)});
  }
  print(layout(table, 200));
}

void print_text(const RunRecord& record, bool events) {
  print_line(fmt::format("{} by {} on {}", record.schedule, record.producer, record.backend));
  print_line(fmt::format("{} ranks, {} stages, {} microbatches; seed {}", record.ranks, record.stages,
                         record.microbatches, record.seed));
  print_line(fmt::format("{} steps, {} events, {} memory points", record.steps.size(), record.events.size(),
                         record.memory.size()));
  if (record.resumed_from > 0)
    print_line(fmt::format("goes on from the checkpoint of iteration {}", record.resumed_from));
  if (!record.command.empty()) print_line("command " + record.command);
  print_line(fmt::format("program {}  digest {}", hex64(record.program_digest), hex64(record.digest())));
  if (!record.verdict_json.empty()) print_line("did not complete; 'plumbline report' shows why");
  print_line("");
  print_steps(record);
  if (!events) return;
  print_line("");
  print_events(record);
}

// Two records of runs that should be the same; exit code 4 where their numbers or their order differ.
int diff(const Options& options) {
  if (options.words.size() != 3)
    return report(Error{ErrorCode::kUsage, "say which two records: plumbline record diff A B", {}});
  return diff_record_files(options.words[1], options.words[2], options.tolerance);
}

// As Megatron logs them.
int timers(const Options& options) {
  if (options.words.size() < 2)
    return report(Error{ErrorCode::kUsage, "say of which run: plumbline record timers FILE", {}});
  const Result<RunRecord> record = read_record({options.words.begin() + 1, options.words.end()});
  if (!record) return report(record.error());
  const std::vector<TimerRow> rows = megatron_timers(*record);
  if (rows.empty()) return report(Error{ErrorCode::kUsage, "this record has no training step", {}});
  print_line("(min, max) time across ranks (ms):");
  for (const TimerRow& row : rows)
    print_line(fmt::format("    {:.<34}: ({:.2f}, {:.2f})", row.name + " ", row.least / 1e6, row.most / 1e6));
  return kExitHolds;
}

int dump(const Options& options) {
  if (!options.words.empty() && options.words.front() == "diff") return diff(options);
  if (!options.words.empty() && options.words.front() == "timers") return timers(options);
  if (options.words.size() < 2 || options.words.front() != "dump") {
    return report(Error{ErrorCode::kUsage, "say what to do with which file: plumbline record dump FILE", {}});
  }
  const Result<RunRecord> record = read_record({options.words.begin() + 1, options.words.end()});
  if (!record) return report(record.error());
  if (options.json) {
    print_line(as_json(*record, options.events));
  } else {
    print_text(*record, options.events);
  }
  return kExitHolds;
}

Run build(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("words", options->words,
                 "dump or timers, then the file or the files of a run's ranks; or diff, then two records");
  app.add_flag("--events", options->events, "every event as well");
  app.add_flag("--json", options->json, "one JSON document");
  app.add_option("--tolerance", options->tolerance, kToleranceHelp);
  return [=]() -> int { return dump(*options); };
}

const RegisterCommand kCommand(
    {.name = "record",
     .summary = "show what a run's record holds",
     .usage = "dump FILE... [--events] [--json] | timers FILE... | diff A B",
     .examples = {{"plumbline record dump run.plmb", "header and steps"},
                  {"plumbline record timers run.plmb", "under the names of Megatron's log"},
                  {"plumbline record diff sim.plmb gloo.plmb", "order, numbers, times"},
                  {"plumbline record dump run.plmb --events --json", "everything"}},
     .build = build});

}  // namespace
}  // namespace plumbline::cli

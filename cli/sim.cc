// `sim`: executes a Program in virtual time, without tensors, and says how long it takes.
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/common/command.h"
#include "cli/common/exit_codes.h"
#include "cli/common/output.h"
#include "cli/input.h"
#include "cli/verdict_output.h"
#include "engine/base/hash.h"
#include "engine/base/json_writer.h"
#include "engine/base/text.h"
#include "engine/base/units.h"
#include "reports/analysis.h"
#include "sim/run.h"

namespace plumbline::cli {
namespace {

struct Options {
  bool json = false;
  int steps = 1;
  std::string out;
};

Status save(const RunRecord& record, const std::string& path) {
  return write_file(path, serialize_record(record));
}

void print_times(const RunRecord& record) {
  const Analysis analysis = analyze(record);
  if (analysis.steps.empty()) return;
  const StepTime& time = analysis.steps[static_cast<std::size_t>(analysis.typical)].time;
  Table table{{"", ""}, {}};
  table.rows.push_back({"step time", format_duration(time.step_time)});
  table.rows.push_back({"pipeline makespan", format_duration(time.window)});
  table.rows.push_back({"bubble (makespan)", fmt::format("{:.1f} %", 100.0 * time.bubble_makespan())});
  table.rows.push_back({"bubble (stage time)", fmt::format("{:.1f} %", 100.0 * time.bubble_stage_time())});
  const std::string text = layout(table, output_width());
  print(text.substr(text.find('\n') + 1));
}

std::string as_json(const SimOutcome& outcome, const std::string& path) {
  const Analysis analysis = analyze(outcome.record);
  JsonWriter json;
  json.begin_object().field("plumbline", 1);
  json.field("exit_code", outcome.verdict.exit_code());
  if (!analysis.steps.empty()) {
    const StepTime& time = analysis.steps[static_cast<std::size_t>(analysis.typical)].time;
    json.field("step_time_ns", time.step_time).field("makespan_ns", time.window);
    json.field("bubble_makespan", time.bubble_makespan())
        .field("bubble_stage_time", time.bubble_stage_time());
  }
  json.field("digest", hex64(outcome.record.digest()));
  if (!path.empty()) json.field("record", path);
  json.key("findings").begin_array();
  const auto list = [&](const std::vector<Finding>& findings) {
    for (const Finding& finding : findings) {
      json.begin_object()
          .field("kind", finding_kind_name(finding.kind))
          .field("why", finding.why)
          .end_object();
    }
  };
  list(outcome.verdict.findings);
  for (const ModeVerdict& mode : outcome.verdict.modes) list(mode.findings);
  return json.end_array().end_object().text();
}

int simulate(const Options& options, const InputOptions& input_options, const ConfigArguments& arguments) {
  if (options.steps < 1)
    return report(Error{ErrorCode::kUsage, fmt::format("--steps {} must be at least 1", options.steps), {}});
  const Result<Input> input = load_input(arguments, input_options, Purpose::kSim);
  if (!input) return report(input.error());
  if (!input->program) {
    Verdict verdict;
    verdict.program = input->name;
    verdict.findings = input->structure;
    print_verdict(verdict, options.json);
    return verdict.exit_code();
  }
  Result<SimOutcome> outcome = simulate_run(input->config, *input->program, options.steps);
  if (!outcome) return report(outcome.error());
  if (!options.out.empty()) {
    if (const Status saved = save(outcome->record, options.out); !saved) return report(saved.error());
  }
  if (options.json) {
    print_line(as_json(*outcome, options.out));
    return outcome->verdict.exit_code();
  }
  print_verdict(outcome->verdict, false);
  print_times(outcome->record);
  print_line("digest " + hex64(outcome->record.digest()));
  if (!options.out.empty()) print_line("record " + options.out);
  return outcome->verdict.exit_code();
}

Run build(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_flag("--json", options->json, "times, findings and digest as one JSON document");
  app.add_option("--steps", options->steps, "training steps (1)");
  app.add_option("-o,--out", options->out, "file for the run's record");
  const auto input = add_input_options(app);
  const auto arguments = add_config_arguments(app);
  return [=]() -> int { return simulate(*options, *input, *arguments); };
}

const RegisterCommand kCommand(
    {.name = "sim",
     .summary = "execute a schedule in virtual time, without tensors",
     .usage = "[CONFIG | SCHEDULE.csv | PROGRAM.txt | -] [-o RUN] [flags]",
     .examples = {{"plumbline sim --pp 4 -m 8 -o run.plmb", "times, and a record for 'report'"},
                  {"plumbline sim run.toml --slow rank=3:1.2", "what if one rank were slower"},
                  {"plumbline sim run.toml --link 0-1:10GB/s", "or one link"}},
     .build = build});

}  // namespace
}  // namespace plumbline::cli

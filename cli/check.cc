// `check`: proves that a configuration, a schedule, a Program or scenarios cannot hang, drop, swap or double
// anything.
#include <map>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/common/command.h"
#include "cli/common/exit_codes.h"
#include "cli/common/output.h"
#include "cli/verdict_output.h"
#include "cli/verdicts.h"
#include "engine/base/json_writer.h"
#include "engine/base/text.h"
#include "engine/base/units.h"
#include "sim/scenario/examine.h"

namespace plumbline::cli {
namespace {

// CLI11's own check for numbers that are not negative names the largest double when it refuses.
const CLI::Range kCount(0, (1 << 20) - 1);

struct Options {
  bool json = false;
  bool expected = false;
  bool sensitivity = false;
  std::string format = "text";
  std::string junit;
  std::string modes;
  std::string memory_limit;
};

// {"id": ..., "verdict": {mode: value}}, in the words of reference models.
std::string reference_line(const Judged& judged) {
  JsonWriter json;
  json.begin_object().field("id", judged.scenario->id).key("verdict").begin_object();
  for (const ModeVerdict& mode : judged.verdict.modes) json.field(mode.mode, reference_value(mode));
  return json.end_object().end_object().text();
}

// "swap: DEADLOCK under rendezvous+strict+cold; OK under rendezvous"
std::string summary_line(const Judged& judged) {
  std::vector<std::pair<std::string, std::vector<std::string>>> values;  // in the order of their first mode
  for (const ModeVerdict& mode : judged.verdict.modes) {
    const std::string value = reference_value(mode);
    auto at = values.begin();
    while (at != values.end() && at->first != value) ++at;
    if (at == values.end()) at = values.insert(at, {value, {}});
    at->second.push_back(mode.mode);
  }
  if (values.size() == 1) return fmt::format("{}: {}", judged.scenario->id, values.front().first);
  std::string line = judged.scenario->id;
  for (std::size_t i = 0; i < values.size(); ++i)
    line +=
        fmt::format("{} {} under {}", i == 0 ? ":" : ";", values[i].first, fmt::join(values[i].second, ", "));
  return line;
}

void print_judged(const Judged& judged, const std::string& format, bool many) {
  if (format == "github") {
    print(github_annotations(judged.verdict, judged.place));
  } else if (format == "json" && judged.scenario != nullptr) {
    print_line(reference_line(judged));
  } else if (many && judged.scenario != nullptr) {
    print_line(summary_line(judged));
  } else {
    print_verdict(judged.verdict, format == "json");
  }
}

// Compares with the verdicts that the scenarios' file has. True: all agree.
bool compare_expected(const std::vector<Judged>& all, const std::string& format) {
  std::size_t modes = 0, differing = 0;
  for (const Judged& judged : all) {
    const std::vector<std::string> found = differences(*judged.scenario, judged.verdict);
    for (const std::string& text : found) warn(fmt::format("{}: {}", judged.scenario->id, text));
    differing += found.size();
    for (const ModeVerdict& mode : judged.verdict.modes) modes += judged.scenario->expected.count(mode.mode);
  }
  const std::string line =
      fmt::format("{} scenarios, {} verdicts compared, {} differ", all.size(), modes, differing);
  if (format == "text") print_line(line);
  if (format != "text") hint(line);
  return differing == 0 && modes > 0;
}

Status validate(const Options& options, const Input& input) {
  if (options.format != "text" && options.format != "json" && options.format != "github")
    return fail(ErrorCode::kUsage,
                fmt::format("--format '{}' is not one of text, json, github", options.format));
  if (options.expected && input.kind != InputKind::kScenario)
    return fail(ErrorCode::kUsage, "--expected compares scenarios with the verdicts in their file");
  return {};
}

int check(Options options, const InputOptions& input_options, const ConfigArguments& arguments) {
  if (options.json) options.format = "json";
  const Result<std::vector<NcclModel>> modes = modes_from(options.modes);
  if (!modes) return report(modes.error());
  const Result<Input> input = load_input(arguments, input_options, Purpose::kCheck);
  if (!input) return report(input.error());
  if (const Status status = validate(options, *input); !status) return report(status.error());
  Bytes limit = input->config.memory.limit;
  if (!options.memory_limit.empty()) {
    const Result<Bytes> given = parse_bytes(options.memory_limit);
    if (!given) return report(given.error());
    limit = *given;
  }
  JudgeOptions judging{*modes, limit, options.sensitivity, options.expected || options.format == "json"};
  const Result<std::vector<Judged>> all = judge(*input, judging);
  if (!all) return report(all.error());
  JunitReport junit;
  int code = kExitHolds;
  for (const Judged& judged : *all) {
    if (!options.expected || options.format != "text") print_judged(judged, options.format, all->size() > 1);
    if (!options.junit.empty()) junit.add(judged.verdict, judged.place);
    code = worse(code, judged.verdict.exit_code());
  }
  if (!options.junit.empty()) {
    if (const Status saved = write_file(options.junit, junit.text()); !saved) return report(saved.error());
  }
  if (options.expected) return compare_expected(*all, options.format) ? kExitHolds : kExitFailed;
  return code;
}

Run build(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_flag("--json", options->json, "the same as --format json");
  app.add_option(
      "--format", options->format,
      "text; json: the verdict as a document, of scenarios and the Programs of a run a line each; github: "
      "workflow commands");
  app.add_option("--junit", options->junit, "file for the verdicts as JUnit XML");
  app.add_option(
      "--modes", options->modes,
      "NCCL models to examine: names joined by commas (rendezvous, eager_2MiB+strict, ...), or all");
  app.add_flag("--expected", options->expected, "compare scenarios with the verdicts in their file");
  app.add_flag(
      "--sensitivity", options->sensitivity,
      "which setting of each knob of the NCCL model breaks it; without this for small ones that do not hold");
  app.add_option("--memory-limit", options->memory_limit, "largest peak a rank may have, as 80GiB");
  const auto input = add_input_options(app);
  app.add_option("--weight-queue-cap", input->bounds.open_weight_grads,
                 "weight gradients that a rank may leave waiting, from I to W; 0: any number")
      ->check(kCount);
  app.add_option("--activation-cap-until-input-grad", input->bounds.until_input_grad,
                 "stage activations a rank may hold where I, not W, lets one go; 0: any number")
      ->check(kCount);
  const auto arguments = add_config_arguments(app);
  return [=]() -> int { return check(*options, *input, *arguments); };
}

const RegisterCommand kCommand(
    {.name = "check",
     .summary = "prove that a schedule cannot hang, drop, swap or double anything",
     .usage = "[CONFIG | SCHEDULE.csv | PROGRAM.txt | SCENARIOS.jsonl | SCENARIO.toml | -] [flags]",
     .examples = {{"plumbline check --pp 8 --microbatches 64", "1F1B on 8 ranks, the whole training step"},
                  {"plumbline check schedule.csv --comm-map pair", "rows of actions, as torch dumps them"},
                  {"plumbline check hang.csv --fragment", "part of a step"},
                  {"plumbline check mine.csv --activation-cap 8 --weight-queue-cap 4",
                   "what a rank may hold"},
                  {"plumbline lower run.toml | plumbline check -", "a Program text"},
                  {"plumbline check --modes all --json cases.jsonl", "NCCL scenarios, a verdict a line"}},
     .build = build});

}  // namespace
}  // namespace plumbline::cli

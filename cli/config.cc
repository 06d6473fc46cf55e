// `config`: the configuration that a command line stands for, and the reference of all options.
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/common/command.h"
#include "cli/common/exit_codes.h"
#include "cli/common/options_binding.h"
#include "cli/common/output.h"
#include "engine/config/explain.h"

namespace plumbline::cli {
namespace {

struct Options {
  bool explain = false;
  bool docs = false;
  bool json = false;
};

Result<Purpose> purpose_from(const std::string& text) {
  if (text == "check") return Purpose::kCheck;
  if (text == "sim") return Purpose::kSim;
  if (text == "run") return Purpose::kRun;
  return fail(ErrorCode::kUsage, fmt::format("--for '{}' is not one of check, sim, run", text));
}

void print_explanation(const LoadedConfig& loaded) {
  Table table{{"option", "value", "origin"}, {}};
  for (const ExplainRow& row : explain(loaded)) table.rows.push_back({row.option, row.value, row.origin});
  print(layout(table, output_width()));
}

int show(const Options& options, const ConfigArguments& arguments, const std::string& purpose_text) {
  if (options.docs) {
    print(config_docs());
    return kExitHolds;
  }
  const Result<Purpose> purpose = purpose_from(purpose_text);
  if (!purpose) return report(purpose.error());
  const Result<ValidConfig> valid = arguments.load(*purpose);
  if (!valid) return report(valid.error());
  const LoadedConfig shown = with_derived(valid->loaded, valid->config);
  if (options.json) {
    print_line(config_json(shown));
  } else if (options.explain) {
    print_explanation(shown);
  } else {
    print(config_toml(shown.config));
  }
  return kExitHolds;
}

Run build(CLI::App& app) {
  auto options = std::make_shared<Options>();
  auto purpose = std::make_shared<std::string>("check");
  app.add_flag("--explain", options->explain, "each value with its origin");
  app.add_flag("--docs", options->docs, "the reference of all options, docs/config.md");
  app.add_flag("--json", options->json, "one JSON document");
  app.add_option("--for", *purpose, "whose rules apply: check (the default), sim, run");
  const auto arguments = add_config_arguments(app);
  return [=]() -> int { return show(*options, *arguments, *purpose); };
}

const RegisterCommand kCommand(
    {.name = "config",
     .summary = "print the configuration a command line stands for, or the option reference",
     .usage = "[CONFIG] [--explain|--docs|--json] [flags]",
     .examples = {{"plumbline config --pp 4 -m 8 > cfg.toml", "a complete file to start from"},
                  {"plumbline config cfg.toml --explain", "where each value comes from"},
                  {"plumbline config --docs", "every option with its type and rule"}},
     .build = build});

}  // namespace
}  // namespace plumbline::cli

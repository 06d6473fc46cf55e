// `explain`: NCCL's rules by number, and the rules behind a verdict.
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/common/command.h"
#include "cli/common/exit_codes.h"
#include "cli/common/output.h"
#include "cli/verdict_output.h"
#include "cli/verdicts.h"
#include "engine/config/flags.h"
#include "sim/rules.h"

namespace plumbline::cli {
namespace {

struct Options {
  bool docs = false;
  std::string modes;
};

bool is_rule_number(const std::string& word) {
  return word.size() > 1 && (word[0] == 'N' || word[0] == 'n') &&
         word.find_first_not_of("0123456789", 1) == std::string::npos;
}

int print_rules(const std::vector<std::string>& numbers) {
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const Result<const NcclRule*> rule = find_rule(numbers[i]);
    if (!rule) return report(rule.error());
    if (i > 0) print("\n");
    print(rule_text(**rule, output_width()));
  }
  return kExitHolds;
}

int print_index() {
  Table table{{"rule", "", ""}, {}};
  for (const NcclRule& rule : nccl_rules())
    table.rows.push_back({std::string(rule.number), std::string(rule.title), std::string(rule.option)});
  print(layout(table, output_width()));
  hint("plumbline explain N6 prints a rule; explain FILE the rules behind a verdict");
  return kExitHolds;
}

// A saved verdict, or that of whatever check would take.
Result<std::vector<Verdict>> subjects(const Options& options, const InputOptions& input_options,
                                      const ConfigArguments& arguments,
                                      const std::vector<std::string>& words) {
  std::vector<Verdict> verdicts;
  if (words.size() == 1 && words.front().size() > 5 &&
      words.front().substr(words.front().size() - 5) == ".json") {
    const Result<std::string> text = read_input(words.front());
    if (!text) return tl::unexpected(text.error());
    Result<Verdict> verdict = parse_verdict_json(*text, words.front());
    if (!verdict) return tl::unexpected(verdict.error());
    verdicts.push_back(std::move(*verdict));
    return verdicts;
  }
  const Result<std::vector<NcclModel>> modes = modes_from(options.modes);
  if (!modes) return tl::unexpected(modes.error());
  const Result<Input> input = load_input(arguments, input_options, Purpose::kCheck);
  if (!input) return tl::unexpected(input.error());
  if (input->scenarios.size() > 1)
    return fail(ErrorCode::kUsage, fmt::format("{} holds {} scenarios; choose one with --id", input->name,
                                               input->scenarios.size()));
  Result<std::vector<Judged>> judged = judge(*input, JudgeOptions{*modes, input->config.memory.limit});
  if (!judged) return tl::unexpected(judged.error());
  for (Judged& one : *judged) verdicts.push_back(std::move(one.verdict));
  return verdicts;
}

int explain(const Options& options, const InputOptions& input_options, const ConfigArguments& arguments) {
  if (options.docs) {
    print(rules_docs());
    return kExitHolds;
  }
  const std::vector<std::string> all = arguments.arguments();
  if (all.empty()) return print_index();
  if (std::all_of(all.begin(), all.end(), is_rule_number)) return print_rules(all);
  const Result<ParsedFlags> flags = parse_flags(all);
  if (!flags) return report(flags.error());
  const Result<std::vector<Verdict>> verdicts = subjects(options, input_options, arguments, flags->words);
  if (!verdicts) return report(verdicts.error());
  int code = kExitHolds;
  for (const Verdict& verdict : *verdicts) {
    print_verdict(verdict, false);
    code = worse(code, verdict.exit_code());
    const std::vector<std::string> rules = rules_behind(verdict);
    if (rules.empty()) continue;
    print_line(fmt::format("\nRules behind it: {}\n", fmt::join(rules, ", ")));
    print_rules(rules);
  }
  return code;
}

Run build(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_flag("--docs", options->docs, "all rules as Markdown, docs/nccl-rules.md");
  app.add_option("--modes", options->modes, "NCCL models to examine, as for check");
  const auto input = add_input_options(app);
  const auto arguments = add_config_arguments(app);
  return [=]() -> int { return explain(*options, *input, *arguments); };
}

const RegisterCommand kCommand(
    {.name = "explain",
     .summary = "NCCL's rules by number, and those behind a verdict",
     .usage = "[RULE... | VERDICT.json | whatever check takes] [flags]",
     .examples = {{"plumbline explain", "all rules, a line each"},
                  {"plumbline explain N6 N46", "what two rules say, with an example"},
                  {"plumbline explain hang.csv --fragment", "a verdict and the rules behind it"},
                  {"plumbline explain cases.jsonl --id swap --modes all", "one scenario in all modes"}},
     .build = build});

}  // namespace
}  // namespace plumbline::cli

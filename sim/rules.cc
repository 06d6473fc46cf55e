#include "sim/rules.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include <fmt/format.h>

#include "engine/base/assert.h"
#include "engine/base/text.h"
#include "sim/scenario/tree.h"
#include "sim/scenario/words.h"

namespace plumbline {
namespace {

int number_of(std::string_view rule) { return static_cast<int>(parse_integer(rule.substr(1)).value_or(0)); }

struct ByNumber {
  bool operator()(const std::string& a, const std::string& b) const { return number_of(a) < number_of(b); }
};
using RuleSet = std::set<std::string, ByNumber>;

// What a wait's reason says, and the rules that make it one. The words are those of sim/deadlock.cc and
// sim/verify/witness.cc; the first that fits counts.
struct Phrase {
  std::string_view words;
  std::vector<std::string_view> rules;
};
const std::vector<Phrase>& phrases() {
  static const std::vector<Phrase> kPhrases = {
      {"must first connect for collectives", {"N3"}},
      {"must first connect", {"N2"}},
      {"still connecting", {"N2"}},
      {"sets up its first connection", {"N2"}},
      {"is behind it on stream", {"N4"}},
      {"after the compute stream", {"N4"}},
      {"its stream waits for it", {"N4"}},
      {"is behind it in communicator", {"N6"}},
      {"in a later kernel of the same group", {"N13", "N14"}},
      {"nothing left to do", {"N73", "N77"}},
      {"needs the call of every member", {"N69"}},
      {"one host thread drives", {"N17"}},
      {"was launched after it", {"N46"}},
      {"may not start before it", {"N47"}},
      {"in a hardware queue", {"N48"}},
      {"legacy default stream", {"N53"}},
      {"in a group that waits for its stream", {"N5"}},
      {"first launch", {"N51"}},
      {"needs processors", {"N45"}},
      {"channel is out of step", {"N23", "N24"}},
      {"call different collectives", {"N57", "N58"}},
      {"host waits for it", {"N52"}},
      {"needs its receive", {"N20", "N32"}},
      {"needs its send", {"N20"}},
      {"needs the same call on every member", {"N57", "N59"}},
      {"in collective", {"N57", "N59"}},
  };
  return kPhrases;
}

void add(const WaitEdge& edge, RuleSet& rules) {
  for (const Phrase& phrase : phrases()) {
    if (edge.reason.find(phrase.words) == std::string::npos) continue;
    rules.insert(phrase.rules.begin(), phrase.rules.end());
    break;
  }
  // The checker runs a device's groups in launch order without a wait of its own for it.
  if (edge.reason.find("which comes later on rank") != std::string::npos) rules.insert("N46");
}

void add(const Finding& finding, RuleSet& rules) {
  if (!finding.rule.empty()) rules.insert(finding.rule);
  switch (finding.kind) {
    case FindingKind::kDeadlock:
      for (const WaitEdge& edge : finding.cycle.empty() ? finding.waits : finding.cycle) add(edge, rules);
      rules.insert("N55");
      return;
    case FindingKind::kLabelMismatch:
    case FindingKind::kPayloadMismatch:
    case FindingKind::kUnmatched:
      rules.insert("N20");
      return;
    case FindingKind::kSizeMismatch:
      rules.insert({"N23", "N24"});
      return;
    case FindingKind::kCollectiveMismatch:
      rules.insert("N57");
      return;
    case FindingKind::kCrossWired:
      rules.insert("N2");
      return;
    case FindingKind::kReadUnwritten:
    case FindingKind::kDoubleWrite:
    case FindingKind::kFreeInUse:
    case FindingKind::kReadFreed:
      rules.insert("N38");
      return;
    case FindingKind::kLeak:
    case FindingKind::kDecideUnagreed:
    case FindingKind::kMemoryLimit:
    case FindingKind::kStructure:
    case FindingKind::kNcclError:
    case FindingKind::kNotPortable:
      return;
  }
}

std::vector<std::string> sorted(const RuleSet& rules) { return {rules.begin(), rules.end()}; }

std::string status_words(const NcclRule& rule) {
  switch (rule.status) {
    case RuleStatus::kAlways:
      return "always in force";
    case RuleStatus::kMode:
      return fmt::format("a mode: option {}", rule.option);
    case RuleStatus::kReported:
      return "breaking it is a finding";
  }
  return {};
}

std::string wrapped(std::string_view text, int width, const std::string& indent) {
  std::string out = indent;
  std::size_t column = indent.size();
  for (const std::string_view word : split(text, ' ')) {
    if (column > indent.size() && column + 1 + word.size() > static_cast<std::size_t>(std::max(width, 20))) {
      out += '\n' + indent;
      column = indent.size();
    } else if (column > indent.size()) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
  }
  return out + '\n';
}

}  // namespace

Result<const NcclRule*> find_rule(std::string_view number) {
  std::string wanted(number);
  if (!wanted.empty() && wanted[0] == 'n') wanted[0] = 'N';
  std::vector<std::string> known;
  for (const NcclRule& rule : nccl_rules()) {
    if (rule.number == wanted) return &rule;
    known.emplace_back(rule.number);
  }
  return fail(ErrorCode::kUsage,
              fmt::format("no rule has the number '{}'; there are {}", number, fmt::join(known, ", ")));
}

Scenario example_scenario(const NcclRule& rule) {
  scenario::Json tree = {{"id", rule.number}, {"threads", scenario::Json::array()}};
  std::map<Rank, scenario::Json> hosts;
  for (const std::string_view line : split(rule.example.program, '\n')) {
    const std::size_t colon = line.find(':');
    const auto rank = static_cast<Rank>(parse_integer(line.substr(0, colon)).value());
    hosts.try_emplace(rank, scenario::Json::array())
        .first->second.push_back(scenario::host_op_of_words(line.substr(colon + 1)).value());
  }
  std::vector<Rank> ranks;
  for (auto& [rank, ops] : hosts) {
    tree["threads"].push_back({{"rank", rank}, {"host_ops", std::move(ops)}});
    ranks.push_back(rank);
  }
  tree["communicators"] = {{"C", ranks}, {"D", ranks}};
  Result<Scenario> scenario = scenario::scenario_of(tree, {});
  PL_ASSERT_MSG(scenario.has_value(), fmt::format("example of {}: {}", rule.number, scenario.error().text()));
  return std::move(*scenario);
}

std::vector<ExpectedVerdict> example_verdicts(const NcclRule& rule) {
  std::vector<ExpectedVerdict> out;
  for (const std::string_view part : split(rule.example.verdicts, ' ')) {
    const std::size_t equals = part.find('=');
    out.push_back({std::string(part.substr(0, equals)), std::string(part.substr(equals + 1))});
  }
  return out;
}

std::vector<std::string> rules_behind(const WaitEdge& edge) {
  RuleSet rules;
  add(edge, rules);
  return sorted(rules);
}

std::vector<std::string> rules_behind(const Finding& finding) {
  RuleSet rules;
  add(finding, rules);
  return sorted(rules);
}

std::vector<std::string> rules_behind(const Verdict& verdict) {
  RuleSet rules;
  for (const Finding& finding : verdict.findings) add(finding, rules);
  for (const Finding& finding : verdict.portability) add(finding, rules);
  for (const ModeVerdict& mode : verdict.modes) {
    for (const Finding& finding : mode.findings) add(finding, rules);
  }
  return sorted(rules);
}

std::string rule_text(const NcclRule& rule, int width) {
  std::string out = fmt::format("{} {} ({})\n", rule.number, rule.title, status_words(rule));
  out += wrapped(rule.says, width, "  ");
  out += wrapped(rule.consequence, width, "  ");
  if (!rule.example.program.empty()) {
    out += "  Example:\n";
    for (const std::string_view line : split(rule.example.program, '\n'))
      out += fmt::format("    {}\n", line);
    for (const ExpectedVerdict& verdict : example_verdicts(rule))
      out += fmt::format("    -> {} under {}\n", verdict.value, verdict.mode);
  }
  return out + wrapped(fmt::format("Source: {}.", rule.source), width, "  ");
}

}  // namespace plumbline

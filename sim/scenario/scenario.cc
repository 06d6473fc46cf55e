#include "sim/scenario/scenario.h"

#include <array>
#include <tuple>

#include "engine/base/text.h"

namespace plumbline {
namespace {

constexpr std::array<std::string_view, kScenarioOpKinds> kOpNames{
    "send",           "recv",    "all_reduce", "reduce", "broadcast", "all_gather",
    "reduce_scatter", "barrier", "all_to_all", "gather", "scatter"};
constexpr std::array<std::string_view, kHostOpKinds> kHostNames{
    "group",       "launch",     "record",     "wait",          "sync_stream",   "sync_event",
    "sync_device", "comm_init",  "comm_split", "comm_shrink",   "comm_finalize", "comm_destroy",
    "comm_abort",  "comm_ready", "comm_sync",  "comm_revoke",   "graph_begin",   "graph_end",
    "fault",       "exit",       "comm_grow",  "comm_init_all", "turn"};

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

}  // namespace

std::string_view scenario_op_name(ScenarioOpKind kind) { return kOpNames[static_cast<std::size_t>(kind)]; }
std::string_view host_op_name(HostOpKind kind) { return kHostNames[static_cast<std::size_t>(kind)]; }

int nccl_release(std::string_view text) {
  const std::vector<std::string_view> parts = split(text, '.');
  if (parts.size() != 3) return 0;
  int out = 0;
  for (const std::string_view part : parts) {
    const auto number = parse_integer(part);
    if (!number || *number < 0 || *number > 99 || part.size() > 2) return 0;
    out = out * 100 + static_cast<int>(*number);
  }
  return out;
}

bool Scenario::operator==(const Scenario& other) const {
  const auto all = [](const Scenario& s) {
    return std::tie(s.id, s.source, s.category, s.note, s.communicators, s.threads, s.options,
                    s.legacy_stream, s.expected);
  };
  return all(*this) == all(other);
}

ScenarioForm scenario_form(const std::string& name, std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (ends_with(name, ".jsonl") || (first != std::string_view::npos && text[first] == '{'))
    return ScenarioForm::kJsonLines;
  // A configuration has sections of its own, none of which is called so.
  for (const std::string_view line : split(text, '\n')) {
    const std::string_view head = trim(line).substr(0, 15);
    if (head.substr(0, 11) == "[[threads]]" || head == "[communicators]") return ScenarioForm::kToml;
  }
  return ScenarioForm::kNone;
}

Result<std::vector<Scenario>> parse_scenarios(std::string_view text, const std::string& name) {
  if (scenario_form(name, text) == ScenarioForm::kJsonLines) return parse_scenario_lines(text, name);
  Result<Scenario> one = parse_scenario_toml(text, name);
  if (!one) return tl::unexpected(one.error());
  return std::vector<Scenario>{std::move(*one)};
}

}  // namespace plumbline

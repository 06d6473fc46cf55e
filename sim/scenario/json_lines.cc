// Scenarios as JSON lines: one object a line; blank lines are skipped.
#include <set>

#include <fmt/format.h>

#include "engine/base/json_writer.h"
#include "sim/scenario/tree.h"

namespace plumbline {
namespace {

using scenario::Json;

constexpr int kDeepest = 12;  // a scenario's own depth is 8

// What nlohmann::json would accept in silence: keys given twice, of which it keeps the last, and nesting without
// bound.
class Watch {
 public:
  bool operator()(int depth, Json::parse_event_t event, Json& value) {
    if (depth > kDeepest && fault.empty()) fault = fmt::format("is nested more than {} deep", kDeepest);
    if (event == Json::parse_event_t::object_start) {
      keys_.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      keys_.pop_back();
    } else if (event == Json::parse_event_t::key && fault.empty()) {
      const auto& name = value.get_ref<const std::string&>();
      if (!keys_.back().insert(name).second)
        fault = fmt::format("has the key '{}' twice in one object", name);
    }
    return true;
  }

  std::string fault;

 private:
  std::vector<std::set<std::string>> keys_;
};

Result<Scenario> read_line(std::string_view line, const std::string& name, int number) {
  Watch watch;
  Json tree;
  // The one use of an exception: it alone tells the column of the fault.
  try {
    tree = Json::parse(
        line, [&](int depth, Json::parse_event_t event, Json& value) { return watch(depth, event, value); });
  } catch (const Json::exception& error) {
    const auto* syntax = dynamic_cast<const Json::parse_error*>(&error);
    const int column = syntax == nullptr ? 0 : static_cast<int>(syntax->byte);
    return fail(ErrorCode::kParse, "this line is not a JSON object; a scenario is one object on one line",
                Where{name, number, column});
  }
  if (!watch.fault.empty())
    return fail(ErrorCode::kParse, "the scenario " + watch.fault, Where{name, number, 0});
  scenario::Source source;
  source.file = name;
  source.line = number;
  return scenario::scenario_of(tree, source);
}

void write(JsonWriter& out, std::string_view key, const std::vector<Rank>& ranks) {
  out.key(key).begin_array();
  for (const Rank rank : ranks) out.value(rank);
  out.end_array();
}

void write(JsonWriter& out, const ScenarioOp& op) {
  out.begin_object().field("op", scenario_op_name(op.kind)).field("comm", op.communicator);
  const bool p2p = op.kind == ScenarioOpKind::kSend || op.kind == ScenarioOpKind::kRecv;
  if (op.peer >= 0) out.field(p2p ? "peer" : "root", op.peer);
  out.field("bytes", op.bytes);
  if (op.label) {
    out.field("label", *op.label);
  } else if (p2p) {
    out.key("label").null();
  }
  if (!op.stream.empty()) out.field("stream", op.stream);
  if (op.uncaptured) out.field("uncaptured", true);
  out.end_object();
}

void write(JsonWriter& out, const HostOp& op) {
  out.begin_object().field("host", host_op_name(op.kind));
  if (!op.stream.empty()) out.field("stream", op.stream);
  if (!op.event.empty()) out.field("event", op.event);
  if (!op.communicator.empty()) out.field("comm", op.communicator);
  if (!op.ranks.empty()) write(out, "ranks", op.ranks);
  if (!op.parent.empty()) out.field("parent", op.parent);
  if (!op.release.empty()) out.field("release", op.release);
  if (op.nonblocking) out.field("nonblocking", true);
  if (op.share) out.field("share", true);
  if (op.abort) out.field("abort", true);
  if (!op.ops.empty()) {
    out.key("ops").begin_array();
    for (const ScenarioOp& call : op.ops) write(out, call);
    out.end_array();
  }
  out.end_object();
}

}  // namespace

Result<std::vector<Scenario>> parse_scenario_lines(std::string_view text, const std::string& name) {
  std::vector<Scenario> all;
  std::map<std::string, int> ids;
  int number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    Result<Scenario> one = read_line(line, name, number);
    if (!one) return tl::unexpected(one.error());
    const auto [first, fresh] = ids.try_emplace(one->id, number);
    if (!fresh)
      return fail(ErrorCode::kParse, fmt::format("id '{}' stands in line {} already", one->id, first->second),
                  Where{name, number, 0});
    all.push_back(std::move(*one));
  }
  if (all.empty())
    return fail(ErrorCode::kParse, "no scenario in this file; write one JSON object a line",
                Where{name, 0, 0});
  return all;
}

std::string print_scenario_json(const Scenario& scenario) {
  JsonWriter out;
  out.begin_object().field("id", scenario.id);
  if (!scenario.source.empty()) out.field("source", scenario.source);
  if (!scenario.category.empty()) out.field("class", scenario.category);
  if (!scenario.note.empty()) out.field("note", scenario.note);
  out.key("communicators").begin_object();
  for (const auto& [name, members] : scenario.communicators) write(out, name, members);
  out.end_object().key("threads").begin_array();
  for (const ScenarioThread& thread : scenario.threads) {
    out.begin_object().field("rank", thread.rank).key("host_ops").begin_array();
    for (const HostOp& op : thread.host_ops) write(out, op);
    out.end_array().end_object();
  }
  out.end_array();
  const ScenarioOptions& options = scenario.options;
  if (options != ScenarioOptions{}) {
    out.key("model_options").begin_object();
    if (options.launch_blocking) out.field("launch_blocking", true);
    if (options.max_ops_per_kernel > 0) out.field("max_ops_per_kernel", options.max_ops_per_kernel);
    if (options.plan_restarts_rounds) out.field("plan_restarts_rounds", true);
    if (options.ranks_per_node > 0) out.field("ranks_per_node", options.ranks_per_node);
    out.end_object();
  }
  if (!scenario.legacy_stream.empty()) out.field("legacy_stream", scenario.legacy_stream);
  if (!scenario.expected.empty()) {
    out.key("verdict").begin_object();
    for (const auto& [mode, value] : scenario.expected) out.field(mode, value);
    out.end_object();
  }
  return out.end_object().text();
}

}  // namespace plumbline

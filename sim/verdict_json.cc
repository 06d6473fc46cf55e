// Verdict as JSON and back. Defaults (no item, no microbatch, an empty list) are left out, which keeps a
// deadlock's graph readable; the 64-bit hash is text, because JSON numbers lose its low bits in most readers.
#include <array>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "engine/base/hash.h"
#include "engine/base/json_writer.h"
#include "engine/base/text.h"
#include "sim/verdict.h"

namespace plumbline {
namespace {

using Json = nlohmann::json;

constexpr std::array<FindingKind, 17> kKinds = {FindingKind::kDeadlock,     FindingKind::kLabelMismatch,
                                                FindingKind::kSizeMismatch, FindingKind::kUnmatched,
                                                FindingKind::kReadFreed,    FindingKind::kCollectiveMismatch,
                                                FindingKind::kCrossWired,   FindingKind::kReadUnwritten,
                                                FindingKind::kDoubleWrite,  FindingKind::kFreeInUse,
                                                FindingKind::kLeak,         FindingKind::kDecideUnagreed,
                                                FindingKind::kMemoryLimit,  FindingKind::kPayloadMismatch,
                                                FindingKind::kStructure,    FindingKind::kNcclError,
                                                FindingKind::kNotPortable};

void write(JsonWriter& out, const OperationRef& operation) {
  out.begin_object().field("rank", operation.rank);
  if (operation.item >= 0) out.field("item", operation.item);
  if (operation.microbatch >= 0) out.field("microbatch", operation.microbatch);
  out.field("text", operation.text).end_object();
}

void write(JsonWriter& out, std::string_view name, const std::vector<WaitEdge>& edges) {
  if (edges.empty()) return;
  out.key(name).begin_array();
  for (const WaitEdge& edge : edges) {
    out.begin_object().key("from");
    write(out, edge.from);
    out.key("to");
    write(out, edge.to);
    out.field("reason", edge.reason).end_object();
  }
  out.end_array();
}

void write(JsonWriter& out, const std::vector<Finding>& findings, std::string_view name = "findings") {
  out.key(name).begin_array();
  for (const Finding& finding : findings) {
    out.begin_object().field("kind", finding_kind_name(finding.kind)).field("why", finding.why);
    if (!finding.code.empty()) out.field("code", finding.code);
    if (!finding.rule.empty()) out.field("rule", finding.rule);
    if (!finding.cause.empty()) out.field("cause", finding.cause);
    if (!finding.hint.empty()) out.field("hint", finding.hint);
    out.key("operations").begin_array();
    for (const OperationRef& operation : finding.operations) write(out, operation);
    out.end_array();
    write(out, "cycle", finding.cycle);
    write(out, "waits", finding.waits);
    out.end_object();
  }
  out.end_array();
}

void write(JsonWriter& out, const RankMemory& memory) {
  out.begin_object();
  out.field("peak", memory.peak).field("peak_activations", memory.peak_activations);
  out.field("peak_item", memory.peak_item).field("peak_text", memory.peak_text);
  out.field("live_stashes", memory.live_stashes).end_object();
}

// Reads values out of parsed JSON. The first fault is kept and everything after it yields defaults, so that
// the callers read straight on.
class Reader {
 public:
  explicit Reader(std::string name) : name_(std::move(name)) {}

  const Json& member(const Json& object, const char* key) {
    static const Json kNothing;
    if (!object.is_object()) return complain("an object was expected around", key), kNothing;
    const auto found = object.find(key);
    return found == object.end() ? kNothing : *found;
  }
  std::string text(const Json& object, const char* key) {
    const Json& value = member(object, key);
    if (value.is_string()) return value.get<std::string>();
    return complain("no text in", key), std::string();
  }
  bool flag(const Json& object, const char* key) {
    const Json& value = member(object, key);
    if (value.is_boolean()) return value.get<bool>();
    return complain("no true or false in", key), false;
  }
  std::int64_t number(const Json& object, const char* key, std::int64_t absent, std::int64_t least,
                      std::int64_t most) {
    const Json& value = member(object, key);
    if (value.is_null()) return absent;
    if (value.is_number_integer() && !(value.is_number_unsigned() && value.get<std::uint64_t>() > kMost)) {
      const std::int64_t number = value.get<std::int64_t>();
      if (number >= least && number <= most) return number;
    }
    return complain("no whole number in range in", key), absent;
  }
  std::int64_t wide(const Json& object, const char* key, std::int64_t absent) {
    return number(object, key, absent, std::numeric_limits<std::int64_t>::min(),
                  std::numeric_limits<std::int64_t>::max());
  }
  std::int32_t narrow(const Json& object, const char* key, std::int32_t absent) {
    return static_cast<std::int32_t>(number(object, key, absent, std::numeric_limits<std::int32_t>::min(),
                                            std::numeric_limits<std::int32_t>::max()));
  }
  // An absent list is an empty one.
  const Json& list(const Json& object, const char* key) {
    static const Json kEmpty = Json::array();
    const Json& value = member(object, key);
    if (value.is_array()) return value;
    if (!value.is_null()) complain("no list in", key);
    return kEmpty;
  }
  void complain(const char* what, const std::string& key) {
    if (fault_.empty()) fault_ = fmt::format("{} '{}'", what, key);
  }
  Status status() const {
    if (fault_.empty()) return {};
    return fail(ErrorCode::kParse, "not a verdict: " + fault_, Where{name_, 0, 0});
  }

 private:
  static constexpr std::uint64_t kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  std::string name_;
  std::string fault_;
};

OperationRef read_operation(Reader& reader, const Json& json) {
  OperationRef operation;
  operation.rank = reader.narrow(json, "rank", 0);
  operation.item = reader.wide(json, "item", -1);
  operation.microbatch = reader.narrow(json, "microbatch", -1);
  operation.text = reader.text(json, "text");
  return operation;
}

std::vector<WaitEdge> read_edges(Reader& reader, const Json& list) {
  std::vector<WaitEdge> edges;
  for (const Json& json : list) {
    edges.push_back({read_operation(reader, reader.member(json, "from")),
                     read_operation(reader, reader.member(json, "to")), reader.text(json, "reason")});
  }
  return edges;
}

std::vector<Finding> read_findings(Reader& reader, const Json& list) {
  std::vector<Finding> findings;
  for (const Json& json : list) {
    Finding finding;
    const std::string kind = reader.text(json, "kind");
    bool known = false;
    for (const FindingKind candidate : kKinds) {
      if (finding_kind_name(candidate) != kind) continue;
      finding.kind = candidate;
      known = true;
    }
    if (!known) reader.complain("unknown kind", kind);
    finding.why = reader.text(json, "why");
    if (json.is_object() && json.contains("code")) finding.code = reader.text(json, "code");
    if (json.is_object() && json.contains("rule")) finding.rule = reader.text(json, "rule");
    if (json.is_object() && json.contains("cause")) finding.cause = reader.text(json, "cause");
    if (json.is_object() && json.contains("hint")) finding.hint = reader.text(json, "hint");
    for (const Json& operation : reader.list(json, "operations")) {
      finding.operations.push_back(read_operation(reader, operation));
    }
    finding.cycle = read_edges(reader, reader.list(json, "cycle"));
    finding.waits = read_edges(reader, reader.list(json, "waits"));
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace

std::string verdict_json(const Verdict& verdict) {
  JsonWriter out;
  out.begin_object().field("program", verdict.program).field("operations", verdict.operations);
  out.field("holds", verdict.holds()).field("certified", verdict.certified());
  if (verdict.portability_checked) out.field("portable_safe", verdict.portable_safe());
  out.field("exit_code", verdict.exit_code()).field("trace_hash", hex64(verdict.trace_hash));
  write(out, verdict.findings);
  out.key("modes").begin_array();
  for (const ModeVerdict& mode : verdict.modes) {
    out.begin_object().field("mode", mode.mode).field("completes", mode.completes);
    out.field("makespan", mode.makespan).field("class", verdict_class(mode));
    if (mode.schedules > 1) out.field("schedules", mode.schedules);
    if (mode.evidence == Evidence::kTested) out.field("seed", hex64(mode.seed));
    write(out, mode.findings);
    out.end_object();
  }
  out.end_array();
  if (!verdict.portability.empty()) write(out, verdict.portability, "portability");
  if (!verdict.sensitivity.empty()) {
    out.key("sensitivity").begin_array();
    for (const SensitivityRow& row : verdict.sensitivity) {
      out.begin_object().field("knob", row.knob).field("holds", row.holds);
      if (!row.breaks.empty()) out.field("breaks", row.breaks);
      out.field("words", row.words).end_object();
    }
    out.end_array();
  }
  out.key("memory").begin_array();
  for (const RankMemory& memory : verdict.memory) write(out, memory);
  out.end_array().end_object();
  return out.text();
}

Result<Verdict> parse_verdict_json(std::string_view text, const std::string& name) {
  const Json json = Json::parse(text, nullptr, false);
  Reader reader(name);
  if (json.is_discarded())
    return fail(ErrorCode::kParse, "not a verdict: this is not JSON", Where{name, 0, 0});
  Verdict verdict;
  verdict.program = reader.text(json, "program");
  verdict.operations = reader.wide(json, "operations", 0);
  const auto hash = parse_unsigned("0x" + reader.text(json, "trace_hash"));
  if (!hash) reader.complain("no hexadecimal number in", "trace_hash");
  verdict.trace_hash = hash.value_or(0);
  verdict.findings = read_findings(reader, reader.list(json, "findings"));
  for (const Json& item : reader.list(json, "modes")) {
    ModeVerdict mode;
    mode.mode = reader.text(item, "mode");
    mode.completes = reader.flag(item, "completes");
    mode.makespan = reader.wide(item, "makespan", 0);
    mode.schedules = reader.wide(item, "schedules", 1);
    if (item.is_object() && item.contains("seed")) {
      const auto seed = parse_unsigned("0x" + reader.text(item, "seed"));
      if (!seed) reader.complain("no hexadecimal number in", "seed");
      mode.seed = seed.value_or(0);
      mode.evidence = Evidence::kTested;
    }
    mode.findings = read_findings(reader, reader.list(item, "findings"));
    verdict.modes.push_back(std::move(mode));
  }
  verdict.portability = read_findings(reader, reader.list(json, "portability"));
  verdict.portability_checked = json.is_object() && json.contains("portable_safe");
  for (const Json& item : reader.list(json, "sensitivity")) {
    SensitivityRow row;
    row.knob = reader.text(item, "knob");
    row.holds = reader.flag(item, "holds");
    if (item.is_object() && item.contains("breaks")) row.breaks = reader.text(item, "breaks");
    row.words = reader.text(item, "words");
    verdict.sensitivity.push_back(std::move(row));
  }
  for (const Json& item : reader.list(json, "memory")) {
    RankMemory memory;
    memory.peak = reader.wide(item, "peak", 0);
    memory.peak_activations = reader.wide(item, "peak_activations", 0);
    memory.peak_item = reader.wide(item, "peak_item", -1);
    memory.peak_text = reader.text(item, "peak_text");
    memory.live_stashes = reader.narrow(item, "live_stashes", 0);
    verdict.memory.push_back(std::move(memory));
  }
  PL_TRY(reader.status());
  return verdict;
}

}  // namespace plumbline

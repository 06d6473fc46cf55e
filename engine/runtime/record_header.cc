// The header block: the record's fields that are not rows, as JSON. Enumerations are written by name; 64-bit
// digests as hexadecimal text.
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "engine/base/hash.h"
#include "engine/base/json_writer.h"
#include "engine/base/text.h"
#include "engine/program/names.h"
#include "engine/runtime/record_file.h"

namespace plumbline::record_file {
namespace {

using Json = nlohmann::json;

constexpr int kKernelKinds = static_cast<int>(kKernelKindNames.size());
constexpr int kSlotKinds = static_cast<int>(kSlotKindNames.size());
constexpr int kEndpointKinds = static_cast<int>(EndpointKind::kReduceScatter) + 1;

void write_numbers(JsonWriter& out, const char* key, const std::vector<std::int32_t>& values) {
  out.key(key).begin_array();
  for (const std::int32_t value : values) out.value(value);
  out.end_array();
}

void write_label(JsonWriter& out, const EventLabel& label) {
  out.begin_object().field("name", label.name).field("stage", label.stage);
  if (label.communication) {
    out.field("endpoint", endpoint_kind_name(label.endpoint)).field("slot", slot_kind_name(label.slot));
    out.field("bytes", label.bytes);
  } else {
    out.field("kernel", kernel_kind_name(label.kernel));
  }
  out.end_object();
}

// Typed access to a parsed header; the first fault is kept, and reading goes on with defaults.
class Fields {
 public:
  explicit Fields(const Json& json) : json_(json) {}

  std::string text(const char* key) { return text(json_, key); }
  std::string text(const Json& object, const char* key) {
    const Json* value = find(object, key);
    if (value != nullptr && value->is_string()) return value->get<std::string>();
    return complain("no text", key), std::string();
  }
  std::int64_t number(const Json& object, const char* key, std::int64_t most) {
    const Json* value = find(object, key);
    if (value != nullptr && value->is_number_unsigned() &&
        value->get<std::uint64_t>() <= static_cast<std::uint64_t>(most)) {
      return value->get<std::int64_t>();
    }
    return complain("no number in range", key), 0;
  }
  std::int32_t count(const char* key) { return static_cast<std::int32_t>(number(json_, key, kMax32)); }
  std::uint64_t hex(const char* key) {
    const Result<std::uint64_t> value = parse_unsigned("0x" + text(key));
    if (!value) complain("no hexadecimal number", key);
    return value.value_or(0);
  }
  const Json& list(const char* key) {
    static const Json kEmpty = Json::array();
    const Json* value = find(json_, key);
    if (value != nullptr && value->is_array()) return *value;
    return complain("no list", key), kEmpty;
  }
  std::vector<std::int32_t> numbers(const char* key) {
    std::vector<std::int32_t> out;
    for (const Json& value : list(key)) {
      const bool good =
          value.is_number_unsigned() && value.get<std::uint64_t>() <= static_cast<std::uint64_t>(kMax32);
      if (!good) complain("no number in range", key);
      out.push_back(good ? value.get<std::int32_t>() : 0);
    }
    return out;
  }
  template <typename Kind>
  Kind kind(const Json& object, const char* key, int kinds, std::string_view (*name)(Kind)) {
    const std::string wanted = text(object, key);
    for (int i = 0; i < kinds; ++i) {
      if (name(static_cast<Kind>(i)) == wanted) return static_cast<Kind>(i);
    }
    return complain("no known kind", key), static_cast<Kind>(0);
  }
  static const Json* find(const Json& object, const char* key) {
    if (!object.is_object()) return nullptr;
    const auto found = object.find(key);
    return found == object.end() ? nullptr : &*found;
  }
  void complain(const char* what, const char* key) {
    if (fault_.empty()) fault_ = fmt::format("its header has {} in '{}'", what, key);
  }
  const std::string& fault() const { return fault_; }

  static constexpr std::int64_t kMax32 = std::numeric_limits<std::int32_t>::max();

 private:
  const Json& json_;
  std::string fault_;
};

EventLabel read_label(Fields& fields, const Json& json) {
  EventLabel label;
  label.name = fields.text(json, "name");
  label.stage = static_cast<std::int32_t>(fields.number(json, "stage", Fields::kMax32));
  label.communication = Fields::find(json, "endpoint") != nullptr;
  if (label.communication) {
    label.endpoint = fields.kind<EndpointKind>(json, "endpoint", kEndpointKinds, endpoint_kind_name);
    label.slot = fields.kind<SlotKind>(json, "slot", kSlotKinds, slot_kind_name);
    label.bytes = fields.number(json, "bytes", std::numeric_limits<Bytes>::max());
  } else {
    label.kernel = fields.kind<KernelKind>(json, "kernel", kKernelKinds, kernel_kind_name);
  }
  return label;
}

}  // namespace

std::string header_json(const RunRecord& record) {
  JsonWriter out;
  out.begin_object()
      .field("version", record.cores > 0 ? kRunRecordVersion : 2)
      .field("producer", record.producer);
  out.field("backend", record.backend).field("schedule", record.schedule).field("command", record.command);
  out.field("seed", hex64(record.seed)).field("program_digest", hex64(record.program_digest));
  out.field("data_digest", record.data_digest).field("ranks", record.ranks).field("stages", record.stages);
  out.field("microbatches", record.microbatches).field("config", record.config);
  if (record.resumed_from > 0) out.field("resumed_from", record.resumed_from);
  if (record.cores > 0) out.field("cores", record.cores).field("ranks_a_machine", record.ranks_a_machine);
  write_numbers(out, "pipeline_coordinate", record.pipeline_coordinate);
  write_numbers(out, "replica", record.replica);
  out.key("streams").begin_array();
  for (const std::string& stream : record.streams) out.value(stream);
  out.end_array().key("labels").begin_array();
  for (const EventLabel& label : record.labels) write_label(out, label);
  out.end_array().end_object();
  return out.text();
}

Status read_header(std::string_view text, const std::string& name, RunRecord& record) {
  const Json json = Json::parse(text, nullptr, false);
  Fields fields(json);
  const std::int64_t version = fields.number(json, "version", Fields::kMax32);
  if (version > kRunRecordVersion) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("a run record of version {}; this plumbline reads up to version {}", version,
                            kRunRecordVersion),
                Where{name, 0, 0});
  }
  record.producer = fields.text("producer");
  record.backend = fields.text("backend");
  record.schedule = fields.text("schedule");
  record.command = fields.text("command");
  record.seed = fields.hex("seed");
  record.program_digest = fields.hex("program_digest");
  record.data_digest = fields.text("data_digest");
  record.ranks = fields.count("ranks");
  record.stages = fields.count("stages");
  record.microbatches = fields.count("microbatches");
  record.config = fields.text("config");
  if (Fields::find(json, "resumed_from") != nullptr) record.resumed_from = fields.count("resumed_from");
  if (Fields::find(json, "cores") != nullptr) {
    record.cores = fields.count("cores");
    record.ranks_a_machine = fields.count("ranks_a_machine");
  }
  record.pipeline_coordinate = fields.numbers("pipeline_coordinate");
  record.replica = fields.numbers("replica");
  for (const Json& stream : fields.list("streams")) {
    if (!stream.is_string()) fields.complain("no text", "streams");
    record.streams.push_back(stream.is_string() ? stream.get<std::string>() : std::string());
  }
  for (const Json& label : fields.list("labels")) record.labels.push_back(read_label(fields, label));
  const auto ranks = static_cast<std::size_t>(record.ranks);
  if (record.pipeline_coordinate.size() != ranks || record.replica.size() != ranks) {
    fields.complain("not one entry a rank",
                    record.replica.size() != ranks ? "replica" : "pipeline_coordinate");
  }
  if (!fields.fault().empty()) {
    return fail(ErrorCode::kParse, "damaged run record: " + fields.fault(), Where{name, 0, 0});
  }
  return {};
}

}  // namespace plumbline::record_file

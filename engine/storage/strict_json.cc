// The grammar is nlohmann-json's (its parser keeps no call stack, so depth is a number here and not a crash);
// what it would accept and we must not - duplicate keys above all - is refused in the events.
#include "engine/storage/strict_json.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace plumbline {
namespace {

class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(const JsonLimits& limits, std::string what) : limits_(limits), what_(std::move(what)) {}

  bool null() override { return add(JsonValue()); }
  bool boolean(bool value) override { return add(JsonValue(JsonValue::Content(value))); }
  bool number_integer(std::int64_t value) override { return add(JsonValue(JsonValue::Content(value))); }
  bool number_unsigned(std::uint64_t value) override {
    if (value > static_cast<std::uint64_t>(INT64_MAX)) return add(JsonValue(JsonValue::Content(value)));
    return add(JsonValue(JsonValue::Content(static_cast<std::int64_t>(value))));
  }
  bool number_float(double value, const std::string&) override {
    return add(JsonValue(JsonValue::Content(value)));
  }
  bool string(std::string& value) override { return add(JsonValue(JsonValue::Content(std::move(value)))); }
  bool binary(nlohmann::json::binary_t&) override { return refuse("binary value"); }
  bool start_object(std::size_t) override { return open(JsonValue(JsonValue::Content(JsonObject{}))); }
  bool start_array(std::size_t) override { return open(JsonValue(JsonValue::Content(JsonArray{}))); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& name) override {
    if (!seen_.back().insert(name).second) return refuse(fmt::format("key '{}' comes twice", name));
    keys_.back() = std::move(name);
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception& error) override {
    std::string why = error.what();
    if (const std::size_t at = why.find("parse error"); at != std::string::npos) why = why.substr(at);
    message_ = fmt::format("{}: byte {}: {}", what_, position, why);
    return false;
  }

  Result<JsonValue> finish() {
    if (!message_.empty()) return fail(ErrorCode::kParse, message_);
    return std::move(root_);
  }

 private:
  bool refuse(const std::string& why) {
    message_ = fmt::format("{}: {}", what_, why);
    return false;
  }
  bool add(JsonValue value) {
    if (++values_ > limits_.values) return refuse(fmt::format("more than {} values", limits_.values));
    if (open_.empty()) {
      root_ = std::move(value);
      return true;
    }
    if (auto* array = open_.back().get<JsonArray>()) {
      array->push_back(std::move(value));
    } else {
      open_.back().get<JsonObject>()->emplace_back(keys_.back(), std::move(value));
    }
    return true;
  }
  bool open(JsonValue value) {
    if (static_cast<int>(open_.size()) >= limits_.depth)
      return refuse(fmt::format("nested deeper than {}", limits_.depth));
    open_.push_back(std::move(value));
    keys_.emplace_back();
    seen_.emplace_back();
    return true;
  }
  bool close() {
    JsonValue value = std::move(open_.back());
    open_.pop_back();
    keys_.pop_back();
    seen_.pop_back();
    return add(std::move(value));
  }

  JsonLimits limits_;
  std::string what_;
  std::string message_;
  std::size_t values_ = 0;
  JsonValue root_;
  std::vector<JsonValue> open_;  // what is not closed yet, outermost first, and the key each waits at
  std::vector<std::string> keys_;
  std::vector<std::set<std::string>> seen_;
};

tl::unexpected<Error> wrong(std::string_view key, const JsonValue* found, const char* wanted,
                            const std::string& what) {
  return fail(ErrorCode::kParse, fmt::format("{}: '{}' must be {}, it is {}", what, key, wanted,
                                             found == nullptr ? "absent" : found->describe()));
}

}  // namespace

const JsonValue* JsonValue::find(std::string_view key) const {
  const auto* object = get<JsonObject>();
  if (object == nullptr) return nullptr;
  for (const auto& [name, value] : *object) {
    if (name == key) return &value;
  }
  return nullptr;
}

std::string JsonValue::describe() const {
  if (null()) return "null";
  if (const auto* flag = get<bool>()) return *flag ? "true" : "false";
  if (const auto* whole = get<std::int64_t>()) return fmt::format("the integer {}", *whole);
  if (const auto* large = get<std::uint64_t>()) return fmt::format("the integer {}", *large);
  if (const auto* real = get<double>()) return fmt::format("the number {}", *real);
  if (const auto* text = get<std::string>()) return fmt::format("the text '{}'", text->substr(0, 40));
  if (get<JsonArray>() != nullptr) return fmt::format("an array of {}", get<JsonArray>()->size());
  return fmt::format("an object of {}", get<JsonObject>()->size());
}

Result<JsonValue> parse_json(std::string_view text, const std::string& what, const JsonLimits& limits) {
  if (text.size() > limits.bytes)
    return fail(ErrorCode::kParse,
                fmt::format("{}: {} bytes, the limit is {}", what, text.size(), limits.bytes));
  // A byte-order mark would be skipped by the parser; no writer of these files makes one.
  if (text.starts_with("\xEF\xBB\xBF"))
    return fail(ErrorCode::kParse, fmt::format("{}: byte 0: byte-order mark", what));
  Builder builder(limits, what);
  nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  return builder.finish();
}

void write_json(const JsonValue& value, JsonWriter& out) {
  if (value.null()) out.null();
  if (const auto* flag = value.get<bool>()) out.value(*flag);
  if (const auto* whole = value.get<std::int64_t>()) out.value(*whole);
  if (const auto* large = value.get<std::uint64_t>()) out.value(*large);
  if (const auto* real = value.get<double>()) out.value(*real);
  if (const auto* text = value.get<std::string>()) out.value(*text);
  if (const auto* array = value.get<JsonArray>()) {
    out.begin_array();
    for (const JsonValue& entry : *array) write_json(entry, out);
    out.end_array();
  }
  if (const auto* object = value.get<JsonObject>()) {
    out.begin_object();
    for (const auto& [name, entry] : *object) {
      out.key(name);
      write_json(entry, out);
    }
    out.end_object();
  }
}

std::string print_json(const JsonValue& value) {
  JsonWriter out;
  write_json(value, out);
  return out.text();
}

Result<std::string> json_text(const JsonValue& object, std::string_view key, const std::string& what) {
  const JsonValue* found = object.find(key);
  if (found == nullptr || found->get<std::string>() == nullptr) return wrong(key, found, "a text", what);
  return *found->get<std::string>();
}

Result<std::int64_t> json_integer(const JsonValue& object, std::string_view key, const std::string& what,
                                  std::int64_t least) {
  const JsonValue* found = object.find(key);
  const auto* value = found == nullptr ? nullptr : found->get<std::int64_t>();
  if (value == nullptr || *value < least)
    return wrong(key, found, fmt::format("an integer of at least {}", least).c_str(), what);
  return *value;
}

Result<const JsonArray*> json_array(const JsonValue& object, std::string_view key, const std::string& what) {
  const JsonValue* found = object.find(key);
  if (found == nullptr || found->get<JsonArray>() == nullptr) return wrong(key, found, "an array", what);
  return found->get<JsonArray>();
}

Result<const JsonObject*> json_object(const JsonValue& object, std::string_view key,
                                      const std::string& what) {
  const JsonValue* found = object.find(key);
  if (found == nullptr || found->get<JsonObject>() == nullptr) return wrong(key, found, "an object", what);
  return found->get<JsonObject>();
}

Result<std::vector<std::int64_t>> json_integers(const JsonValue& object, std::string_view key,
                                                const std::string& what, std::int64_t least) {
  const Result<const JsonArray*> array = json_array(object, key, what);
  if (!array) return tl::unexpected(array.error());
  std::vector<std::int64_t> values;
  values.reserve((*array)->size());
  for (const JsonValue& entry : **array) {
    const auto* value = entry.get<std::int64_t>();
    if (value == nullptr || *value < least)
      return wrong(key, &entry, fmt::format("integers of at least {}", least).c_str(), what);
    values.push_back(*value);
  }
  return values;
}

Status json_only_keys(const JsonValue& object, const std::vector<std::string_view>& known,
                      const std::string& what) {
  const auto* entries = object.get<JsonObject>();
  if (entries == nullptr)
    return fail(ErrorCode::kParse, fmt::format("{}: must be an object, it is {}", what, object.describe()));
  for (const auto& [name, value] : *entries) {
    if (std::find(known.begin(), known.end(), name) == known.end())
      return fail(ErrorCode::kParse, fmt::format("{}: unknown key '{}'", what, name));
  }
  return {};
}

}  // namespace plumbline

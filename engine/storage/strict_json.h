// JSON as checkpoints need it read: keys that come twice are refused, integers stay integers of 64 bits, and
// nesting, values and text are limited before memory is spent. Objects keep their order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "engine/base/json_writer.h"
#include "engine/base/result.h"

namespace plumbline {

class JsonValue;
using JsonArray = std::vector<JsonValue>;
using JsonObject = std::vector<std::pair<std::string, JsonValue>>;

// Integers that fit are std::int64_t, larger ones up to 2^64 - 1 std::uint64_t.
class JsonValue {
 public:
  using Content = std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string,
                               JsonArray, JsonObject>;
  JsonValue() = default;
  explicit JsonValue(Content content) : content_(std::move(content)) {}

  bool null() const { return content_.index() == 0; }
  template <typename T>
  const T* get() const {
    return std::get_if<T>(&content_);
  }
  template <typename T>
  T* get() {
    return std::get_if<T>(&content_);
  }
  const JsonValue* find(std::string_view key) const;  // null when absent or not an object
  // "an object", "the integer 5": for messages.
  std::string describe() const;

 private:
  Content content_;
};

struct JsonLimits {
  std::size_t bytes = 256u << 20;
  std::size_t values = 8u << 20;
  int depth = 64;
};

// Errors (kParse) carry `what` (a path) and the byte offset.
Result<JsonValue> parse_json(std::string_view text, const std::string& what, const JsonLimits& limits = {});

// Compact, objects in their order, numbers as JsonWriter has them.
std::string print_json(const JsonValue& value);
void write_json(const JsonValue& value, JsonWriter& out);

// The entry of an object as a type, or an error naming the key, what is there and what is wanted.
Result<std::string> json_text(const JsonValue& object, std::string_view key, const std::string& what);
Result<std::int64_t> json_integer(const JsonValue& object, std::string_view key, const std::string& what,
                                  std::int64_t least = 0);
Result<const JsonArray*> json_array(const JsonValue& object, std::string_view key, const std::string& what);
Result<const JsonObject*> json_object(const JsonValue& object, std::string_view key, const std::string& what);
// An array of integers of at least `least`.
Result<std::vector<std::int64_t>> json_integers(const JsonValue& object, std::string_view key,
                                                const std::string& what, std::int64_t least = 0);
// Refuses a key that is not in `known`: what a reader does not understand it must not ignore.
Status json_only_keys(const JsonValue& object, const std::vector<std::string_view>& known,
                      const std::string& what);

}  // namespace plumbline

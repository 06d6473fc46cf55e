// A streaming JSON writer: deterministic order and number forms, no tree in memory. Misuse (a value without
// its key, an unclosed object) is an assertion.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace plumbline {

class JsonWriter {
 public:
  JsonWriter& begin_object();
  JsonWriter& end_object();
  JsonWriter& begin_array();
  JsonWriter& end_array();
  JsonWriter& key(std::string_view name);
  JsonWriter& value(std::string_view text);
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(bool flag);
  JsonWriter& value(std::int64_t number);
  JsonWriter& value(int number) { return value(static_cast<std::int64_t>(number)); }
  JsonWriter& value(std::uint64_t number);
  JsonWriter& value(double number);  // shortest form that reads back exactly; null when not finite
  JsonWriter& null();

  template <typename T>
  JsonWriter& field(std::string_view name, const T& content) {
    key(name);
    return value(content);
  }

  // The finished document. Every object and array must be closed.
  const std::string& text() const;

 private:
  void separate();
  std::string out_;
  std::vector<char> open_;  // '{' or '[' of what is open
  bool first_ = true;       // nothing written yet at this level
  bool have_key_ = false;
};

}  // namespace plumbline

// StateDict: what an optimizer, a scaler or a scheduler saves and loads - nested dictionaries and lists of
// tensors, numbers, strings and bytes. A value type with the meaning of Python's: None, False and 0 are
// different things, a dictionary keeps the order of insertion, keys are unique. Tensors are handles:
// copying a StateDict shares their storage; clone() does not.
//
// Used by engine/checkpoint for every format; nothing here knows a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>

#include "engine/base/result.h"

namespace plumbline {

class StateValue;

using StateList = std::vector<StateValue>;

// Ordered by insertion; look-up is linear. A dictionary of all parameters is walked in order, not looked up
// by name parameter by parameter.
class StateDict {
 public:
  using Entry = std::pair<std::string, StateValue>;
  using Entries = std::vector<Entry>;

  StateDict() = default;
  StateDict(std::initializer_list<Entry> entries);  // asserts that no key comes twice

  bool empty() const;
  std::size_t size() const;
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  const StateValue* find(std::string_view key) const;  // null when absent
  StateValue* find(std::string_view key);
  StateValue& operator[](std::string_view key);      // appended as None when absent
  const StateValue& at(std::string_view key) const;  // asserts that it is there
  bool erase(std::string_view key);                  // whether it was there

  // The entry as a type, or an error (kState) that names the key, what was found and what was wanted. Nothing
  // is converted but an integer to a number: a bool is neither.
  Result<std::int64_t> integer(std::string_view key) const;
  Result<double> number(std::string_view key) const;
  Result<std::string> text(std::string_view key) const;
  Result<bool> boolean(std::string_view key) const;
  Result<at::Tensor> tensor(std::string_view key) const;
  Result<const StateDict*> dict(std::string_view key) const;  // points into this dictionary
  Result<const StateList*> list(std::string_view key) const;

  Entries::const_iterator begin() const;
  Entries::const_iterator end() const;
  // Values may be changed through these, keys may not.
  Entries::iterator begin();
  Entries::iterator end();

 private:
  template <typename T>
  Result<const T*> typed(std::string_view key, std::string_view wanted) const;
  Entries entries_;
};

class StateValue {
 public:
  enum class Kind : std::uint8_t { kNone, kBool, kInt, kDouble, kText, kBytes, kTensor, kList, kDict };

  StateValue() = default;  // None
  StateValue(bool value) : value_(value) {}
  StateValue(std::int64_t value) : value_(value) {}
  StateValue(int value) : value_(static_cast<std::int64_t>(value)) {}
  StateValue(double value) : value_(value) {}
  StateValue(std::string value) : value_(std::move(value)) {}
  StateValue(const char* value) : value_(std::string(value)) {}
  StateValue(std::vector<std::uint8_t> bytes) : value_(std::move(bytes)) {}
  StateValue(at::Tensor value) : value_(std::move(value)) {}
  StateValue(StateList value) : value_(std::move(value)) {}
  StateValue(StateDict value) : value_(std::move(value)) {}

  Kind kind() const { return static_cast<Kind>(value_.index()); }
  bool none() const { return kind() == Kind::kNone; }
  // Null when the value is of another kind.
  template <typename T>
  const T* get() const {
    return std::get_if<T>(&value_);
  }
  template <typename T>
  T* get() {
    return std::get_if<T>(&value_);
  }

 private:
  std::variant<std::monostate, bool, std::int64_t, double, std::string, std::vector<std::uint8_t>, at::Tensor,
               StateList, StateDict>
      value_;
};

// Same structure, same order of keys, same kinds; numbers and tensors bit for bit (a NaN equals the NaN of
// the same bits, -0 is not 0). Strides and devices of tensors do not count. Empty when equal, else where
// the first difference is and what it is, `left` first: "optimizer.state.3.exp_avg: element 17 is 0x1.8p-3,
// was 0x1p-3". Places in lists are written "groups[2]"; the values themselves are called "the value".
std::string first_difference(const StateValue& left, const StateValue& right);

// Deep copy: every tensor gets storage of its own, also those that shared one; no gradient history.
StateValue clone(const StateValue& value);

// "None", "bool", "int", "float", "text", "bytes", "tensor float32[2, 3]", "list of 4", "dict of 2".
std::string describe(const StateValue& value);

inline bool StateDict::empty() const { return entries_.empty(); }
inline std::size_t StateDict::size() const { return entries_.size(); }
inline StateDict::Entries::const_iterator StateDict::begin() const { return entries_.begin(); }
inline StateDict::Entries::const_iterator StateDict::end() const { return entries_.end(); }
inline StateDict::Entries::iterator StateDict::begin() { return entries_.begin(); }
inline StateDict::Entries::iterator StateDict::end() { return entries_.end(); }

}  // namespace plumbline

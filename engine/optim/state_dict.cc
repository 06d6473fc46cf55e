#include "engine/optim/state_dict.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "engine/base/assert.h"
#include "engine/base/text.h"

namespace plumbline {
namespace {

std::string type_text(at::ScalarType type) {
  switch (type) {
    case at::kByte:
      return "uint8";
    case at::kChar:
      return "int8";
    case at::kShort:
      return "int16";
    case at::kInt:
      return "int32";
    case at::kLong:
      return "int64";
    case at::kHalf:
      return "float16";
    case at::kBFloat16:
      return "bfloat16";
    case at::kFloat:
      return "float32";
    case at::kDouble:
      return "float64";
    case at::kBool:
      return "bool";
    default:
      return at::toString(type);
  }
}

}  // namespace

StateDict::StateDict(std::initializer_list<Entry> entries) {
  for (const Entry& entry : entries) {
    PL_ASSERT_MSG(!contains(entry.first), fmt::format("key \"{}\" twice", entry.first));
    entries_.push_back(entry);
  }
}

const StateValue* StateDict::find(std::string_view key) const {
  const auto at = std::find_if(begin(), end(), [&](const Entry& entry) { return entry.first == key; });
  return at == end() ? nullptr : &at->second;
}

StateValue* StateDict::find(std::string_view key) {
  return const_cast<StateValue*>(std::as_const(*this).find(key));
}

StateValue& StateDict::operator[](std::string_view key) {
  if (StateValue* value = find(key)) return *value;
  return entries_.emplace_back(std::string(key), StateValue()).second;
}

const StateValue& StateDict::at(std::string_view key) const {
  const StateValue* value = find(key);
  PL_ASSERT_MSG(value != nullptr, fmt::format("no key \"{}\"", key));
  return *value;
}

bool StateDict::erase(std::string_view key) {
  const auto at = std::find_if(begin(), end(), [&](const Entry& entry) { return entry.first == key; });
  if (at == end()) return false;
  entries_.erase(at);
  return true;
}

template <typename T>
Result<const T*> StateDict::typed(std::string_view key, std::string_view wanted) const {
  const StateValue* value = find(key);
  if (value == nullptr) {
    std::vector<std::string> keys;
    for (const Entry& entry : entries_) keys.push_back(entry.first);
    const std::string close = nearest(key, keys);
    return fail(ErrorCode::kState, fmt::format("the state has no \"{}\", which must be {}{}", key, wanted,
                                               close.empty() ? "" : fmt::format("; \"{}\" is there", close)));
  }
  if (const T* typed = value->get<T>()) return typed;
  return fail(ErrorCode::kState,
              fmt::format("\"{}\" of the state is {}; it must be {}", key, describe(*value), wanted));
}

Result<std::int64_t> StateDict::integer(std::string_view key) const {
  return typed<std::int64_t>(key, "int").map([](const std::int64_t* value) { return *value; });
}

Result<double> StateDict::number(std::string_view key) const {
  if (const StateValue* value = find(key)) {
    if (const auto* whole = value->get<std::int64_t>()) return static_cast<double>(*whole);
  }
  return typed<double>(key, "int or float").map([](const double* value) { return *value; });
}

Result<std::string> StateDict::text(std::string_view key) const {
  return typed<std::string>(key, "text").map([](const std::string* value) { return *value; });
}

Result<bool> StateDict::boolean(std::string_view key) const {
  return typed<bool>(key, "bool").map([](const bool* value) { return *value; });
}

Result<at::Tensor> StateDict::tensor(std::string_view key) const {
  return typed<at::Tensor>(key, "a tensor").map([](const at::Tensor* value) { return *value; });
}

Result<const StateDict*> StateDict::dict(std::string_view key) const {
  return typed<StateDict>(key, "a dict");
}

Result<const StateList*> StateDict::list(std::string_view key) const {
  return typed<StateList>(key, "a list");
}

StateValue clone(const StateValue& value) {
  if (const auto* tensor = value.get<at::Tensor>()) {
    return tensor->defined() ? StateValue(tensor->detach().clone()) : value;
  }
  if (const auto* list = value.get<StateList>()) {
    StateList copy;
    for (const StateValue& element : *list) copy.push_back(clone(element));
    return copy;
  }
  if (const auto* dict = value.get<StateDict>()) {
    StateDict copy = *dict;
    for (StateDict::Entry& entry : copy) entry.second = clone(entry.second);
    return copy;
  }
  return value;
}

std::string describe(const StateValue& value) {
  switch (value.kind()) {
    case StateValue::Kind::kNone:
      return "None";
    case StateValue::Kind::kBool:
      return "bool";
    case StateValue::Kind::kInt:
      return "int";
    case StateValue::Kind::kDouble:
      return "float";
    case StateValue::Kind::kText:
      return "text";
    case StateValue::Kind::kBytes:
      return "bytes";
    case StateValue::Kind::kTensor: {
      const at::Tensor& tensor = *value.get<at::Tensor>();
      if (!tensor.defined()) return "tensor undefined";
      return fmt::format("tensor {}[{}]", type_text(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
    }
    case StateValue::Kind::kList:
      return fmt::format("list of {}", value.get<StateList>()->size());
    case StateValue::Kind::kDict:
      return fmt::format("dict of {}", value.get<StateDict>()->size());
  }
  return "?";
}

}  // namespace plumbline

#include "engine/checkpoint/state_json.h"

#include <bit>
#include <cmath>

#include <fmt/format.h>

#include "engine/base/hash.h"
#include "engine/storage/manifest.h"
#include "engine/storage/utf8.h"

namespace plumbline {
namespace {

constexpr int kMaxDepth = 30;  // of states; each level is at most two of JSON

JsonValue tagged(const char* tag, JsonValue::Content content) {
  JsonObject object;
  object.emplace_back(tag, JsonValue(std::move(content)));
  return JsonValue(std::move(object));
}

std::string to_hex(const void* data, std::size_t size) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (std::size_t i = 0; i < size; ++i) {
    const unsigned byte = static_cast<const unsigned char*>(data)[i];
    out += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return out;
}

Result<std::vector<std::uint8_t>> from_hex(const std::string& text, const std::string& what) {
  if (text.size() % 2 != 0 || text.find_first_not_of("0123456789abcdef") != std::string::npos)
    return fail(ErrorCode::kParse, what + ": bytes must be pairs of hexadecimal digits");
  std::vector<std::uint8_t> bytes;
  for (std::size_t i = 0; i < text.size(); i += 2)
    bytes.push_back(static_cast<std::uint8_t>(std::stoi(text.substr(i, 2), nullptr, 16)));
  return bytes;
}

class Writer {
 public:
  Writer(const std::string& key, NamedTensors& tensors) : key_(key), tensors_(tensors) {}

  Result<JsonValue> value(const StateValue& state, int depth) {
    if (depth > kMaxDepth)
      return fail(ErrorCode::kUnsupported, fmt::format("'{}': nested deeper than {}", key_, kMaxDepth));
    if (const auto* flag = state.get<bool>()) return JsonValue(JsonValue::Content(*flag));
    if (const auto* whole = state.get<std::int64_t>()) return JsonValue(JsonValue::Content(*whole));
    if (const auto* real = state.get<double>()) return number(*real);
    if (const auto* text = state.get<std::string>()) {
      if (valid_utf8(*text)) return JsonValue(JsonValue::Content(*text));
      return tagged("text", to_hex(text->data(), text->size()));
    }
    if (const auto* bytes = state.get<std::vector<std::uint8_t>>())
      return tagged("bytes", to_hex(bytes->data(), bytes->size()));
    if (const auto* tensor = state.get<at::Tensor>()) {
      if (!tensor->defined())
        return fail(ErrorCode::kState, fmt::format("'{}' holds a tensor that is not defined", key_));
      std::string name = fmt::format("{}{}#{}", kObjectTensor, key_, tensors_.size());
      tensors_.emplace_back(name, *tensor);
      return tagged("tensor", std::move(name));
    }
    if (const auto* list = state.get<StateList>()) return array(*list, depth);
    if (const auto* dict = state.get<StateDict>()) return object(*dict, depth);
    return JsonValue();
  }

 private:
  // Shortest decimals read back to the same bits; what JSON cannot say goes as bits.
  static JsonValue number(double real) {
    if (std::isfinite(real) && !(real == 0.0 && std::signbit(real))) return tagged("float", real);
    return tagged("float", hex64(std::bit_cast<std::uint64_t>(real)));
  }
  Result<JsonValue> array(const StateList& list, int depth) {
    JsonArray out;
    for (const StateValue& entry : list) {
      Result<JsonValue> one = value(entry, depth + 1);
      if (!one) return one;
      out.push_back(std::move(*one));
    }
    return tagged("list", std::move(out));
  }
  Result<JsonValue> object(const StateDict& dict, int depth) {
    JsonObject out;
    for (const auto& [name, entry] : dict) {
      if (!valid_utf8(name))
        return fail(ErrorCode::kUnsupported, fmt::format("'{}': a key that is not UTF-8", key_));
      Result<JsonValue> one = value(entry, depth + 1);
      if (!one) return one;
      out.emplace_back(name, std::move(*one));
    }
    return tagged("dict", std::move(out));
  }

  const std::string& key_;
  NamedTensors& tensors_;
};

class Reader {
 public:
  Reader(const std::string& key, const std::function<Result<at::Tensor>(const std::string&)>& tensor)
      : what_(fmt::format("object '{}'", key)), tensor_(tensor) {}

  Result<StateValue> value(const JsonValue& json) {
    if (json.null()) return StateValue();
    if (const auto* flag = json.get<bool>()) return StateValue(*flag);
    if (const auto* whole = json.get<std::int64_t>()) return StateValue(*whole);
    if (const auto* text = json.get<std::string>()) return StateValue(*text);
    const auto* object = json.get<JsonObject>();
    if (object == nullptr || object->size() != 1) return wrong(json);
    const auto& [tag, content] = object->front();
    if (tag == "float") return number(content);
    if (tag == "list" && content.get<JsonArray>() != nullptr) return list(*content.get<JsonArray>());
    if (tag == "dict" && content.get<JsonObject>() != nullptr) return dict(*content.get<JsonObject>());
    const auto* text = content.get<std::string>();
    if (text == nullptr) return wrong(json);
    if (tag == "tensor") {
      Result<at::Tensor> found = tensor_(*text);
      if (!found) return tl::unexpected(found.error());
      return StateValue(std::move(*found));
    }
    if (tag != "bytes" && tag != "text") return wrong(json);
    Result<std::vector<std::uint8_t>> bytes = from_hex(*text, what_);
    if (!bytes) return tl::unexpected(bytes.error());
    if (tag == "bytes") return StateValue(std::move(*bytes));
    return StateValue(std::string(bytes->begin(), bytes->end()));
  }

 private:
  tl::unexpected<Error> wrong(const JsonValue& json) const {
    return fail(ErrorCode::kParse, fmt::format("{}: {} is no state", what_, json.describe()));
  }
  Result<StateValue> number(const JsonValue& json) const {
    if (const auto* real = json.get<double>()) return StateValue(*real);
    if (const auto* whole = json.get<std::int64_t>()) return StateValue(static_cast<double>(*whole));
    if (const auto* large = json.get<std::uint64_t>()) return StateValue(static_cast<double>(*large));
    const auto* hex = json.get<std::string>();
    if (hex == nullptr || hex->size() != 16 ||
        hex->find_first_not_of("0123456789abcdef") != std::string::npos)
      return wrong(json);
    return StateValue(std::bit_cast<double>(static_cast<std::uint64_t>(std::stoull(*hex, nullptr, 16))));
  }
  Result<StateValue> list(const JsonArray& array) {
    StateList out;
    for (const JsonValue& entry : array) {
      Result<StateValue> one = value(entry);
      if (!one) return one;
      out.push_back(std::move(*one));
    }
    return StateValue(std::move(out));
  }
  Result<StateValue> dict(const JsonObject& object) {
    StateDict out;
    for (const auto& [name, entry] : object) {
      Result<StateValue> one = value(entry);
      if (!one) return one;
      out[name] = std::move(*one);
    }
    return StateValue(std::move(out));
  }

  std::string what_;
  const std::function<Result<at::Tensor>(const std::string&)>& tensor_;
};

}  // namespace

Result<JsonValue> state_to_json(const std::string& key, const StateValue& value, NamedTensors& tensors) {
  NamedTensors own;
  Result<JsonValue> json = Writer(key, own).value(value, 0);
  if (!json) return json;
  for (auto& tensor : own) tensors.push_back(std::move(tensor));
  return json;
}

Result<StateValue> state_from_json(const std::string& key, const JsonValue& value,
                                   const std::function<Result<at::Tensor>(const std::string&)>& tensor) {
  return Reader(key, tensor).value(value);
}

}  // namespace plumbline

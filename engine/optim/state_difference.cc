// first_difference(): a walk over two state values side by side. Structure is compared before content, so
// that an entry which is missing is reported as such and not as a value that moved.
#include <bit>
#include <cmath>
#include <cstring>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "engine/base/assert.h"
#include "engine/optim/state_dict.h"

namespace plumbline {
namespace {

std::string place(const std::string& path) { return path.empty() ? "the value" : path; }

std::string differs(const std::string& path, std::string_view left, std::string_view right) {
  return fmt::format("{}: is {}, was {}", place(path), left, right);
}

// Hexadecimal, so that two numbers which differ read differently; a NaN with its bits.
template <typename Real, typename Bits>
std::string real_text(Real value) {
  if (std::isnan(value)) return fmt::format("nan (bits {:#x})", std::bit_cast<Bits>(value));
  return fmt::format("{:a}", value);
}

// Element `index` of a contiguous CPU tensor.
std::string element_text(const at::Tensor& tensor, std::int64_t index) {
  const std::size_t width = tensor.element_size();
  const auto* bytes =
      static_cast<const std::uint8_t*>(tensor.data_ptr()) + static_cast<std::size_t>(index) * width;
  const at::ScalarType type = tensor.scalar_type();
  if (type == at::kFloat) {
    float value = 0;
    std::memcpy(&value, bytes, sizeof value);
    return real_text<float, std::uint32_t>(value);
  }
  if (type == at::kDouble) {
    double value = 0;
    std::memcpy(&value, bytes, sizeof value);
    return real_text<double, std::uint64_t>(value);
  }
  std::uint64_t bits = 0;
  if (width <= sizeof bits) std::memcpy(&bits, bytes, width);
  if (type == at::kHalf || type == at::kBFloat16) {
    const auto low = static_cast<std::uint16_t>(bits);
    const float value = type == at::kHalf ? static_cast<float>(at::Half(low, at::Half::from_bits()))
                                          : static_cast<float>(at::BFloat16(low, at::BFloat16::from_bits()));
    return std::isnan(value) ? fmt::format("nan (bits {:#x})", low) : fmt::format("{:a}", value);
  }
  if (type == at::kLong) return fmt::format("{}", static_cast<std::int64_t>(bits));
  if (type == at::kInt) return fmt::format("{}", static_cast<std::int32_t>(bits));
  if (type == at::kShort) return fmt::format("{}", static_cast<std::int16_t>(bits));
  if (type == at::kChar) return fmt::format("{}", static_cast<std::int8_t>(bits));
  return width <= sizeof bits ? fmt::format("{}", bits) : "another one";
}

std::string tensor_difference(const std::string& path, const at::Tensor& left, const at::Tensor& right) {
  const std::string left_kind = describe(StateValue(left)), right_kind = describe(StateValue(right));
  if (left_kind != right_kind) return differs(path, left_kind, right_kind);
  if (!left.defined() || left.numel() == 0) return {};
  PL_ASSERT(left.layout() == at::kStrided && right.layout() == at::kStrided);
  const at::Tensor a = left.detach().cpu().contiguous(), b = right.detach().cpu().contiguous();
  const std::size_t width = a.element_size();
  if (std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) == 0) return {};
  const auto* x = static_cast<const std::uint8_t*>(a.data_ptr());
  const auto* y = static_cast<const std::uint8_t*>(b.data_ptr());
  std::int64_t first = 0;
  while (std::memcmp(x, y, width) == 0) {
    x += width;
    y += width;
    ++first;
  }
  return fmt::format("{}: element {} is {}, was {}", place(path), first, element_text(a, first),
                     element_text(b, first));
}

std::string difference(const std::string& path, const StateValue& left, const StateValue& right);

std::string list_difference(const std::string& path, const StateList& left, const StateList& right) {
  if (left.size() != right.size())
    return differs(path, fmt::format("list of {}", left.size()), fmt::format("list of {}", right.size()));
  for (std::size_t i = 0; i < left.size(); ++i) {
    std::string found = difference(fmt::format("{}[{}]", path, i), left[i], right[i]);
    if (!found.empty()) return found;
  }
  return {};
}

std::string dict_difference(const std::string& path, const StateDict& left, const StateDict& right) {
  const auto below = [&](const std::string& key) { return path.empty() ? key : path + "." + key; };
  // Side by side as long as the keys agree, so that equal dictionaries need no look-up.
  auto a = left.begin();
  auto b = right.begin();
  while (a != left.end() && b != right.end() && a->first == b->first) ++a, ++b;
  if (a != left.end() || b != right.end()) {
    for (const StateDict::Entry& entry : left) {
      if (!right.contains(entry.first)) return differs(below(entry.first), describe(entry.second), "absent");
    }
    for (const StateDict::Entry& entry : right) {
      if (!left.contains(entry.first)) return differs(below(entry.first), "absent", describe(entry.second));
    }
    return fmt::format("{}: key {} is \"{}\", was \"{}\"; the same keys in another order", place(path),
                       a - left.begin(), a->first, b->first);
  }
  for (a = left.begin(), b = right.begin(); a != left.end(); ++a, ++b) {
    std::string found = difference(below(a->first), a->second, b->second);
    if (!found.empty()) return found;
  }
  return {};
}

std::string bytes_difference(const std::string& path, const std::vector<std::uint8_t>& left,
                             const std::vector<std::uint8_t>& right) {
  if (left.size() != right.size())
    return differs(path, fmt::format("{} bytes", left.size()), fmt::format("{} bytes", right.size()));
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (left[i] != right[i])
      return fmt::format("{}: byte {} is {:#04x}, was {:#04x}", place(path), i, left[i], right[i]);
  }
  return {};
}

std::string difference(const std::string& path, const StateValue& left, const StateValue& right) {
  if (left.kind() != right.kind()) return differs(path, describe(left), describe(right));
  switch (left.kind()) {
    case StateValue::Kind::kNone:
      return {};
    case StateValue::Kind::kBool: {
      const bool a = *left.get<bool>(), b = *right.get<bool>();
      return a == b ? "" : differs(path, a ? "true" : "false", b ? "true" : "false");
    }
    case StateValue::Kind::kInt: {
      const std::int64_t a = *left.get<std::int64_t>(), b = *right.get<std::int64_t>();
      return a == b ? "" : differs(path, fmt::to_string(a), fmt::to_string(b));
    }
    case StateValue::Kind::kDouble: {
      const double a = *left.get<double>(), b = *right.get<double>();
      if (std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b)) return {};
      return differs(path, real_text<double, std::uint64_t>(a), real_text<double, std::uint64_t>(b));
    }
    case StateValue::Kind::kText: {
      const auto &a = *left.get<std::string>(), &b = *right.get<std::string>();
      return a == b ? "" : differs(path, fmt::format("\"{}\"", a), fmt::format("\"{}\"", b));
    }
    case StateValue::Kind::kBytes:
      return bytes_difference(path, *left.get<std::vector<std::uint8_t>>(),
                              *right.get<std::vector<std::uint8_t>>());
    case StateValue::Kind::kTensor:
      return tensor_difference(path, *left.get<at::Tensor>(), *right.get<at::Tensor>());
    case StateValue::Kind::kList:
      return list_difference(path, *left.get<StateList>(), *right.get<StateList>());
    case StateValue::Kind::kDict:
      return dict_difference(path, *left.get<StateDict>(), *right.get<StateDict>());
  }
  return {};
}

}  // namespace

std::string first_difference(const StateValue& left, const StateValue& right) {
  return difference({}, left, right);
}

}  // namespace plumbline

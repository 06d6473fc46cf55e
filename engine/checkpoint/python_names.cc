#include "engine/checkpoint/python_names.h"

#include <algorithm>
#include <array>
#include <utility>

#include <ATen/ATen.h>

namespace plumbline {
namespace {

constexpr std::array<std::pair<const char*, at::ScalarType>, 11> kStorages = {{
    {"FloatStorage", at::kFloat},
    {"DoubleStorage", at::kDouble},
    {"HalfStorage", at::kHalf},
    {"BFloat16Storage", at::kBFloat16},
    {"LongStorage", at::kLong},
    {"IntStorage", at::kInt},
    {"ShortStorage", at::kShort},
    {"CharStorage", at::kChar},
    {"ByteStorage", at::kByte},
    {"BoolStorage", at::kBool},
    {"ComplexFloatStorage", at::kComplexFloat},
}};

bool one_of(const std::string& name, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* known) { return name == known; });
}

// Two's complement of a little-endian number, in place.
void negate(std::string& bytes) {
  unsigned carry = 1;
  for (char& byte : bytes) {
    carry += static_cast<unsigned char>(~static_cast<unsigned char>(byte));
    byte = static_cast<char>(carry & 0xFF);
    carry >>= 8;
  }
}

}  // namespace

std::string dotted(const PickleNode& global) {
  if (global.kind != PickleNode::Kind::kGlobal) return "";
  std::string name = global.text;
  name[name.find('\n')] = '.';
  return name;
}

bool dict_like(const std::string& name) {
  return one_of(name, {"collections.OrderedDict", "collections.defaultdict", "collections.Counter"});
}

bool namespace_like(const std::string& name) {
  return one_of(name, {"argparse.Namespace", "types.SimpleNamespace"});
}

std::optional<at::ScalarType> storage_type(const std::string& name) {
  for (const auto& [known, type] : kStorages) {
    if (name == std::string("torch.") + known || name == std::string("torch.cuda.") + known) return type;
  }
  return std::nullopt;
}

std::string storage_name(at::ScalarType type) {
  for (const auto& [name, known] : kStorages) {
    if (known == type) return name;
  }
  return "";
}

std::string big_int_text(std::string_view bytes) {
  std::string magnitude(bytes);
  const bool negative = !bytes.empty() && (static_cast<unsigned char>(bytes.back()) & 0x80) != 0;
  if (negative) negate(magnitude);
  std::string out;
  for (std::size_t i = magnitude.size(); i-- > 0;) {
    const auto byte = static_cast<unsigned char>(magnitude[i]);
    out += {"0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 15]};
  }
  out.erase(0, std::min(out.find_first_not_of('0'), out.size()));
  return (negative ? "-0x" : "0x") + (out.empty() ? "0" : out);
}

std::optional<std::string> big_int_bytes(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  if (!text.starts_with("0x")) return std::nullopt;
  text.remove_prefix(2);
  if (text.empty() || text.find_first_not_of("0123456789abcdef") != std::string_view::npos)
    return std::nullopt;
  std::string bytes;
  for (std::size_t end = text.size(); end > 0; end -= std::min<std::size_t>(2, end)) {
    const std::size_t begin = end - std::min<std::size_t>(2, end);
    bytes += static_cast<char>(std::stoi(std::string(text.substr(begin, end - begin)), nullptr, 16));
  }
  bytes += '\0';
  if (negative) negate(bytes);
  // Python writes as few bytes as carry the sign.
  while (bytes.size() > 1) {
    const auto last = static_cast<unsigned char>(bytes.back()),
               next = static_cast<unsigned char>(bytes[bytes.size() - 2]);
    if (!((last == 0 && next < 0x80) || (last == 0xFF && next >= 0x80))) break;
    bytes.pop_back();
  }
  return bytes;
}

std::optional<std::vector<std::uint8_t>> latin1_bytes(std::string_view utf8) {
  std::vector<std::uint8_t> bytes;
  for (std::size_t i = 0; i < utf8.size(); ++i) {
    const auto byte = static_cast<unsigned char>(utf8[i]);
    if (byte < 0x80) {
      bytes.push_back(byte);
    } else if ((byte == 0xC2 || byte == 0xC3) && i + 1 < utf8.size()) {
      bytes.push_back(
          static_cast<std::uint8_t>((byte & 3) << 6 | (static_cast<unsigned char>(utf8[++i]) & 0x3F)));
    } else {
      return std::nullopt;
    }
  }
  return bytes;
}

}  // namespace plumbline

#include "engine/checkpoint/numpy_value.h"

#include <array>
#include <cstring>
#include <string>

#include <ATen/ATen.h>

#include "engine/checkpoint/python_names.h"

namespace plumbline {
namespace {

using Kind = PickleNode::Kind;

struct NumpyType {
  const char* name;
  at::ScalarType type;  // of the tensor
  std::size_t bytes;    // of the array's elements
  bool is_signed;
};

constexpr std::array<NumpyType, 12> kTypes = {{
    {"f4", at::kFloat, 4, true},
    {"f8", at::kDouble, 8, true},
    {"f2", at::kHalf, 2, true},
    {"i1", at::kChar, 1, true},
    {"i2", at::kShort, 2, true},
    {"i4", at::kInt, 4, true},
    {"i8", at::kLong, 8, true},
    {"u1", at::kByte, 1, false},
    {"u2", at::kLong, 2, false},
    {"u4", at::kLong, 4, false},
    {"b1", at::kBool, 1, false},
    {"?", at::kBool, 1, false},
}};

// numpy.dtype('u4', False, True) with a state whose second item is the byte order.
const NumpyType* dtype_of(const Pickle& pickle, const PickleNode& node) {
  if (node.kind != Kind::kCall || dotted(pickle.at(node.items[0])) != "numpy.dtype") return nullptr;
  const std::vector<PickleRef>& args = pickle.at(node.items[1]).items;
  if (args.empty() || pickle.at(args[0]).kind != Kind::kText) return nullptr;
  if (node.state != PickleNode::kNoRef) {
    const PickleNode& state = pickle.at(node.state);
    if (state.kind != Kind::kTuple || state.items.size() < 2 || pickle.at(state.items[1]).text == ">")
      return nullptr;
  }
  for (const NumpyType& type : kTypes) {
    if (pickle.at(args[0]).text == type.name) return &type;
  }
  return nullptr;
}

// Bytes, directly (protocol 3 and later) or as _codecs.encode(text, 'latin1').
std::optional<std::vector<std::uint8_t>> bytes_of(const Pickle& pickle, const PickleNode& node) {
  if (node.kind == Kind::kBytes || node.kind == Kind::kByteArray)
    return std::vector<std::uint8_t>(node.text.begin(), node.text.end());
  if (node.kind != Kind::kCall || dotted(pickle.at(node.items[0])) != "_codecs.encode") return std::nullopt;
  const std::vector<PickleRef>& args = pickle.at(node.items[1]).items;
  if (args.empty() || pickle.at(args[0]).kind != Kind::kText) return std::nullopt;
  return latin1_bytes(pickle.at(args[0]).text);
}

bool is_numpy(const std::string& name, const char* what) {
  return name == std::string("numpy.core.multiarray.") + what ||
         name == std::string("numpy._core.multiarray.") + what;
}

at::Tensor tensor_of(const NumpyType& type, const std::vector<std::uint8_t>& bytes, std::int64_t count) {
  at::Tensor out = at::empty({count}, at::TensorOptions(type.type));
  if (out.element_size() == static_cast<std::int64_t>(type.bytes)) {
    if (!bytes.empty()) std::memcpy(out.data_ptr(), bytes.data(), bytes.size());
    return out;
  }
  auto* wide = out.data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t value = 0;
    for (std::size_t b = type.bytes; b-- > 0;)
      value = value << 8 | bytes[static_cast<std::size_t>(i) * type.bytes + b];
    wide[i] = value;
  }
  return out;
}

}  // namespace

std::optional<StateValue> numpy_scalar(const Pickle& pickle, const PickleNode& node) {
  if (!is_numpy(dotted(pickle.at(node.items[0])), "scalar")) return std::nullopt;
  const std::vector<PickleRef>& args = pickle.at(node.items[1]).items;
  if (args.size() != 2) return std::nullopt;
  const NumpyType* type = dtype_of(pickle, pickle.at(args[0]));
  const auto bytes = bytes_of(pickle, pickle.at(args[1]));
  if (type == nullptr || !bytes || bytes->size() != type->bytes) return std::nullopt;
  const at::Tensor one = tensor_of(*type, *bytes, 1);
  if (type->type == at::kBool) return StateValue((*bytes)[0] != 0);
  if (at::isFloatingType(type->type)) return StateValue(one.to(at::kDouble).item<double>());
  return StateValue(one.to(at::kLong).item<std::int64_t>());
}

// State: (version, shape, dtype, is_fortran, bytes).
std::optional<StateValue> numpy_array(const Pickle& pickle, const PickleNode& node) {
  if (!is_numpy(dotted(pickle.at(node.items[0])), "_reconstruct") || node.state == PickleNode::kNoRef)
    return std::nullopt;
  const PickleNode& state = pickle.at(node.state);
  if (state.kind != Kind::kTuple || state.items.size() != 5) return std::nullopt;
  const NumpyType* type = dtype_of(pickle, pickle.at(state.items[2]));
  const auto bytes = bytes_of(pickle, pickle.at(state.items[4]));
  if (type == nullptr || !bytes) return std::nullopt;
  std::vector<std::int64_t> shape;
  std::int64_t count = 1;
  for (const PickleRef item : pickle.at(state.items[1]).items) {
    const PickleNode& size = pickle.at(item);
    if (size.kind != Kind::kInt || size.integer < 0 || __builtin_mul_overflow(count, size.integer, &count))
      return std::nullopt;
    shape.push_back(size.integer);
  }
  std::int64_t wanted = 0;
  if (__builtin_mul_overflow(count, static_cast<std::int64_t>(type->bytes), &wanted) ||
      static_cast<std::size_t>(wanted) != bytes->size())
    return std::nullopt;
  const at::Tensor flat = tensor_of(*type, *bytes, count);
  if (pickle.at(state.items[3]).integer == 0) return StateValue(flat.reshape(shape));
  const std::vector<std::int64_t> reversed(shape.rbegin(), shape.rend());
  std::vector<std::int64_t> order;
  for (std::int64_t d = static_cast<std::int64_t>(shape.size()); d-- > 0;) order.push_back(d);
  return StateValue(flat.reshape(reversed).permute(order).contiguous());
}

}  // namespace plumbline

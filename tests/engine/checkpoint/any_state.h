// Random nested states, any bits in tensors and numbers.
#pragma once

#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "engine/optim/state_dict.h"
#include "tests/support/covers.h"

namespace plumbline::test {

inline at::Tensor any_tensor(const std::vector<std::int64_t>& shape, at::ScalarType type) {
  at::Tensor tensor = at::empty(shape, at::TensorOptions(type));
  auto* bytes = static_cast<std::uint8_t*>(tensor.data_ptr());
  for (std::size_t i = 0; i < tensor.nbytes(); ++i) bytes[i] = static_cast<std::uint8_t>(below(256));
  return tensor;
}

inline at::ScalarType any_type() {
  constexpr at::ScalarType kTypes[] = {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble,
                                       at::kLong,  at::kByte, at::kInt};
  return kTypes[below(7)];
}

// `utf8`: without texts that are not.
inline StateValue any_state(int depth, bool utf8 = false) {
  switch (below(depth > 0 ? 10 : 8)) {
    case 0:
      return {};
    case 1:
      return below(2) == 1;
    case 2:
      return *rc::gen::resize(100, rc::gen::arbitrary<std::int64_t>());
    case 3:
      return std::bit_cast<double>(*rc::gen::resize(100, rc::gen::arbitrary<std::uint64_t>()));
    case 4: {
      constexpr double kNumbers[] = {0.0, -0.0, 1.0, 0.1, 1e300, 5e-324, 3.0, 1e22};
      return kNumbers[below(8)];
    }
    case 5: {
      constexpr const char* kTexts[] = {"", "plain", "\"quoted\"\n", "\xc3\xa9", "\xff\x01", "\xed\xa0\x80"};
      return std::string(kTexts[below(utf8 ? 4 : 6)]);
    }
    case 6: {
      std::vector<std::uint8_t> bytes(static_cast<std::size_t>(below(5)));
      for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(below(256));
      return bytes;
    }
    case 7: {
      Shape shape;
      for (int dims = below(3); dims > 0; --dims) shape.push_back(below(4));
      const at::Tensor tensor = any_tensor(shape, any_type());
      return tensor.dim() == 2 && below(2) == 1 ? tensor.t() : tensor;
    }
    case 8: {
      StateList list;
      for (int i = below(4); i > 0; --i) list.push_back(any_state(depth - 1, utf8));
      return list;
    }
    default: {
      StateDict dict;
      for (int i = below(5); i > 0; --i)
        dict[fmt::format("{}{}", "xyz"[below(3)], below(5))] = any_state(depth - 1, utf8);
      return dict;
    }
  }
}

}  // namespace plumbline::test

// Random nested states: a clone equals its origin and shares nothing with it, and one planted change is
// found, whatever it is and wherever it lies, by its path.
#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "engine/optim/state_dict.h"
#include "tests/support/property.h"

namespace plumbline {
namespace {

// The whole range at every size of a case; RapidCheck's own grows with the case, which leaves most states
// empty.
int below(int end) { return *rc::gen::resize(100, rc::gen::inRange(0, end)); }
std::uint8_t any_byte() { return static_cast<std::uint8_t>(below(256)); }

std::vector<std::uint8_t> any_bytes(std::size_t count) {
  std::vector<std::uint8_t> bytes(count);
  for (std::uint8_t& byte : bytes) byte = any_byte();
  return bytes;
}

// Any bits: NaNs, infinities and denormals among them. Empty, of no dimension, strided or contiguous.
at::Tensor any_tensor() {
  static const std::vector<at::ScalarType> types{at::kFloat,    at::kDouble, at::kHalf,
                                                 at::kBFloat16, at::kLong,   at::kByte};
  std::vector<std::int64_t> shape;
  for (int dims = below(3); dims > 0; --dims) shape.push_back(below(4));
  at::Tensor tensor = at::empty(shape, at::TensorOptions(types[static_cast<std::size_t>(below(6))]));
  const std::vector<std::uint8_t> bytes = any_bytes(tensor.nbytes());
  if (!bytes.empty()) std::memcpy(tensor.data_ptr(), bytes.data(), bytes.size());
  return tensor.dim() == 2 && below(2) == 1 ? tensor.t() : tensor;
}

StateValue any_value(int depth);

StateDict any_dict(int depth) {
  StateDict dict;
  for (int i = below(7); i > 0; --i) {
    const std::string key = fmt::format("{}{}", "abc"[below(3)], below(4));
    dict[key] = any_value(depth);
  }
  return dict;
}

StateValue any_value(int depth) {
  switch (below(depth > 0 ? 9 : 7)) {
    case 0:
      return {};
    case 1:
      return below(2) == 1;
    case 2:
      return static_cast<std::int64_t>(below(5));
    case 3:
      return std::bit_cast<double>(*rc::gen::resize(100, rc::gen::arbitrary<std::uint64_t>()));
    case 4:
      return std::string(static_cast<std::size_t>(below(3)), 'x');
    case 5:
      return any_bytes(static_cast<std::size_t>(below(4)));
    case 6:
      return any_tensor();
    case 7: {
      StateList list;
      for (int i = below(4); i > 0; --i) list.push_back(any_value(depth - 1));
      return list;
    }
    default:
      return any_dict(depth - 1);
  }
}

struct Spot {
  std::string path;
  StateValue* value;
};

void collect(const std::string& path, StateValue& value, std::vector<Spot>& spots) {
  spots.push_back({path, &value});
  if (auto* list = value.get<StateList>()) {
    for (std::size_t i = 0; i < list->size(); ++i) collect(fmt::format("{}[{}]", path, i), (*list)[i], spots);
  }
  if (auto* dict = value.get<StateDict>()) {
    for (auto& [key, entry] : *dict) collect(path.empty() ? key : path + "." + key, entry, spots);
  }
}

// Flips one bit of element `index`, in the memory order of a contiguous tensor.
void flip(at::Tensor& tensor, std::int64_t index) {
  tensor = tensor.contiguous();
  const std::int64_t width = tensor.element_size();
  auto* bytes = static_cast<std::uint8_t*>(tensor.data_ptr()) + index * width;
  bytes[below(static_cast<int>(width))] ^= static_cast<std::uint8_t>(1u << below(8));
}

// Changes the value at one spot and returns how its message begins.
std::string plant(const Spot& spot) {
  StateValue& value = *spot.value;
  const std::string name = spot.path.empty() ? "the value" : spot.path;
  const auto below_here = [&](const std::string& key) {
    return spot.path.empty() ? key : spot.path + "." + key;
  };
  if (below(8) == 0) {  // another kind
    value = value.none() ? StateValue(0) : StateValue();
    return name + ": is ";
  }
  if (auto* flag = value.get<bool>())
    *flag = !*flag;
  else if (auto* whole = value.get<std::int64_t>())
    *whole ^= 1;
  else if (auto* real = value.get<double>())
    *real = std::bit_cast<double>(std::bit_cast<std::uint64_t>(*real) ^ (std::uint64_t{1} << below(64)));
  else if (auto* text = value.get<std::string>())
    *text += 'y';
  else if (auto* bytes = value.get<std::vector<std::uint8_t>>()) {
    if (bytes->empty() || below(2) == 0) {
      bytes->push_back(0);
      return name + ": is ";
    }
    const int at = below(static_cast<int>(bytes->size()));
    (*bytes)[static_cast<std::size_t>(at)] ^= 0x40;
    return fmt::format("{}: byte {} is ", name, at);
  } else if (auto* tensor = value.get<at::Tensor>()) {
    if (tensor->numel() == 0) {
      *tensor = at::zeros({1, 1, 1});
      return name + ": is tensor ";
    }
    const int at = below(static_cast<int>(tensor->numel()));
    flip(*tensor, at);
    return fmt::format("{}: element {} is ", name, at);
  } else if (auto* list = value.get<StateList>()) {
    list->push_back({});
    return name + ": is list of ";
  } else if (auto* dict = value.get<StateDict>()) {
    const int what = dict->empty() ? 0 : below(3);
    if (what == 0) {
      (*dict)["new"] = 1;
      return below_here("new") + ": is absent, was int";
    }
    const std::string key = dict->begin()->first;
    const StateValue moved = dict->begin()->second;
    dict->erase(key);
    if (what == 1 || dict->empty()) return below_here(key) + ": is ";
    (*dict)[key] = moved;  // now the last one
    return name + ": key 0 is ";
  } else {
    value = 0;  // it was None
  }
  return name + ": is ";
}

TEST(StateDictProperty, AClonePlusOneChangeIsFoundAtItsPlace) {
  std::size_t spots_seen = 0;
  test::check_cases(10'000, [&] {
    const StateValue original = any_dict(3);
    StateValue changed = clone(original);
    const StateValue kept = clone(original);
    RC_ASSERT(first_difference(original, changed) == "");
    std::vector<Spot> spots;
    collect("", changed, spots);
    spots_seen += spots.size();
    const std::string begins = plant(spots[static_cast<std::size_t>(below(static_cast<int>(spots.size())))]);
    const std::string found = first_difference(original, changed);
    RC_LOG() << "planted \"" << begins << "\", found \"" << found << '"' << std::endl;
    RC_ASSERT(found.starts_with(begins));
    RC_ASSERT(!first_difference(changed, original).empty());
    RC_ASSERT(first_difference(original, kept) == "");  // the change reached the copy only
  });
  if (!testing::Test::HasFailure()) EXPECT_GT(spots_seen, 10'000u * 4);  // the states were not all but empty
}

}  // namespace
}  // namespace plumbline

#include "engine/optim/state_dict.h"

#include <bit>
#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace plumbline {
namespace {

at::Tensor floats(std::vector<float> values) {
  return at::tensor(at::ArrayRef<float>(values), at::TensorOptions(at::kFloat));
}

StateDict sample() {
  return {{"none", StateValue()},
          {"flag", false},
          {"step", 7},
          {"lr", 0.25},
          {"name", "adam"},
          {"raw", std::vector<std::uint8_t>{1, 2, 255}},
          {"exp_avg", floats({1.0f, -2.0f, 0.5f})},
          {"groups", StateList{StateDict{{"wd_mult", 1.0}}, StateDict{{"wd_mult", 0.0}}}}};
}

TEST(StateDict, KeepsTheOrderOfInsertionAndUniqueKeys) {
  StateDict dict;
  EXPECT_TRUE(dict.empty());
  dict["b"] = 1;
  dict["a"] = 2;
  dict["b"] = 3;
  EXPECT_TRUE(dict["new"].none());
  ASSERT_EQ(dict.size(), 3u);
  std::string keys;
  for (const StateDict::Entry& entry : dict) keys += entry.first + ",";
  EXPECT_EQ(keys, "b,a,new,");
  EXPECT_EQ(*dict.integer("b"), 3);
  EXPECT_TRUE(dict.erase("b"));
  EXPECT_FALSE(dict.erase("b"));
  EXPECT_EQ(dict.begin()->first, "a");
  EXPECT_EQ(dict.find("b"), nullptr);
}

TEST(StateDict, NoneFalseZeroAndEmptyAreDifferentThings) {
  const std::vector<StateValue> values{
      StateValue(), false, 0, 0.0, "", std::vector<std::uint8_t>{}, at::Tensor(), StateList{}, StateDict{}};
  for (std::size_t i = 0; i < values.size(); ++i) {
    for (std::size_t j = 0; j < values.size(); ++j)
      EXPECT_EQ(first_difference(values[i], values[j]).empty(), i == j) << i << " and " << j;
  }
}

TEST(StateDict, TypedGettersGiveTheValue) {
  const StateDict dict = sample();
  EXPECT_EQ(*dict.integer("step"), 7);
  EXPECT_EQ(*dict.number("step"), 7.0);
  EXPECT_EQ(*dict.number("lr"), 0.25);
  EXPECT_EQ(*dict.text("name"), "adam");
  EXPECT_EQ(*dict.boolean("flag"), false);
  EXPECT_EQ(dict.tensor("exp_avg")->numel(), 3);
  EXPECT_EQ((*dict.list("groups"))->size(), 2u);
  EXPECT_EQ(*(*dict.list("groups"))->at(1).get<StateDict>()->number("wd_mult"), 0.0);
  EXPECT_EQ(*dict.at("lr").get<double>(), 0.25);
}

TEST(StateDict, TypedGettersSayWhatIsWrong) {
  const StateDict dict = sample();
  EXPECT_EQ(dict.integer("lr").error().text(), "\"lr\" of the state is float; it must be int");
  EXPECT_EQ(dict.number("flag").error().text(), "\"flag\" of the state is bool; it must be int or float");
  EXPECT_EQ(dict.boolean("step").error().text(), "\"step\" of the state is int; it must be bool");
  EXPECT_EQ(dict.text("none").error().text(), "\"none\" of the state is None; it must be text");
  EXPECT_EQ(dict.dict("groups").error().text(), "\"groups\" of the state is list of 2; it must be a dict");
  EXPECT_EQ(dict.list("exp_avg").error().text(),
            "\"exp_avg\" of the state is tensor float32[3]; it must be a list");
  EXPECT_EQ(dict.tensor("exp_avgs").error().text(),
            "the state has no \"exp_avgs\", which must be a tensor; \"exp_avg\" is there");
  EXPECT_EQ(dict.integer("somewhere else").error().text(),
            "the state has no \"somewhere else\", which must be int");
  EXPECT_EQ(dict.integer("lr").error().code, ErrorCode::kState);
}

TEST(StateDict, DescribesEveryKind) {
  EXPECT_EQ(describe({}), "None");
  EXPECT_EQ(describe(true), "bool");
  EXPECT_EQ(describe(3), "int");
  EXPECT_EQ(describe(3.0), "float");
  EXPECT_EQ(describe("a"), "text");
  EXPECT_EQ(describe(std::vector<std::uint8_t>{1}), "bytes");
  EXPECT_EQ(describe(at::zeros({2, 3})), "tensor float32[2, 3]");
  EXPECT_EQ(describe(at::zeros({}, at::kHalf)), "tensor float16[]");
  EXPECT_EQ(describe(at::zeros({0}, at::kBFloat16)), "tensor bfloat16[0]");
  EXPECT_EQ(describe(at::Tensor()), "tensor undefined");
  EXPECT_EQ(describe(StateList(4)), "list of 4");
  EXPECT_EQ(describe(StateDict{{"a", 1}, {"b", 2}}), "dict of 2");
}

TEST(FirstDifference, NamesPathAndElement) {
  const StateDict inner{{"exp_avg", floats({1.0f, 0.1875f})}};
  const StateDict left{{"optimizer", StateDict{{"state", StateDict{{"3", inner}}}}}};
  StateValue right = clone(left);
  EXPECT_EQ(first_difference(left, right), "");
  right.get<StateDict>()
      ->find("optimizer")
      ->get<StateDict>()
      ->find("state")
      ->get<StateDict>()
      ->find("3")
      ->get<StateDict>()
      ->find("exp_avg")
      ->get<at::Tensor>()
      ->index_put_({1}, at::scalar_tensor(0.125));
  EXPECT_EQ(first_difference(left, right), "optimizer.state.3.exp_avg: element 1 is 0x1.8p-3, was 0x1p-3");
}

TEST(FirstDifference, NamesEveryKindOfDifference) {
  const auto text = [](StateValue left, StateValue right) {
    return first_difference(StateDict{{"a", std::move(left)}}, StateDict{{"a", std::move(right)}});
  };
  EXPECT_EQ(text(1, 1.0), "a: is int, was float");
  EXPECT_EQ(text(1, 2), "a: is 1, was 2");
  EXPECT_EQ(text(0.5, 0.25), "a: is 0x1p-1, was 0x1p-2");
  EXPECT_EQ(text(true, false), "a: is true, was false");
  EXPECT_EQ(text("x", "y"), "a: is \"x\", was \"y\"");
  EXPECT_EQ(text(std::vector<std::uint8_t>{1, 2}, std::vector<std::uint8_t>{1, 3}),
            "a: byte 1 is 0x02, was 0x03");
  EXPECT_EQ(text(std::vector<std::uint8_t>{1}, std::vector<std::uint8_t>{}), "a: is 1 bytes, was 0 bytes");
  EXPECT_EQ(text(at::zeros({2}), at::zeros({2, 1})), "a: is tensor float32[2], was tensor float32[2, 1]");
  EXPECT_EQ(text(at::zeros({2}), at::zeros({2}, at::kDouble)),
            "a: is tensor float32[2], was tensor float64[2]");
  EXPECT_EQ(text(at::ones({2}, at::kLong), at::zeros({2}, at::kLong)), "a: element 0 is 1, was 0");
  EXPECT_EQ(text(at::ones({2}, at::kHalf), at::zeros({2}, at::kHalf)), "a: element 0 is 0x1p+0, was 0x0p+0");
  EXPECT_EQ(text(at::full({1}, -3, at::kInt), at::zeros({1}, at::kInt)), "a: element 0 is -3, was 0");
  EXPECT_EQ(text(StateList{1, 2}, StateList{1, 3}), "a[1]: is 2, was 3");
  EXPECT_EQ(text(StateList{1, 2}, StateList{1}), "a: is list of 2, was list of 1");
  EXPECT_EQ(text(StateDict{{"x", 1}, {"y", 2}}, StateDict{{"x", 1}}), "a.y: is int, was absent");
  EXPECT_EQ(text(StateDict{{"x", 1}}, StateDict{{"x", 1}, {"y", StateList{}}}),
            "a.y: is absent, was list of 0");
  EXPECT_EQ(text(StateDict{{"x", 1}, {"y", 2}}, StateDict{{"y", 2}, {"x", 1}}),
            "a: key 0 is \"x\", was \"y\"; the same keys in another order");
  EXPECT_EQ(first_difference(1, 2), "the value: is 1, was 2");
}

TEST(FirstDifference, IsBitwise) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(first_difference(nan, nan), "");
  EXPECT_EQ(first_difference(0.0, -0.0), "the value: is 0x0p+0, was -0x0p+0");
  EXPECT_EQ(first_difference(nan, std::bit_cast<double>(std::uint64_t{0x7ff8000000000001})),
            "the value: is nan (bits 0x7ff8000000000000), was nan (bits 0x7ff8000000000001)");
  const float small = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(first_difference(floats({small, 0.0f}), floats({small, 0.0f})), "");
  EXPECT_EQ(first_difference(floats({small, 0.0f}), floats({small, -0.0f})),
            "the value: element 1 is 0x0p+0, was -0x0p+0");
  EXPECT_EQ(first_difference(floats({std::bit_cast<float>(0x7fc00001u)}), floats({small})),
            "the value: element 0 is nan (bits 0x7fc00001), was nan (bits 0x7fc00000)");
}

TEST(FirstDifference, StridesDoNotCount) {
  const at::Tensor matrix = at::arange(6, at::kFloat).reshape({2, 3});
  EXPECT_EQ(first_difference(matrix.t(), matrix.t().contiguous()), "");
  EXPECT_EQ(first_difference(matrix.t(), matrix.reshape({3, 2})),
            "the value: element 1 is 0x1.8p+1, was 0x1p+0");
}

TEST(Clone, IsIndependentOfItsOrigin) {
  const StateDict original = sample();
  StateValue copy = clone(original);
  const StateValue untouched = clone(original);
  EXPECT_EQ(first_difference(original, copy), "");
  original.tensor("exp_avg")->fill_(9.0f);
  EXPECT_EQ(first_difference(copy, untouched), "");
  EXPECT_EQ(first_difference(original, copy), "exp_avg: element 0 is 0x1.2p+3, was 0x1p+0");
  // A plain copy shares tensors.
  const StateDict handles = original;
  original.tensor("exp_avg")->fill_(8.0f);
  EXPECT_EQ(first_difference(handles, original), "");
}

TEST(Clone, OfAViewKeepsOnlyItsElements) {
  const at::Tensor buffer = at::arange(100, at::kFloat);
  const StateValue copy = clone(StateValue(buffer.slice(0, 10, 12)));
  const at::Tensor& tensor = *copy.get<at::Tensor>();
  EXPECT_EQ(tensor.storage().nbytes(), 8u);
  EXPECT_EQ(tensor[0].item<float>(), 10.0f);
}

}  // namespace
}  // namespace plumbline

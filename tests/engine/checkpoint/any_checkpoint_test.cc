// Every format into every other: nothing is lost on the way, and differences are named.
#include "engine/checkpoint/any_checkpoint.h"

#include <limits>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "engine/checkpoint/torch_file.h"
#include "engine/storage/simulated_disk.h"

namespace plumbline::test {
namespace {

std::unique_ptr<AnyCheckpoint> opened(FileLayer& files, const std::string& path) {
  auto checkpoint = AnyCheckpoint::open(files, path);
  EXPECT_TRUE(checkpoint) << (checkpoint ? "" : checkpoint.error().message);
  return checkpoint ? std::move(*checkpoint) : nullptr;
}

StateDict origin() {
  return StateDict{{"w", at::arange(14, at::kFloat).reshape({7, 2})},
                   {"b", at::ones({3}).to(at::kBFloat16)},
                   {"s", at::tensor(2.5f).reshape({})},
                   {"e", at::zeros({0, 4})},
                   {"step", 7},
                   {"lr", 0.1}};
}

TEST(AnyCheckpoint, EveryFormatToEveryOther) {
  SimulatedDisk disk;
  SimulatedFiles files(disk);
  ASSERT_TRUE(write_torch_file(files, "/start.pt", origin()));
  const std::pair<CheckpointFormat, int> steps[] = {{CheckpointFormat::kNative, 1},
                                                    {CheckpointFormat::kDcp, 3},
                                                    {CheckpointFormat::kNative, 4},
                                                    {CheckpointFormat::kTorch, 1},
                                                    {CheckpointFormat::kNative, 2}};
  std::string at = "/start.pt";
  const auto start = opened(files, at);
  for (const auto& [format, ranks] : steps) {
    const std::string next =
        "/step" + std::to_string(at.size() + static_cast<std::size_t>(ranks)) + at.substr(1);
    const Status done =
        convert(files, *opened(files, at), next, {.to = format, .ranks = ranks, .iteration = 3});
    ASSERT_TRUE(done) << done.error().message;
    at = next;
    const auto now = opened(files, at);
    ASSERT_NE(now, nullptr);
    EXPECT_TRUE(now->verify({}));
    const auto different = difference(*start, *now, 10);
    ASSERT_TRUE(different) << different.error().message;
    EXPECT_EQ(*different, std::vector<std::string>{}) << now->format();
  }
  const Status refused = convert(files, *start, "/hf", {.to = CheckpointFormat::kHuggingface});
  EXPECT_NE(refused.error().message.find("leave them out by --drop-objects"), std::string::npos);
  ASSERT_TRUE(convert(files, *start, "/hf", {.to = CheckpointFormat::kHuggingface, .drop_objects = true}));
  EXPECT_EQ(*difference(*start, *opened(files, "/hf"), 10),
            (std::vector<std::string>{"lr: only in the first", "step: only in the first"}));
  EXPECT_EQ(opened(files, "/hf/model.safetensors")->tensors().size(), 4u);
}

TEST(AnyCheckpoint, DifferencesWithinABoundAreNone) {
  SimulatedDisk disk;
  SimulatedFiles files(disk);
  const auto differ = [&](const at::Tensor& w, double within) {
    StateDict other = origin();
    other["w"] = w;
    (void)files.remove_file("/b.pt");
    EXPECT_TRUE(write_torch_file(files, "/b.pt", other));
    return *difference(*opened(files, "/a.pt"), *opened(files, "/b.pt"), 10, within);
  };
  ASSERT_TRUE(write_torch_file(files, "/a.pt", origin()));
  const at::Tensor w = at::arange(14, at::kFloat).reshape({7, 2});
  EXPECT_TRUE(differ(w + 0.25f, 0.25).empty());
  EXPECT_EQ(differ(w + 0.25f, 0.0).size(), 1u);
  EXPECT_EQ(differ(w + 0.5f, 0.25), std::vector<std::string>{"w: elements 0.5 apart, 0.25 is allowed"});
  EXPECT_EQ(differ(w.log(), 1e9).size(), 1u) << "an infinity";
  EXPECT_EQ(differ((w - 1).sqrt(), 1e9).size(), 1u) << "a NaN";
  const at::Tensor odd = at::full({7, 2}, std::numeric_limits<float>::infinity());
  odd[0][0] = std::numeric_limits<float>::quiet_NaN();
  odd[0][1] = 1.0f;
  StateDict first = origin();
  first["w"] = odd;
  (void)files.remove_file("/a.pt");
  ASSERT_TRUE(write_torch_file(files, "/a.pt", first));
  const at::Tensor near = odd.clone();
  near[0][1] = 1.125f;
  EXPECT_TRUE(differ(near, 0.125).empty()) << "infinities and NaNs at the same places";
  EXPECT_EQ(differ(near, 0.0625).size(), 1u);
  EXPECT_EQ(differ(w.to(at::kDouble), 1.0).size(), 1u) << "another type";
}

TEST(AnyCheckpoint, DifferencesAreNamed) {
  SimulatedDisk disk;
  SimulatedFiles files(disk);
  StateDict other = origin();
  other["w"] = at::arange(14, at::kFloat).reshape({7, 2}).clone();
  other["w"].get<at::Tensor>()->operator[](3)[1] = 99.0f;
  other["step"] = 8;
  other.erase("b");
  ASSERT_TRUE(write_torch_file(files, "/a.pt", origin()));
  ASSERT_TRUE(write_torch_file(files, "/b.pt", other));
  const auto found = difference(*opened(files, "/a.pt"), *opened(files, "/b.pt"), 10);
  ASSERT_EQ(found->size(), 3u);
  EXPECT_EQ((*found)[0], "b: only in the first");
  EXPECT_EQ((*found)[1].find("w: element 7 "), 0u) << (*found)[1];
  EXPECT_EQ((*found)[2].find("step: "), 0u) << (*found)[2];
  EXPECT_EQ(difference(*opened(files, "/a.pt"), *opened(files, "/b.pt"), 1)->size(), 1u);
}

TEST(AnyCheckpoint, WhatIsNone) {
  SimulatedDisk disk;
  SimulatedFiles files(disk);
  ASSERT_TRUE(files.make_directory("/d"));
  EXPECT_NE(AnyCheckpoint::open(files, "/d").error().message.find("no checkpoint of a known format"),
            std::string::npos);
  EXPECT_NE(AnyCheckpoint::open(files, "/none").error().message.find("No such file"), std::string::npos);
}

}  // namespace
}  // namespace plumbline::test

// PyTorch's distributed checkpoints: torch's own are read, ours are read by torch, chunks are put together
// and broken ones refused.
#include "engine/checkpoint/dcp.h"

#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "engine/storage/simulated_disk.h"
#include "tests/engine/checkpoint/python.h"

namespace plumbline::test {
namespace {

ShardedTensor part(const std::string& key, const at::Tensor& whole, std::int64_t row, std::int64_t rows) {
  ShardedTensor tensor;
  tensor.key = key;
  tensor.global_shape = whole.sizes().vec();
  tensor.offset.assign(tensor.global_shape.size(), 0);
  tensor.data = whole;
  if (whole.dim() > 0) {
    tensor.offset[0] = row;
    tensor.data = whole.narrow(0, row, rows);
  }
  tensor.local_shape = tensor.data.sizes().vec();
  return tensor;
}

const at::Tensor& weight() {
  static const at::Tensor kWeight = at::arange(12, at::kFloat).reshape({3, 4});
  return kWeight;
}

std::vector<ShardedStateDict> two_ranks() {
  std::vector<ShardedStateDict> ranks(2);
  ranks[0].tensors = {part("w", weight(), 0, 2), part("b", at::ones({2}).to(at::kBFloat16), 0, 2)};
  ranks[1].tensors = {part("w", weight(), 2, 1), part("scalar", at::tensor(2.5f).reshape({}), 0, 0)};
  ranks[0].objects = {{"step", 7, 0}, {"groups", StateList{StateDict{{"lr", 0.5}}}, 0}};
  ranks[1].objects = {{"step", 7, 1}};
  return ranks;
}

void expect_state(FileLayer& files, const std::string& directory) {
  const auto reader = DcpReader::open(files, directory);
  ASSERT_TRUE(reader) << reader.error().message;
  EXPECT_TRUE(at::equal(*reader->read_tensor("w"), weight()));
  EXPECT_TRUE(at::equal(*reader->read_tensor("b"), at::ones({2}).to(at::kBFloat16)));
  EXPECT_EQ(reader->read_tensor("scalar")->item<float>(), 2.5f);
  EXPECT_EQ(first_difference(*reader->read_object("step"), 7), "");
  EXPECT_EQ(first_difference(*reader->read_object("groups"), StateValue(StateList{StateDict{{"lr", 0.5}}})),
            "");
  ShardedTensor last = part("w", at::zeros({3, 4}), 1, 2);
  ASSERT_TRUE(reader->read(last));
  EXPECT_TRUE(at::equal(last.data, weight().narrow(0, 1, 2)));
  ShardedTensor flat = part("w", at::zeros({3, 4}), 0, 3);
  flat.local_shape = {3, 4};
  flat.data = at::zeros({5});
  flat.flattened = true;
  flat.flat_begin = 6;
  ASSERT_TRUE(reader->read(flat));
  EXPECT_TRUE(at::equal(flat.data, weight().reshape({-1}).narrow(0, 6, 5)));
}

TEST(Dcp, RoundTripInBothDialects) {
  for (const DcpDialect dialect : {DcpDialect::kTorch1, DcpDialect::kTorch2}) {
    SimulatedDisk disk;
    SimulatedFiles files(disk);
    ASSERT_TRUE(write_dcp(files, "/d", two_ranks(), dialect));
    expect_state(files, "/d");
    SimulatedDisk again;
    SimulatedFiles more(again);
    ASSERT_TRUE(write_dcp(more, "/d", two_ranks(), dialect));
    EXPECT_EQ(disk.tree(), again.tree());
  }
}

TEST(Dcp, TorchWritesWeRead) {
  PL_NEEDS_TORCH_PYTHON();
  const TempFolder folder;
  run_python("dcp_files.py write " + folder.path());
  expect_state(posix_files(), folder / "single");
  expect_state(posix_files(), folder / "many");
}

TEST(Dcp, WeWriteTorchReads) {
  PL_NEEDS_TORCH_PYTHON();
  const TempFolder folder;
  ASSERT_TRUE(write_dcp(posix_files(), folder / "ours1", two_ranks(), DcpDialect::kTorch1));
  ASSERT_TRUE(write_dcp(posix_files(), folder / "ours2", two_ranks(), DcpDialect::kTorch2));
  EXPECT_NE(run_python("dcp_files.py check " + folder.path()).find("read"), std::string::npos);
}

TEST(Dcp, BrokenOnesAreRefused) {
  SimulatedDisk disk;
  SimulatedFiles files(disk);
  std::vector<ShardedStateDict> hole = two_ranks();
  hole[1].tensors.erase(hole[1].tensors.begin());
  EXPECT_NE(
      write_dcp(files, "/hole", hole).error().message.find("tensor 'w': element [2, 0] is held by no one"),
      std::string::npos);
  EXPECT_EQ(disk.content("/hole/.metadata"), nullptr);
  EXPECT_FALSE(DcpReader::open(files, "/hole"));
  ASSERT_TRUE(write_dcp(files, "/d", two_ranks()));
  std::string* metadata = disk.content("/d/.metadata");
  const std::string good = *metadata;
  const auto message = [&](const std::string& from, const std::string& to) {
    *metadata = good;
    const std::size_t at = metadata->find(from);
    EXPECT_NE(at, std::string::npos) << from;
    metadata->replace(at, from.size(), to);
    const auto reader = DcpReader::open(files, "/d");
    return reader ? std::string() : reader.error().message;
  };
  EXPECT_NE(message("__1_0.distcp", "../1.distcp_").find("no plain file name"), std::string::npos);
  EXPECT_NE(message("__1_0.distcp", "__9_0.distcp").find("No such file"), std::string::npos);
  EXPECT_NE(message("\nfloat32", "\nfloat31"), "");
  *metadata = good.substr(0, good.size() / 2);
  EXPECT_FALSE(DcpReader::open(files, "/d"));
  *metadata = good;
  disk.content("/d/__1_0.distcp")->resize(100);
  EXPECT_NE(DcpReader::open(files, "/d").error().message.find("the file has 100"), std::string::npos);
}

}  // namespace
}  // namespace plumbline::test

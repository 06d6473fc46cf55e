// Ranks on one simulated disk for the tests of public reports (tests/oracles/public_reports, family C).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "engine/checkpoint/sharded.h"
#include "engine/storage/simulated_disk.h"
#include "tests/support/lockstep.h"

namespace plumbline::test {

inline ShardedTensor shard(const std::string& key, const at::Tensor& data, const Shape& global,
                           const Shape& offset, int replica = 0) {
  ShardedTensor tensor;
  tensor.key = key;
  tensor.data = data;
  tensor.global_shape = global;
  tensor.offset = offset;
  tensor.local_shape = data.sizes().vec();
  tensor.replica = replica;
  return tensor;
}

inline ShardedTensor whole(const std::string& key, const at::Tensor& data, int replica = 0) {
  return shard(key, data, data.sizes().vec(), Shape(static_cast<std::size_t>(data.dim()), 0), replica);
}

// Elements [begin, begin + data.numel()) of a tensor of one dimension and `count` elements.
inline ShardedTensor range(const std::string& key, const at::Tensor& data, std::int64_t count,
                           std::int64_t begin) {
  ShardedTensor tensor = shard(key, data, {count}, {0});
  tensor.local_shape = {count};
  tensor.flattened = true;
  tensor.flat_begin = begin;
  return tensor;
}

inline at::Tensor numbers(const std::vector<float>& values) { return at::tensor(values, at::kFloat); }

inline std::vector<float> list(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.to(at::kFloat).contiguous().reshape({-1});
  return {flat.data_ptr<float>(), flat.data_ptr<float>() + flat.numel()};
}

class Lone : public ControlChannel {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  Result<std::vector<std::string>> exchange(const std::string& message) override {
    return std::vector<std::string>{message};
  }
};

using Ranks = std::vector<ShardedStateDict>;

inline std::string over_ranks(std::size_t count,
                              const std::function<Status(std::size_t, ControlChannel&)>& work) {
  Lockstep group(static_cast<int>(count), 5);
  std::vector<std::string> errors(count);
  group.run([&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    const Status status = work(at, group.channel(rank));
    errors[at] = status ? "" : status.error().message;
  });
  for (const std::string& error : errors) EXPECT_EQ(error, errors[0]);  // one error for all
  return errors[0];
}

// Empty, or the error all ranks got.
inline std::string save(SimulatedDisk& disk, const Ranks& ranks, std::int64_t iteration = 1,
                        const AliasTable& aliases = {}) {
  return over_ranks(ranks.size(), [&](std::size_t at, ControlChannel& channel) -> Status {
    SimulatedFiles files(disk);
    const auto saved = save_sharded(files, channel, "/c", iteration, ranks[at], aliases);
    if (!saved) return tl::unexpected(saved.error());
    return {};
  });
}

inline std::string load(SimulatedDisk& disk, Ranks& ranks, const LoadRules& rules = {}) {
  return over_ranks(ranks.size(), [&](std::size_t at, ControlChannel& channel) -> Status {
    SimulatedFiles files(disk);
    const auto found = find_checkpoint(files, channel, "/c");
    if (!found) return tl::unexpected(found.error());
    const auto reader = open_verified(files, channel, "/c", **found);
    if (!reader) return tl::unexpected(reader.error());
    const auto loaded = load_sharded(*reader, channel, ranks[at], rules);
    if (!loaded) return tl::unexpected(loaded.error());
    ranks[at].objects = loaded->objects;
    return {};
  });
}

}  // namespace plumbline::test

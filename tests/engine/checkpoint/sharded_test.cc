// Any layout saved, any layout loaded: random tensors cut in random ways over random ranks, with copies,
// objects and names for tied tensors. The expected value of every target is cut out of the whole tensor by
// LibTorch, not by the code under test.
#include "engine/checkpoint/sharded.h"

#include <map>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "engine/storage/simulated_disk.h"
#include "tests/engine/checkpoint/any_state.h"
#include "tests/support/lockstep.h"
#include "tests/support/property.h"

namespace plumbline::test {
namespace {

// The part of a whole tensor that a place holds, with memory of its own.
at::Tensor part_of(const at::Tensor& tensor, const Place& place) {
  at::Tensor part = tensor;
  for (std::size_t d = 0; d < place.shape.size(); ++d)
    part = part.narrow(static_cast<std::int64_t>(d), place.offset[d], place.shape[d]);
  part = part.contiguous().clone();
  return place.flattened ? part.reshape({-1}).narrow(0, place.begin, place.count).clone() : part;
}

ShardedTensor shard_of(const std::string& key, const at::Tensor& tensor, const Place& place, int replica) {
  ShardedTensor shard;
  shard.key = key;
  shard.data = part_of(tensor, place);
  shard.global_shape = tensor.sizes().vec();
  shard.offset = place.offset;
  shard.flattened = place.flattened;
  shard.flat_begin = place.begin;
  shard.local_shape = place.shape;
  shard.replica = replica;
  return shard;
}

using Model = std::map<std::string, at::Tensor>;

Model any_model() {
  Model model;
  for (int i = 1 + below(4); i > 0; --i)
    model["layer." + std::to_string(i)] = any_tensor(any_shape(), any_type());
  return model;
}

// One ShardedStateDict a rank; each part somewhere, sometimes with a copy elsewhere.
std::vector<ShardedStateDict> any_layout(const Model& model, int ranks) {
  std::vector<ShardedStateDict> out(static_cast<std::size_t>(ranks));
  for (const auto& [key, tensor] : model) {
    for (const Place& place : any_cover(tensor.sizes().vec())) {
      const int owner = below(ranks), copy = below(ranks);
      out[static_cast<std::size_t>(owner)].tensors.push_back(shard_of(key, tensor, place, 0));
      if (copy != owner)
        out[static_cast<std::size_t>(copy)].tensors.push_back(shard_of(key, tensor, place, 1));
    }
  }
  return out;
}

std::string save_all(SimulatedDisk& disk, std::vector<ShardedStateDict>& states, std::int64_t iteration) {
  Lockstep group(static_cast<int>(states.size()), 3);
  std::vector<std::string> errors(states.size());
  group.run([&](int rank) {
    SimulatedFiles files(disk);
    const auto at = static_cast<std::size_t>(rank);
    const auto saved = save_sharded(files, group.channel(rank), "/c", iteration, states[at]);
    errors[at] = saved ? "" : saved.error().message;
  });
  for (const std::string& error : errors) EXPECT_EQ(error, errors[0]);
  return errors[0];
}

std::string load_all(SimulatedDisk& disk, std::vector<ShardedStateDict>& states,
                     const LoadRules& rules = {}) {
  Lockstep group(static_cast<int>(states.size()), 4);
  std::vector<std::string> errors(states.size());
  group.run([&](int rank) {
    SimulatedFiles files(disk);
    const auto at = static_cast<std::size_t>(rank);
    ControlChannel& channel = group.channel(rank);
    const auto load = [&]() -> Status {
      const auto found = find_checkpoint(files, channel, "/c");
      if (!found) return tl::unexpected(found.error());
      const auto reader = open_verified(files, channel, "/c", **found);
      if (!reader) return tl::unexpected(reader.error());
      const auto loaded = load_sharded(*reader, channel, states[at], rules);
      if (!loaded) return tl::unexpected(loaded.error());
      for (std::size_t i = 0; i < loaded->objects.size(); ++i)
        states[at].objects[i].value = loaded->objects[i].value;
      return {};
    };
    const Status status = load();
    errors[at] = status ? "" : status.error().message;
  });
  for (const std::string& error : errors) EXPECT_EQ(error, errors[0]);
  return errors[0];
}

// Zeros everywhere, a part of them in memory that is not contiguous.
void clear(std::vector<ShardedStateDict>& states) {
  for (ShardedStateDict& state : states) {
    for (ShardedTensor& tensor : state.tensors) {
      tensor.data.zero_();
      if (tensor.data.dim() == 2 && below(2) == 1) tensor.data = tensor.data.t().contiguous().t();
    }
    for (ShardedObject& object : state.objects) object.value = {};
  }
}

void expect_filled(const Model& model, const std::vector<ShardedStateDict>& states) {
  for (const ShardedStateDict& state : states) {
    for (const ShardedTensor& tensor : state.tensors) {
      const Place place{tensor.offset, tensor.local_shape, tensor.flattened, tensor.flat_begin,
                        tensor.data.numel()};
      RC_ASSERT(first_difference(StateValue(tensor.data.contiguous()),
                                 StateValue(part_of(model.at(tensor.key), place))) == "");
    }
  }
}

TEST(ShardedProperty, AnyLayoutToAnyLayout) {
  check_cases(2000, [] {
    const Model model = any_model();
    std::vector<ShardedStateDict> saved = any_layout(model, 1 + below(4)),
                                  loaded = any_layout(model, 1 + below(4));
    const StateValue object = any_state(2);
    for (std::size_t rank = 0; rank < saved.size(); ++rank)
      saved[rank].objects.push_back({"o", object, rank == 0 ? 0 : 1});
    for (ShardedStateDict& state : loaded) state.objects.push_back({"o", {}, 0});
    SimulatedDisk disk;
    RC_ASSERT(save_all(disk, saved, 5) == "");
    clear(loaded);
    RC_ASSERT(load_all(disk, loaded) == "");
    expect_filled(model, loaded);
    for (const ShardedStateDict& state : loaded)
      RC_ASSERT(first_difference(state.objects[0].value, object) == "");
  });
}

TEST(ShardedProperty, SaveLoadSaveIsByteIdentical) {
  check_cases(500, [] {
    const Model model = any_model();
    std::vector<ShardedStateDict> states = any_layout(model, 1 + below(4));
    states[0].objects.push_back({"o", any_state(2), 0});
    SimulatedDisk one, two;
    RC_ASSERT(save_all(one, states, 5) == "");
    clear(states);
    RC_ASSERT(load_all(one, states) == "");
    RC_ASSERT(save_all(two, states, 5) == "");
    RC_ASSERT(one.tree() == two.tree());
  });
}

// A part that is not there, there twice, or different in its copy is found on save, by name.
TEST(ShardedProperty, BrokenLayoutsAreRefused) {
  check_cases(500, [] {
    const Model model = any_model();
    std::vector<ShardedStateDict> states = any_layout(model, 2);
    std::vector<ShardedTensor*> mains;
    for (ShardedStateDict& state : states) {
      for (ShardedTensor& tensor : state.tensors) {
        if (tensor.replica == 0 && tensor.data.numel() > 0) mains.push_back(&tensor);
      }
    }
    ShardedTensor* chosen = mains[static_cast<std::size_t>(below(static_cast<int>(mains.size())))];
    const std::string key = chosen->key;
    const bool hole = below(2) == 1;
    if (hole) {
      chosen->replica = 1;
    } else {
      ShardedTensor again = *chosen;  // pushing may move what `chosen` points to
      states[0].tensors.push_back(std::move(again));
    }
    SimulatedDisk disk;
    const std::string error = save_all(disk, states, 5);
    RC_ASSERT(error.find("tensor '" + key + "': element ") == 0u);
    RC_ASSERT(error.find(hole ? "held by no one" : "held twice") != std::string::npos);
  });
}

TEST(Sharded, KeysThatDoNotMeet) {
  const Model model{{"a", at::ones({4})}, {"b", at::ones({4})}};
  const Place all = whole_place({4});
  std::vector<ShardedStateDict> saved(1);
  for (const auto& [key, tensor] : model) saved[0].tensors.push_back(shard_of(key, tensor, all, 0));
  SimulatedDisk disk;
  ASSERT_EQ(save_all(disk, saved, 5), "");
  std::vector<ShardedStateDict> wanted(1);
  wanted[0].tensors = {shard_of("a", at::zeros({4}), all, 0), shard_of("c", at::zeros({4}), all, 0)};
  EXPECT_EQ(load_all(disk, wanted),
            "/c/iter_0000005: not in the checkpoint: c; in the checkpoint and asked for by no one: b");
  EXPECT_EQ(wanted[0].tensors[0].data.sum().item<float>(), 0.0f);  // nothing was touched
  LoadRules rules;
  rules.may_be_unused = {"b"};
  rules.may_be_missing = {"c*"};
  EXPECT_EQ(load_all(disk, wanted, rules), "");
  EXPECT_EQ(wanted[0].tensors[0].data.sum().item<float>(), 4.0f);

  wanted[0].tensors = {shard_of("a", at::zeros({5}), whole_place({5}), 0),
                       shard_of("b", at::zeros({4}).to(at::kHalf), all, 0)};
  EXPECT_EQ(load_all(disk, wanted),
            "/c/iter_0000005: does not fit: 'a' is [4] in the file and [5] here, 'b' is F32 in the file and "
            "F16 here");
  Place half = all;
  half.shape = {2};
  wanted[0].tensors = {shard_of("a", at::zeros({4}), half, 0), shard_of("b", at::zeros({4}), all, 0)};
  EXPECT_EQ(load_all(disk, wanted),
            "/c/iter_0000005: does not fit: element 2 of 'a' [4] is asked for by no rank");
}

// A vocabulary of 5 padded to 8 by one layout and to 6 by another: rows that count are taken, others stay.
TEST(Sharded, PaddedVocabulary) {
  const at::Tensor table = at::arange(24, at::kFloat).reshape({8, 3});
  std::vector<ShardedStateDict> saved(2);
  for (std::int64_t rank = 0; rank < 2; ++rank)
    saved[static_cast<std::size_t>(rank)].tensors = {
        shard_of("e", table, {{4 * rank, 0}, {4, 3}, false, 0, 0}, 0)};
  SimulatedDisk disk;
  ASSERT_EQ(save_all(disk, saved, 5), "");
  LoadRules rules;
  rules.padded_rows["e"] = 5;
  std::vector<ShardedStateDict> smaller(1), larger(1);
  smaller[0].tensors = {shard_of("e", at::zeros({6, 3}), {{0, 0}, {6, 3}, true, 0, 18}, 0)};
  EXPECT_NE(load_all(disk, smaller).find("does not fit"), std::string::npos);
  EXPECT_EQ(load_all(disk, smaller, rules), "");
  EXPECT_TRUE(at::equal(smaller[0].tensors[0].data, table.reshape({-1}).narrow(0, 0, 18)));
  larger[0].tensors = {shard_of("e", at::full({10, 3}, -1.0), whole_place({10, 3}), 0)};
  EXPECT_EQ(load_all(disk, larger, rules), "");
  EXPECT_TRUE(at::equal(larger[0].tensors[0].data.narrow(0, 0, 8), table));
  EXPECT_TRUE(at::equal(larger[0].tensors[0].data.narrow(0, 8, 2), at::full({2, 3}, -1.0)));
  rules.padded_rows["e"] = 7;
  EXPECT_NE(load_all(disk, smaller, rules).find("does not fit"), std::string::npos);
}

TEST(Sharded, DifferencesAreNamedByPath) {
  std::vector<ShardedStateDict> states(1);
  states[0].objects.push_back({"optimizer", StateDict{{"groups", StateList{StateDict{{"lr", 0.1}}}}}, 0});
  SimulatedDisk disk;
  ASSERT_EQ(save_all(disk, states, 5), "");
  SimulatedFiles files(disk);
  const auto reader = CheckpointReader::open(files, "/c/iter_0000005");
  ASSERT_TRUE(reader);
  const auto read = read_object(*reader, "optimizer");
  ASSERT_TRUE(read);
  const StateValue other = StateDict{{"groups", StateList{StateDict{{"lr", 0.2}}}}};
  EXPECT_EQ(first_difference(*read, other).find("groups[0].lr"), 0u) << first_difference(*read, other);
}

TEST(Sharded, ChannelOverACollective) {
  const auto group = thread_group(3);
  std::vector<std::vector<std::string>> got(3);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      const auto channel = collective_channel(group[rank]);
      const auto all = channel->exchange(std::string(rank * 5, static_cast<char>('a' + rank)));
      if (all) got[rank] = *all;
      (void)channel->exchange("");
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& all : got) EXPECT_EQ(all, (std::vector<std::string>{"", "bbbbb", "cccccccccc"}));
}

}  // namespace
}  // namespace plumbline::test

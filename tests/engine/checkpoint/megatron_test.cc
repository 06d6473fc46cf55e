// Megatron-LM's directories and files, of today and of old, and every way in which a load must refuse.
#include "engine/checkpoint/megatron.h"

#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "engine/checkpoint/torch_file.h"
#include "engine/storage/simulated_disk.h"
#include "tests/support/lockstep.h"

namespace plumbline::test {
namespace {

StateDict rng_states() {
  return StateDict{{"random_rng_state", StateList{3}},
                   {"np_rng_state", 1},
                   {"torch_rng_state", at::zeros({4}).to(at::kByte)},
                   {"cuda_rng_state", {}},
                   {"rng_tracker_states", StateDict{{"model-parallel-rng", at::ones({16}).to(at::kByte)}}}};
}

MegatronContents contents_of(std::int64_t iteration) {
  MegatronContents contents;
  contents.iteration = iteration;
  contents.args = StateDict{{"num_layers", 4},
                            {"hidden_size", 8},
                            {"tensor_model_parallel_size", 2},
                            {"pipeline_model_parallel_size", 1},
                            {"consumed_train_samples", 800},
                            {"consumed_valid_samples", 16}};
  contents.models = {StateDict{{"w", at::full({2}, static_cast<float>(iteration))}}};
  contents.optimizer = StateDict{{"state", StateDict{{"0", StateDict{{"step", 3}}}}},
                                 {"grad_scaler", StateDict{{"scale", 256.0}}}};
  contents.scheduler = StateDict{{"num_steps", 800}};
  contents.rng = {rng_states()};
  return contents;
}

struct World {
  SimulatedDisk disk;
  SimulatedFiles files{disk};

  Result<std::string> save(const MegatronContents& contents, const MegatronPlace& place = {},
                           const MegatronSaveOptions& options = {}) {
    return save_megatron(files, lone_channel(), "/m", place, contents, StateDict{{"buffer", at::ones({3})}},
                         options);
  }
  Result<MegatronLoaded> load(const MegatronLoadOptions& options = {}, const MegatronPlace& place = {}) {
    return load_megatron(files, lone_channel(), "/m", place, contents_of(0).args, options);
  }
  // A file written as old versions had it.
  void put(const StateDict& dict, const std::string& tracker = "5") {
    ASSERT_TRUE(remove_tree(files, "/m"));
    ASSERT_TRUE(make_directories(files, "/m/iter_0000005/mp_rank_00"));
    ASSERT_TRUE(write_torch_file(files, "/m/iter_0000005/mp_rank_00/model_optim_rng.pt", dict));
    ASSERT_TRUE(write_new_file(files, "/m/latest_checkpointed_iteration.txt", tracker));
  }
};

TEST(Megatron, Names) {
  EXPECT_EQ(megatron_folder({.tp = 3}), "mp_rank_03");
  EXPECT_EQ(megatron_folder({.tp = 3, .pp = 12, .pp_size = 16}), "mp_rank_03_012");
  EXPECT_EQ(megatron_folder({.tp = 3, .ep = 1, .ep_size = 2}), "mp_rank_03_001");
  EXPECT_EQ(megatron_folder({.tp = 3, .pp = 12, .ep = 1, .pp_size = 16, .ep_size = 2}), "mp_rank_03_012_001");
}

TEST(Megatron, SaveAndLoad) {
  World world;
  EXPECT_FALSE(world.load()->found);
  EXPECT_NE(world.load()->notices.at(0).find("training starts at 0"), std::string::npos);
  ASSERT_TRUE(world.save(contents_of(100)));
  EXPECT_NE(world.disk.content("/m/iter_0000100/mp_rank_00/model_optim_rng.pt"), nullptr);
  EXPECT_NE(world.disk.content("/m/iter_0000100/mp_rank_00/distrib_optim.pt"), nullptr);
  EXPECT_EQ(*world.disk.content("/m/latest_checkpointed_iteration.txt"), "100");
  const auto loaded = world.load();
  ASSERT_TRUE(loaded) << loaded.error().message;
  const MegatronContents wanted = contents_of(100);
  EXPECT_EQ(loaded->contents.iteration, 100);
  EXPECT_EQ(loaded->consumed_train_samples, 800);
  EXPECT_EQ(loaded->consumed_valid_samples, 16);
  EXPECT_EQ(first_difference(loaded->contents.models.at(0), wanted.models.at(0)), "");
  EXPECT_EQ(first_difference(loaded->contents.optimizer, wanted.optimizer), "");
  EXPECT_EQ(first_difference(loaded->contents.scheduler, wanted.scheduler), "");
  EXPECT_EQ(first_difference(StateValue(loaded->contents.rng), StateValue(wanted.rng)), "");
  EXPECT_EQ(first_difference(loaded->contents.args, wanted.args), "");
  ASSERT_TRUE(loaded->distributed_optimizer);
  EXPECT_FALSE(loaded->reload_model_params);
}

TEST(Megatron, CudaStatesAndExpertPartsRoundTrip) {
  World world;
  MegatronContents contents = contents_of(9);
  StateDict states = rng_states();
  states["cuda_rng_state"] = at::arange(16).to(at::kByte);
  contents.rng = {states, rng_states()};  // of two data-parallel ranks
  const MegatronPlace place{.tp = 1, .pp = 2, .ep = 1, .pp_size = 4, .ep_size = 2};
  ASSERT_TRUE(world.save(contents, place));
  EXPECT_NE(world.disk.content("/m/iter_0000009/mp_rank_01_002_001/model_optim_rng.pt"), nullptr);
  const auto loaded = world.load({}, place);
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(first_difference(StateValue(loaded->contents.rng), StateValue(contents.rng)), "");
  EXPECT_FALSE(world.load({}, {.tp = 1, .pp = 2, .ep = 0, .pp_size = 4, .ep_size = 2}));  // another expert's
}

// 50,257 tokens: padded to 50,304 rows by one tensor-parallel rank, to 51,200 by eight.
TEST(Megatron, VocabularyPaddedAnew) {
  const at::Tensor table = at::arange(24, at::kFloat).reshape({8, 3});
  const auto larger = repad_rows(table, 5, 10);
  ASSERT_TRUE(larger);
  EXPECT_TRUE(at::equal(larger->narrow(0, 0, 8), table));
  EXPECT_TRUE(at::equal(larger->narrow(0, 8, 2), at::zeros({2, 3})));
  const auto smaller = repad_rows(table, 5, 6);
  ASSERT_TRUE(smaller);
  EXPECT_TRUE(at::equal(*smaller, table.narrow(0, 0, 6)));
  EXPECT_FALSE(repad_rows(table, 5, 4));
  EXPECT_FALSE(repad_rows(table, 9, 10));
}

TEST(Megatron, Chunks) {
  World world;
  MegatronContents contents = contents_of(7);
  contents.models = {StateDict{{"a", 1}}, StateDict{{"b", 2}}, StateDict{}};
  ASSERT_TRUE(world.save(contents));
  const auto loaded = world.load();
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->contents.models.size(), 3u);
  EXPECT_TRUE(loaded->contents.models[1].contains("b"));
}

TEST(Megatron, LoadOptions) {
  World world;
  ASSERT_TRUE(world.save(contents_of(100)));
  const auto finetune = world.load({.finetune = true});
  ASSERT_TRUE(finetune);
  EXPECT_EQ(finetune->contents.iteration, 0);
  EXPECT_EQ(finetune->consumed_train_samples, 0);
  EXPECT_TRUE(finetune->contents.optimizer.none());
  EXPECT_TRUE(finetune->contents.rng.empty());
  EXPECT_TRUE(finetune->reload_model_params);
  EXPECT_FALSE(finetune->distributed_optimizer);
  const auto weights = world.load({.no_load_optim = true, .no_load_rng = true});
  ASSERT_TRUE(weights);
  EXPECT_EQ(weights->contents.iteration, 100);
  EXPECT_TRUE(weights->contents.optimizer.none());
  EXPECT_TRUE(weights->reload_model_params);
  MegatronSaveOptions save;
  save.release = true;
  ASSERT_TRUE(world.save(contents_of(100), {}, save));
  EXPECT_EQ(*world.disk.content("/m/latest_checkpointed_iteration.txt"), "release");
  const auto release = world.load();
  ASSERT_TRUE(release);
  EXPECT_EQ(release->contents.iteration, 0);
  EXPECT_TRUE(release->contents.optimizer.none());
}

TEST(Megatron, WhatWasNotSavedIsNotSilentlyMissing) {
  World world;
  ASSERT_TRUE(world.save(contents_of(1), {}, {.no_save_optim = true}));
  EXPECT_NE(world.load().error().message.find("no 'optimizer'; load without it by no-load-optim"),
            std::string::npos);
  EXPECT_TRUE(world.load({.no_load_optim = true}));
  ASSERT_TRUE(world.save(contents_of(2), {}, {.no_save_rng = true}));
  EXPECT_NE(world.load().error().message.find("skip them with no-load-rng"), std::string::npos);
  EXPECT_TRUE(world.load({.no_load_rng = true}));
  MegatronContents empty = contents_of(3);
  empty.rng[0].get<StateDict>()->operator[]("rng_tracker_states") = StateDict{};
  ASSERT_TRUE(world.save(empty));
  EXPECT_NE(world.load().error().message.find("rng_tracker_states is empty"), std::string::npos);
  EXPECT_NE(
      world.load({}, {.tp = 1}).error().message.find("has no mp_rank_01 but mp_rank_00; Megatron's files"),
      std::string::npos);
}

TEST(Megatron, ArgumentsAreComparedOneByOne) {
  const StateDict own = contents_of(0).args;
  StateDict saved = own;
  EXPECT_TRUE(compare_megatron_args(saved, own, 3.0, false));
  saved["num_layers"] = 5;
  saved["pipeline_model_parallel_size"] = 2;
  const std::string message = compare_megatron_args(saved, own, 3.0, false).error().message;
  EXPECT_NE(message.find("num_layers: "), std::string::npos) << message;
  EXPECT_NE(message.find("pipeline_model_parallel_size: "), std::string::npos) << message;
  StateDict old{{"num_layers", 4}, {"model_parallel_size", 1}};
  EXPECT_NE(compare_megatron_args(old, own, 2.0, false).error().message.find("tensor_model_parallel_size: "),
            std::string::npos);
  World world;
  MegatronContents contents = contents_of(9);
  contents.args["hidden_size"] = 16;
  ASSERT_TRUE(world.save(contents));
  EXPECT_NE(world.load().error().message.find("hidden_size: "), std::string::npos);
  EXPECT_TRUE(world.load({.finetune = true}));
}

TEST(Megatron, OldNames) {
  World world;
  StateDict old{
      {"total_iters", 5},
      {"model", StateDict{{"w", at::ones({2})}}},
      {"lr_scheduler", StateDict{{"num_iters", 5}}},
      {"optimizer",
       StateDict{
           {"loss_scaler", StateDict{{"__python__", "megatron.fp16_deprecated.loss_scaler.DynamicLossScaler"},
                                     {"args", StateList{}},
                                     {"new", true},
                                     {"state", StateDict{{"cur_scale", 512.0}}}}}}}};
  for (const auto& [key, value] : rng_states()) old[key] = value;
  world.put(old);
  const auto loaded = world.load();
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(loaded->contents.version, 0.0);
  EXPECT_EQ(loaded->contents.iteration, 5);
  EXPECT_EQ(first_difference(loaded->contents.scheduler, StateValue(StateDict{{"num_iters", 5}})), "");
  EXPECT_EQ(first_difference(loaded->contents.optimizer,
                             StateValue(StateDict{{"loss_scaler", StateDict{{"cur_scale", 512.0}}}})),
            "");
  EXPECT_EQ(loaded->contents.rng.size(), 1u);
  world.put(old, "6");
  EXPECT_FALSE(world.load());  // tracker ahead of the data
  ASSERT_TRUE(remove_tree(world.files, "/m/latest_checkpointed_iteration.txt"));
  ASSERT_TRUE(write_new_file(world.files, "/m/latest_checkpointed_iteration.txt", ""));
  EXPECT_NE(world.load().error().message.find("must be an iteration or 'release'"), std::string::npos);
  old["checkpoint_version"] = 4.0;
  world.put(old);
  EXPECT_NE(world.load().error().message.find("checkpoint_version is 4"), std::string::npos);
}

// Version 0 is (splits, heads, size), version 1 (heads, size, splits): each element carries its place as its
// value.
TEST(Megatron, QkvOrder) {
  const std::int64_t splits = 3, heads = 2, size = 4;
  at::Tensor now = at::zeros({heads, splits, size, 2}), v0 = at::zeros({splits, heads, size, 2}),
             v1 = at::zeros({heads, size, splits, 2});
  for (std::int64_t h = 0; h < heads; ++h)
    for (std::int64_t s = 0; s < splits; ++s)
      for (std::int64_t i = 0; i < size; ++i) {
        const float value = static_cast<float>(100 * h + 10 * s + i);
        now[h][s][i].fill_(value);
        v0[s][h][i].fill_(value);
        v1[h][i][s].fill_(value);
      }
  const auto fused = [](const at::Tensor& t) { return t.reshape({-1, 2}); };
  EXPECT_TRUE(at::equal(*reorder_qkv(fused(v0), 0.0, splits, heads), fused(now)));
  EXPECT_TRUE(at::equal(*reorder_qkv(fused(v1), 1.0, splits, heads), fused(now)));
  EXPECT_TRUE(at::equal(*reorder_qkv(fused(now), 2.0, splits, heads), fused(now)));
  EXPECT_FALSE(reorder_qkv(fused(v0), 0.0, splits, 5));
}

TEST(Megatron, OnlyDataParallelRank0WritesAndAllAgree) {
  SimulatedDisk disk;
  Lockstep group(4, 1);
  std::vector<std::string> errors(4);
  group.run([&](int rank) {
    SimulatedFiles files(disk);
    const MegatronPlace place{.tp = rank % 2, .dp = rank / 2};
    const auto saved = save_megatron(files, group.channel(rank), "/m", place, contents_of(rank < 2 ? 4 : 5));
    errors[static_cast<std::size_t>(rank)] = saved ? "" : saved.error().message;
  });
  // Rank 2 and 3 have another iteration: the tracker is rank 0's, their contents are not asked for.
  EXPECT_EQ(errors, std::vector<std::string>(4));
  SimulatedFiles files(disk);
  EXPECT_EQ(*files.list("/m/iter_0000004"), (std::vector<std::string>{"mp_rank_00", "mp_rank_01"}));
  Lockstep readers(2, 2);
  disk.content("/m/iter_0000004/mp_rank_01/model_optim_rng.pt")->resize(50);
  readers.run([&](int rank) {
    SimulatedFiles own(disk);
    const auto loaded = load_megatron(own, readers.channel(rank), "/m", {.tp = rank}, contents_of(0).args);
    errors[static_cast<std::size_t>(rank)] = loaded ? "" : loaded.error().message;
  });
  EXPECT_EQ(errors[0], errors[1]);
  EXPECT_NE(errors[0].find("rank 1: "), std::string::npos) << errors[0];
}

}  // namespace
}  // namespace plumbline::test

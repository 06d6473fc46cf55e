// Saving and loading the distributed optimizer: pieces, their exact cover, other data-parallel sizes, Megatron's form,
// weights without states.
#include <algorithm>
#include <thread>

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "tests/engine/optim/distributed_support.h"
#include "tests/support/property.h"

namespace plumbline::test::distributed {
namespace {

StateDict all_pieces(Cluster& cluster) {
  std::vector<StateDict> states;
  for (Rank& rank : cluster.ranks) states.push_back(must(rank.optimizer->save_parameter_state()));
  return must(merge_parameter_states(states));
}

StateDict copied(const StateDict& state) { return *clone(StateValue(state)).get<StateDict>(); }

// What a checkpoint holds of a cluster: model, settings, pieces.
struct Saved {
  std::vector<at::Tensor> model;
  StateDict settings, pieces;
};

Saved save(Cluster& cluster) {
  Saved saved;
  for (const ParameterPtr& parameter : cluster.ranks.front().params) {
    saved.model.push_back(parameter->value.detach().clone());
  }
  saved.settings = copied(cluster.ranks.front().optimizer->state_dict());
  saved.pieces = copied(all_pieces(cluster));
  return saved;
}

void load(Cluster& cluster, const Saved& saved) {
  for (Rank& rank : cluster.ranks) {
    for (std::size_t p = 0; p < saved.model.size(); ++p) rank.params[p]->value.detach().copy_(saved.model[p]);
    must(rank.optimizer->load_state_dict(saved.settings));
    must(rank.optimizer->load_parameter_state(saved.pieces));
  }
}

std::string first_difference_of(Cluster& a, Cluster& b) {
  const Saved left = save(a), right = save(b);
  for (std::size_t p = 0; p < left.model.size(); ++p) {
    if (!same(left.model[p], right.model[p])) return "model " + std::to_string(p);
  }
  return first_difference(StateValue(left.settings), StateValue(right.settings));
}

// The gradients of a fixed number of replicas on a cluster of any size: the first `replicas` ranks' sums are what
// another cluster has on other ranks, so the sums are made here and every rank gets the same.
StepOutcome train_with_sums(Cluster& cluster, const Case& source, int step) {
  for (int r = 0; r < cluster.c.dp; ++r) {
    Rank& rank = cluster.ranks[static_cast<std::size_t>(r)];
    rank.zero();
    for (int p = 0; p < static_cast<int>(rank.params.size()); ++p) {
      at::Tensor sum = at::zeros(rank.params[static_cast<std::size_t>(p)]->value.sizes());
      for (int from = 0; from < source.dp; ++from)
        sum.add_(gradient_of(source, step, from, p).to(at::kFloat));
      rank.params[static_cast<std::size_t>(p)]->main_grad.copy_(sum);
    }
  }
  return cluster.update();
}

TEST(DistributedStateProperty, SavedAtOneSizeContinuesAtAnother) {
  check_cases(1'000, [] {
    Case c;
    c.type = *rc::gen::element(at::kFloat, at::kHalf, at::kBFloat16).as("precision");
    c.loss_scale = c.type == at::kHalf ? 4.0 : 0.0;
    c.sizes = {*rc::gen::inRange<std::int64_t>(1, 200).as("size 0"),
               *rc::gen::inRange<std::int64_t>(0, 9).as("size 1"),
               *rc::gen::inRange<std::int64_t>(1, 90).as("size 2")};
    c.groups = *rc::gen::inRange(1, 3).as("groups");
    c.dp = *rc::gen::inRange(1, 9).as("dp that saves");
    c.bucket_size = *rc::gen::inRange<std::int64_t>(0, 150).as("bucket size that saves");
    if (*rc::gen::inRange(0, 3).as("rule") == 0) {
      c.rule.rule = BaseOptimizerOptions::Rule::kSgd;
      c.momentum = *rc::gen::element(0.0, 0.9).as("momentum");
    } else if (*rc::gen::arbitrary<bool>().as("precision-aware states")) {
      c.rule.precision_aware = true;
      c.rule.exp_avg_type = draw_type("first moment", {"f32", "f16", "bf16"});
      c.rule.exp_avg_sq_type = draw_type("second moment", {"f32", "f16", "bf16"});
      c.main_params = draw_type("main parameters", {"f32", "f16", "bf16"});
    }
    c.offload_fraction = *rc::gen::element(-1.0, 0.5).as("offload fraction");
    Case other = c;
    other.dp = *rc::gen::inRange(1, 9).as("dp that loads");
    other.bucket_size = *rc::gen::inRange<std::int64_t>(0, 150).as("bucket size that loads");
    other.shared_embedding = *rc::gen::inRange(-1, 3).as("shared embedding where it is loaded");
    const int steps = *rc::gen::inRange(0, 3).as("steps before");
    Cluster saving(c), loading(other);
    for (int step = 0; step < steps; ++step) train_with_sums(saving, c, step);
    train_with_sums(loading, c, 7);  // states that must not survive the load
    load(loading, save(saving));
    RC_ASSERT(first_difference_of(saving, loading) == "");
    for (int step = steps; step < steps + 2; ++step) {
      RC_ASSERT(*train_with_sums(saving, c, step).grad_norm == *train_with_sums(loading, c, step).grad_norm);
    }
    RC_ASSERT(first_difference_of(saving, loading) == "");
    // All states, in the form that knows no layout.
    Case whole = c;
    whole.dp = 1;
    Cluster left(whole), right(whole);
    load(left, save(saving));
    load(right, save(loading));
    RC_ASSERT(first_difference(StateValue(all_pieces(left)), StateValue(all_pieces(right))) == "");
  });
}

TEST(DistributedState, ThePiecesHoldNoPaddingAndCoverEverything) {
  Case c;
  c.sizes = {63};  // one element of padding would follow; six of eight ranks have nothing but padding
  c.dp = 8;
  c.type = at::kFloat;
  Cluster cluster(c);
  cluster.train(0);
  const StateDict pieces = all_pieces(cluster);
  std::int64_t elements = 0;
  for (const StatePiece& piece : must(pieces_of(pieces))) {
    elements += piece.range.end - piece.range.begin;
    EXPECT_EQ(piece.step, 1);
    ASSERT_EQ(piece.tensors.size(), 3u);
    for (const auto& [key, tensor] : piece.tensors) {
      EXPECT_EQ(tensor.numel(), piece.range.end - piece.range.begin) << key;
    }
  }
  EXPECT_EQ(elements, 63);
  EXPECT_EQ(must(pieces_of(must(cluster.ranks[5].optimizer->save_parameter_state()))).size(), 0u);
}

std::string cover_error(std::vector<FlatRange> ranges, const ParamSizes& sizes) {
  const Status cover = verify_exact_cover(std::move(ranges), sizes);
  return cover ? "" : cover.error().message;
}

TEST(DistributedState, CoverErrorsNameTheElement) {
  const ParamSizes sizes = {{"a", 10}, {"b", 4}, {"empty", 0}};
  EXPECT_EQ(cover_error({{"b", 0, 4}, {"a", 5, 10}, {"a", 0, 5}}, sizes), "");
  EXPECT_NE(cover_error({{"b", 0, 4}, {"a", 6, 10}, {"a", 0, 5}}, sizes)
                .find("a (10 elements): element 5 is missing"),
            std::string::npos);
  EXPECT_NE(cover_error({{"b", 0, 4}, {"a", 0, 5}}, sizes).find("element 5 is missing"), std::string::npos);
  EXPECT_NE(cover_error({{"b", 0, 4}}, sizes).find("a (10 elements): element 0 is missing"),
            std::string::npos);
  EXPECT_NE(cover_error({{"b", 0, 4}, {"a", 4, 10}, {"a", 0, 5}}, sizes).find("element 4 is there twice"),
            std::string::npos);
  EXPECT_NE(cover_error({{"b", 0, 4}, {"a", 0, 11}}, sizes).find("element 10 is beyond the end"),
            std::string::npos);
  EXPECT_NE(cover_error({{"b", 0, 4}, {"a", 0, 10}, {"c", 0, 1}}, sizes).find("a parameter c"),
            std::string::npos);
  EXPECT_NE(cover_error({{"0", 0, 4}, {"a", 0, 10}, {"b", 0, 4}}, sizes).find("a parameter 0"),
            std::string::npos);
}

// Any cut of the parameters into ranges covers them; without one, or with one twice, it does not.
TEST(DistributedStateProperty, OnlyExactCoversPass) {
  check_cases(10'000, [] {
    ParamSizes sizes;
    std::vector<FlatRange> ranges;
    for (int p = 0; p < *rc::gen::inRange(1, 4).as("parameters"); ++p) {
      const auto parts = *rc::gen::container<std::vector<std::int64_t>>(rc::gen::inRange<std::int64_t>(1, 9));
      std::int64_t at = 0;
      for (const std::int64_t part : parts) {
        ranges.push_back({param_name(p), at, at + part});
        at += part;
      }
      sizes[param_name(p)] = at;
    }
    RC_ASSERT(cover_error(ranges, sizes) == "");
    if (ranges.empty()) return;
    const auto at = *rc::gen::inRange<std::size_t>(0, ranges.size()).as("range that is changed");
    std::vector<FlatRange> fewer = ranges, twice = ranges, longer = ranges;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(at));
    twice.push_back(ranges[at]);
    ++longer[at].end;
    RC_ASSERT(cover_error(fewer, sizes) != "");
    RC_ASSERT(cover_error(twice, sizes) != "");
    RC_ASSERT(cover_error(longer, sizes) != "");
  });
}

TEST(DistributedState, SavingOverThreadsVerifiesTheCoverOfAllRanks) {
  Case c;
  c.loss_scale = 2.0;
  c.dp = 3;
  Case other = c;
  other.sizes = {37, 130, 6};  // a rank with another model
  const auto try_saving = [&](const Case& last) {
    const auto group = thread_group(c.dp);
    std::vector<std::string> messages(3);
    std::vector<std::thread> threads;
    for (int r = 0; r < c.dp; ++r) {
      threads.emplace_back([&, r] {
        Rank rank = make_rank(r == 2 ? last : c, r, group[static_cast<std::size_t>(r)]);
        const auto saved = rank.optimizer->save_parameter_state();
        messages[static_cast<std::size_t>(r)] = saved ? "" : saved.error().message;
      });
    }
    for (std::thread& thread : threads) thread.join();
    return messages;
  };
  EXPECT_EQ(try_saving(c), (std::vector<std::string>{"", "", ""}));
  for (const std::string& message : try_saving(other)) {
    EXPECT_NE(message, "");
  }
  EXPECT_NE(try_saving(other)[2].find("different models"), std::string::npos);
}

TEST(DistributedState, AWrongStateIsRefusedAndChangesNothing) {
  Case c;
  c.loss_scale = 2.0;
  Cluster cluster(c), donor(c);
  cluster.train(0);
  donor.train(1);
  donor.train(2);
  const Saved before = save(cluster);
  const StateDict good = all_pieces(donor);
  const auto refused = [&](const std::function<void(StateList&)>& damage) {
    StateDict bad = copied(good);
    damage(*bad["pieces"].get<StateList>());
    std::string text;
    for (Rank& rank : cluster.ranks) {
      const Status loaded = rank.optimizer->load_parameter_state(bad);
      text = loaded ? "loaded" : loaded.error().message;
    }
    const Saved after = save(cluster);
    EXPECT_EQ(first_difference(StateValue(before.pieces), StateValue(after.pieces)), "") << text;
    return text;
  };
  const auto piece = [](StateList& list, std::size_t i) -> StateDict& { return *list[i].get<StateDict>(); };
  EXPECT_NE(refused([](StateList& list) { list.pop_back(); }).find("is missing"), std::string::npos);
  EXPECT_NE(refused([](StateList& list) { list.push_back(list.front()); }).find("there twice"),
            std::string::npos);
  EXPECT_NE(refused([&](StateList& list) {
              piece(list, 0)["tensors"].get<StateDict>()->erase("exp_avg");
            }).find("exp_avg: "),
            std::string::npos);
  EXPECT_NE(refused([&](StateList& list) { piece(list, 0)["numel"] = 4000; }).find("has 4000 elements"),
            std::string::npos);
  EXPECT_NE(refused([&](StateList& list) { piece(list, 0)["step"] = 5; }).find("step 5"), std::string::npos);
  EXPECT_NE(refused([&](StateList& list) { piece(list, 0)["end"] = 1; }).find("piece 0"), std::string::npos);
  EXPECT_NE(refused([&](StateList& list) {
              piece(list, 0)["tensors"].get<StateDict>()->at("exp_avg");
              piece(list, 0).erase("param");
            }).find("param"),
            std::string::npos);
  for (Rank& rank : cluster.ranks) {
    EXPECT_FALSE(rank.optimizer->load_parameter_state(StateDict{{"format", "other"}}));
    EXPECT_FALSE(
        rank.optimizer->load_state_dict(StateDict{{"optimizer", StateDict{{"param_groups", StateList{}}}}}));
    must(rank.optimizer->load_parameter_state(good));
  }
}

// --- Megatron's form

// As Megatron writes it: flat tensors, buckets without their padding, gaps inside buckets.
StateDict legacy_of(Cluster& whole, bool coalesced) {
  PL_ASSERT(whole.c.dp == 1);
  Rank& rank = whole.ranks.front();
  StateDict out;
  if (coalesced) out["buckets_coalesced"] = true;
  for (std::size_t b = 0; b < rank.buffers.size(); ++b) {
    const GradBuffer& buffer = *rank.buffers[b];
    const std::int64_t numel = buffer.layout().numel();
    std::array<at::Tensor, 3> flat = {at::zeros({numel}), at::full({numel}, 77.0), at::full({numel}, 77.0)};
    for (const DistributedOptimizer::Shard& shard : rank.optimizer->shards()) {
      if (shard.buffer != static_cast<int>(b)) continue;
      const ParamState* state = rank.optimizer->find_state(*shard.main);
      const std::array<at::Tensor, 3> values = {shard.main->value, state->exp_avg, state->exp_avg_sq};
      for (std::size_t k = 0; k < 3; ++k) {
        flat[k].narrow(0, shard.range.world_begin, shard.main->numel()).copy_(values[k]);
      }
    }
    const std::array<const char*, 3> keys = {"param", "exp_avg", "exp_avg_sq"};
    StateDict one;
    StateList list;
    std::array<std::vector<at::Tensor>, 3> stripped;
    for (const BucketRange& bucket : buffer.layout().buckets()) {
      StateDict by_bucket;
      for (std::size_t k = 0; k < 3; ++k) {
        by_bucket[keys[k]] = flat[k].narrow(0, bucket.begin, bucket.end - bucket.begin).clone();
        stripped[k].push_back(flat[k].narrow(0, bucket.begin, bucket.unpadded));
      }
      list.emplace_back(std::move(by_bucket));
    }
    for (std::size_t k = 0; k < 3; ++k) one[keys[k]] = at::cat(stripped[k]);
    one["numel_unpadded"] = buffer.numel_unpadded();
    const StateValue value = coalesced ? StateValue(one) : StateValue(list);
    out[std::to_string(b)] = StateDict{{"(torch.float16, torch.float32)", value}};
  }
  return out;
}

TEST(DistributedState, MegatronsFormIsReadAtAnyDataParallelSize) {
  for (const bool coalesced : {true, false}) {
    Case c;
    c.loss_scale = 2.0;
    c.dp = 1;
    c.sizes = {37, 130, 5, 70, 200};
    c.bucket_size = 150;
    c.shared_embedding = 2;
    Cluster saving(c);
    for (int step = 0; step < 3; ++step) train_with_sums(saving, c, step);
    Case three = c;
    three.dp = coalesced ? 3 : 1;  // with padding kept, the form is that of one data-parallel size
    Cluster loading(three);
    const StateDict legacy = legacy_of(saving, coalesced);
    for (Rank& rank : loading.ranks) {
      must(rank.optimizer->load_state_dict(copied(saving.ranks[0].optimizer->state_dict())));
      must(rank.optimizer->load_parameter_state(legacy, true));
    }
    Cluster back(c);
    load(back, save(loading));
    EXPECT_EQ(first_difference(StateValue(all_pieces(saving)), StateValue(all_pieces(back))), "");
  }
}

TEST(DistributedState, MegatronsFormOfAnotherModelIsRefused) {
  Case c;
  c.loss_scale = 2.0;
  c.dp = 1;
  Cluster saving(c);
  saving.train(0);
  const auto error = [&](const Case& other, const StateDict& state) {
    Cluster loading(other);
    const Status loaded = loading.ranks[0].optimizer->load_parameter_state(state, true);
    return loaded ? std::string("loaded") : loaded.error().message;
  };
  EXPECT_EQ(error(c, legacy_of(saving, true)), "loaded");
  Case longer = c;
  longer.sizes.front() += 1;
  EXPECT_NE(error(longer, legacy_of(saving, true)).find("elements without padding"), std::string::npos);
  Case cut = c;
  cut.bucket_size = 1;
  EXPECT_NE(error(cut, legacy_of(saving, false)).find("1 buckets were saved"), std::string::npos);
  StateDict shortened = legacy_of(saving, true);
  StateDict& one = *shortened["0"].get<StateDict>()->begin()->second.get<StateDict>();
  one["exp_avg"] = one["exp_avg"].get<at::Tensor>()->narrow(0, 0, 3);
  EXPECT_NE(error(c, shortened).find("exp_avg has 3 elements"), std::string::npos);
  EXPECT_NE(error(c, StateDict{{"buckets_coalesced", true}}).find("\"0\""), std::string::npos);
}

// --- weights without states

TEST(DistributedState, ReloadTakesTheModelsWeights) {
  Case c;
  c.loss_scale = 2.0;
  c.lr = 0.0;
  Cluster cluster(c);
  cluster.train(0);
  for (Rank& rank : cluster.ranks) {
    for (const ParameterPtr& parameter : rank.params) parameter->value.detach().fill_(0.7);
    must(rank.optimizer->reload_model_params());
  }
  cluster.train(1);
  for (Rank& rank : cluster.ranks) {
    for (const ParameterPtr& parameter : rank.params) {
      EXPECT_TRUE(at::equal(parameter->value, at::full_like(parameter->value, 0.7)));
    }
  }
}

TEST(DistributedState, ReloadFromAStateDictKeepsTheFullPrecision) {
  Case c;
  c.loss_scale = 2.0;
  Cluster cluster(c);
  StateDict weights;
  for (int p = 0; p < 3; ++p) {
    const at::Tensor value = at::full({c.sizes[static_cast<std::size_t>(p)]}, 0.1 + p);
    weights["module." + param_name(p)] = value;
  }
  const StateDict nested{{"model", weights}};
  for (Rank& rank : cluster.ranks) {
    must(rank.optimizer->reload_model_params(&nested));
    for (const DistributedOptimizer::Shard& shard : rank.optimizer->shards()) {
      const float wanted = 0.1f + static_cast<float>(shard.range.param);
      EXPECT_EQ(shard.main->value[0].item<float>(), wanted);  // 0.1 is not an fp16 number
    }
  }
  const auto error = [&](const StateDict& state) {
    const Status reloaded = cluster.ranks[0].optimizer->reload_model_params(&state);
    return reloaded ? std::string("reloaded") : reloaded.error().message;
  };
  StateDict twice = weights;
  twice["other." + param_name(1)] = weights["module." + param_name(1)];
  EXPECT_NE(error(twice).find("both module.layers.1.w and other.layers.1.w"), std::string::npos);
  StateDict fewer = weights;
  fewer.erase("module." + param_name(2));
  EXPECT_NE(error(fewer).find("no entry of the state dict ends with the name layers.2.w"), std::string::npos);
  StateDict wrong = weights;
  wrong["module." + param_name(0)] = at::zeros({38});
  EXPECT_NE(error(wrong).find("module.layers.0.w is"), std::string::npos);
}

TEST(DistributedState, StatesOfTheWholeParametersAreCutIntoShards) {
  Case c;
  c.loss_scale = 2.0;
  std::vector<ParameterPtr> params = model_of(c);
  auto base = base_of(c, params);
  base->init_state();
  for (const ParameterPtr& parameter : params) {
    ParamState& state = base->state(*parameter);
    state.exp_avg = at::arange(parameter->numel(), at::kFloat);
    state.step = 9;
  }
  GradBufferOptions buffer;
  buffer.layout.shards = 2;
  buffer.shard = 1;
  const auto buffers = must(make_grad_buffers(params, buffer, buffer));
  const auto optimizer =
      must(DistributedOptimizer::create(std::move(base), options_of(c), scaler_of(c), {buffers}));
  EXPECT_EQ(optimizer->param_groups()[0]->step, 9);
  ASSERT_FALSE(optimizer->shards().empty());
  for (const DistributedOptimizer::Shard& shard : optimizer->shards()) {
    const ParamState* state = optimizer->find_state(*shard.main);
    ASSERT_NE(state, nullptr);
    EXPECT_EQ(state->step, 9);
    EXPECT_EQ(state->exp_avg[0].item<float>(), static_cast<float>(shard.range.param_begin));
    EXPECT_EQ(state->exp_avg.numel(), shard.main->numel());
    EXPECT_EQ(optimizer->find_state(*shard.model), nullptr);
  }
}

TEST(DistributedState, ShardedTensorsAreFlatRangesOfTheGlobalTensor) {
  Case c;
  c.loss_scale = 2.0;
  c.dp = 4;
  c.sizes = {300};
  std::vector<bool> seen(300, false);
  for (int r = 0; r < c.dp; ++r) {
    Rank rank = make_rank(c, r);
    rank.params[0]->global_shape = {600};
    rank.params[0]->global_offset = {300};
    const auto sharded = must(rank.optimizer->sharded_state_dict(true, {"chained_1.", r}));
    for (const ShardedTensor& tensor : sharded.tensors) {
      EXPECT_TRUE(tensor.flattened);
      EXPECT_EQ(tensor.replica, 0);
      EXPECT_EQ(tensor.global_shape, (std::vector<std::int64_t>{600}));
      EXPECT_EQ(tensor.offset, (std::vector<std::int64_t>{300}));
      EXPECT_EQ(tensor.local_shape, (std::vector<std::int64_t>{300}));
      if (tensor.key != "chained_1.optimizer.state.fp32_param.layers.0.w") continue;
      for (std::int64_t i = 0; i < tensor.data.numel(); ++i) {
        seen[static_cast<std::size_t>(tensor.flat_begin + i)] = true;
      }
    }
    EXPECT_EQ(sharded.tensors.size(), 3u);
  }
  EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](bool one) { return one; }));
}

TEST(DistributedState, AShardedLoadRestoresStepsOnEmptyRanksToo) {
  Case c;
  c.loss_scale = 2.0;
  c.sizes = {10};
  c.dp = 8;
  Cluster saving(c), loading(c);
  saving.train(0);
  saving.train(1);
  std::vector<ShardedObject> objects;
  for (int r = 0; r < c.dp; ++r) {
    auto sharded =
        must(saving.ranks[static_cast<std::size_t>(r)].optimizer->sharded_state_dict(false, {"", r}));
    if (r == 0) objects = sharded.objects;
    auto target =
        must(loading.ranks[static_cast<std::size_t>(r)].optimizer->sharded_state_dict(true, {"", r}));
    ASSERT_EQ(target.tensors.size(), sharded.tensors.size());
    for (std::size_t i = 0; i < target.tensors.size(); ++i)
      target.tensors[i].data.copy_(sharded.tensors[i].data);
  }
  for (int r = 0; r < c.dp; ++r) {
    DistributedOptimizer& optimizer = *loading.ranks[static_cast<std::size_t>(r)].optimizer;
    must(optimizer.load_sharded_objects(objects, {"", r}));
    EXPECT_EQ(optimizer.param_groups()[0]->step, 2);
  }
  for (std::size_t r = 0; r < loading.ranks.size(); ++r) {
    loading.ranks[r].params[0]->value.detach().copy_(saving.ranks[r].params[0]->value);
  }
  saving.train(2);
  loading.train(2);
  EXPECT_EQ(first_difference_of(saving, loading), "");
  EXPECT_EQ(first_difference(StateValue(all_pieces(saving)), StateValue(all_pieces(loading))), "");
}

}  // namespace
}  // namespace plumbline::test::distributed

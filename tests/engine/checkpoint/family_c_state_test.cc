// Public reports about what must come back after a load, and when it is written: C13, C14, C17, C20, C22,
// C23, C28, C30, C31, C34, C36.
#include <set>
#include <thread>

#include "engine/checkpoint/async_save.h"
#include "engine/checkpoint/megatron.h"
#include "engine/config/num_microbatches.h"
#include "engine/optim/loss_scaler.h"
#include "engine/optim/param_scheduler.h"
#include "tests/engine/checkpoint/family_c.h"
#include "tests/engine/optim/family_l.h"

namespace plumbline::test {
namespace {

// State through the files and back.
StateValue through_disk(const StateValue& value) {
  SimulatedDisk disk;
  Ranks ranks{{{}, {{"state", value, 0}}}};
  EXPECT_EQ(save(disk, ranks), "");
  ranks[0].objects[0].value = {};
  EXPECT_EQ(load(disk, ranks), "");
  return ranks[0].objects[0].value;
}

// C13: rank 0 gathers, rank 1 goes to the barrier.
TEST(FamilyC, HuggingfaceTransformers48569) {
  const auto group = thread_group(2, 30.0);
  std::vector<std::string> errors(2);
  std::thread first([&] {
    std::vector<float> shards(2);
    const Status status = group[0]->all_gather(DType::kF32, reinterpret_cast<std::byte*>(shards.data()), 1);
    errors[0] = status ? "" : status.error().message;
  });
  std::thread second([&] {
    float barrier = 0.0f;
    const Status status = group[1]->max({&barrier, 1});
    errors[1] = status ? "" : status.error().message;
  });
  first.join();
  second.join();
  EXPECT_EQ(errors[0], errors[1]);
  EXPECT_NE(errors[0].find("different calls: rank 0 all-gather"), std::string::npos) << errors[0];
  // Both gather, rank 0 writes: what save_checkpoint() does.
  SimulatedDisk disk;
  EXPECT_EQ(
      save(disk, {{{shard("w", numbers({1}), {2}, {0})}, {}}, {{shard("w", numbers({2}), {2}, {1})}, {}}}),
      "");
}

// C14: random states by rank, or by (pp, tp) only.
TEST(FamilyC, NVIDIAMegatronLM6858) {
  SimulatedDisk disk;
  Ranks by_rank(4), by_place(4);
  for (int rank = 0; rank < 4; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    by_rank[at].objects = {{"rng." + std::to_string(rank), 100 + rank, 0}};
    by_place[at].objects = {{"rng.pp0.tp0", 100 + rank, rank == 0 ? 0 : 1}};
  }
  EXPECT_NE(save(disk, by_place).find("object 'rng.pp0.tp0' differs between rank 0 and rank 1"),
            std::string::npos);
  ASSERT_EQ(save(disk, by_rank), "");
  Ranks back = by_rank;
  for (ShardedStateDict& state : back) state.objects[0].value = {};
  ASSERT_EQ(load(disk, back), "");
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_EQ(*back[static_cast<std::size_t>(rank)].objects[0].value.get<std::int64_t>(), 100 + rank);
}

// C17: weights without optimizer state; the stale master would write 0.9 back.
TEST(FamilyC, NVIDIAMegatronLM174) {
  for (const bool reload : {true, false}) {
    HalfRank rank(dynamic_scaler({.initial = 1.0}), plain_options(), {0.9f}, at::kBFloat16);
    rank.optimizer->get_parameters().front()->value.fill_(0.9f);  // the model holds it rounded
    SimulatedDisk disk;
    ASSERT_EQ(save(disk, {{{whole("w", numbers({5}).to(at::kBFloat16))}, {}}}), "");
    Ranks model{{{whole("w", rank.model->value)}, {}}};
    ASSERT_EQ(load(disk, model), "");
    if (reload) ASSERT_TRUE(rank.optimizer->reload_model_params());
    rank.backward({0.0f});
    const auto stepped = rank.optimizer->step();
    ASSERT_TRUE(stepped);
    EXPECT_EQ(values_of(rank.model->value).front(), reload ? 5.0 : 0.8984375);
    EXPECT_FLOAT_EQ(static_cast<float>(rank.main()), reload ? 5.0f : 0.9f);
  }
  // The loader says that it must be done.
  StateDict file{{"iteration", 3}, {"model", StateDict{}}};
  EXPECT_TRUE(megatron_contents(StateValue(file), "f", false, {.no_load_optim = true, .no_load_rng = true})
                  ->reload_model_params);
}

// C20: scale 256 and tracker 3 at the save; then one clean step and one overflow.
TEST(FamilyC, HuggingfaceTransformers34053) {
  const LossScaler::Dynamic options{
      .initial = 65536.0, .window = 4, .hysteresis = 1, .rule = ScalerRule::kTorch};
  LossScaler saved = dynamic_scaler(options);
  for (int i = 0; i < 8; ++i) saved.update(true);
  for (int i = 0; i < 3; ++i) saved.update(false);
  ASSERT_EQ(saved.scale(), 256.0f);
  ASSERT_EQ(saved.growth_tracker(), 3);
  LossScaler resumed = dynamic_scaler(options), nothing = dynamic_scaler(options);
  ASSERT_TRUE(resumed.load_state_dict(*through_disk(saved.state_dict()).get<StateDict>()));
  EXPECT_TRUE(resumed == saved);
  resumed.update(false);
  EXPECT_EQ(resumed.scale(), 512.0f);
  EXPECT_EQ(resumed.growth_tracker(), 0);
  resumed.update(true);
  EXPECT_EQ(resumed.scale(), 256.0f);
  nothing.update(false);
  nothing.update(true);
  EXPECT_EQ(nothing.scale(), 32768.0f);  // (a)
}

// C22: parameter and step are one pair, of the moment the save was asked for.
TEST(FamilyC, NVIDIANvidiaResiliencyExt376) {
  SimulatedDisk disk;
  SimulatedFiles files(disk);
  AsyncSaver saver(files, std::make_unique<Lone>(), "/c");
  at::Tensor p = numbers({0.9f});
  at::Tensor t = at::tensor({1}, at::kLong);
  ShardedStateDict state{{whole("p", p)}, {{"t", t, 0}}};
  ASSERT_TRUE(saver.start(1, state));
  p.fill_(0.8f);
  t.fill_(2);
  ASSERT_TRUE(saver.wait());
  const auto reader = CheckpointReader::open(files, "/c/iter_0000001");
  EXPECT_FLOAT_EQ(list(*read_tensor(*reader, "p"))[0], 0.9f);
  EXPECT_EQ(read_object(*reader, "t")->get<at::Tensor>()->item<std::int64_t>(), 1);
}

// C23: live storage is replaced after each save; every file holds its own step.
TEST(FamilyC, NVIDIANeMoRL3312) {
  SimulatedDisk disk;
  SimulatedFiles files(disk);
  AsyncSaver saver(files, std::make_unique<Lone>(), "/c");
  ShardedStateDict state{{whole("p", numbers({10}))}, {}};
  for (const int step : {10, 20, 30}) {
    state.tensors[0].data = numbers({static_cast<float>(step)});  // new storage
    ASSERT_TRUE(saver.start(step, state));
  }
  ASSERT_TRUE(saver.wait());
  std::set<std::uint64_t> digests;
  for (const int step : {10, 20, 30}) {
    const auto reader = CheckpointReader::open(files, "/c/" + iteration_name(step));
    ASSERT_TRUE(reader);
    EXPECT_EQ(list(*read_tensor(*reader, "p"))[0], static_cast<float>(step));
    digests.insert(reader->manifest().tensors[0].pieces[0].digest);
  }
  EXPECT_EQ(digests.size(), 3u);
}

// C28: 50 iterations of 16 with dp = 8, resumed with dp = 16: both go on with samples 800 to 815.
TEST(FamilyC, NVIDIAMegatronLM2829) {
  SimulatedDisk disk;
  SimulatedFiles files(disk);
  MegatronContents contents;
  contents.iteration = 50;
  contents.models = {StateDict{}};
  contents.args = StateDict{{"consumed_train_samples", 50 * 16}};
  ASSERT_TRUE(save_megatron(files, lone_channel(), "/m", {}, contents));
  const auto loaded =
      load_megatron(files, lone_channel(), "/m", {}, {}, {.no_load_optim = true, .no_load_rng = true});
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(loaded->consumed_train_samples, 800);
  for (const std::int64_t dp : {8, 16}) {
    const auto batches =
        NumMicrobatches::constant(16, {.micro_batch_size = 1, .data_parallel_size = dp}, false);
    const auto batch = batches->at(loaded->consumed_train_samples);
    EXPECT_EQ(batch->num_microbatches, 16 / dp);
    std::set<std::int64_t> used;
    for (std::int64_t m = 0; m < batch->num_microbatches; ++m)
      for (std::int64_t rank = 0; rank < dp; ++rank)
        used.insert(loaded->consumed_train_samples + m * dp + rank);
    EXPECT_EQ(used.size(), 16u);
    EXPECT_EQ(*used.begin(), 800);
    EXPECT_EQ(*used.rbegin(), 815);
  }
}

// C30: positions of loaders that cannot be handed out anew.
TEST(FamilyC, NVIDIANeMoMegatronBridge5637) {
  SimulatedDisk disk;
  const auto loaders = [](int dp) {
    Ranks ranks(static_cast<std::size_t>(dp));
    for (int rank = 0; rank < dp; ++rank)
      ranks[static_cast<std::size_t>(rank)].objects = {{"loader." + std::to_string(rank), 10 + 2 * rank, 0}};
    return ranks;
  };
  ASSERT_EQ(save(disk, loaders(2)), "");
  Ranks two = loaders(2), one = loaders(1), four = loaders(4);
  for (ShardedStateDict& state : two) state.objects[0].value = {};
  ASSERT_EQ(load(disk, two), "");
  EXPECT_EQ(*two[0].objects[0].value.get<std::int64_t>(), 10);
  EXPECT_EQ(*two[1].objects[0].value.get<std::int64_t>(), 12);
  EXPECT_NE(load(disk, one).find("asked for by no one: loader.1"), std::string::npos);
  EXPECT_NE(load(disk, four).find("not in the checkpoint: loader.2, loader.3"), std::string::npos);
}

ParamGroup group_of(const ParameterPtr& parameter) {
  ParamGroup group;
  group.params = {parameter};
  return group;
}

// C31: weight decay 0.1 in the checkpoint, 0.01 in the run that resumes by the checkpoint's schedule.
TEST(FamilyC, NVIDIAMegatronLM7468) {
  ParamSchedulerOptions options{
      .max_lr = 0.5, .min_lr = 0.5, .lr_decay_steps = 100, .start_wd = 0.1, .end_wd = 0.1};
  OptimizerParamScheduler saved = value_of(OptimizerParamScheduler::create(options));
  saved.step(10);
  options.start_wd = options.end_wd = 0.01;
  options.use_checkpoint = true;
  OptimizerParamScheduler resumed = value_of(OptimizerParamScheduler::create(options));
  ParamGroup group = group_of(parameter("p", numbers({1})));
  ASSERT_TRUE(resumed.attach({&group}));
  EXPECT_EQ(group.weight_decay, 0.01);
  ASSERT_TRUE(resumed.load_state_dict(*through_disk(saved.state_dict()).get<StateDict>()));
  // The first resumed step already uses what was loaded: 1 - 0.5 * 0.1, and not 0.995.
  EXPECT_EQ(resumed.num_steps(), 10);
  EXPECT_DOUBLE_EQ(1.0 - group.lr * group.weight_decay, 0.95);
}

// C34: Adam for 8 steps, save, a fresh process whose state does not exist yet, 8 more: bit for bit the
// uninterrupted run.
TEST(FamilyC, KempnerInstituteKempnerForge114) {
  const auto fresh = [] {
    ParameterPtr p = parameter("p", numbers({1, -2, 3}));
    ParamGroup group = group_of(p);
    group.lr = 0.1;
    std::vector<ParamGroup> groups;
    groups.push_back(std::move(group));
    return std::pair(
        p, value_of(FP32Optimizer::create(
               std::make_unique<BaseOptimizer>(std::move(groups), BaseOptimizerOptions{}), plain_options())));
  };
  const auto run = [](const ParameterPtr& p, FP32Optimizer& optimizer, int from, int to) {
    for (int step = from; step < to; ++step) {
      p->grad = p->value * 0.5f + static_cast<float>(step);
      ASSERT_TRUE(optimizer.step());
    }
  };
  auto [straight, straight_optimizer] = fresh();
  run(straight, *straight_optimizer, 0, 16);
  auto [before, before_optimizer] = fresh();
  run(before, *before_optimizer, 0, 8);
  auto state = value_of(before_optimizer->sharded_state_dict(false, {}));
  state.tensors.push_back(whole("model.p", before->value));
  SimulatedDisk disk;
  ASSERT_EQ(save(disk, {state}), "");

  auto [after, after_optimizer] = fresh();
  // A template without the moments is refused: they would be zeros from step 9 on.
  Ranks no_moments{{{whole("model.p", after->value)}, {}}};
  EXPECT_NE(load(disk, no_moments).find("asked for by no one: "), std::string::npos);
  Ranks wanted{value_of(after_optimizer->sharded_state_dict(true, {}))};
  wanted[0].tensors.push_back(whole("model.p", after->value));
  ASSERT_EQ(load(disk, wanted), "");
  ASSERT_TRUE(after_optimizer->load_sharded_objects(wanted[0].objects, {}));
  run(after, *after_optimizer, 8, 16);
  EXPECT_EQ(first_difference(StateValue(after->value), StateValue(straight->value)), "");
}

// C09: param groups in another order than the one whose settings are loaded: matched by what they are, not by
// place.
TEST(FamilyC, NVIDIAMegatronLM1515) {
  const auto stage = [](bool decay_first) {
    ParamGroup decay = group_of(parameter("w", numbers({1})));
    ParamGroup none = group_of(parameter("norm", numbers({1})));
    decay.weight_decay = 0.01;
    decay.wd_mult = 1.0;
    none.wd_mult = 0.0;
    decay.lr = none.lr = 1.0;
    std::vector<ParamGroup> groups;
    groups.push_back(decay_first ? decay : none);
    groups.push_back(decay_first ? none : decay);
    BaseOptimizerOptions options;
    options.rule = BaseOptimizerOptions::Rule::kSgd;
    return value_of(
        FP32Optimizer::create(std::make_unique<BaseOptimizer>(std::move(groups), options), plain_options()));
  };
  const auto first = stage(true), second = stage(false);
  ASSERT_TRUE(second->load_state_dict(*through_disk(first->state_dict()).get<StateDict>()));
  EXPECT_EQ(second->param_groups()[0]->weight_decay, 0.0);
  EXPECT_EQ(second->param_groups()[1]->weight_decay, 0.01);
  for (const ParameterPtr& p : second->get_parameters()) p->grad = at::zeros({1});
  ASSERT_TRUE(second->step());
  for (const ParameterPtr& p : second->get_parameters())
    EXPECT_FLOAT_EQ(list(p->value)[0], p->name == "norm" ? 1.0f : 0.99f) << p->name;
}

// C38: pp = 2, dp = 2, a tied embedding on all four ranks under Adam; gradients are summed over the uses and
// averaged over dp. Copies stay equal to the bit, after each step and after a load; the saver finds it when
// they are not.
TEST(FamilyC, NVIDIAMegatronLM656) {
  const auto adam = [](const ParameterPtr& p) {
    ParamGroup group = group_of(p);
    group.lr = 0.1;
    std::vector<ParamGroup> groups;
    groups.push_back(std::move(group));
    return std::make_unique<BaseOptimizer>(std::move(groups), BaseOptimizerOptions{});
  };
  std::vector<ParameterPtr> copies;
  std::vector<std::unique_ptr<BaseOptimizer>> optimizers;
  for (int rank = 0; rank < 5; ++rank) {  // the fifth is the run of one process
    copies.push_back(parameter("embedding", numbers({1, 2})));
    optimizers.push_back(adam(copies.back()));
  }
  const auto states = [&] {
    Ranks ranks;
    for (int rank = 0; rank < 4; ++rank)
      ranks.push_back(
          {{whole("embedding", copies[static_cast<std::size_t>(rank)]->value, rank == 0 ? 0 : 1)}, {}});
    return ranks;
  };
  SimulatedDisk disk;
  for (int step = 1; step <= 3; ++step) {
    at::Tensor sum = at::zeros({2});
    for (int dp = 0; dp < 2; ++dp)
      for (int use = 0; use < 2; ++use)
        sum += numbers({static_cast<float>(step + 3 * dp - use), static_cast<float>(2 * use - dp)});
    for (std::size_t rank = 0; rank < copies.size(); ++rank) {
      copies[rank]->grad = sum / 2;
      optimizers[rank]->step();
    }
    for (std::size_t rank = 0; rank < copies.size(); ++rank) {
      EXPECT_EQ(first_difference(StateValue(copies[rank]->value), StateValue(copies[4]->value)), "")
          << "step " << step << ", rank " << rank;
    }
    ASSERT_EQ(save(disk, states(), step), "");
  }
  Ranks back = states();
  for (ShardedStateDict& rank : back) rank.tensors[0].data = at::zeros({2});
  ASSERT_EQ(load(disk, back), "");
  for (const ShardedStateDict& rank : back) EXPECT_TRUE(at::equal(rank.tensors[0].data, copies[4]->value));
  copies[3]->value += 1e-6f;
  EXPECT_NE(save(disk, states(), 4).find("rank 0 and rank 3 hold different values of 'embedding'"),
            std::string::npos);
}

// C36: 800 samples of a linear decay over 800: with the optimizer's state they count once, without it not at
// all.
TEST(FamilyC, THUDMSlime1775) {
  const ParamSchedulerOptions options{.max_lr = 1.0,
                                      .min_lr = 0.0,
                                      .lr_decay_steps = 800,
                                      .lr_decay_style = DecayStyle::kLinear,
                                      .use_checkpoint = true};
  OptimizerParamScheduler saved = value_of(OptimizerParamScheduler::create(options));
  for (int iteration = 0; iteration < 100; ++iteration) saved.step(8);
  ParamGroup group = group_of(parameter("p", numbers({1})));
  OptimizerParamScheduler resumed = value_of(OptimizerParamScheduler::create(options));
  ASSERT_TRUE(resumed.attach({&group}));
  StateDict file{{"iteration", 100},
                 {"model", StateDict{}},
                 {"optimizer", StateDict{}},
                 {"opt_param_scheduler", saved.state_dict()}};
  const auto all = megatron_contents(through_disk(file), "f", false, {.no_load_rng = true});
  ASSERT_TRUE(all) << all.error().message;
  ASSERT_TRUE(resumed.load_state_dict(*all->contents.scheduler.get<StateDict>()));
  EXPECT_EQ(resumed.num_steps(), 800);
  const auto weights =
      megatron_contents(StateValue(file), "f", false, {.no_load_optim = true, .no_load_rng = true});
  EXPECT_TRUE(weights->contents.scheduler.none());
  OptimizerParamScheduler fresh = value_of(OptimizerParamScheduler::create(options));
  ASSERT_TRUE(fresh.attach({&group}));
  EXPECT_EQ(group.lr, 1.0);
}

}  // namespace
}  // namespace plumbline::test

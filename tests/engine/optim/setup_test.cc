#include "engine/optim/setup.h"

#include <array>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine/optim/chained_optimizer.h"
#include "engine/optim/distributed_optimizer.h"
#include "engine/optim/hybrid_device_optimizer.h"
#include "tests/engine/optim/family_l.h"

namespace plumbline::test {
namespace {

// Embedding, a matrix, a bias; with `experts` one expert matrix besides.
std::vector<std::vector<ParameterPtr>> small_model(at::ScalarType type, bool experts) {
  const auto made = [&](const std::string& name, std::vector<std::int64_t> shape) {
    std::int64_t numel = 1;
    for (const std::int64_t size : shape) numel *= size;
    return parameter(name, at::sin(at::arange(numel, at::kFloat)).reshape(shape).to(type));
  };
  std::vector<std::vector<ParameterPtr>> chunks{
      {made("embedding.tokens", {6, 4}), made("layers.0.w", {4, 4})}, {made("layers.1.bias", {4})}};
  chunks[0][0]->embedding_or_output = true;
  if (experts) {
    chunks[1].push_back(made("layers.1.experts.0", {4, 4}));
    chunks[1].back()->expert = true;
  }
  return chunks;
}

RunConfig small_config(Precision precision = Precision::kFp32) {
  RunConfig config;
  config.train.precision = precision;
  config.train.iterations = 10;
  config.train.micro_batch_size = 2;
  config.optimizer.lr = 0.01;
  config.optimizer.min_lr = 0.001;
  config.optimizer.weight_decay = 0.1;
  config.optimizer.decay = DecayStyle::kLinear;
  config.loss_scale.initial = 256.0;
  return config;
}

OptimizerInputs inputs_of(const RunConfig& config, bool experts = false) {
  OptimizerInputs inputs;
  inputs.optimizer = OptimizerSettings::of(config);
  inputs.scheduler = value_of(SchedulerSettings::of(config));
  const Precision precision = config.train.precision;
  inputs.chunks = small_model(precision == Precision::kFp16   ? at::kHalf
                              : precision == Precision::kBf16 ? at::kBFloat16
                                                              : at::kFloat,
                              experts);
  return inputs;
}

template <typename T>
bool is_a(const MegatronOptimizer& optimizer) {
  return dynamic_cast<const T*>(&optimizer) != nullptr;
}

TEST(SetupOptimizer, ClassesFollowTheConfiguration) {
  for (const Precision precision : {Precision::kFp32, Precision::kFp16, Precision::kBf16}) {
    for (const bool distributed : {false, true}) {
      for (const bool offload : {false, true}) {
        RunConfig config = small_config(precision);
        config.optimizer.distributed = distributed;
        config.optimizer.cpu_offload = offload;
        config.optimizer.offload_fraction = 0.5;
        config.optimizer.clip_grad = 0.75;
        config.optimizer.log_num_zeros = true;
        OptimizerInputs inputs = inputs_of(config);
        inputs.place.rank = 3;
        const auto made = setup_optimizer(std::move(inputs));
        ASSERT_TRUE(made) << made.error().text();
        ASSERT_EQ(made->optimizer->chained_optimizers().size(), 1u);
        MegatronOptimizer& member = *made->optimizer->chained_optimizers()[0];
        EXPECT_EQ(is_a<DistributedOptimizer>(member), distributed);
        EXPECT_EQ(is_a<FP32Optimizer>(member), !distributed && precision == Precision::kFp32);
        EXPECT_EQ(is_a<Float16OptimizerWithFloat16Params>(member),
                  !distributed && precision != Precision::kFp32);
        BaseOptimizer& inner = dynamic_cast<WrapperOptimizer&>(member).inner();
        EXPECT_EQ(dynamic_cast<HybridDeviceOptimizer*>(&inner) != nullptr, offload);
        EXPECT_EQ(member.options().clip_grad, 0.75);
        EXPECT_TRUE(member.options().log_num_zeros);
        EXPECT_EQ(member.options().rank, 3);
      }
    }
  }
  RunConfig config = small_config(Precision::kBf16);
  config.optimizer.rule = OptimizerRule::kSgd;
  config.optimizer.momentum = 0.5;
  auto sgd = setup_optimizer(inputs_of(config));
  ASSERT_TRUE(sgd);
  auto& member = dynamic_cast<WrapperOptimizer&>(*sgd->optimizer->chained_optimizers()[0]);
  EXPECT_EQ(member.inner().options().rule, BaseOptimizerOptions::Rule::kSgd);
  EXPECT_EQ(sgd->optimizer->param_groups()[0]->momentum, 0.5);
  config.optimizer.rule = OptimizerRule::kAdam;
  config.optimizer.distributed = true;
  config.optimizer.precision_aware = true;
  config.optimizer.exp_avg = Precision::kBf16;
  config.optimizer.exp_avg_sq = Precision::kFp16;
  config.optimizer.main_params = Precision::kFp16;
  config.optimizer.decoupled_weight_decay = false;
  auto aware = setup_optimizer(inputs_of(config));
  ASSERT_TRUE(aware) << aware.error().text();
  auto& inner = dynamic_cast<WrapperOptimizer&>(*aware->optimizer->chained_optimizers()[0]).inner();
  EXPECT_TRUE(inner.options().precision_aware);
  EXPECT_FALSE(inner.options().decoupled_weight_decay);
  EXPECT_EQ(inner.options().exp_avg_type, DType::kBF16);
  EXPECT_EQ(inner.options().exp_avg_sq_type, DType::kF16);
  for (const ParameterPtr& main : aware->optimizer->get_parameters())
    EXPECT_EQ(main->value.scalar_type(), at::kHalf);
}

TEST(SetupOptimizer, ScalerChoice) {
  struct Case {
    Precision precision;
    double constant;
    bool distributed;
    LossScaler::Kind kind;
  };
  using Kind = LossScaler::Kind;
  for (const Case& c :
       {Case{Precision::kFp32, 0.0, false, Kind::kNone}, Case{Precision::kFp32, 8.0, false, Kind::kNone},
        Case{Precision::kFp32, 8.0, true, Kind::kConstant}, Case{Precision::kFp32, 0.0, true, Kind::kNone},
        Case{Precision::kFp16, 0.0, false, Kind::kDynamic},
        Case{Precision::kFp16, 8.0, true, Kind::kConstant}, Case{Precision::kBf16, 0.0, false, Kind::kNone},
        Case{Precision::kBf16, 8.0, false, Kind::kConstant}}) {
    RunConfig config = small_config(c.precision);
    config.loss_scale.constant = c.constant;
    config.optimizer.distributed = c.distributed;
    const auto scaler = choose_scaler(OptimizerSettings::of(config));
    ASSERT_TRUE(scaler);
    EXPECT_EQ(scaler->kind(), c.kind);
    const auto made = setup_optimizer(inputs_of(config));
    ASSERT_TRUE(made) << made.error().text();
    EXPECT_EQ(made->optimizer->scaler() != nullptr, c.kind != Kind::kNone);
    const double scale = c.constant > 0.0 ? c.constant : 256.0;
    if (c.kind != Kind::kNone) EXPECT_EQ(made->optimizer->scaler()->scale(), scale);
  }
}

TEST(SetupOptimizer, ChainOfDenseAndExpertMembers) {
  for (const bool distributed : {false, true}) {
    RunConfig config = small_config(Precision::kFp16);
    config.optimizer.distributed = distributed;
    OptimizerInputs inputs = inputs_of(config, true);
    const auto chunks = inputs.chunks;
    const auto made = setup_optimizer(std::move(inputs));
    ASSERT_TRUE(made) << made.error().text();
    const auto& members = made->optimizer->chained_optimizers();
    ASSERT_EQ(members.size(), 2u);
    std::array<std::vector<std::string>, 2> names;
    for (std::size_t m = 0; m < 2; ++m) {
      for (const ParameterPtr& one : members[m]->get_parameters()) {
        names[m].push_back(one->name);
        EXPECT_EQ(one->expert, m == 1);
      }
      std::sort(names[m].begin(), names[m].end());
      for (ParamGroup* group : members[m]->param_groups()) EXPECT_EQ(group->is_expert_parallel, m == 1);
    }
    EXPECT_EQ(names[0], (std::vector<std::string>{"embedding.tokens", "layers.0.w", "layers.1.bias"}));
    EXPECT_EQ(names[1], (std::vector<std::string>{"layers.1.experts.0"}));
    EXPECT_EQ(*members[0]->scaler(), *members[1]->scaler());
    // Both members' chunks are all of the model's.
    StateDict weights;
    weights["model0"] = StateDict{{"a", 1}};
    weights["model1"] = StateDict{{"b", 2}};
    const auto split = made->optimizer->split_state_dict(weights);
    ASSERT_TRUE(split);
    for (const auto& part : *split) EXPECT_EQ(first_difference(StateValue(*part), StateValue(weights)), "");
  }
}

TEST(SetupOptimizer, OrderIsProviderOverridesConfigurationScheduler) {
  RunConfig config = small_config();
  config.optimizer.decoupled_lr = 0.02;
  OptimizerInputs inputs = inputs_of(config);
  std::string asked;
  inputs.overrides = [&asked](const OverrideContext& context) -> Result<std::vector<ParamRule>> {
    // Asked before anything is made, with the settings and the model.
    asked = fmt::format("{} chunks, lr {}, {} samples", context.chunks.size(), context.optimizer.optimizer.lr,
                        context.scheduler.lr_decay_steps);
    ParamRule rule{"matrix", {{"layers.0.*"}}, {}};
    rule.gives.max_lr = 0.04;
    rule.gives.min_lr = 0.03;
    ParamRule bias{"bias", {{"*.bias"}}, {}};
    bias.gives.wd_mult = 2.0;
    return std::vector<ParamRule>{rule, bias};
  };
  const auto made = setup_optimizer(std::move(inputs));
  ASSERT_TRUE(made) << made.error().text();
  EXPECT_EQ(asked, "2 chunks, lr 0.01, 20 samples");
  const auto group_with = [&](const std::string& name) -> ParamGroup& {
    for (ParamGroup* group : made->optimizer->param_groups()) {
      for (const ParameterPtr& one : group->params) {
        if (one->name == name) return *group;
      }
    }
    ADD_FAILURE() << name;
    return *made->optimizer->param_groups()[0];
  };
  // At the begin the scheduler has written the highest rate of each: the provider's, the standard rule's, the
  // configuration's.
  EXPECT_DOUBLE_EQ(group_with("layers.0.w").lr, 0.04);
  EXPECT_DOUBLE_EQ(group_with("embedding.tokens").lr, 0.02);
  EXPECT_DOUBLE_EQ(group_with("layers.1.bias").lr, 0.01);
  // The provider's multiplier stands where the standard rule would have put 0.
  EXPECT_DOUBLE_EQ(group_with("layers.1.bias").weight_decay, 0.2);
  EXPECT_DOUBLE_EQ(group_with("layers.0.w").weight_decay, 0.1);
  // And from there on it decides: half of the decay.
  made->scheduler->step(10);
  EXPECT_DOUBLE_EQ(group_with("layers.0.w").lr, 0.035);
  EXPECT_DOUBLE_EQ(group_with("embedding.tokens").lr, 0.0105);
  EXPECT_DOUBLE_EQ(group_with("layers.1.bias").lr, 0.0055);

  OptimizerInputs failing = inputs_of(config);
  failing.overrides = [](const OverrideContext&) -> Result<std::vector<ParamRule>> {
    return fail(ErrorCode::kConfig, "no such layer");
  };
  const auto refused = setup_optimizer(std::move(failing));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "no such layer");
}

TEST(SetupOptimizer, TheSchedulerDrivesEveryGroup) {
  RunConfig config = small_config(Precision::kBf16);
  config.optimizer.distributed = true;
  config.optimizer.cpu_offload = true;
  const auto made = setup_optimizer(inputs_of(config, true));
  ASSERT_TRUE(made) << made.error().text();
  const auto groups = made->optimizer->param_groups();
  EXPECT_EQ(groups.size(), 3u);  // decayed and not, and the experts'
  for (const std::int64_t samples : {0, 5, 7, 100}) {
    made->scheduler->step(samples);
    for (const ParamGroup* group : groups) {
      EXPECT_EQ(group->lr, made->scheduler->get_lr(*group));
      EXPECT_EQ(group->weight_decay, made->scheduler->get_wd(*group));
      EXPECT_EQ(group->weight_decay == 0.0, group->wd_mult == 0.0);
    }
  }
  EXPECT_EQ(groups[0]->lr, 0.001);
}

TEST(SetupOptimizer, RanksWithoutParametersAreStubs) {
  for (const bool distributed : {false, true}) {
    RunConfig config = small_config(Precision::kFp16);
    config.optimizer.distributed = distributed;
    OptimizerInputs inputs = inputs_of(config);
    inputs.chunks = {{}};
    const auto made = setup_optimizer(std::move(inputs));
    ASSERT_TRUE(made) << made.error().text();
    EXPECT_TRUE(made->optimizer->is_stub());
    const StepOutcome outcome = value_of(made->optimizer->step());
    EXPECT_TRUE(outcome.success);
    EXPECT_EQ(outcome.grad_norm, 0.0);
  }
}

// Rank 0 holds the dense part, rank 1 the experts: both have all groups and both members.
TEST(SetupOptimizer, GroupsAreAgreedOverTheWorld) {
  std::array<std::vector<std::string>, 2> groups;
  std::array<std::size_t, 2> members{};
  on_ranks(2, [&](int rank, std::shared_ptr<Collective> world) {
    const auto at = static_cast<std::size_t>(rank);
    OptimizerInputs inputs = inputs_of(small_config(), true);
    inputs.chunks.erase(inputs.chunks.begin() + (rank == 0 ? 1 : 0));
    inputs.groups.world = world;
    inputs.groups.grad_stats = inputs.groups.expert_grad_stats = world;
    const auto made = setup_optimizer(std::move(inputs));
    ASSERT_TRUE(made) << made.error().text();
    members[at] = made->optimizer->chained_optimizers().size();
    for (const ParamGroup* group : made->optimizer->param_groups()) {
      groups[at].push_back(fmt::format("{} {}", *group->wd_mult, *group->is_expert_parallel));
    }
    for (const auto& member : made->optimizer->chained_optimizers()) {
      for (const ParameterPtr& one : member->get_parameters()) one->main_grad = at::ones_like(one->value);
    }
    EXPECT_TRUE(value_of(made->optimizer->step()).success);
  });
  EXPECT_EQ(groups[0], (std::vector<std::string>{"1 false", "0 false", "1 true"}));
  EXPECT_EQ(groups[0], groups[1]);
  EXPECT_EQ(members, (std::array<std::size_t, 2>{2, 2}));
  // Known beforehand, it takes no communication.
  OptimizerInputs alone = inputs_of(small_config());
  GroupKey expert;
  expert.expert = true;
  alone.known_keys = {expert};
  const auto made = setup_optimizer(std::move(alone));
  ASSERT_TRUE(made);
  ASSERT_EQ(made->optimizer->chained_optimizers().size(), 2u);
  EXPECT_TRUE(made->optimizer->chained_optimizers()[1]->is_stub());
}

// Gradients of one data-parallel rank, different on each.
void backward(const std::vector<std::vector<ParameterPtr>>& chunks, int rank, int step) {
  for (const auto& chunk : chunks) {
    for (const ParameterPtr& one : chunk) {
      const at::Tensor gradient =
          at::cos(at::arange(one->numel(), at::kFloat) + 7 * rank + step).reshape(one->value.sizes());
      if (one->main_grad.defined()) {
        one->main_grad.copy_(gradient.reshape(one->main_grad.sizes()));
      } else {
        one->main_grad = gradient.clone();
      }
    }
  }
}

// dp = 2 with the distributed optimizer: the replicated one on the averaged gradient gives the same bits.
TEST(SetupOptimizer, RanksWithCollectivesStepTogether) {
  const RunConfig replicated_config = small_config(Precision::kBf16);
  RunConfig config = replicated_config;
  config.optimizer.distributed = true;
  config.parallel.dp = 2;
  std::array<std::vector<at::Tensor>, 2> weights;
  std::array<double, 2> norms{};
  on_ranks(2, [&](int rank, std::shared_ptr<Collective> group) {
    const auto at = static_cast<std::size_t>(rank);
    OptimizerInputs inputs = inputs_of(config, true);
    const auto chunks = inputs.chunks;
    inputs.place.rank = inputs.place.dp_rank = inputs.place.expert_dp_rank = rank;
    inputs.place.dp_size = inputs.place.expert_dp_size = 2;
    inputs.groups.dp = inputs.groups.expert_dp = group;
    inputs.groups.grad_stats = inputs.groups.expert_grad_stats = group;
    inputs.gradient_scale = 0.5f;
    auto made = value_of(setup_optimizer(std::move(inputs)));
    for (int step = 0; step < 3; ++step) {
      backward(chunks, rank, step);
      const StepOutcome outcome = value_of(made.optimizer->step());
      EXPECT_TRUE(outcome.success);
      norms[at] = outcome.grad_norm.value_or(-1.0);
      made.scheduler->step(4);
      made.optimizer->zero_grad();
    }
    for (const auto& chunk : chunks) {
      for (const ParameterPtr& one : chunk) weights[at].push_back(one->value.detach().clone());
    }
  });

  OptimizerInputs inputs = inputs_of(replicated_config, true);
  inputs.scheduler.lr_decay_steps = value_of(SchedulerSettings::of(config)).lr_decay_steps;
  const auto chunks = inputs.chunks;
  auto made = value_of(setup_optimizer(std::move(inputs)));
  double norm = 0.0;
  for (int step = 0; step < 3; ++step) {
    std::vector<at::Tensor> sums;
    for (const int rank : {0, 1}) {
      backward(chunks, rank, step);
      std::size_t next = 0;
      for (const auto& chunk : chunks) {
        for (const ParameterPtr& one : chunk) {
          const at::Tensor half = one->main_grad * 0.5f;
          if (rank == 0) {
            sums.push_back(half);
          } else {
            one->main_grad = sums[next++] + half;
          }
        }
      }
    }
    norm = value_of(made.optimizer->step()).grad_norm.value_or(-1.0);
    made.scheduler->step(4);
    made.optimizer->zero_grad();
  }
  EXPECT_EQ(norms[0], norm);
  EXPECT_EQ(norms[1], norm);
  std::size_t next = 0;
  for (const auto& chunk : chunks) {
    for (const ParameterPtr& one : chunk) {
      EXPECT_TRUE(weights[0][next].equal(one->value.detach())) << one->name;
      EXPECT_TRUE(weights[1][next].equal(one->value.detach())) << one->name;
      ++next;
    }
  }
}

// Main parameters of two bytes: the update is the kernel's on fp16 parameters, and the state comes back bit for bit.
TEST(SetupOptimizer, NarrowMainParametersAreTheKernelsOnFp16) {
  RunConfig config = small_config(Precision::kBf16);
  config.optimizer.distributed = config.optimizer.precision_aware = true;
  config.optimizer.main_params = Precision::kFp16;
  config.optimizer.clip_grad = 0.0;
  config.optimizer.decay = DecayStyle::kConstant;
  OptimizerInputs inputs = inputs_of(config);
  inputs.use_gloo_process_groups = true;
  const auto chunks = inputs.chunks;
  std::vector<ParamGroup> groups(2);
  for (const auto& chunk : chunks) {
    for (const ParameterPtr& one : chunk) {
      const at::Tensor half = one->value.to(at::kHalf).reshape({-1});
      groups[one->value.dim() == 1 ? 1 : 0].params.push_back(parameter(one->name, half));
    }
  }
  groups[0].lr = groups[1].lr = 0.01;
  groups[0].weight_decay = 0.1;
  BaseOptimizerOptions options;
  options.precision_aware = true;
  BaseOptimizer expected(groups, options);
  auto made = value_of(setup_optimizer(std::move(inputs)));
  for (int step = 0; step < 3; ++step) {
    backward(chunks, 0, step);
    std::size_t at = 0;
    for (const auto& chunk : chunks) {
      for (const ParameterPtr& one : chunk) {
        ParamGroup& group = groups[one->value.dim() == 1 ? 1 : 0];
        group.params[one->value.dim() == 1 ? 0 : at++]->decoupled_grad = one->main_grad.reshape({-1}).clone();
      }
    }
    EXPECT_TRUE(value_of(made.optimizer->step()).success);
    expected.step();
  }
  int compared = 0;
  for (const ParameterPtr& main : made.optimizer->get_parameters()) {
    for (const ParamGroup& group : groups) {
      for (const ParameterPtr& wanted : group.params) {
        if (wanted->name != main->name) continue;
        EXPECT_TRUE(main->value.equal(wanted->value)) << main->name;
        ++compared;
      }
    }
  }
  EXPECT_EQ(compared, 3);
  for (const auto& chunk : chunks) {
    for (const ParameterPtr& one : chunk) {
      for (const ParameterPtr& main : made.optimizer->get_parameters()) {
        if (main->name != one->name) continue;
        EXPECT_TRUE(one->value.detach().reshape({-1}).equal(main->value.to(at::kFloat).to(at::kBFloat16)));
      }
    }
  }
  auto again = value_of(setup_optimizer([&] {
    OptimizerInputs fresh = inputs_of(config);
    fresh.use_gloo_process_groups = true;
    return fresh;
  }()));
  ASSERT_TRUE(again.optimizer->load_state_dict(made.optimizer->state_dict()));
  const StateDict saved = value_of(made.optimizer->save_parameter_state());
  const Status loaded = again.optimizer->load_parameter_state(saved);
  ASSERT_TRUE(loaded) << loaded.error().text();
  EXPECT_EQ(
      first_difference(StateValue(value_of(again.optimizer->save_parameter_state())), StateValue(saved)), "");

  config.optimizer.precision_aware = false;
  EXPECT_FALSE(setup_optimizer(inputs_of(config)));
}

TEST(SetupOptimizer, ParameterStateNeedsGlooGroups) {
  for (const bool gloo : {false, true}) {
    RunConfig config = small_config(Precision::kBf16);
    config.optimizer.distributed = true;
    OptimizerInputs inputs = inputs_of(config);
    inputs.use_gloo_process_groups = gloo;
    auto made = value_of(setup_optimizer(std::move(inputs)));
    const auto state = made.optimizer->save_parameter_state();
    ASSERT_EQ(state.has_value(), gloo);
    const Status loaded = made.optimizer->load_parameter_state(gloo ? *state : StateDict{});
    ASSERT_EQ(loaded.has_value(), gloo);
    if (!gloo) {
      EXPECT_NE(state.error().message.find("use_gloo_process_groups"), std::string::npos)
          << state.error().text();
      EXPECT_NE(loaded.error().message.find("use_gloo_process_groups"), std::string::npos);
      MegatronOptimizer::ShardedMetadata metadata;
      EXPECT_TRUE(made.optimizer->sharded_state_dict(false, metadata));
    }
  }
}

TEST(SetupOptimizer, BuffersOfTheWrapperAreTaken) {
  RunConfig config = small_config(Precision::kBf16);
  config.optimizer.distributed = true;
  config.optimizer.bucket_size = 10;
  OptimizerInputs inputs = inputs_of(config);
  GradBufferOptions options;
  std::vector<std::shared_ptr<GradBuffer>> given;
  for (const auto& chunk : inputs.chunks) {
    inputs.buffers.push_back(value_of(make_grad_buffers(chunk, options, options)));
    given.insert(given.end(), inputs.buffers.back().begin(), inputs.buffers.back().end());
  }
  auto made = value_of(setup_optimizer(std::move(inputs)));
  auto* taken = dynamic_cast<DistributedOptimizer*>(made.optimizer->chained_optimizers()[0].get());
  EXPECT_EQ(taken->buffers(), given);
  EXPECT_EQ(taken->buckets(), 2);  // one a chunk
  // Made here: bucket_size cuts the first chunk in two.
  auto own = value_of(setup_optimizer(inputs_of(config)));
  EXPECT_EQ(dynamic_cast<DistributedOptimizer*>(own.optimizer->chained_optimizers()[0].get())->buckets(), 3);
}

}  // namespace
}  // namespace plumbline::test

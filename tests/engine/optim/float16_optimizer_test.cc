// The fp16/bf16 optimizer and the fp32 one: main copies, gradients, overflow, both ways to drive a step,
// states.
#include "engine/optim/float16_optimizer.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "tests/engine/optim/optimizer_support.h"

namespace plumbline::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// Two groups: fp16/bf16 matrix and native fp32 vector; a 16-bit vector without decay.
struct Small {
  std::vector<ParameterPtr> models;
  std::unique_ptr<Float16OptimizerWithFloat16Params> optimizer;

  explicit Small(at::ScalarType type, LossScaler scaler, MegatronOptimizerOptions options = {}) {
    models = {parameter("w", {4, 3}, type), parameter("norm", {3}), parameter("b", {5}, type)};
    ParamGroup decayed = group_of({models[0], models[1]}), plain = group_of({models[2]}, 2e-2, 0.0);
    plain.wd_mult = 0.0;
    optimizer =
        must(Float16OptimizerWithFloat16Params::create(adam({decayed, plain}), std::move(options), scaler));
  }
  // Scaled gradients into main_grad buffers of the given precision.
  void gradients(const std::string& seed, double scale, at::ScalarType type = at::kFloat) {
    for (const ParameterPtr& model : models) {
      const at::ScalarType own = model->value.scalar_type() == at::kFloat ? at::kFloat : type;
      model->main_grad = (random_tensor(model->value.sizes().vec(), seed + model->name) * scale).to(own);
    }
  }
  StateValue snap() { return snapshot(*optimizer, models); }
};

TEST(Float16Optimizer, MainCopiesTakeTheModelsPlaceInTheGroups) {
  Small small(at::kHalf, dynamic_scaler(8.0));
  const auto& o = *small.optimizer;
  ASSERT_EQ(o.float16_groups().size(), 2u);
  EXPECT_EQ(o.float16_groups()[0][0], small.models[0]);
  EXPECT_EQ(o.fp32_from_fp32_groups()[0][0], small.models[1]);
  EXPECT_EQ(o.float16_groups()[1][0], small.models[2]);
  EXPECT_TRUE(o.fp32_from_fp32_groups()[1].empty());
  const std::vector<ParameterPtr> mains = o.get_parameters();
  ASSERT_EQ(mains.size(), 3u);
  EXPECT_EQ(mains[0], o.fp32_from_float16_groups()[0][0]);
  EXPECT_EQ(mains[0]->name, "w");
  EXPECT_TRUE(same_bits(mains[0]->value, small.models[0]->value.to(at::kFloat)));
  EXPECT_FALSE(mains[0]->value.requires_grad());
  EXPECT_EQ(mains[1], small.models[1]);  // native fp32: the model's own
  EXPECT_FALSE(o.is_stub());
}

TEST(Float16Optimizer, StateOfTheModelsParameterMovesToTheMainCopy) {
  const ParameterPtr w = parameter("w", {4}, at::kBFloat16);
  auto inner = adam({group_of({w})});
  inner->state(*w).step = 5;
  const auto optimizer = must(Float16OptimizerWithFloat16Params::create(std::move(inner), {}, {}));
  EXPECT_EQ(optimizer->find_state(*w), nullptr);
  EXPECT_EQ(optimizer->find_state(*optimizer->get_parameters()[0])->step, 5);
}

TEST(Float16Optimizer, RefusedAtConstruction) {
  const auto make = [](at::ScalarType type, LossScaler scaler, MegatronOptimizerOptions options = {}) {
    return message(Float16OptimizerWithFloat16Params::create(adam({group_of({parameter("w", {2}, type)})}),
                                                             std::move(options), scaler));
  };
  EXPECT_NE(make(at::kHalf, {}).find("parameter 'w' is fp16 and there is no loss scaler"), std::string::npos);
  EXPECT_EQ(make(at::kBFloat16, {}), "no error");
  EXPECT_EQ(make(at::kHalf, *LossScaler::constant(64.0)), "no error");
  EXPECT_NE(make(at::kDouble, {}).find("fp16, bf16 or fp32"), std::string::npos);
  MegatronOptimizerOptions bad;
  bad.norm_type = 0.0;
  EXPECT_NE(make(at::kBFloat16, {}, bad).find("norm_type is 0"), std::string::npos);
  bad = {};
  bad.clip_grad = std::nan("");
  EXPECT_NE(make(at::kBFloat16, {}, bad).find("clip_grad is nan"), std::string::npos);
  EXPECT_NE(message(FP32Optimizer::create(adam({group_of({parameter("w", {2}, at::kHalf)})}), {}))
                .find("fp32 parameters only"),
            std::string::npos);
}

TEST(Float16Optimizer, Fp32MainGradIsTheSameStorage) {
  Small small(at::kHalf, *LossScaler::constant(4.0));
  small.gradients("g", 4.0);
  small.models[2]->main_grad.reset();
  small.models[2]->grad = random_tensor({5}, "gb", 4.0, at::kHalf);
  const at::Tensor half = small.models[2]->grad;
  const at::Tensor before = small.models[0]->main_grad.clone();
  auto& o = *small.optimizer;
  o.copy_model_grads_to_main_grads();
  const std::vector<ParameterPtr> mains = o.get_parameters();
  EXPECT_TRUE(mains[0]->grad.is_alias_of(small.models[0]->main_grad));
  EXPECT_TRUE(mains[1]->grad.is_alias_of(small.models[1]->main_grad));
  EXPECT_TRUE(same_bits(mains[2]->grad, half.to(at::kFloat)));
  EXPECT_FALSE(small.models[2]->grad.defined());  // dropped
  EXPECT_FALSE(must(o.unscale_local()));
  EXPECT_TRUE(same_bits(small.models[0]->main_grad, before * 0.25f));  // unscaled in the buffer
  // Without a gradient this time there is none, not the last one.
  o.copy_model_grads_to_main_grads();
  EXPECT_FALSE(mains[2]->grad.defined());
}

TEST(Float16Optimizer, MainGradInTheModelsPrecisionIsWidened) {
  Small small(at::kBFloat16, {});
  small.gradients("g", 1.0, at::kBFloat16);
  small.optimizer->copy_model_grads_to_main_grads();
  const ParameterPtr main = small.optimizer->get_parameters()[0];
  EXPECT_EQ(main->grad.scalar_type(), at::kFloat);
  EXPECT_TRUE(same_bits(main->grad, small.models[0]->main_grad.to(at::kFloat)));
}

// One update against the base optimizer alone on fp32 copies of everything.
TEST(Float16Optimizer, StepIsTheBaseOptimizersOnTheMainCopies) {
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    MegatronOptimizerOptions options;
    options.clip_grad = 0.5;
    Small small(type, *LossScaler::constant(16.0), options);
    std::vector<ParameterPtr> alone_params;
    for (const ParameterPtr& model : small.models) {
      auto copy = std::make_shared<Parameter>();
      copy->name = model->name;
      copy->value = model->value.detach().to(at::kFloat).clone();
      alone_params.push_back(copy);
    }
    const auto reference =
        adam({group_of({alone_params[0], alone_params[1]}), group_of({alone_params[2]}, 2e-2, 0.0)});
    for (int step = 0; step < 4; ++step) {
      small.gradients("g" + std::to_string(step), 16.0);
      double squares = 0.0;
      for (std::size_t i = 0; i < 3; ++i) {
        alone_params[i]->grad = small.models[i]->main_grad * (1.0f / 16.0f);
        squares += alone_params[i]->grad.to(at::kDouble).square().sum().item<double>();
      }
      const StepOutcome outcome = must(small.optimizer->step());
      ASSERT_TRUE(outcome.success);
      EXPECT_NEAR(*outcome.grad_norm, std::sqrt(squares), 1e-9);
      const double coefficient = 0.5 / (*outcome.grad_norm + 1e-6);
      reference->step(coefficient < 1.0 ? static_cast<float>(coefficient) : 1.0f);
      const std::vector<ParameterPtr> mains = small.optimizer->get_parameters();
      for (std::size_t i = 0; i < 3; ++i) {
        ASSERT_TRUE(same_bits(mains[i]->value, alone_params[i]->value)) << i << " step " << step;
        ASSERT_TRUE(same_bits(small.models[i]->value,
                              alone_params[i]->value.to(small.models[i]->value.scalar_type())));
      }
    }
  }
}

TEST(Float16Optimizer, OverflowSkipsEverythingButTheScaler) {
  for (const float bad : {kInf, -kInf, std::nanf("")}) {
    for (std::size_t where = 0; where < 3; ++where) {
      Small small(at::kHalf, dynamic_scaler(64.0));
      small.gradients("warm", 64.0);
      must(small.optimizer->step());
      const StateValue before = small.snap();
      small.gradients("g", 64.0);
      small.models[where]->main_grad.view({-1})[1] = bad;
      const StepOutcome outcome = must(small.optimizer->step());
      EXPECT_FALSE(outcome.success);
      EXPECT_TRUE(outcome.found_inf);
      EXPECT_FALSE(outcome.grad_norm.has_value());
      EXPECT_FALSE(outcome.num_zeros.has_value());
      EXPECT_EQ(first_difference(before, small.snap()), "");
      EXPECT_EQ(small.optimizer->scaler()->scale(), 32.0f);
      // The next good step is the second one of the moments.
      small.gradients("next", 32.0);
      EXPECT_TRUE(must(small.optimizer->step()).success);
      EXPECT_EQ(small.optimizer->find_state(*small.optimizer->get_parameters()[0])->step, 2);
    }
  }
}

TEST(Float16Optimizer, ConstantScaleWithBf16LooksForOverflowToo) {
  Small small(at::kBFloat16, *LossScaler::constant(2.0));
  small.gradients("g", 2.0);
  small.models[1]->main_grad[0] = kInf;
  const StateValue before = small.snap();
  EXPECT_TRUE(must(small.optimizer->step()).found_inf);
  EXPECT_EQ(first_difference(before, small.snap()), "");
  EXPECT_EQ(small.optimizer->scaler()->scale(), 2.0f);
}

TEST(Float16Optimizer, Bf16WithoutAScalerLetsNanIntoTheWeights) {
  Small small(at::kBFloat16, {});
  EXPECT_EQ(small.optimizer->scaler(), nullptr);
  EXPECT_EQ(small.optimizer->get_loss_scale().item<float>(), 1.0f);
  small.gradients("g", 1.0);
  small.models[0]->main_grad[2][1] = kInf;
  const StepOutcome outcome = must(small.optimizer->step());
  EXPECT_TRUE(outcome.success);
  EXPECT_FALSE(outcome.found_inf);
  EXPECT_TRUE(small.models[0]->value.isnan().any().item<bool>());
}

TEST(Float16Optimizer, CheckForNanNamesRankBucketAndParameter) {
  MegatronOptimizerOptions options;
  options.check_for_nan = true;
  options.rank = 6;
  Small small(at::kBFloat16, {}, options);
  small.gradients("g", 1.0);
  EXPECT_TRUE(must(small.optimizer->step()).success);
  small.gradients("g2", 1.0);
  small.models[0]->bucket = 3;  // a buffer made after the optimizer
  small.models[0]->main_grad[2][1] = kInf;
  const StateValue before = small.snap();
  const Result<StepOutcome> outcome = small.optimizer->step();
  EXPECT_NE(message(outcome).find("rank 6, bucket 3, parameter 'w': element 7 of the gradient is inf"),
            std::string::npos)
      << message(outcome);
  EXPECT_EQ(first_difference(before, small.snap()), "");
  // With a scaler the option has nothing to do.
  Small scaled(at::kBFloat16, *LossScaler::constant(2.0), options);
  scaled.gradients("g", 1.0);
  scaled.models[0]->main_grad[2][1] = kInf;
  EXPECT_TRUE(must(scaled.optimizer->step()).found_inf);
}

// The phases, driven by hand as a Program drives them, and step(): the same bits after good steps and
// skipped ones.
TEST(Float16Optimizer, PhasesAndStepAreOneBehaviour) {
  for (const double clip : {0.0, 0.3}) {
    MegatronOptimizerOptions options;
    options.clip_grad = clip;
    options.log_num_zeros = true;
    Small by_step(at::kHalf, dynamic_scaler(1024.0, 3), options),
        by_phases(at::kHalf, dynamic_scaler(1024.0, 3), options);
    for (int step = 0; step < 8; ++step) {
      const double scale = by_step.optimizer->get_loss_scale().item<double>();
      for (Small* small : {&by_step, &by_phases}) {
        small->gradients("g" + std::to_string(step), scale);
        if (step == 2 || step == 5)
          small->models[static_cast<std::size_t>(step) % 3]->main_grad.view({-1})[0] = kInf;
      }
      const StepOutcome outcome = must(by_step.optimizer->step());
      auto& o = *by_phases.optimizer;
      o.copy_model_grads_to_main_grads();
      const bool found = must(o.unscale_local());
      o.update_scaler(found);
      EXPECT_EQ(found, outcome.found_inf);
      if (!found) {
        const double norm = norm_of(o.norm_local());
        EXPECT_EQ(norm, *outcome.grad_norm);
        EXPECT_EQ(o.count_zeros_local(), *outcome.num_zeros);
        must(o.finish_step(norm));
      }
      ASSERT_EQ(first_difference(by_step.snap(), by_phases.snap()), "") << "step " << step;
      ASSERT_EQ(*by_step.optimizer->scaler(), *by_phases.optimizer->scaler());
    }
  }
}

TEST(Float16Optimizer, MegatronsMethodsOneByOneAreTheStepToo) {
  MegatronOptimizerOptions options;
  options.clip_grad = 0.3;
  Small by_step(at::kHalf, dynamic_scaler(256.0), options),
      by_methods(at::kHalf, dynamic_scaler(256.0), options);
  for (int step = 0; step < 3; ++step) {
    for (Small* small : {&by_step, &by_methods}) small->gradients("g" + std::to_string(step), 256.0);
    const StepOutcome outcome = must(by_step.optimizer->step());
    EXPECT_FALSE(must(by_methods.optimizer->prepare_grads()));
    EXPECT_EQ(must(by_methods.optimizer->clip_grad_norm(0.3)), *outcome.grad_norm);
    EXPECT_LE(must(by_methods.optimizer->get_grad_norm()), 0.3);
    must(by_methods.optimizer->step_with_ready_grads());
    ASSERT_EQ(first_difference(by_step.snap(), by_methods.snap()), "");
  }
  by_methods.gradients("x", 256.0);
  by_methods.optimizer->copy_model_grads_to_main_grads();
  EXPECT_FALSE(must(by_methods.optimizer->unscale_main_grads_and_check_for_nan()));
  EXPECT_EQ(by_methods.optimizer->collect_main_grad_data_for_unscaling().size(), 3u);
}

TEST(Float16Optimizer, NormAndZerosAreAbsentWhenNotAskedFor) {
  MegatronOptimizerOptions options;
  options.clip_grad = 0.0;
  options.log_norm = false;
  Small small(at::kBFloat16, {}, options);
  small.gradients("g", 1.0);
  const StepOutcome outcome = must(small.optimizer->step());
  EXPECT_TRUE(outcome.success);
  EXPECT_FALSE(outcome.grad_norm.has_value());
  EXPECT_FALSE(outcome.num_zeros.has_value());
}

TEST(Float16Optimizer, NormAboveTheThresholdSkips) {
  MegatronOptimizerOptions options;
  options.grad_norm_skip_threshold = 10.0;
  Small small(at::kHalf, dynamic_scaler(2.0), options);
  small.gradients("g", 2.0);
  EXPECT_TRUE(must(small.optimizer->step()).success);
  const StateValue before = small.snap();
  small.gradients("big", 200.0);
  const StepOutcome outcome = must(small.optimizer->step());
  EXPECT_FALSE(outcome.success);
  EXPECT_FALSE(outcome.found_inf);
  EXPECT_GT(*outcome.grad_norm, 10.0);
  EXPECT_EQ(first_difference(before, small.snap()), "");
  EXPECT_EQ(small.optimizer->scaler()->growth_tracker(), 2);  // no overflow
}

TEST(Float16Optimizer, ScaleOfTheLossIsTheOneUnscaledWith) {
  Small small(at::kHalf, dynamic_scaler(8.0));
  const at::Tensor loss = at::full({}, 1.5);
  const at::Tensor scaled = small.optimizer->scale_loss(loss);
  EXPECT_EQ(scaled.dim(), 0);
  EXPECT_EQ(scaled.item<float>(), 12.0f);
  EXPECT_EQ(small.optimizer->get_loss_scale().sizes(), at::IntArrayRef({1}));
  EXPECT_EQ(small.optimizer->get_loss_scale().scalar_type(), at::kFloat);
  small.gradients("g", 8.0);
  small.optimizer->update_scaler(true);  // 4 from here on
  const StateValue before = small.snap();
  const Result<StepOutcome> outcome = small.optimizer->step();
  EXPECT_NE(message(outcome).find("multiplied with scale 8, the scale is 4 now"), std::string::npos)
      << message(outcome);
  EXPECT_EQ(first_difference(before, small.snap()), "");
  small.optimizer->zero_grad();  // forgets
  EXPECT_EQ(small.optimizer->scale_loss(loss).item<float>(), 6.0f);
  small.gradients("g", 4.0);
  EXPECT_TRUE(must(small.optimizer->step()).success);
  // There and back again between two microbatches is a change too.
  small.optimizer->scale_loss(loss);
  const LossScaler was = *small.optimizer->scaler();
  small.optimizer->update_scaler(true);
  small.optimizer->scale_loss(loss);
  small.optimizer->set_scaler(was);
  EXPECT_FALSE(small.optimizer->step().has_value());
}

TEST(Float16Optimizer, ZeroGradBothWays) {
  Small small(at::kHalf, *LossScaler::constant(1.0));
  small.gradients("g", 1.0);
  small.models[2]->main_grad.reset();
  small.models[2]->grad = at::full({5}, kInf, at::kHalf);
  small.optimizer->copy_model_grads_to_main_grads();
  small.models[2]->grad = at::full({5}, 2.0, at::kHalf);
  const std::vector<ParameterPtr> mains = small.optimizer->get_parameters();
  small.optimizer->zero_grad(false);
  for (const ParameterPtr& main : mains) EXPECT_EQ(main->grad.abs().sum().item<float>(), 0.0f);  // inf too
  EXPECT_EQ(small.models[2]->grad.sum().item<float>(), 0.0f);
  small.optimizer->zero_grad();
  for (const ParameterPtr& main : mains) EXPECT_FALSE(main->grad.defined());
  EXPECT_FALSE(small.models[2]->grad.defined());
  EXPECT_TRUE(small.models[0]->main_grad.defined());  // the wrapper's
}

TEST(Float16Optimizer, ReloadRefreshesMainCopiesFromTheModel) {
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    Small small(type, dynamic_scaler(1.0));
    {
      const at::NoGradGuard no_grad;
      for (const ParameterPtr& model : small.models) model->value.fill_(0.5);
    }
    must(small.optimizer->reload_model_params());
    for (const ParameterPtr& main : small.optimizer->get_parameters()) {
      EXPECT_TRUE(same_bits(main->value, at::full(main->value.sizes(), 0.5f)));
    }
    // A step of length 0 leaves the loaded weights as they are.
    for (ParamGroup* group : small.optimizer->param_groups()) group->lr = 0.0;
    small.gradients("g", 1.0);
    must(small.optimizer->step());
    for (const ParameterPtr& model : small.models) {
      EXPECT_TRUE(
          same_bits(model->value, at::full(model->value.sizes(), 0.5).to(model->value.scalar_type())));
    }
    const StateDict weights{{"w", small.models[0]->value}};
    EXPECT_NE(message(small.optimizer->reload_model_params(&weights)).find("state dict"), std::string::npos);
  }
}

TEST(Float16Optimizer, CopiesBothWays) {
  Small small(at::kBFloat16, {});
  const auto [model, main] = small.optimizer->get_model_and_main_params_data_float16();
  ASSERT_EQ(model.size(), 2u);  // not the native fp32 one
  main[0].fill_(0.1f);
  small.optimizer->copy_main_params_to_model_params();
  EXPECT_TRUE(same_bits(small.models[0]->value, at::full({4, 3}, 0.1f).to(at::kBFloat16)));
  small.optimizer->copy_model_params_to_main_params();
  EXPECT_TRUE(same_bits(main[0], small.models[0]->value.to(at::kFloat)));
}

TEST(Float16Optimizer, OffloadAndRestoreChangeNothing) {
  Small stays(at::kHalf, dynamic_scaler(4.0)), moves(at::kHalf, dynamic_scaler(4.0));
  for (int step = 0; step < 4; ++step) {
    for (Small* small : {&stays, &moves}) small->gradients("g" + std::to_string(step), 4.0);
    must(stays.optimizer->step());
    must(moves.optimizer->step());
    const ParameterPtr main = moves.optimizer->get_parameters()[0],
                       native = moves.optimizer->get_parameters()[1];
    const auto owned = [&] {
      std::vector<at::Tensor> all{main->value, moves.optimizer->get_parameters()[2]->value};
      for (const ParameterPtr& one : moves.optimizer->get_parameters()) {
        const ParamState* state = moves.optimizer->find_state(*one);
        all.insert(all.end(), {state->exp_avg, state->exp_avg_sq});
      }
      return all;
    };
    const void* native_was = native->value.data_ptr();
    const std::vector<at::Tensor> before = owned();
    must(moves.optimizer->offload_to_cpu());
    EXPECT_TRUE(moves.optimizer->offloaded());
    for (std::size_t i = 0; i < before.size(); ++i) {
      EXPECT_FALSE(owned()[i].is_alias_of(before[i])) << i;  // each went to memory of its own on the CPU
      EXPECT_EQ(before[i].use_count(), 1u) << i;             // and the old one is given back
    }
    EXPECT_EQ(native->value.data_ptr(), native_was);  // the model's
    must(moves.optimizer->offload_to_cpu());          // again: nothing
    for (const Status& refused :
         {moves.optimizer->step_with_ready_grads(), moves.optimizer->finish_step(1.0)}) {
      EXPECT_NE(message(refused).find("restore_from_cpu"), std::string::npos);
    }
    moves.gradients("while away", 4.0);
    EXPECT_FALSE(moves.optimizer->step().has_value());
    must(moves.optimizer->restore_from_cpu());
    must(moves.optimizer->restore_from_cpu());
    ASSERT_EQ(first_difference(stays.snap(), moves.snap()), "");
    ASSERT_EQ(*stays.optimizer->scaler(), *moves.optimizer->scaler());
  }
}

TEST(Fp32Optimizer, MainGradBecomesGradAndNothingIsScaled) {
  const ParameterPtr w = parameter("w", {6}), v = parameter("v", {2});
  const ParameterPtr w2 = parameter("w", {6}), v2 = parameter("v", {2});
  const auto optimizer = must(FP32Optimizer::create(adam({group_of({w, v})}), {}));
  const auto reference = adam({group_of({w2, v2})});
  w->main_grad = random_tensor({6}, "g");
  v->grad = random_tensor({2}, "h");  // no buffer: its own
  w2->grad = w->main_grad.clone();
  v2->grad = v->grad.clone();
  EXPECT_EQ(optimizer->scaler(), nullptr);
  EXPECT_EQ(optimizer->scale_loss(at::full({2}, 3.0)).sum().item<float>(), 6.0f);
  const StepOutcome outcome = must(optimizer->step());
  EXPECT_TRUE(w->grad.is_alias_of(w->main_grad));
  EXPECT_TRUE(outcome.success);
  reference->step(clip_coefficient(*outcome.grad_norm, 1.0));
  EXPECT_TRUE(same_bits(w->value, w2->value));
  EXPECT_TRUE(same_bits(v->value, v2->value));
  // An infinite gradient is no overflow to it.
  w->main_grad[0] = kInf;
  EXPECT_FALSE(must(optimizer->step()).found_inf);
  EXPECT_FALSE(std::isfinite(w->value[0].item<float>()));
  MegatronOptimizerOptions options;
  options.check_for_nan = true;
  const auto checked = must(FP32Optimizer::create(adam({group_of({v})}), options));
  v->main_grad = at::full({2}, std::nanf(""));
  EXPECT_NE(
      message(checked->step()).find("rank 0, no bucket, parameter 'v': element 0 of the gradient is nan"),
      std::string::npos);
  optimizer->zero_grad();
  EXPECT_FALSE(w->grad.defined());
  must(optimizer->reload_model_params());
  const StateDict some;
  EXPECT_FALSE(optimizer->reload_model_params(&some).has_value());
}

}  // namespace
}  // namespace plumbline::test

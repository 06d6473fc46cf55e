// Norms do not depend on how a model is cut, clipping never grows a gradient, chains with empty groups,
// states in any order, offloading at any time.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <ostream>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "tests/engine/optim/chain_support.h"
#include "tests/support/floats.h"
#include "tests/support/property.h"

namespace plumbline::test {

// One parameter of the whole model and how it is spread over ranks: a place in the pipeline, tensor
// parallel or copied, expert or not, tied to a further use on another stage or not.
struct Spread {
  std::vector<float> values;
  int stage = 0;
  bool tensor_parallel = false, expert = false, tied = false;
};
inline std::ostream& operator<<(std::ostream& out, const Spread& spread) {
  out << "{stage " << spread.stage << (spread.tensor_parallel ? ", tp" : "")
      << (spread.expert ? ", expert" : "") << (spread.tied ? ", tied" : "") << ":";
  for (const float value : spread.values) out << " " << value;
  return out << "}";
}

namespace {

at::Tensor tensor_of(const std::vector<float>& values) {
  at::Tensor tensor = at::empty({static_cast<std::int64_t>(values.size())});
  std::copy(values.begin(), values.end(), tensor.data_ptr<float>());
  return tensor;
}

ParameterPtr with_gradient(const std::vector<float>& gradient, const Spread& spread) {
  auto made = std::make_shared<Parameter>();
  made->value = at::zeros({static_cast<std::int64_t>(gradient.size())});
  made->grad = tensor_of(gradient);
  made->tensor_parallel = spread.tensor_parallel;
  made->expert = spread.expert;
  return made;
}

// Part `rank` of `ranks` of a list, as even as possible.
std::vector<float> part(const std::vector<float>& values, int rank, int ranks) {
  const auto at = [&](int r) { return static_cast<std::ptrdiff_t>(values.size()) * r / ranks; };
  return {values.begin() + at(rank), values.begin() + at(rank + 1)};
}

TEST(OptimizerProperty, NormAndZerosAreThoseOfTheWholeModel) {
  check_cases(10'000, [] {
    const int stages = *between(1, 3).as("stages"), tp = *between(1, 3).as("tp");
    const double p =
        *rc::gen::element(2.0, 2.0, 2.0, 1.0, 3.0, std::numeric_limits<double>::infinity()).as("p");
    // For p = 2 any magnitudes; a power of a huge one may not fit a double for other p.
    const auto value =
        p == 2.0 ? finite_float()
                 : rc::gen::map(between(-64, 64), [](int n) { return static_cast<float>(n) / 8.0f; });
    const auto model =
        *few(8, rc::gen::build<Spread>(rc::gen::set(&Spread::values, few(8, value)),
                                       rc::gen::set(&Spread::stage, between(0, stages - 1)),
                                       rc::gen::set(&Spread::tensor_parallel), rc::gen::set(&Spread::expert),
                                       rc::gen::set(&Spread::tied)))
             .as("model");
    MegatronOptimizerOptions options;
    options.norm_type = p;
    std::vector<ParameterPtr> whole;
    for (const Spread& spread : model) whole.push_back(with_gradient(spread.values, spread));
    const auto reference = must(FP32Optimizer::create(adam({group_of(whole)}), options));
    const double expected = must(reference->get_grad_norm());
    const std::int64_t zeros = must(reference->count_zeros());

    LocalNorm sum;
    sum.p = p;
    std::int64_t counted = 0;
    for (int stage = 0; stage < stages; ++stage) {
      for (int rank = 0; rank < tp; ++rank) {
        std::vector<ParameterPtr> dense, experts;
        for (const Spread& spread : model) {
          const bool further = spread.tied && stages > 1 && stage == (spread.stage + 1) % stages;
          if (spread.stage != stage && !further) continue;
          ParameterPtr own =
              with_gradient(spread.tensor_parallel ? part(spread.values, rank, tp) : spread.values, spread);
          own->shared = further;
          (spread.expert ? experts : dense).push_back(own);
        }
        MegatronOptimizerOptions mine = options;
        mine.tp_rank = mine.expert_tp_rank = rank;
        std::vector<std::unique_ptr<MegatronOptimizer>> members;
        members.push_back(must(FP32Optimizer::create(adam({group_of(dense)}), mine)));
        members.push_back(must(FP32Optimizer::create(adam({group_of(experts)}), mine)));
        const auto chain = must(ChainedOptimizer::create(mine, std::move(members)));
        add_norm(sum, chain->norm_local());
        counted += chain->count_zeros_local();
      }
    }
    RC_ASSERT(counted == zeros);
    if (p == 2.0 || std::isinf(p)) {
      RC_ASSERT(norm_of(sum) == expected);
    } else {
      RC_ASSERT(std::abs(norm_of(sum) - expected) <= 1e-12 * expected);
    }
  });
}

TEST(OptimizerProperty, ClippingNeverGrowsAGradient) {
  check_cases(10'000, [] {
    const auto values = *few(8, finite_float()).as("gradient");
    const double max_norm =
        *rc::gen::oneOf(
             rc::gen::element(0.0, 1e-30, 1.0, 1e30),
             rc::gen::map(finite_float(), [](float v) { return std::abs(static_cast<double>(v)); }))
             .as("max_norm");
    const Spread plain;
    const ParameterPtr w = with_gradient(values, plain);
    const auto optimizer = must(FP32Optimizer::create(adam({group_of({w})}), {}));
    const double before = must(optimizer->clip_grad_norm(max_norm));
    for (std::size_t i = 0; i < values.size(); ++i) {
      RC_ASSERT(std::abs(w->grad.data_ptr<float>()[i]) <= std::abs(values[i]));
    }
    const double after = must(optimizer->get_grad_norm());
    RC_ASSERT(after <= before);
    // The coefficient and each product are rounded once: 2^-24 of it, or half of the least subnormal.
    if (max_norm > 0.0) {
      const double subnormal = before * 0x1p-150 + std::sqrt(static_cast<double>(values.size())) * 0x1p-150;
      RC_ASSERT(after <= max_norm * (1 + 0x1p-22) + subnormal);
    }
    if (max_norm == 0.0 || before <= max_norm * 0.999 - 1e-6) {
      RC_ASSERT(same_bits(w->grad, tensor_of(values)));  // nothing to clip
    }
  });
}

// Groups of any sizes, empty ones among them, dealt to any number of members: the chain trains as one
// optimizer, and its saved state continues the training bit for bit, in whatever order the groups were
// saved.
TEST(OptimizerProperty, ChainsWithEmptyGroups) {
  check_cases(10'000, [] {
    const auto sizes = *few(5, few(4, between(0, 3))).as("sizes of the parameters of each group");
    const int members = *between(1, 3).as("members");
    const auto type = *rc::gen::element(at::kHalf, at::kBFloat16, at::kFloat).as("precision");
    struct Model {
      std::vector<ParameterPtr> params;
      std::vector<ParamGroup> groups;
    };
    const auto build = [&] {
      Model model;
      for (std::size_t g = 0; g < sizes.size(); ++g) {
        ParamGroup group = group_of({}, 1e-2 * static_cast<double>(g + 1));
        group.lr_mult = static_cast<double>(g + 1);
        for (std::size_t i = 0; i < sizes[g].size(); ++i) {
          group.params.push_back(parameter(std::to_string(g) + "." + std::to_string(i), {sizes[g][i]}, type));
          model.params.push_back(group.params.back());
        }
        model.groups.push_back(group);
      }
      return model;
    };
    const auto optimizer_of = [&](const std::vector<ParamGroup>& groups) {
      return must(Float16OptimizerWithFloat16Params::create(adam(groups), {}, dynamic_scaler(4.0)));
    };
    // Member k has groups k, k + members, ...; `reversed` puts them the other way round.
    const auto chain_of = [&](const Model& model, bool reversed) {
      std::vector<std::unique_ptr<MegatronOptimizer>> parts;
      for (int k = 0; k < members; ++k) {
        std::vector<ParamGroup> own;
        for (std::size_t g = static_cast<std::size_t>(k); g < model.groups.size();
             g += static_cast<std::size_t>(members)) {
          own.push_back(model.groups[g]);
        }
        if (reversed) std::reverse(own.begin(), own.end());
        parts.push_back(optimizer_of(own));
      }
      return must(ChainedOptimizer::create({}, std::move(parts)));
    };
    const auto step = [](const Model& model, MegatronOptimizer& optimizer, const std::string& seed) {
      for (const ParameterPtr& p : model.params) {
        p->main_grad = random_tensor(p->value.sizes().vec(), seed + p->name) * 4.0;
      }
      RC_ASSERT(must(optimizer.step()).success);
    };
    const auto same_values = [](const Model& a, const Model& b) {
      for (std::size_t i = 0; i < a.params.size(); ++i)
        RC_ASSERT(same_bits(a.params[i]->value, b.params[i]->value));
    };
    const Model whole = build(), chained = build(), loaded = build();
    const auto one = optimizer_of(whole.groups);
    const auto chain = chain_of(chained, false), other = chain_of(loaded, true);
    step(whole, *one, "a");
    step(chained, *chain, "a");
    same_values(whole, chained);
    for (std::size_t i = 0; i < loaded.params.size(); ++i)
      loaded.params[i]->value = chained.params[i]->value.detach().clone();
    must(other->load_state_dict(*clone(StateValue(chain->state_dict())).get<StateDict>()));
    for (const char* seed : {"b", "c"}) {
      step(whole, *one, seed);
      step(loaded, *other, seed);
    }
    same_values(whole, loaded);
  });
}

TEST(OptimizerProperty, OffloadAndRestoreAtAnyTimeChangeNothing) {
  check_cases(10'000, [] {
    // Per step: how often to offload and restore before it, and whether it overflows.
    const auto plan = *few(5, rc::gen::pair(between(0, 2), rc::gen::arbitrary<bool>()))
                           .as("(trips to the CPU, overflow) of each step");
    const bool at_start = *rc::gen::arbitrary<bool>().as("states made at the start");
    Chain stays, moves;
    if (at_start) {
      stays.optimizer->init_state();
      moves.optimizer->init_state();
    }
    for (std::size_t step = 0; step < plan.size(); ++step) {
      for (int trip = 0; trip < plan[step].first; ++trip) {
        must(moves.optimizer->offload_to_cpu());
        RC_ASSERT(!moves.optimizer->step_with_ready_grads().has_value());
        must(moves.optimizer->restore_from_cpu());
      }
      for (Chain* chain : {&stays, &moves}) {
        chain->gradients(std::to_string(step));
        if (plan[step].second) chain->experts[0]->main_grad[0] = std::numeric_limits<float>::infinity();
        RC_ASSERT(must(chain->optimizer->step()).found_inf == plan[step].second);
      }
    }
    RC_ASSERT(first_difference(stays.snap(), moves.snap()) == "");
    RC_ASSERT(stays.scaler(1) == moves.scaler(1));
  });
}

}  // namespace
}  // namespace plumbline::test

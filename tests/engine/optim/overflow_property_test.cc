// An overflow anywhere is one decision everywhere: any subset of ranks, any step, any member, any kind of
// value.
#include <algorithm>
#include <cmath>
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

// A value that is not finite in one gradient of one rank at one step.
struct Bad {
  int step = 0, rank = 0, tensor = 0;
  float value = 0.0f;
};
inline std::ostream& operator<<(std::ostream& out, const Bad& bad) {
  return out << "{step " << bad.step << ", rank " << bad.rank << ", tensor " << bad.tensor << ", "
             << bad.value << "}";
}

namespace {

constexpr int kTensors = 3;

rc::Gen<float> not_finite() {
  return rc::gen::element(std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN(), float_of(0x7F800001u));
}

rc::Gen<Bad> bad_value(int steps, int ranks) {
  return rc::gen::build<Bad>(
      rc::gen::set(&Bad::step, between(0, steps - 1)), rc::gen::set(&Bad::rank, between(0, ranks - 1)),
      rc::gen::set(&Bad::tensor, between(0, kTensors - 1)), rc::gen::set(&Bad::value, not_finite()));
}

struct Setting {
  int ranks = 1, steps = 1, window = 1, hysteresis = 1, exponent = 0;
};

Setting drawn_setting(int most_steps) {
  Setting s;
  s.ranks = *between(2, 4).as("ranks");
  s.steps = *between(1, most_steps).as("steps");
  s.window = *between(1, 3).as("growth interval");
  s.hysteresis = *between(1, 3).as("hysteresis");
  s.exponent = *between(0, 4).as("log2 of the first scale");
  return s;
}

// Megatron's rule once more, in a few lines that share nothing with LossScaler.
struct PlainScaler {
  double scale;
  int growth = 0, hysteresis;
  void update(const Setting& s, bool found) {
    if (found) {
      growth = 0;
      if (--hysteresis <= 0) scale = std::max(1.0, scale / 2);
    } else if (++growth == s.window) {
      growth = 0;
      hysteresis = s.hysteresis;
      scale *= 2;
    }
  }
};

// The same on every rank: replicas.
void give_gradients(Chain& chain, int step) { chain.gradients(std::to_string(step)); }

void spoil(Chain& chain, const std::vector<Bad>& bads, int step, int rank) {
  for (const Bad& bad : bads) {
    if (bad.step != step || bad.rank != rank) continue;
    const at::Tensor gradient = chain.models()[static_cast<std::size_t>(bad.tensor)]->main_grad.view({-1});
    gradient[gradient.numel() - 1] = bad.value;
  }
}

bool spoiled(const std::vector<Bad>& bads, int step) {
  return std::any_of(bads.begin(), bads.end(), [&](const Bad& bad) { return bad.step == step; });
}

LossScaler scaler_of(const Setting& s) {
  return dynamic_scaler(std::ldexp(1.0, s.exponent), s.window, s.hysteresis);
}

// What training without the bad steps gives; scales are powers of two, so unscaled gradients do not depend
// on them.
Chain trained_without(const Setting& s, const std::vector<Bad>& bads) {
  Chain chain({}, {}, *LossScaler::constant(1.0));
  for (int step = 0; step < s.steps; ++step) {
    if (spoiled(bads, step)) continue;
    give_gradients(chain, step);
    RC_ASSERT(must(chain.optimizer->step()).success);
  }
  return chain;
}

TEST(OverflowProperty, AnySubsetOfRanksIsOneDecision) {
  check_cases(10'000, [] {
    const Setting s = drawn_setting(5);
    const auto bads = *few(4, bad_value(s.steps, s.ranks)).as("bad");
    std::vector<Chain> ranks;
    for (int r = 0; r < s.ranks; ++r)
      ranks.emplace_back(MegatronOptimizerOptions{}, ChainGroups{}, scaler_of(s));
    PlainScaler plain{std::ldexp(1.0, s.exponent), 0, s.hysteresis};
    for (int step = 0; step < s.steps; ++step) {
      bool found = false;
      for (int r = 0; r < s.ranks; ++r) {
        Chain& chain = ranks[static_cast<std::size_t>(r)];
        give_gradients(chain, step);
        spoil(chain, bads, step, r);
        chain.optimizer->copy_model_grads_to_main_grads();
        found = must(chain.optimizer->unscale_local()) || found;
      }
      RC_ASSERT(found == spoiled(bads, step));
      plain.update(s, found);
      for (Chain& chain : ranks) {
        chain.optimizer->update_scaler(found);
        if (!found) must(chain.optimizer->finish_step(norm_of(chain.optimizer->norm_local())));
        RC_ASSERT(chain.scaler(0) == chain.scaler(1));
        RC_ASSERT(static_cast<double>(chain.scaler(0).scale()) == plain.scale);
      }
    }
    Chain expected = trained_without(s, bads);
    for (Chain& chain : ranks) RC_ASSERT(first_difference(expected.snap(), chain.snap()) == "");
  });
}

// The same through step() and real groups: each rank a thread.
TEST(OverflowProperty, AnySubsetOfThreadsIsOneDecision) {
  check_cases(300, [] {
    const Setting s = drawn_setting(4);
    const auto bads = *few(4, bad_value(s.steps, s.ranks)).as("bad");
    const auto decision = thread_group(s.ranks), stats = thread_group(s.ranks);
    std::vector<std::string> differences(static_cast<std::size_t>(s.ranks));
    std::vector<std::vector<bool>> skipped(static_cast<std::size_t>(s.ranks));
    std::vector<float> scales(static_cast<std::size_t>(s.ranks));
    Chain expected = trained_without(s, bads);
    const StateValue end = expected.snap();
    on_ranks(s.ranks, [&](int rank) {
      const auto r = static_cast<std::size_t>(rank);
      // Replicas: norms are taken alone, the decision is everybody's.
      Chain chain({}, {{}, {}, decision[r]}, scaler_of(s));
      for (int step = 0; step < s.steps; ++step) {
        give_gradients(chain, step);
        spoil(chain, bads, step, rank);
        skipped[r].push_back(must(chain.optimizer->step()).found_inf);
      }
      differences[r] = first_difference(end, chain.snap());
      scales[r] = chain.scaler(1).scale();
    });
    for (std::size_t r = 0; r < skipped.size(); ++r) {
      RC_ASSERT(differences[r] == "");
      RC_ASSERT(skipped[r] == skipped[0]);
      RC_ASSERT(scales[r] == scales[0]);
    }
  });
}

// Gradients of any bits, empty lists and empty tensors among them: found exactly when one is not finite;
// then nothing changes, otherwise every unscaled gradient is the product rounded once and every weight the
// rounded main copy.
TEST(OverflowProperty, AnyBitsInAnyShape) {
  check_cases(10'000, [] {
    const auto type = *rc::gen::element(at::kHalf, at::kBFloat16, at::kFloat).as("precision");
    const auto exponent = *between(0, 24).as("log2 of the scale");
    const auto tensors = *few(5, few(5, any_float())).as("gradients");
    const float scale = std::ldexp(1.0f, exponent), inverse = std::ldexp(1.0f, -exponent);
    std::vector<ParameterPtr> models;
    bool bad = false;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      models.push_back(
          parameter("p" + std::to_string(i), {static_cast<std::int64_t>(tensors[i].size())}, type));
      models.back()->main_grad = at::empty({static_cast<std::int64_t>(tensors[i].size())});
      std::copy(tensors[i].begin(), tensors[i].end(), models.back()->main_grad.data_ptr<float>());
      for (const float value : tensors[i]) bad = bad || !std::isfinite(value);
    }
    const auto optimizer = must(Float16OptimizerWithFloat16Params::create(adam({group_of(models)}), {},
                                                                          *LossScaler::constant(scale)));
    const StateValue before = snapshot(*optimizer, models);
    const StepOutcome outcome = must(optimizer->step());
    RC_ASSERT(outcome.found_inf == bad);
    RC_ASSERT(outcome.success == !bad);
    if (bad) {
      RC_ASSERT(first_difference(before, snapshot(*optimizer, models)) == "");
      return;
    }
    const std::vector<ParameterPtr> mains = optimizer->get_parameters();
    double squares = 0.0;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      for (std::size_t e = 0; e < tensors[i].size(); ++e) {
        const float unscaled = tensors[i][e] * inverse;
        const float got = mains[i]->grad.data_ptr<float>()[e];
        RC_ASSERT(std::memcmp(&got, &unscaled, sizeof(float)) == 0);
        squares += static_cast<double>(unscaled) * static_cast<double>(unscaled);
      }
      RC_ASSERT(same_bits(models[i]->value, mains[i]->value.to(type)));
    }
    RC_ASSERT(std::abs(*outcome.grad_norm - std::sqrt(squares)) <= 1e-12 * std::sqrt(squares));
  });
}

}  // namespace
}  // namespace plumbline::test

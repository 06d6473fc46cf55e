// A run that is saved and resumed at any step has the rates and weight decays of the run that was not, bit
// for bit.
#include <bit>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "engine/optim/param_scheduler.h"
#include "engine/optim/scheduler_names.h"
#include "tests/support/property.h"

namespace plumbline {
namespace {

// The whole range at every size of a case; RapidCheck's own grows with the case.
std::int64_t below(std::int64_t end) { return *rc::gen::resize(100, rc::gen::inRange<std::int64_t>(0, end)); }
double rate() { return static_cast<double>(below(1000)) * 1e-5; }

ParamSchedulerOptions any_options() {
  ParamSchedulerOptions o;
  o.min_lr = rate();
  o.max_lr = o.min_lr + rate();
  o.init_lr = o.max_lr * static_cast<double>(below(10)) / 10.0;
  o.lr_decay_steps = 1 + below(200);
  o.lr_warmup_steps = below(o.lr_decay_steps);
  o.lr_decay_style = *rc::gen::element(DecayStyle::kConstant, DecayStyle::kLinear, DecayStyle::kCosine,
                                       DecayStyle::kInverseSquareRoot, DecayStyle::kWsd);
  o.wsd_decay_steps = 1 + below(o.lr_decay_steps);
  o.wsd_decay_style =
      *rc::gen::element(WsdStyle::kLinear, WsdStyle::kCosine, WsdStyle::kExponential, WsdStyle::kMinusSqrt);
  o.wd_incr_style = *rc::gen::element(WdStyle::kConstant, WdStyle::kLinear, WdStyle::kCosine);
  o.start_wd = rate();
  o.end_wd = o.start_wd + (o.wd_incr_style == WdStyle::kConstant ? 0.0 : rate());
  o.wd_incr_steps = 1 + below(200);
  return o;
}

std::vector<ParamGroup> any_groups() {
  std::vector<ParamGroup> groups(static_cast<std::size_t>(1 + below(3)));
  for (ParamGroup& group : groups) {
    if (*rc::gen::arbitrary<bool>()) group.max_lr = rate();
    if (*rc::gen::arbitrary<bool>()) group.min_lr = rate();
    if (*rc::gen::arbitrary<bool>()) group.start_wd = group.end_wd = rate();
    if (*rc::gen::arbitrary<bool>()) group.wd_mult = rate();
    if (*rc::gen::arbitrary<bool>()) group.lr_mult = rate();
  }
  return groups;
}

std::vector<ParamGroup*> pointers(std::vector<ParamGroup>& groups) {
  std::vector<ParamGroup*> out;
  for (ParamGroup& group : groups) out.push_back(&group);
  return out;
}

void assert_equal(const std::vector<ParamGroup>& left, const std::vector<ParamGroup>& right) {
  for (std::size_t i = 0; i < left.size(); ++i) {
    RC_ASSERT(std::bit_cast<std::uint64_t>(left[i].lr) == std::bit_cast<std::uint64_t>(right[i].lr));
    RC_ASSERT(std::bit_cast<std::uint64_t>(left[i].weight_decay) ==
              std::bit_cast<std::uint64_t>(right[i].weight_decay));
  }
}

// Resumed with the same options, with any others that defer to the checkpoint, or twice from one state.
TEST(ParamSchedulerProperty, AResumedRunIsTheUninterruptedRun) {
  test::check_cases(10'000, [] {
    const ParamSchedulerOptions options = any_options();
    std::vector<ParamGroup> groups = any_groups(), resumed_groups = groups;
    const auto increments = *rc::gen::resize(
        30, rc::gen::container<std::vector<int>>(rc::gen::resize(100, rc::gen::inRange(0, 40))));
    const std::size_t saved_at =
        static_cast<std::size_t>(below(static_cast<std::int64_t>(increments.size()) + 1));
    const bool elsewhere = *rc::gen::arbitrary<bool>();
    ParamSchedulerOptions other = elsewhere ? any_options() : options;
    other.use_checkpoint = elsewhere;
    if (other.wd_incr_style == WdStyle::kConstant) other.end_wd = other.start_wd;

    OptimizerParamScheduler straight = OptimizerParamScheduler::create(options).value();
    RC_ASSERT(straight.attach(pointers(groups)).has_value());
    OptimizerParamScheduler resumed = OptimizerParamScheduler::create(other).value();
    RC_ASSERT(resumed.attach(pointers(resumed_groups)).has_value());
    for (std::size_t i = 0; i <= increments.size(); ++i) {
      if (i == saved_at) {
        const StateDict state = straight.state_dict();
        resumed.step(below(50));  // whatever it did before
        RC_ASSERT(resumed.load_state_dict(state).has_value());
        RC_ASSERT(resumed.load_state_dict(state).has_value());
        RC_ASSERT(first_difference(resumed.state_dict(), state) == "" ||
                  options.lr_decay_style != DecayStyle::kWsd);
      }
      if (i >= saved_at) assert_equal(groups, resumed_groups);
      if (i == increments.size()) break;
      straight.step(increments[i]);
      if (i >= saved_at) resumed.step(increments[i]);
    }
  });
}

}  // namespace
}  // namespace plumbline

// The scaler against a reference that knows no counters: it cuts a history into runs of overflows and of
// clean steps and reasons about whole runs.
#include <cmath>
#include <cstdint>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "engine/optim/loss_scaler.h"
#include "tests/support/property.h"

namespace plumbline {
namespace {

struct Reference {
  LossScaler::Dynamic o;
  float scale = 0.0f;
  int lost = 0;  // overflows since hysteresis was whole

  void multiply(int times, double factor) {
    for (int i = 0; i < times; ++i) {
      const float next = scale * static_cast<float>(factor);
      const bool keep = std::isinf(next) && (o.capped || o.rule == ScalerRule::kTorch);
      if (!keep) scale = next;
    }
  }

  void overflows(int count) {
    const bool torch = o.rule == ScalerRule::kTorch;
    // The first hysteresis - 1 losses are free.
    const int paid = torch ? count : std::max(0, lost + count - std::max(lost, o.hysteresis - 1));
    lost += count;
    for (int i = 0; i < paid; ++i) {
      scale *= static_cast<float>(o.backoff_factor);
      if (!torch) scale = std::max(scale, static_cast<float>(o.minimum));
    }
  }

  void clean(int count) {
    if (o.consecutive_hysteresis || count >= o.window) lost = 0;
    multiply(count / o.window, o.growth_factor);
  }
};

float reference(const LossScaler::Dynamic& options, const std::string& found) {
  Reference state{options, static_cast<float>(options.initial), 0};
  for (std::size_t begin = 0; begin < found.size();) {
    const std::size_t end = std::min(found.find_first_not_of(found[begin], begin), found.size());
    const int length = static_cast<int>(end - begin);
    found[begin] == '1' ? state.overflows(length) : state.clean(length);
    begin = end;
  }
  return state.scale;
}

// The whole range at every size of a case; RapidCheck's own grows with the case.
int pick(int begin, int end) { return *rc::gen::resize(100, rc::gen::inRange(begin, end)); }

LossScaler::Dynamic any_options() {
  LossScaler::Dynamic o;
  o.rule = *rc::gen::element(ScalerRule::kMegatron, ScalerRule::kDeepSpeed, ScalerRule::kTorch);
  o.minimum = std::ldexp(1.0, pick(-140, 100));
  o.initial = o.minimum * *rc::gen::element(1.0, 2.0, 3.7, 1024.0, 65536.0);
  o.growth_factor = *rc::gen::element(2.0, 4.0, 1.5, 1.1, 1e10);
  o.backoff_factor = *rc::gen::element(0.5, 0.25, 0.7, 0.9, 1e-10);
  o.window = pick(1, 12);
  o.hysteresis = pick(1, 6);
  o.capped = *rc::gen::arbitrary<bool>();
  o.consecutive_hysteresis = *rc::gen::arbitrary<bool>();
  return o;
}

// Runs of equal letters, so that windows are reached and hysteresis is used up.
std::string any_history() {
  std::string found;
  char letter = *rc::gen::element('0', '1');
  for (int runs = pick(0, 20); runs > 0; --runs) {
    found += std::string(static_cast<std::size_t>(pick(1, 26)), letter);
    letter = letter == '0' ? '1' : '0';
  }
  return found.substr(0, 200);
}

std::string text(const LossScaler::Dynamic& o) {
  return fmt::format(
      "rule {} initial {:a} minimum {:a} growth {} backoff {} window {} hysteresis {} capped {} "
      "consecutive {}",
      static_cast<int>(o.rule), o.initial, o.minimum, o.growth_factor, o.backoff_factor, o.window,
      o.hysteresis, o.capped, o.consecutive_hysteresis);
}

TEST(LossScalerProperty, EqualsTheReferenceAtEveryPrefix) {
  test::check_cases(10'000, [] {
    const LossScaler::Dynamic options = any_options();
    const std::string found = any_history();
    const std::size_t watched = static_cast<std::size_t>(pick(0, static_cast<int>(found.size()) + 1));
    LossScaler scaler = LossScaler::dynamic(options).value();
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (i == watched) RC_ASSERT(scaler.scale() == reference(options, found.substr(0, i)));
      scaler.update(found[i] == '1');
    }
    RC_LOG() << text(options) << " found " << found << std::endl;
    RC_ASSERT(scaler.scale() == reference(options, found));
  });
}

TEST(LossScalerProperty, SavingAndLoadingInTheMiddleChangesNothing) {
  test::check_cases(10'000, [] {
    LossScaler::Dynamic options = any_options();
    const std::string found = any_history();
    const std::size_t middle = static_cast<std::size_t>(pick(0, static_cast<int>(found.size()) + 1));
    RC_LOG() << text(options) << " found " << found << " saved before " << middle << std::endl;
    LossScaler straight = LossScaler::dynamic(options).value(), resumed = straight;
    const LossScaler fresh = straight;
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (i == middle) {
        const StateDict state = resumed.state_dict();
        resumed = fresh;
        std::vector<std::string> notices;
        const Status loaded = resumed.load_state_dict(state, &notices);
        // Refused only when the scale had become useless: infinite without the cap, 0 by torch's rule.
        RC_ASSERT(loaded.has_value() == (std::isfinite(straight.scale()) && straight.scale() > 0.0f));
        if (!loaded) return;
        RC_ASSERT(notices.empty());
        RC_ASSERT(resumed == straight);
      }
      straight.update(found[i] == '1');
      resumed.update(found[i] == '1');
      RC_ASSERT(resumed == straight);
    }
  });
}

}  // namespace
}  // namespace plumbline

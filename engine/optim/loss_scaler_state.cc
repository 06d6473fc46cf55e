// Saving and loading of the loss scale. A state may come from another run with other options, or from
// Megatron: what would make it stick is mended, and said.
#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "engine/optim/loss_scaler.h"

namespace plumbline {
namespace {

Result<double> scale_of(const StateDict& state) {
  const StateValue* value = state.find("scale");
  const at::Tensor* tensor = value == nullptr ? nullptr : value->get<at::Tensor>();
  if (tensor == nullptr) return state.number("scale");
  if (!tensor->defined() || tensor->numel() != 1 || !at::isFloatingType(tensor->scalar_type())) {
    return fail(
        ErrorCode::kState,
        fmt::format("\"scale\" of the loss scale's state is {}; it must be one number", describe(*value)));
  }
  return tensor->item<double>();
}

// Puts `value` into [lowest, highest] and says so.
void bring_into_range(std::int64_t& value, std::int64_t lowest, std::int64_t highest, std::string_view key,
                      std::string_view why, std::vector<std::string>& notices) {
  const std::int64_t mended = std::clamp(value, lowest, highest);
  if (mended == value) return;
  notices.push_back(
      fmt::format("the loss scale's {} was saved as {} and is set to {}: {}", key, value, mended, why));
  value = mended;
}

}  // namespace

StateDict LossScaler::state_dict() const {
  if (kind_ != Kind::kDynamic) return {};
  return {{"scale", at::full({1}, scale_, at::kFloat)},
          {"growth_tracker", growth_},
          {"hysteresis_tracker", hysteresis_}};
}

std::optional<std::string> LossScaler::growth_stall(const StateDict& state) const {
  const Result<std::int64_t> tracker = state.integer("growth_tracker");
  if (kind_ != Kind::kDynamic || !tracker || *tracker < window_) return std::nullopt;
  return fmt::format(
      "the growth tracker {} is past the window of {} and would not meet it again before an overflow",
      *tracker, window_);
}

Status LossScaler::load_state_dict(const StateDict& state, std::vector<std::string>* notices) {
  std::vector<std::string> said;
  if (kind_ != Kind::kDynamic) {
    if (!state.empty())
      said.push_back("the saved state of a dynamic loss scale is ignored: this run's scale is not dynamic");
  } else {
    const Result<double> scale = scale_of(state);
    PL_TRY(scale);
    Result<std::int64_t> growth = state.integer("growth_tracker");
    PL_TRY(growth);
    Result<std::int64_t> hysteresis = state.integer("hysteresis_tracker");
    PL_TRY(hysteresis);
    float loaded = static_cast<float>(*scale);
    if (!std::isfinite(loaded) || !(loaded > 0.0f)) {
      return fail(ErrorCode::kState,
                  fmt::format("the saved loss scale is {}; it must be above 0 and finite in single "
                              "precision; load without the scale's state to start anew",
                              *scale));
    }
    if (floored() && loaded < minimum_) {
      said.push_back(fmt::format("the loss scale was saved as {} and is set to {}: the minimum is higher",
                                 loaded, minimum_));
      loaded = minimum_;
    }
    bring_into_range(*growth, 0, window_ - 1, "growth_tracker",
                     growth_stall(state).value_or("it counts clean steps"), said);
    bring_into_range(*hysteresis, std::min(*hysteresis, full_hysteresis_), full_hysteresis_,
                     "hysteresis_tracker", "the hysteresis is lower", said);
    scale_ = loaded;
    growth_ = *growth;
    hysteresis_ = *hysteresis;
    overflows_at_minimum_ = 0;
    cannot_decrease_ = growth_left_out_ = false;
  }
  if (notices != nullptr) notices->insert(notices->end(), said.begin(), said.end());
  return {};
}

}  // namespace plumbline

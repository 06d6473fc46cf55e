// The step that all parameters of a state have in common: sharded checkpoints keep it once.
#include <string>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "engine/optim/megatron_optimizer.h"

namespace plumbline {
namespace {

// A step is an int, or, where torch's own Adam wrote the state, a whole number in a tensor of one element.
Result<std::int64_t> step_of(const std::string& parameter, const StateValue& value) {
  if (const auto* step = value.get<std::int64_t>()) return *step;
  if (const auto* tensor = value.get<at::Tensor>();
      tensor != nullptr && tensor->defined() && tensor->numel() == 1) {
    const double step = tensor->item<double>();
    if (step >= 0.0 && step < 0x1p53 && step == static_cast<double>(static_cast<std::int64_t>(step)))
      return static_cast<std::int64_t>(step);
    return fail(
        ErrorCode::kState,
        fmt::format("the step of parameter {} is {}; it must be a whole number from 0 on", parameter, step));
  }
  return fail(ErrorCode::kState,
              fmt::format("the step of parameter {} is {}; it must be an int", parameter, describe(value)));
}

}  // namespace

Result<std::optional<std::int64_t>> extract_common_per_param_step(const StateDict& state) {
  std::optional<std::int64_t> common;
  std::string first;
  for (const auto& [parameter, value] : state) {
    const auto* entries = value.get<StateDict>();
    if (entries == nullptr) {
      return fail(ErrorCode::kState, fmt::format("the state of parameter {} is {}; it must be a dict",
                                                 parameter, describe(value)));
    }
    const StateValue* saved = entries->find("step");
    if (saved == nullptr) continue;
    const Result<std::int64_t> step = step_of(parameter, *saved);
    PL_TRY(step);
    if (common && *common != *step) {
      return fail(ErrorCode::kState,
                  fmt::format("the step of parameter {} is {}, of parameter {} {}; this format "
                              "has one for all, and they must be equal",
                              first, *common, parameter, *step));
    }
    if (!common) first = parameter;
    common = *step;
  }
  return common;
}

void restore_common_per_param_step(StateDict& state, std::int64_t step) {
  for (auto& [parameter, value] : state) {
    if (auto* entries = value.get<StateDict>()) (*entries)["step"] = step;
  }
}

}  // namespace plumbline

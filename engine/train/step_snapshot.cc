#include "engine/train/step_snapshot.h"

#include <cstring>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "engine/base/assert.h"

namespace plumbline {

Result<StepSnapshot> StepSnapshot::take(ChainedOptimizer& optimizer, std::span<std::byte> memory) {
  StepSnapshot out;
  out.memory_ = memory;
  for (const auto& member : optimizer.chained_optimizers()) {
    auto* wrapper = dynamic_cast<WrapperOptimizer*>(member.get());
    if (wrapper == nullptr)
      return fail(ErrorCode::kUnsupported, "post-validation does not look into chains of chains");
    out.members_.push_back(wrapper);
    for (ParamGroup* group : wrapper->param_groups()) out.group_steps_.push_back({group, group->step});
    for (const ParameterPtr& parameter : wrapper->get_parameters()) {
      PL_TRY(out.keep(parameter->value));
      State& state = out.states_.emplace_back(State{wrapper, parameter.get(), {}});
      const ParamState* found = wrapper->find_state(*parameter);
      if (found == nullptr) continue;
      state.step = found->step;
      for (const at::Tensor& tensor : {found->exp_avg, found->exp_avg_sq, found->momentum_buffer}) {
        if (tensor.defined()) PL_TRY(out.keep(tensor));
      }
    }
  }
  return out;
}

Status StepSnapshot::keep(const at::Tensor& tensor) {
  PL_ASSERT(tensor.is_contiguous() && tensor.device().is_cpu());
  const std::size_t bytes = static_cast<std::size_t>(tensor.nbytes());
  if (bytes > memory_.size() - used_) {
    return fail(
        ErrorCode::kState,
        fmt::format("the snapshot of an optimizer step needs more than its slot's {} bytes", memory_.size()));
  }
  if (bytes > 0) std::memcpy(memory_.data() + used_, tensor.data_ptr(), bytes);
  copies_.push_back({tensor, used_});
  used_ += bytes;
  return {};
}

void StepSnapshot::restore() {
  for (const Copy& copy : copies_) {
    const std::size_t bytes = static_cast<std::size_t>(copy.tensor.nbytes());
    if (bytes > 0) std::memcpy(copy.tensor.data_ptr(), memory_.data() + copy.offset, bytes);
  }
  for (const State& state : states_) {
    if (!state.step) {
      state.owner->inner().erase_state(*state.parameter);
    } else {
      state.owner->inner().find_state(*state.parameter)->step = *state.step;
    }
  }
  for (const GroupStep& group : group_steps_) group.group->step = group.step;
  for (WrapperOptimizer* member : members_) member->copy_main_to_model();
}

}  // namespace plumbline

// StepSnapshot: what an optimizer step changes - main parameters, moments, step counts, of model parameters their
// rounded copies follow - put aside before a speculative step, and put back bit for bit when the step turns out to
// be wrong (optimizer post-validation).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "engine/base/result.h"
#include "engine/optim/chained_optimizer.h"
#include "engine/optim/wrapper_optimizer.h"

namespace plumbline {

class StepSnapshot {
 public:
  // Copies into `memory`, which must outlive it; too little of it is an error. Refuses optimizers that keep states
  // elsewhere (CPU offload).
  static Result<StepSnapshot> take(ChainedOptimizer& optimizer, std::span<std::byte> memory);
  // As it was when taken; states that did not exist then are removed.
  void restore();

 private:
  struct Copy {
    at::Tensor tensor;  // the live one
    std::size_t offset = 0;
  };
  struct State {
    WrapperOptimizer* owner = nullptr;
    const Parameter* parameter = nullptr;
    std::optional<std::int64_t> step;  // absent: no state yet
  };
  struct GroupStep {
    ParamGroup* group = nullptr;
    std::optional<std::int64_t> step;
  };

  Status keep(const at::Tensor& tensor);

  std::span<std::byte> memory_;
  std::size_t used_ = 0;
  std::vector<WrapperOptimizer*> members_;
  std::vector<Copy> copies_;
  std::vector<State> states_;
  std::vector<GroupStep> group_steps_;
};

}  // namespace plumbline

// HybridDeviceOptimizer: a base optimizer that keeps the states of a part of its parameters on another device (the
// CPU) and updates them there (megatron/core/optimizer/cpu_offloading). Parameters are
// offloaded in the order of the groups until they have fraction * all elements.
//
// Levels of a parameter:
//   1  the parameter of the groups: a main shard of the wrapper above, or a model parameter itself
//   2  fp32 working copy of a 16-bit parameter; kept in the state as master_param
//   3  on the other device: clone of an offloaded parameter, which its update works on (fp32, and then level 2)
//
// No copy can be stale. A level-1 value of fp32 is all there is to know, so a clone is filled from it at every step
// (4 bytes a parameter over the bus besides the gradient; upstream saves them and has the stale-master bug). A 16-bit
// value is the rounded working copy after every step, so wherever it is not, somebody has written the weight since:
// before a step those elements of the working copy are taken from the weight, all others keep their fp32 bits. Hence
// a weights-only load is seen without being told, and a full resume keeps every bit.
//
// A state without master_param (not updated yet, or not saved) means that the working copy is the weight.
//
// Results are the same bits for any fraction. States and settings are those of the parameters in the groups,
// whatever part updates them: state_dict() knows nothing of parts.
#pragma once

#include <memory>
#include <vector>

#include "engine/optim/base_optimizer.h"

namespace plumbline {

struct HybridDeviceOptions {
  double offload_fraction = 0.0;     // 0 to 1
  bool param_update_in_fp32 = true;  // false: 16-bit parameters are updated as they are, without level 2
  at::Device offload_device = at::Device(at::kCPU);
};

class HybridDeviceOptimizer : public BaseOptimizer {
 public:
  static Result<std::unique_ptr<HybridDeviceOptimizer>> create(std::vector<ParamGroup> groups,
                                                               BaseOptimizerOptions options,
                                                               HybridDeviceOptions hybrid);

  const HybridDeviceOptions& hybrid_options() const { return hybrid_; }
  // Of the current groups, which a wrapper may have changed since creation.
  bool is_offloaded(const Parameter& parameter);
  std::int64_t offloaded_numel();

  void step(float gradient_factor = 1.0f, const std::vector<Parameter*>* model = nullptr) override;
  void init_state() override;

  // Makes every fp32 working copy the exact value of its weight, dropping the bits below: for a model whose
  // weights were replaced on purpose. The number of parameters that have one.
  int update_fp32_params_from_model();

 private:
  struct Part {
    ParameterPtr parameter;  // of the groups
    ParameterPtr working;    // what a sub-optimizer updates: `parameter` itself unless offloaded or copied
    bool offloaded = false;
    bool copied = false;       // 16-bit with an fp32 working copy
    std::size_t position = 0;  // in the flattened groups
  };
  // One of the two sub-optimizers, with all groups in it.
  struct Half {
    std::unique_ptr<BaseOptimizer> optimizer;
    std::vector<Part> parts;  // in the order of its flattened groups
  };

  HybridDeviceOptimizer(std::vector<ParamGroup> groups, BaseOptimizerOptions options,
                        HybridDeviceOptions hybrid);
  void follow_groups();
  Half make_half(const std::vector<std::vector<Part>>& by_group, bool offloaded) const;
  ParameterPtr working_parameter(const Part& part) const;
  at::Device device_of(const Part& part) const;
  void refresh(const Part& part);
  void push(const Part& part, BaseOptimizer& half);
  void pull(const Part& part, BaseOptimizer& half);
  void step_half(Half& half, float gradient_factor, const std::vector<Parameter*>* model);

  HybridDeviceOptions hybrid_;
  std::vector<ParameterPtr> followed_;  // parameters of the groups that the halves are made for
  std::vector<std::size_t> group_sizes_;
  Half resident_, offloaded_;
};

}  // namespace plumbline

// BaseOptimizer's state dict: writing it, and reading it in two passes - everything is checked, then
// everything is changed.
#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "engine/model/tensors.h"
#include "engine/optim/aliases.h"
#include "engine/optim/base_optimizer.h"

namespace plumbline {
namespace {

using Rule = BaseOptimizerOptions::Rule;

struct TensorKey {
  std::string_view name;
  at::Tensor ParamState::*tensor;
};
constexpr TensorKey kTensors[] = {{"exp_avg", &ParamState::exp_avg},
                                  {"exp_avg_sq", &ParamState::exp_avg_sq},
                                  {"momentum_buffer", &ParamState::momentum_buffer},
                                  {"master_param", &ParamState::master_param}};

// A parameter's saved state, read and checked; undefined tensors were not there.
struct Loaded {
  const Parameter* parameter = nullptr;
  bool present = false;
  ParamState state;  // handles of the saved tensors
};

std::string place(std::size_t group, const Parameter& parameter, std::string_view key) {
  return fmt::format("parameter group {}, parameter '{}', {}", group, parameter.name, key);
}

Result<std::int64_t> step_of(const StateValue& value) {
  if (const auto* integer = value.get<std::int64_t>()) return *integer;
  if (const auto* tensor = value.get<at::Tensor>(); tensor != nullptr && tensor->numel() == 1) {
    return static_cast<std::int64_t>(tensor->item<double>());
  }
  return fail(ErrorCode::kState,
              fmt::format("is {}; it must be an integer or a one-element tensor", describe(value)));
}

Status check_tensor(const StateValue& value, const Parameter& parameter, at::Tensor& out) {
  const auto* tensor = value.get<at::Tensor>();
  if (tensor == nullptr || !tensor->defined() || !at::isFloatingType(tensor->scalar_type())) {
    return fail(ErrorCode::kState, fmt::format("is {}; it must be a tensor of numbers", describe(value)));
  }
  if (tensor->sizes() != parameter.value.sizes()) {
    return fail(ErrorCode::kState, fmt::format("is {}; the parameter is {}", describe(value),
                                               describe(StateValue(parameter.value))));
  }
  out = *tensor;
  return {};
}

// One parameter's dictionary. `group_step`: the group keeps the step, so it may be absent.
Status read_state(const StateDict& saved, std::size_t group, Rule rule, bool group_step, Loaded& loaded) {
  const Parameter& parameter = *loaded.parameter;
  const auto at_key = [&](std::string_view key, const Error& error) {
    return fail(error.code, place(group, parameter, key) + ": " + error.message);
  };
  bool has_step = group_step;
  for (const auto& [key, value] : saved) {
    bool known = key == "step";
    if (known) {
      const Result<std::int64_t> step = step_of(value);
      if (!step) return at_key(key, step.error());
      loaded.state.step = *step;
      has_step = true;
    }
    for (const TensorKey& entry : kTensors) {
      if (entry.name != key) continue;
      known = true;
      if (value.none()) continue;  // torch keeps None for an unused momentum buffer
      if (const Status fine = check_tensor(value, parameter, loaded.state.*entry.tensor); !fine) {
        return at_key(key, fine.error());
      }
    }
    if (!known) return at_key(key, {ErrorCode::kState, "not a state of these optimizers", {}});
  }
  if (rule != Rule::kAdam) return {};
  const Error absent{ErrorCode::kState, "absent; Adam needs exp_avg, exp_avg_sq and step", {}};
  if (!loaded.state.exp_avg.defined()) return at_key("exp_avg", absent);
  if (!loaded.state.exp_avg_sq.defined()) return at_key("exp_avg_sq", absent);
  if (!has_step) return at_key("step", absent);
  return {};
}

// "state" by key; a walk for each parameter would be quadratic.
Result<std::map<std::string, const StateDict*>> states_by_id(const StateDict& state) {
  std::map<std::string, const StateDict*> by_id;
  for (const auto& [id, value] : state) {
    const auto* dict = value.get<StateDict>();
    if (dict == nullptr) {
      return fail(ErrorCode::kState, fmt::format("state.{}: is {}; it must be a dict", id, describe(value)));
    }
    by_id.emplace(id, dict);
  }
  return by_id;
}

Result<std::vector<std::string>> param_ids(const StateDict& saved, std::size_t group, const ParamGroup& own) {
  const Result<const StateList*> list = saved.list("params");
  if (!list)
    return fail(list.error().code, fmt::format("parameter group {}: {}", group, list.error().message));
  if ((*list)->size() != own.params.size()) {
    return fail(ErrorCode::kState,
                fmt::format("parameter group {}: {} parameters were saved, the optimizer has {}", group,
                            (*list)->size(), own.params.size()));
  }
  std::vector<std::string> ids;
  for (const StateValue& value : **list) {
    const auto* id = value.get<std::int64_t>();
    if (id == nullptr) {
      return fail(ErrorCode::kState,
                  fmt::format("parameter group {}, params: {} is not an integer", group, describe(value)));
    }
    ids.push_back(std::to_string(*id));
  }
  return ids;
}

// Reads everything the current groups need; `next` becomes them with the saved settings.
Result<std::vector<Loaded>> read_all(const StateDict& state, Rule rule, std::vector<ParamGroup>& next) {
  const Result<const StateDict*> saved = state.dict("state");
  if (!saved) return tl::unexpected(saved.error());
  const Result<const StateList*> groups = state.list("param_groups");
  if (!groups) return tl::unexpected(groups.error());
  if ((*groups)->size() != next.size()) {
    return fail(ErrorCode::kState, fmt::format("param_groups: {} groups were saved, the optimizer has {}",
                                               (*groups)->size(), next.size()));
  }
  Result<std::map<std::string, const StateDict*>> by_id = states_by_id(**saved);
  if (!by_id) return tl::unexpected(by_id.error());
  std::vector<Loaded> all;
  for (std::size_t g = 0; g < next.size(); ++g) {
    const StateValue& value = (**groups)[g];
    const auto* settings = value.get<StateDict>();
    if (settings == nullptr) {
      return fail(ErrorCode::kState,
                  fmt::format("parameter group {}: is {}; it must be a dict", g, describe(value)));
    }
    if (const Status fine = apply_group_settings(*settings, next[g]); !fine) {
      return fail(fine.error().code, fmt::format("parameter group {}, {}", g, fine.error().message));
    }
    const Result<std::vector<std::string>> ids = param_ids(*settings, g, next[g]);
    if (!ids) return tl::unexpected(ids.error());
    for (std::size_t i = 0; i < ids->size(); ++i) {
      Loaded loaded;
      loaded.parameter = next[g].params[i].get();
      if (const auto found = by_id->find((*ids)[i]); found != by_id->end()) {
        loaded.present = true;
        loaded.state.step = next[g].step.value_or(0);
        PL_TRY(read_state(*found->second, g, rule, next[g].step.has_value(), loaded));
        by_id->erase(found);
      }
      all.push_back(std::move(loaded));
    }
  }
  if (!by_id->empty()) {
    return fail(ErrorCode::kState,
                fmt::format("state.{}: a state of a parameter that no group has, or two have",
                            by_id->begin()->first));
  }
  return all;
}

// Handles that are storage of another state of this optimizer become copies.
void detach(std::vector<Loaded>& all, const std::vector<ParamState*>& own) {
  std::vector<at::Tensor> sources, targets;
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (const TensorKey& entry : kTensors) {
      sources.push_back(all[i].state.*entry.tensor);
      targets.push_back(own[i] == nullptr ? at::Tensor() : own[i]->*entry.tensor);
    }
  }
  sources = separate_aliases(std::move(sources), targets);
  std::size_t next = 0;
  for (Loaded& loaded : all) {
    for (const TensorKey& entry : kTensors) loaded.state.*entry.tensor = sources[next++];
  }
}

// Tensors that may be taken over: each is the whole of its storage, and no two of the dictionary's are one.
class Adoptable {
 public:
  explicit Adoptable(const std::vector<Loaded>& all) {
    for (const Loaded& loaded : all) {
      for (const TensorKey& entry : kTensors) {
        const at::Tensor& tensor = loaded.state.*entry.tensor;
        if (tensor.defined() && tensor.has_storage()) ++uses_[tensor.storage().unsafeGetStorageImpl()];
      }
    }
  }
  bool contains(const at::Tensor& tensor, DType type, at::Device device) const {
    if (!tensor.has_storage() || tensor.device() != device || tensor.scalar_type() != scalar_type_of(type))
      return false;
    const auto uses = uses_.find(tensor.storage().unsafeGetStorageImpl());
    return tensor.is_contiguous() && tensor.storage_offset() == 0 && !tensor.requires_grad() &&
           tensor.storage().nbytes() == tensor.nbytes() && uses != uses_.end() && uses->second == 1;
  }

 private:
  std::map<const void*, int> uses_;
};

// `adoptable` null: everything is copied.
void take(const Loaded& loaded, const BaseOptimizerOptions& options, const Adoptable* adoptable,
          ParamState& target) {
  target.step = loaded.state.step;
  for (const TensorKey& entry : kTensors) {
    const at::Tensor& source = loaded.state.*entry.tensor;
    at::Tensor& kept = target.*entry.tensor;
    if (!source.defined()) {
      kept.reset();
      continue;
    }
    DType type = DType::kF32;
    if (entry.tensor == &ParamState::exp_avg) type = options.exp_avg_type;
    if (entry.tensor == &ParamState::exp_avg_sq) type = options.exp_avg_sq_type;
    const at::Device device = loaded.parameter->value.device();
    if (adoptable != nullptr && adoptable->contains(source, type, device)) {
      kept = source;
      continue;
    }
    if (!kept.defined()) kept = at::empty(source.sizes(), at::device(device).dtype(scalar_type_of(type)));
    if (!kept.is_same(source)) kept.copy_(source);
  }
}

}  // namespace

StateDict BaseOptimizer::state_dict() const {
  StateDict states;
  StateList groups;
  std::int64_t id = 0;
  for (const ParamGroup& group : groups_) {
    StateList ids;
    for (const ParameterPtr& parameter : group.params) {
      ids.emplace_back(id);
      if (const auto found = state_.find(parameter.get()); found != state_.end()) {
        StateDict one;
        if (options_.rule == Rule::kAdam) one["step"] = found->second.step;
        for (const TensorKey& entry : kTensors) {
          const at::Tensor& tensor = found->second.*entry.tensor;
          if (tensor.defined()) one[entry.name] = tensor;
        }
        states[std::to_string(id)] = std::move(one);
      }
      ++id;
    }
    StateDict settings = group_settings(group);
    settings["params"] = std::move(ids);
    groups.emplace_back(std::move(settings));
  }
  return {{"state", std::move(states)}, {"param_groups", std::move(groups)}};
}

Status BaseOptimizer::load_state_dict(const StateDict& state) {
  const at::NoGradGuard no_grad;
  std::vector<ParamGroup> next = groups_;
  Result<std::vector<Loaded>> all = read_all(state, options_.rule, next);
  if (!all) return tl::unexpected(all.error());
  std::vector<ParamState*> own;
  for (const Loaded& loaded : *all) own.push_back(find_state(*loaded.parameter));
  detach(*all, own);
  std::move(next.begin(), next.end(), groups_.begin());  // in place: schedulers point there
  const Adoptable adoptable(*all);
  for (const Loaded& loaded : *all) {
    if (loaded.present) {
      take(loaded, options_, adopt_loaded_ ? &adoptable : nullptr,
           state_.try_emplace(loaded.parameter).first->second);
    } else {
      erase_state(*loaded.parameter);
    }
  }
  return {};
}

}  // namespace plumbline

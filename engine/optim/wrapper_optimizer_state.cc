// What a checkpoint has of the base optimizer: its dictionary brought into the current order, and sharded
// keys.
#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "engine/base/assert.h"
#include "engine/optim/param_groups.h"
#include "engine/optim/wrapper_optimizer.h"

namespace plumbline {
namespace {

constexpr const char* kGroupsKey = "optimizer.param_groups";
constexpr const char* kStepKey = "optimizer.state.common_step";

// Of a tensor as large as the parameter.
ShardedTensor sharded(std::string key, const at::Tensor& data, const Parameter& parameter, int replica) {
  ShardedTensor tensor;
  tensor.key = std::move(key);
  tensor.data = data;
  tensor.local_shape = data.sizes().vec();
  tensor.global_shape = parameter.global_shape.empty() ? tensor.local_shape : parameter.global_shape;
  tensor.offset = parameter.global_offset;
  if (tensor.offset.empty()) tensor.offset.assign(tensor.local_shape.size(), 0);
  tensor.replica = replica;
  return tensor;
}

}  // namespace

Result<std::vector<std::size_t>> WrapperOptimizer::match_groups(const StateList& saved) const {
  StateList current;
  for (const ParamGroup& group : inner_->param_groups()) current.emplace_back(group_settings(group));
  if (saved.size() != current.size()) {
    return fail(ErrorCode::kState, fmt::format("param_groups: {} groups were saved, the optimizer has {}",
                                               saved.size(), current.size()));
  }
  const std::vector<std::string>& keys = options_.identifier_keys;
  return match_param_groups(current, saved, keys.empty() ? param_group_identifier_keys() : keys);
}

Result<WrapperOptimizer::InnerState> WrapperOptimizer::match_inner_state(const StateDict& saved) const {
  const Result<const StateDict*> saved_states = saved.dict("state");
  if (!saved_states) return tl::unexpected(saved_states.error());
  const Result<const StateList*> saved_groups = saved.list("param_groups");
  if (!saved_groups) return tl::unexpected(saved_groups.error());
  Result<std::vector<std::size_t>> source = match_groups(**saved_groups);
  if (!source) return tl::unexpected(source.error());

  StateDict states = **saved_states;
  if (const StateValue* common = states.find("common_step"); common != nullptr) {
    const auto* step = common->get<std::int64_t>();
    if (step == nullptr) {
      return fail(ErrorCode::kState,
                  fmt::format("state.common_step: is {}; it must be an integer", describe(*common)));
    }
    const std::int64_t number = *step;
    states.erase("common_step");
    restore_common_per_param_step(states, number);
  }
  // New number of every saved one: the place of its group's match, then its place in the group.
  std::map<std::string, std::string> renumbered;
  StateList groups;
  std::int64_t next = 0;
  for (std::size_t g = 0; g < source->size(); ++g) {
    StateDict group = *(**saved_groups)[(*source)[g]].get<StateDict>();
    const Result<const StateList*> params = group.list("params");
    if (!params)
      return fail(params.error().code, fmt::format("parameter group {}: {}", g, params.error().message));
    StateList ids;
    for (const StateValue& value : **params) {
      const auto* id = value.get<std::int64_t>();
      if (id == nullptr || !renumbered.emplace(std::to_string(*id), std::to_string(next)).second) {
        return fail(ErrorCode::kState,
                    fmt::format("parameter group {}, params: {} is not an integer or comes twice", g,
                                describe(value)));
      }
      ids.emplace_back(next++);
    }
    group["params"] = std::move(ids);
    groups.emplace_back(std::move(group));
  }
  StateDict out_states;
  for (auto& [id, value] : states) {
    const auto found = renumbered.find(id);
    if (found == renumbered.end()) {
      return fail(ErrorCode::kState, fmt::format("state.{}: no parameter group has this parameter", id));
    }
    out_states[found->second] = std::move(value);
  }
  InnerState matched{{{"state", std::move(out_states)}, {"param_groups", std::move(groups)}},
                     std::move(*source)};
  return matched;
}

Result<ShardedStateDict> WrapperOptimizer::sharded_state_dict(bool is_loading,
                                                              const ShardedMetadata& metadata) {
  if (is_loading) init_state();
  ShardedStateDict out;
  const std::string prefix = metadata.prefix + "optimizer.state.";
  std::optional<std::int64_t> common;
  const Parameter* first = nullptr;
  std::size_t position = 0;
  for (const ParameterPtr& parameter : inner_->parameters()) {
    // Copies on other tensor-parallel ranks, and the further use of a tied parameter, are replicas.
    const int tp_rank = parameter->expert ? options_.expert_tp_rank : options_.tp_rank;
    const int replica =
        metadata.dp_rank + (parameter->tensor_parallel ? 0 : tp_rank) + (parameter->shared ? 1 : 0);
    const std::size_t at = position++;
    const auto add = [&](std::string_view name, const at::Tensor& data) {
      if (!data.defined()) return;
      out.tensors.push_back(
          sharded(fmt::format("{}{}.{}", prefix, name, parameter->name), data, *parameter, replica));
      localize(at, metadata, out.tensors.back());
    };
    if (is_main_copy(at)) add("fp32_param", parameter->value);
    const ParamState* state = inner_->find_state(*parameter);
    if (state == nullptr) continue;
    add("exp_avg", state->exp_avg);
    add("exp_avg_sq", state->exp_avg_sq);
    add("momentum_buffer", state->momentum_buffer);
    add("master_param", state->master_param);
    if (common && *common != state->step) {
      return fail(
          ErrorCode::kState,
          fmt::format("the step of parameter '{}' is {}, of '{}' {}; a sharded checkpoint has one for all",
                      first->name, *common, parameter->name, state->step));
    }
    common = state->step;
    first = parameter.get();
  }
  StateList groups;
  for (const ParamGroup& group : inner_->param_groups()) groups.emplace_back(group_settings(group));
  out.objects.push_back({metadata.prefix + kGroupsKey, std::move(groups), options_.rank});
  if (common) out.objects.push_back({metadata.prefix + kStepKey, *common, options_.rank});
  return out;
}

Status WrapperOptimizer::load_sharded_objects(const std::vector<ShardedObject>& objects,
                                              const ShardedMetadata& metadata) {
  const StateList* groups = nullptr;
  std::optional<std::int64_t> step;
  for (const ShardedObject& object : objects) {
    if (object.key == metadata.prefix + kGroupsKey) groups = object.value.get<StateList>();
    if (object.key == metadata.prefix + kStepKey) {
      const auto* number = object.value.get<std::int64_t>();
      if (number == nullptr) {
        return fail(ErrorCode::kState,
                    fmt::format("{}: is {}; it must be an integer", object.key, describe(object.value)));
      }
      step = *number;
    }
  }
  if (groups == nullptr) {
    return fail(ErrorCode::kState,
                fmt::format("{}{}: absent or not a list; the checkpoint has no settings for this optimizer",
                            metadata.prefix, kGroupsKey));
  }
  const Result<std::vector<std::size_t>> source = match_groups(*groups);
  if (!source) return tl::unexpected(source.error());
  std::vector<ParamGroup> next = inner_->param_groups();
  for (std::size_t g = 0; g < next.size(); ++g) {
    const auto* settings = (*groups)[(*source)[g]].get<StateDict>();
    if (const Status fine = apply_group_settings(*settings, next[g]); !fine) {
      return fail(fine.error().code, fmt::format("parameter group {}, {}", g, fine.error().message));
    }
  }
  std::move(next.begin(), next.end(), inner_->param_groups().begin());  // in place: schedulers point there
  if (!step) return {};
  for (const ParameterPtr& parameter : inner_->parameters()) {
    if (ParamState* state = inner_->find_state(*parameter)) state->step = *step;
  }
  return {};
}

}  // namespace plumbline

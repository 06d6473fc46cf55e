// What a chain saves and loads.
#include <algorithm>
#include <charconv>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include "engine/base/assert.h"
#include "engine/optim/chained_optimizer.h"

namespace plumbline {
namespace {

// {"0": ..., "1": ...} as a list in the order of the numbers, which must be 0 to the size.
Result<StateList> as_list(const StateDict& state, const char* what) {
  StateList list(state.size());
  std::vector<bool> seen(state.size(), false);
  for (const auto& [key, value] : state) {
    std::size_t number = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), number);
    const bool whole = error == std::errc() && end == key.data() + key.size();
    if (!whole || number >= list.size() || seen[number]) {
      return fail(ErrorCode::kState,
                  fmt::format("{}: key '{}' is not the number of a member; a chain's state has the "
                              "keys 0 to {}",
                              what, key, state.size() - 1));
    }
    seen[number] = true;
    list[number] = value;
  }
  return list;
}

tl::unexpected<Error> of_member(std::size_t index, const Error& error) {
  return fail(error.code, fmt::format("member {} of the chain: {}", index, error.message));
}

tl::unexpected<Error> wrong_count(std::size_t expected, std::size_t got) {
  return fail(ErrorCode::kState,
              fmt::format("the chain has {} members, the state {} entries", expected, got));
}

}  // namespace

StateList ChainedOptimizer::state_list(bool is_loading) {
  StateList list;
  for (const auto& member : members_) list.emplace_back(member->state_dict(is_loading));
  return list;
}

StateDict ChainedOptimizer::state_dict(bool is_loading) {
  if (members_.size() == 1) return members_[0]->state_dict(is_loading);
  StateDict state;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    state[std::to_string(i)] = members_[i]->state_dict(is_loading);
  }
  return state;
}

Status ChainedOptimizer::load_state_dict(const StateDict& state) {
  if (members_.size() == 1) return load_state_list({state});
  if (state.size() != members_.size()) return wrong_count(members_.size(), state.size());
  const Result<StateList> list = as_list(state, "state of a chain");
  if (!list) return tl::unexpected(list.error());
  return load_state_list(*list);
}

Status ChainedOptimizer::load_state_list(const StateList& states) {
  if (states.size() != members_.size()) return wrong_count(members_.size(), states.size());
  notices_.clear();
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const auto* own = states[i].get<StateDict>();
    if (own == nullptr) {
      return of_member(i,
                       {ErrorCode::kState, fmt::format("is {}; it must be a dict", describe(states[i])), {}});
    }
    if (const Status loaded = members_[i]->load_state_dict(*own); !loaded)
      return of_member(i, loaded.error());
  }
  if (scaler() != nullptr) {
    const LossScaler first = *scaler();
    for (std::size_t i = 1; i < members_.size(); ++i) {
      if (members_[i]->scaler() == nullptr || *members_[i]->scaler() == first) continue;
      notices_.push_back(
          fmt::format("member {} had loss scale {}, member 0, which the loss is scaled by, {}: all have "
                      "member 0's now",
                      i, members_[i]->scaler()->scale(), first.scale()));
      members_[i]->set_scaler(first);
    }
  }
  const Result<std::optional<std::int64_t>> step = synchronize_steps();
  if (!step) return tl::unexpected(step.error());
  return {};
}

std::vector<std::string> ChainedOptimizer::load_notices() const {
  std::vector<std::string> all = notices_;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    for (const std::string& notice : members_[i]->load_notices()) {
      all.push_back(members_.size() == 1 ? notice : fmt::format("member {}: {}", i, notice));
    }
  }
  return all;
}

Result<std::optional<std::int64_t>> ChainedOptimizer::synchronize_steps() {
  std::optional<std::int64_t> step;
  const std::vector<ParamGroup*> groups = param_groups();
  for (const ParamGroup* group : groups) {
    if (group->params.empty() || !group->step) continue;
    if (step && *step != *group->step) {
      return fail(
          ErrorCode::kState,
          fmt::format("parameter groups of the chain are at steps {} and {}; all make their steps together",
                      *step, *group->step));
    }
    step = group->step;
  }
  if (!step) return step;
  for (ParamGroup* group : groups) {
    if (group->step) group->step = step;
  }
  return step;
}

void ChainedOptimizer::set_model_chunks(std::vector<std::vector<int>> chunks) {
  PL_ASSERT(chunks.size() == members_.size());
  chunks_ = std::move(chunks);
}

Result<std::vector<std::optional<StateDict>>> ChainedOptimizer::split_state_dict(
    const StateDict& state) const {
  std::set<int> distinct;
  for (const auto& own : chunks_) distinct.insert(own.begin(), own.end());
  if (distinct.size() <= 1) return std::vector<std::optional<StateDict>>(members_.size(), state);
  const std::string_view prefix = state.contains("model0") ? "model" : "model_";
  std::vector<std::optional<StateDict>> split;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    std::optional<StateDict>& own = split.emplace_back();
    for (std::size_t local = 0; local < chunks_[i].size(); ++local) {
      const std::string key = fmt::format("{}{}", prefix, chunks_[i][local]);
      const StateValue* chunk = state.find(key);
      if (chunk == nullptr) {
        return fail(ErrorCode::kState,
                    fmt::format("{}: not in the state; member {} of the chain needs this chunk of "
                                "the model",
                                key, i));
      }
      if (!own) own.emplace();
      (*own)[fmt::format("{}{}", prefix, local)] = *chunk;
    }
  }
  return split;
}

Status ChainedOptimizer::reload_model_params(const StateDict* state) {
  std::vector<std::optional<StateDict>> parts(members_.size());
  if (state != nullptr) {
    Result<std::vector<std::optional<StateDict>>> split = split_state_dict(*state);
    if (!split) return tl::unexpected(split.error());
    parts = std::move(*split);
  }
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const Status done = members_[i]->reload_model_params(parts[i] ? &*parts[i] : nullptr);
    if (!done) return of_member(i, done.error());
  }
  return {};
}

Result<ShardedStateDict> ChainedOptimizer::sharded_state_dict(bool is_loading,
                                                              const ShardedMetadata& metadata) {
  if (members_.size() == 1) return members_[0]->sharded_state_dict(is_loading, metadata);
  const Result<std::optional<std::int64_t>> step = synchronize_steps();
  if (!step) return tl::unexpected(step.error());
  ShardedStateDict all;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    ShardedMetadata own = metadata;
    own.prefix += fmt::format("chained_{}.", i);
    Result<ShardedStateDict> part = members_[i]->sharded_state_dict(is_loading, own);
    if (!part) return of_member(i, part.error());
    std::move(part->tensors.begin(), part->tensors.end(), std::back_inserter(all.tensors));
    std::move(part->objects.begin(), part->objects.end(), std::back_inserter(all.objects));
  }
  return all;
}

Status ChainedOptimizer::load_sharded_objects(const std::vector<ShardedObject>& objects,
                                              const ShardedMetadata& metadata) {
  if (members_.size() == 1) return members_[0]->load_sharded_objects(objects, metadata);
  for (std::size_t i = 0; i < members_.size(); ++i) {
    ShardedMetadata own = metadata;
    own.prefix += fmt::format("chained_{}.", i);
    const Status loaded = members_[i]->load_sharded_objects(objects, own);
    if (!loaded) return of_member(i, loaded.error());
  }
  const Result<std::optional<std::int64_t>> step = synchronize_steps();
  if (!step) return tl::unexpected(step.error());
  return {};
}

bool ChainedOptimizer::has_parameter_state() const {
  return std::any_of(members_.begin(), members_.end(),
                     [](const auto& member) { return member->has_parameter_state(); });
}

Result<StateDict> ChainedOptimizer::save_parameter_state() {
  if (members_.size() == 1) return members_[0]->save_parameter_state();
  if (!has_parameter_state()) return MegatronOptimizer::save_parameter_state();
  StateDict all;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    StateValue& own = all[std::to_string(i)];  // None without
    if (!members_[i]->has_parameter_state()) continue;
    Result<StateDict> state = members_[i]->save_parameter_state();
    if (!state) return of_member(i, state.error());
    own = std::move(*state);
  }
  return all;
}

Status ChainedOptimizer::load_parameter_state(const StateDict& state, bool update_legacy_format) {
  if (members_.size() == 1) return members_[0]->load_parameter_state(state, update_legacy_format);
  if (!has_parameter_state()) return MegatronOptimizer::load_parameter_state(state, update_legacy_format);
  if (state.size() != members_.size()) return wrong_count(members_.size(), state.size());
  const Result<StateList> list = as_list(state, "parameter state of a chain");
  if (!list) return tl::unexpected(list.error());
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const auto* own = (*list)[i].get<StateDict>();
    if ((own != nullptr) != members_[i]->has_parameter_state()) {
      return of_member(i, {ErrorCode::kState,
                           fmt::format("its parameter state is {}, but it {} one", describe((*list)[i]),
                                       own == nullptr ? "needs" : "keeps no"),
                           {}});
    }
    if (own == nullptr) continue;
    const Status loaded = members_[i]->load_parameter_state(*own, update_legacy_format);
    if (!loaded) return of_member(i, loaded.error());
  }
  return {};
}

}  // namespace plumbline

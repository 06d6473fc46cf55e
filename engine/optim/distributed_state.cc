// The distributed optimizer's states: settings and steps in the state dict, everything else in pieces.
#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "engine/base/assert.h"
#include "engine/optim/distributed_optimizer.h"

namespace plumbline {
namespace {

using Rule = BaseOptimizerOptions::Rule;

constexpr const char* kMainKey = "fp32_param";
constexpr const char* kStepKey = "optimizer.state.common_step";

struct StateKey {
  const char* name;
  at::Tensor ParamState::*tensor;
  bool of_adam;  // Adam always has it; the others occur with SGD's momentum or on a hybrid device optimizer
};
constexpr std::array<StateKey, 4> kStateKeys = {{{"exp_avg", &ParamState::exp_avg, true},
                                                 {"exp_avg_sq", &ParamState::exp_avg_sq, true},
                                                 {"momentum_buffer", &ParamState::momentum_buffer, false},
                                                 {"master_param", &ParamState::master_param, false}}};

bool known_key(const std::string& key, Rule rule) {
  if (key == kMainKey) return true;
  return std::any_of(kStateKeys.begin(), kStateKeys.end(), [&](const StateKey& known) {
    return key == known.name && (rule == Rule::kAdam || !known.of_adam);
  });
}

// All tensors below a dictionary, names joined with dots.
void flatten(const StateDict& state, const std::string& prefix,
             std::vector<std::pair<std::string, at::Tensor>>& out) {
  for (const auto& [key, value] : state) {
    const std::string name = prefix.empty() ? key : prefix + "." + key;
    if (const auto* tensor = value.get<at::Tensor>()) out.emplace_back(name, *tensor);
    if (const auto* dict = value.get<StateDict>()) flatten(*dict, name, out);
  }
}

Result<at::Tensor> entry_for(const Parameter& parameter,
                             const std::vector<std::pair<std::string, at::Tensor>>& entries) {
  const auto matches = [&](const std::string& name) {
    return name == parameter.name || name.ends_with("." + parameter.name);
  };
  const std::pair<std::string, at::Tensor>* found = nullptr;
  for (const auto& entry : entries) {
    if (!matches(entry.first)) continue;
    if (found != nullptr) {
      return fail(ErrorCode::kState,
                  fmt::format("reload: both {} and {} end with the parameter's name {}; exactly one may",
                              found->first, entry.first, parameter.name));
    }
    found = &entry;
  }
  if (found == nullptr) {
    return fail(ErrorCode::kState,
                fmt::format("reload: no entry of the state dict ends with the name {}", parameter.name));
  }
  if (found->second.sizes() != parameter.value.sizes()) {
    return fail(ErrorCode::kState, fmt::format("reload: {} is {}; parameter {} is {}", found->first,
                                               describe(StateValue(found->second)), parameter.name,
                                               describe(StateValue(parameter.value.detach()))));
  }
  return found->second;
}

}  // namespace

StateDict DistributedOptimizer::state_dict(bool is_loading) {
  StateDict state = MixedPrecisionOptimizer::state_dict(is_loading);
  auto* inner = state["optimizer"].get<StateDict>();
  inner->erase("state");
  for (StateValue& group : *(*inner)["param_groups"].get<StateList>())
    group.get<StateDict>()->erase("params");
  return state;
}

Status DistributedOptimizer::load_state_dict(const StateDict& state) {
  const Result<const StateDict*> saved =
      state.dict(state.contains("optimizer") ? "optimizer" : "optimizer_state_dict");
  if (!saved) return tl::unexpected(saved.error());
  if (const StateValue* states = (*saved)->find("state"); states != nullptr && !states->none()) {
    const auto* dict = states->get<StateDict>();
    if (dict == nullptr || !dict->empty()) {
      return fail(ErrorCode::kState,
                  "optimizer.state: the distributed optimizer's state dict has no states of "
                  "parameters; they come with load_parameter_state()");
    }
  }
  const Result<const StateList*> groups = (*saved)->list("param_groups");
  if (!groups) return tl::unexpected(groups.error());
  const auto source = match_groups(**groups);
  if (!source) return tl::unexpected(source.error());
  std::vector<ParamGroup> next = inner_->param_groups();
  for (std::size_t g = 0; g < next.size(); ++g) {
    next[g].step.reset();
    const auto* settings = (**groups)[(*source)[g]].get<StateDict>();
    if (const Status fine = apply_group_settings(*settings, next[g]); !fine) {
      return fail(fine.error().code, fmt::format("parameter group {}, {}", g, fine.error().message));
    }
    if (!next[g].step || *next[g].step < 0) {
      return fail(
          ErrorCode::kState,
          fmt::format("parameter group {}: no step; the distributed optimizer saves one with every group",
                      g));
    }
  }
  LossScaler scaler = scaler_;
  std::vector<std::string> notices;
  PL_TRY(load_scaler(state, scaler, notices));
  std::move(next.begin(), next.end(), inner_->param_groups().begin());  // in place: schedulers point there
  scaler_ = scaler;
  notices_ = std::move(notices);
  init_state();
  for (const ParamGroup& group : inner_->param_groups()) {
    for (const ParameterPtr& parameter : group.params) {
      if (ParamState* own = inner_->find_state(*parameter)) own->step = *group.step;
      if (*group.step == 0) inner_->erase_state(*parameter);  // saved before its first update
    }
  }
  return {};
}

ParamSizes DistributedOptimizer::sizes() const {
  ParamSizes sizes;
  for (const auto& buffer : placement_.buffers) {
    for (const ParameterPtr& parameter : buffer->params()) sizes[piece_name(*parameter)] = parameter->numel();
  }
  return sizes;
}

std::vector<StatePiece> DistributedOptimizer::own_pieces() {
  std::vector<StatePiece> pieces;
  std::size_t next = 0;
  for (const ParamGroup& group : inner_->param_groups()) {
    for (std::size_t i = 0; i < group.params.size(); ++i, ++next) {
      const Shard& shard = shards_[next];
      StatePiece piece;
      piece.range = {piece_name(*shard.model), shard.range.param_begin, shard.range.param_end};
      piece.numel = shard.model->numel();
      piece.step = *group.step;
      piece.tensors.emplace_back(kMainKey, shard.main->value);
      if (const ParamState* state = inner_->find_state(*shard.main)) {
        for (const StateKey& key : kStateKeys) {
          if ((state->*key.tensor).defined()) piece.tensors.emplace_back(key.name, state->*key.tensor);
        }
      }
      pieces.push_back(std::move(piece));
    }
  }
  return pieces;
}

// Ranges as (place of the name, elements of the parameter, begin, end) from every rank: whatever layout another
// rank has, it is seen.
Result<std::vector<FlatRange>> DistributedOptimizer::ranges_of_all(
    const std::vector<StatePiece>& pieces) const {
  constexpr std::size_t kFields = 4;
  const ParamSizes all = sizes();
  std::vector<std::pair<std::string, std::int64_t>> params(all.begin(), all.end());
  Collective& dp = *placement_.dp;
  std::int64_t most = static_cast<std::int64_t>(pieces.size());
  PL_TRY(dp.all_reduce(DType::kI64, ReduceOp::kMax, reinterpret_cast<std::byte*>(&most), 1));
  const std::size_t part = static_cast<std::size_t>(most) * kFields;
  std::vector<std::int64_t> table(part * static_cast<std::size_t>(dp.size()), -1);
  std::int64_t* own = table.data() + part * static_cast<std::size_t>(dp.rank());
  for (const StatePiece& piece : pieces) {
    *own++ = std::distance(all.begin(), all.find(piece.range.param));
    *own++ = piece.numel;
    *own++ = piece.range.begin;
    *own++ = piece.range.end;
  }
  PL_TRY(dp.all_gather(DType::kI64, reinterpret_cast<std::byte*>(table.data()), part));
  std::vector<FlatRange> ranges;
  for (std::size_t i = 0; i < table.size(); i += kFields) {
    if (table[i] < 0) continue;
    const auto param = static_cast<std::size_t>(table[i]);
    if (param >= params.size() || params[param].second != table[i + 1]) {
      return fail(ErrorCode::kState,
                  "parameter state: the ranks of the data-parallel group have different models");
    }
    ranges.push_back({params[param].first, table[i + 2], table[i + 3]});
  }
  return ranges;
}

Status DistributedOptimizer::verify_own_pieces(const std::vector<StatePiece>& pieces) const {
  if (placement_.dp != nullptr) {
    Result<std::vector<FlatRange>> ranges = ranges_of_all(pieces);
    const Status own =
        ranges ? verify_exact_cover(std::move(*ranges), sizes()) : tl::unexpected(ranges.error());
    float failed = own ? 0.0f : 1.0f;  // no rank may save what another refuses
    PL_TRY(placement_.dp->max(std::span<float>(&failed, 1)));
    if (!own || failed == 0.0f) return own;
    return fail(ErrorCode::kState,
                "parameter state: another rank of the data-parallel group refuses to save; its own "
                "message says why");
  }
  std::vector<FlatRange> ranges;
  for (const StatePiece& piece : pieces) ranges.push_back(piece.range);
  for (const auto& buffer : placement_.buffers) {
    for (int shard = 0; shard < buffer->layout().options().shards; ++shard) {
      if (shard == buffer->options().shard) continue;
      for (int bucket = 0; bucket < buffer->buckets(); ++bucket) {
        for (const ParamShard& range : buffer->layout().shard(bucket, shard)) {
          const Parameter& parameter = *buffer->params()[static_cast<std::size_t>(range.param)];
          ranges.push_back({piece_name(parameter), range.param_begin, range.param_end});
        }
      }
    }
  }
  return verify_exact_cover(std::move(ranges), sizes());
}

Status DistributedOptimizer::check_parameter_state(const char* what) const {
  if (placement_.parameter_state) return {};
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}: parameter state goes over data-parallel ranks on the CPU side, which "
                          "use_gloo_process_groups=false turned off — turn it on, or use sharded state dicts",
                          what));
}

Result<StateDict> DistributedOptimizer::save_parameter_state() {
  PL_TRY(check_parameter_state("save_parameter_state"));
  const std::vector<StatePiece> pieces = own_pieces();
  PL_TRY(verify_own_pieces(pieces));
  return to_state_dict(pieces);
}

Result<std::int64_t> DistributedOptimizer::common_step() const {
  std::optional<std::int64_t> step;
  for (const ParamGroup& group : inner_->param_groups()) {
    if (step && *step != *group.step) {
      return fail(ErrorCode::kState,
                  fmt::format("parameter groups are at steps {} and {}; the legacy form has one for "
                              "all",
                              *step, *group.step));
    }
    step = group.step;
  }
  return step.value_or(0);
}

Status DistributedOptimizer::load_parameter_state(const StateDict& state, bool update_legacy_format) {
  PL_TRY(check_parameter_state("load_parameter_state"));
  const Result<std::int64_t> step = common_step();
  if (update_legacy_format && !step) return tl::unexpected(step.error());
  Result<std::vector<StatePiece>> pieces =
      update_legacy_format ? pieces_of_legacy(state, placement_.buffers, *step) : pieces_of(state);
  if (!pieces) return tl::unexpected(pieces.error());
  const Result<PieceIndex> index = PieceIndex::create(std::move(*pieces), sizes());
  if (!index) return tl::unexpected(index.error());
  return load_pieces(*index);
}

// What the pieces must have for this rule, and the step of each group; absent for a group without elements.
Result<std::vector<std::optional<std::int64_t>>> DistributedOptimizer::check_pieces(
    const PieceIndex& pieces) const {
  const Rule rule = inner_->options().rule;
  for (const std::string& key : pieces.keys()) {
    if (known_key(key, rule)) continue;
    return fail(ErrorCode::kState, fmt::format("parameter state: {} is not a state of this optimizer", key));
  }
  if (!pieces.has(kMainKey) && !pieces.empty()) {
    return fail(ErrorCode::kState, fmt::format("parameter state: no {}", kMainKey));
  }
  std::vector<std::optional<std::int64_t>> steps;
  for (const auto& names : piece_names_) {
    auto& step = steps.emplace_back();
    for (const std::string& name : names) {
      const Result<std::optional<std::int64_t>> own = pieces.step(name);
      if (!own) return tl::unexpected(own.error());
      if (step && *own && *step != **own) {
        return fail(ErrorCode::kState,
                    fmt::format("parameter state: {} is of step {}, others of its group of step {}", name,
                                **own, *step));
      }
      if (*own) step = **own;
    }
    for (const StateKey& key : kStateKeys) {
      if (rule != Rule::kAdam || !key.of_adam || step.value_or(0) == 0 || pieces.has(key.name)) continue;
      return fail(ErrorCode::kState, fmt::format("parameter state: no {} at step {}", key.name, *step));
    }
  }
  return steps;
}

Status DistributedOptimizer::load_pieces(const PieceIndex& pieces) {
  const auto steps = check_pieces(pieces);
  if (!steps) return tl::unexpected(steps.error());
  const at::NoGradGuard no_grad;
  const bool states = pieces.keys().size() > 1;  // more than the main copies
  std::size_t next = 0;
  for (std::size_t g = 0; g < steps->size(); ++g) {
    ParamGroup& group = inner_->param_groups()[g];
    if ((*steps)[g]) group.step = *(*steps)[g];
    for (std::size_t i = 0; i < group.params.size(); ++i, ++next) {
      const Shard& shard = shards_[next];
      const std::string name = piece_name(*shard.model);
      pieces.read(name, kMainKey, shard.range.param_begin, shard.main->value);
      if (!states) {
        inner_->erase_state(*shard.main);
        continue;
      }
      ParamState& own = inner_->state(*shard.main);
      own.step = *group.step;
      for (const StateKey& key : kStateKeys) {
        at::Tensor& tensor = own.*key.tensor;
        if (!pieces.has(key.name)) {
          tensor.reset();
          continue;
        }
        if (!tensor.defined()) tensor = at::zeros_like(shard.main->value, at::kFloat);
        pieces.read(name, key.name, shard.range.param_begin, tensor);
      }
    }
  }
  return {};
}

Status DistributedOptimizer::reload_model_params(const StateDict* state) {
  const at::NoGradGuard no_grad;
  std::map<const Parameter*, at::Tensor> sources;
  if (state != nullptr) {
    std::vector<std::pair<std::string, at::Tensor>> entries;
    flatten(*state, "", entries);
    for (const auto& buffer : placement_.buffers) {
      for (const ParameterPtr& parameter : buffer->params()) {
        const Result<at::Tensor> entry = entry_for(*parameter, entries);
        if (!entry) return tl::unexpected(entry.error());
        sources[parameter.get()] = entry->reshape({-1});
      }
    }
  }
  for (Shard& shard : shards_) {
    if (state != nullptr) {
      shard.main->value.copy_(
          sources[shard.model.get()].narrow(0, shard.range.param_begin, shard.main->numel()));
    } else if (shard.target != nullptr) {
      shard.main->value.copy_(shard.target->value);
    }
  }
  return {};
}

void DistributedOptimizer::localize(std::size_t position, const ShardedMetadata& metadata,
                                    ShardedTensor& tensor) const {
  const Shard& shard = shards_[position];
  const Parameter& model = *shard.model;
  tensor.flattened = true;
  tensor.flat_begin = shard.range.param_begin;
  tensor.local_shape = model.value.sizes().vec();
  tensor.global_shape = model.global_shape.empty() ? tensor.local_shape : model.global_shape;
  tensor.offset = model.global_offset;
  if (tensor.offset.empty()) tensor.offset.assign(tensor.local_shape.size(), 0);
  tensor.replica -= metadata.dp_rank;  // data-parallel ranks hold different parts, not copies
}

Status DistributedOptimizer::load_sharded_objects(const std::vector<ShardedObject>& objects,
                                                  const ShardedMetadata& metadata) {
  PL_TRY(MixedPrecisionOptimizer::load_sharded_objects(objects, metadata));
  std::int64_t step = 0;
  for (const ShardedObject& object : objects) {
    if (object.key != metadata.prefix + kStepKey) continue;
    if (const auto* saved = object.value.get<std::int64_t>()) step = *saved;
  }
  fill_group_steps(step);
  return {};
}

}  // namespace plumbline

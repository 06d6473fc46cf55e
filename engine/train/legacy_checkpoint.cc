#include "engine/train/legacy_checkpoint.h"

#include <algorithm>
#include <map>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "engine/storage/manifest.h"
#include "engine/train/run_arguments.h"

namespace plumbline {
namespace {

constexpr const char* kOwn = "plumbline";

MegatronPlace place_of(const RunConfig& config, Rank rank) {
  MegatronPlace place;
  place.pp = config.grid.coordinate(rank, Axis::kPp);
  place.dp = config.grid.coordinate(rank, Axis::kDp);
  place.pp_size = config.parallel.pp;
  return place;
}

StateDict megatron_arguments(const RunConfig& config, const RunCounters& counters) {
  const ModelConfig& model = config.model;
  StateDict args{{"num_layers", model.layers},
                 {"hidden_size", model.hidden},
                 {"num_attention_heads", model.heads},
                 {"ffn_hidden_size", model.ffn_hidden},
                 {"seq_length", model.seq_length},
                 {"max_position_embeddings", model.seq_length},
                 {"add_position_embedding", true},
                 {"padded_vocab_size", model.vocab},
                 {"micro_batch_size", config.train.micro_batch_size},
                 {"tensor_model_parallel_size", 1},
                 {"pipeline_model_parallel_size", config.parallel.pp},
                 {"data_parallel_size", config.parallel.dp},
                 {"fp16", config.train.precision == Precision::kFp16},
                 {"bf16", config.train.precision == Precision::kBf16},
                 {"iteration", counters.iteration},
                 {"consumed_train_samples", counters.consumed_train_samples},
                 {"consumed_valid_samples", counters.consumed_valid_samples}};
  args["virtual_pipeline_model_parallel_size"] =
      config.schedule.chunks > 1 ? StateValue(config.schedule.chunks) : StateValue();
  return args;
}

// Parameters of each stage that the rank holds, ascending.
std::map<int, std::vector<ShardedTensor>> stages_of(const RankModel& model) {
  std::map<int, std::vector<ShardedTensor>> stages;
  const std::vector<ShardedTensor> weights = model.weights_to_load();
  for (std::size_t i = 0; i < weights.size(); ++i) stages[model.slices()[i].stage].push_back(weights[i]);
  return stages;
}

MegatronContents contents_of(const RunConfig& config, const std::string& data_digest,
                             const RunCounters& counters, const RankState& rank) {
  MegatronContents contents;
  contents.iteration = counters.iteration;
  contents.args = megatron_arguments(config, counters);
  for (const auto& [stage, weights] : stages_of(*rank.model)) {
    StateDict& chunk = contents.models.emplace_back();
    for (const ShardedTensor& weight : weights) chunk[weight.key] = weight.data;
  }
  if (config.checkpoint.save_optim) {
    contents.optimizer = rank.model->optimizer().state_dict();
    contents.scheduler = rank.model->scheduler().state_dict();
  }
  if (config.checkpoint.save_rng)
    contents.rng = {StateDict{{"random_rng_state", {}},
                              {"np_rng_state", {}},
                              {"torch_rng_state", cpu_rng_state()},
                              {"cuda_rng_state", {}},
                              {"rng_tracker_states", rank.random->state_dict()}}};
  contents.more[kOwn] = StateDict{{"updates", counters.updates},
                                  {"skipped", counters.skipped},
                                  {"args", run_arguments(config, data_digest)}};
  return contents;
}

// What is no state of Megatron's, and whether this run may go on from the checkpoint.
Status take_own(const RunConfig& config, const std::string& data_digest, LegacyState& state,
                std::vector<std::string>& notices) {
  const MegatronContents& contents = state.file.contents;
  const Result<const StateDict*> own = contents.more.dict(kOwn);
  if (!own)
    return fail(
        ErrorCode::kState,
        "these files are not of plumbline: their parameters have other names; 'plumbline checkpoint convert' "
        "reads them");
  const bool fresh = config.checkpoint.finetune || contents.iteration == 0;
  state.counters.iteration = contents.iteration;
  if (config.checkpoint.finetune) return {};
  state.counters.consumed_train_samples = state.file.consumed_train_samples;
  state.counters.consumed_valid_samples = state.file.consumed_valid_samples;
  for (const auto& [key, number] :
       {std::pair{"updates", &state.counters.updates}, std::pair{"skipped", &state.counters.skipped}}) {
    const Result<std::int64_t> value = (*own)->integer(key);
    if (!value) return tl::unexpected(value.error());
    *number = *value;
  }
  const Result<const StateDict*> args = (*own)->dict("args");
  if (!args) return tl::unexpected(args.error());
  return compare_arguments(**args, config, data_digest, !fresh && config.checkpoint.load_optim, notices);
}

// Names, types and shapes of one stage against the file's.
Status compare_weights(const StateDict& chunk, const std::vector<ShardedTensor>& weights, std::size_t index) {
  std::string wrong;
  const auto add = [&](const std::string& text) { wrong += (wrong.empty() ? "" : "; ") + text; };
  for (const ShardedTensor& weight : weights) {
    const Result<at::Tensor> saved = chunk.tensor(weight.key);
    if (!saved) {
      add(saved.error().message);
    } else if (saved->sizes() != weight.data.sizes() || saved->scalar_type() != weight.data.scalar_type()) {
      add(fmt::format("{} is {} in the file and {} here", weight.key, describe(StateValue(*saved)),
                      describe(StateValue(weight.data))));
    }
  }
  for (const auto& [key, value] : chunk) {
    const auto own = [&name = key](const ShardedTensor& weight) { return weight.key == name; };
    if (std::none_of(weights.begin(), weights.end(), own)) add(fmt::format("{} is not of this model", key));
  }
  if (wrong.empty()) return {};
  return fail(ErrorCode::kState, fmt::format("model chunk {}: {}", index, wrong));
}

Status load_weights(const std::vector<StateDict>& chunks, const RankModel& model) {
  const std::map<int, std::vector<ShardedTensor>> stages = stages_of(model);
  if (chunks.size() != stages.size())
    return fail(ErrorCode::kState,
                fmt::format("{} model chunks a rank were saved, this run has {}; Megatron's files "
                            "are loaded in the layout that saved them",
                            chunks.size(), stages.size()));
  std::size_t index = 0;
  for (const auto& [stage, weights] : stages) {
    PL_TRY(compare_weights(chunks[index], weights, index));
    ++index;
  }
  const at::NoGradGuard no_grad;
  index = 0;
  for (const auto& [stage, weights] : stages) {
    for (const ShardedTensor& weight : weights) weight.data.detach().copy_(*chunks[index].tensor(weight.key));
    ++index;
  }
  return {};
}

}  // namespace

Result<bool> is_legacy_checkpoint(FileLayer& files, const std::string& path) {
  const Result<PathKind> kind = files.kind(path);
  if (!kind) return tl::unexpected(kind.error());
  if (*kind != PathKind::kDirectory) return false;
  const Result<std::vector<std::string>> names = files.list(path);
  if (!names) return tl::unexpected(names.error());
  return std::find(names->begin(), names->end(), kManifestName) == names->end() &&
         std::any_of(names->begin(), names->end(),
                     [](const std::string& name) { return name.starts_with("mp_rank_"); });
}

Result<std::string> save_legacy(FileLayer& files, ControlChannel& ranks, const RunConfig& config,
                                const std::string& data_digest, const RunCounters& counters,
                                const RankState& rank) {
  MegatronSaveOptions options;
  options.no_save_optim = !config.checkpoint.save_optim;
  options.no_save_rng = !config.checkpoint.save_rng;
  const MegatronPlace place = place_of(config, rank.rank);
  MegatronContents contents;
  contents.iteration = counters.iteration;
  if (place.dp == 0) contents = contents_of(config, data_digest, counters, rank);
  return save_megatron(files, ranks, config.checkpoint.save, place, contents, {}, options);
}

Result<LegacyState> open_legacy(FileLayer& files, ControlChannel& ranks, const RunConfig& config,
                                const std::string& data_digest, std::vector<std::string>& notices) {
  const CheckpointConfig& checkpoint = config.checkpoint;
  MegatronLoadOptions options;
  options.finetune = checkpoint.finetune;
  options.no_load_optim = !checkpoint.load_optim;
  options.no_load_rng = !checkpoint.load_rng;
  if (checkpoint.step >= 0) options.iteration = checkpoint.step;
  Result<MegatronLoaded> loaded = load_megatron(files, ranks, checkpoint.load, place_of(config, ranks.rank()),
                                                megatron_arguments(config, {}), options);
  if (!loaded) return tl::unexpected(loaded.error());
  LegacyState state{std::move(*loaded), {}};
  notices.insert(notices.end(), state.file.notices.begin(), state.file.notices.end());
  PL_TRY(agree(ranks, take_own(config, data_digest, state, notices)));
  const RunCounters& counters = state.counters;
  const Result<std::vector<std::string>> all = ranks.exchange(fmt::format(
      "{} samples of training, {} of evaluation, {} updates, {} skipped", counters.consumed_train_samples,
      counters.consumed_valid_samples, counters.updates, counters.skipped));
  if (!all) return tl::unexpected(all.error());
  for (std::size_t rank = 1; rank < all->size(); ++rank) {
    if ((*all)[rank] != all->front())
      return fail(ErrorCode::kState, fmt::format("{}: files of different saves: rank 0 read {}, rank {} {}",
                                                 checkpoint.load, all->front(), rank, (*all)[rank]));
  }
  return state;
}

Status load_legacy(const LegacyState& state, const RankState& rank, std::vector<std::string>& notices) {
  const MegatronContents& contents = state.file.contents;
  PL_TRY(load_weights(contents.models, *rank.model));
  ChainedOptimizer& optimizer = rank.model->optimizer();
  if (state.file.reload_model_params) {
    PL_TRY(optimizer.reload_model_params());
  } else {
    const auto* saved = contents.optimizer.get<StateDict>();
    const auto* scheduler = contents.scheduler.get<StateDict>();
    if (saved == nullptr || scheduler == nullptr)
      return fail(ErrorCode::kState, "optimizer or scheduler are no dictionaries");
    PL_TRY(optimizer.load_state_dict(*saved));
    PL_TRY(load_scheduler(rank, *scheduler, notices));
  }
  if (contents.rng.empty()) return {};
  return load_random(rank, *contents.rng.front().get<StateDict>());  // checked where they were read
}

}  // namespace plumbline

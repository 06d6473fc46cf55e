// What stands in a model_optim_rng.pt, of today and of old.
#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "engine/checkpoint/megatron.h"
#include "engine/checkpoint/python_names.h"

namespace plumbline {
namespace {

tl::unexpected<Error> refuse(const std::string& what, const std::string& why) {
  return fail(ErrorCode::kState, fmt::format("{}: {}", what, why));
}

// A loss scaler pickled as an object of a module that has moved since: its attributes are what counts.
void unwrap_loss_scalers(StateValue& value) {
  if (auto* list = value.get<StateList>()) {
    for (StateValue& entry : *list) unwrap_loss_scalers(entry);
    return;
  }
  auto* dict = value.get<StateDict>();
  if (dict == nullptr) return;
  if (const StateValue* python = dict->find(kPythonKey)) {
    const auto* name = python->get<std::string>();
    const StateValue* state = dict->find("state");
    if (name != nullptr && state != nullptr &&
        (name->ends_with("LossScaler") || name->ends_with("GradScaler"))) {
      StateValue attributes = *state;
      value = std::move(attributes);
      return;
    }
  }
  for (auto& [key, entry] : *dict) unwrap_loss_scalers(entry);
}

Result<std::int64_t> iteration_of(const StateDict& dict, const std::string& what) {
  for (const char* key : {"iteration", "total_iters"}) {
    if (!dict.contains(key)) continue;
    const Result<std::int64_t> value = dict.integer(key);
    if (!value) return refuse(what, value.error().message);
    if (*value < 0) return refuse(what, fmt::format("{} is {}", key, *value));
    return value;
  }
  return refuse(what, "neither 'iteration' nor 'total_iters': not a checkpoint of training");
}

Status take_models(const StateDict& dict, const std::string& what, MegatronContents& contents) {
  if (const StateValue* model = dict.find("model")) {
    if (model->get<StateDict>() == nullptr) return refuse(what, "'model' is " + describe(*model));
    contents.models.push_back(*model->get<StateDict>());
  }
  for (int chunk = 0; dict.contains(fmt::format("model{}", chunk)); ++chunk) {
    const Result<const StateDict*> model = dict.dict(fmt::format("model{}", chunk));
    if (!model) return refuse(what, model.error().message);
    if (dict.contains("model")) return refuse(what, "both 'model' and 'model0'");
    contents.models.push_back(**model);
  }
  if (contents.models.empty()) return refuse(what, "neither 'model' nor 'model0'");
  return {};
}

Status take_rng(const StateDict& dict, const std::string& what, MegatronContents& contents) {
  constexpr const char* kParts[] = {"random_rng_state", "np_rng_state", "torch_rng_state", "cuda_rng_state",
                                    "rng_tracker_states"};
  if (const StateValue* rng = dict.find("rng_state")) {
    if (const auto* list = rng->get<StateList>()) contents.rng = *list;
    if (contents.rng.empty())
      return refuse(what, "'rng_state' is " + describe(*rng) + "; skip it with no-load-rng");
  } else {
    StateDict flat;
    for (const char* part : kParts) {
      if (const StateValue* state = dict.find(part)) flat[part] = *state;
    }
    if (flat.empty()) return refuse(what, "no random states; skip them with no-load-rng");
    contents.rng = {flat};
  }
  for (const StateValue& one : contents.rng) {
    const auto* states = one.get<StateDict>();
    for (const char* part : kParts) {
      if (states == nullptr || !states->contains(part))
        return refuse(what, fmt::format("random states without '{}'; skip them with no-load-rng", part));
    }
    const auto* tracker = states->at("rng_tracker_states").get<StateDict>();
    // An empty tracker would leave model-parallel dropout without its seeds.
    if (tracker == nullptr || tracker->empty())
      return refuse(what, "rng_tracker_states is empty; skip random states with no-load-rng");
  }
  return {};
}

Status take_optimizer(const StateDict& dict, const std::string& what, MegatronContents& contents) {
  const StateValue* optimizer = dict.find("optimizer");
  if (optimizer == nullptr)
    return refuse(what, "no 'optimizer'; load without it by no-load-optim or finetune");
  contents.optimizer = *optimizer;
  unwrap_loss_scalers(contents.optimizer);
  for (const char* key : {"opt_param_scheduler", "lr_scheduler"}) {
    if (const StateValue* scheduler = dict.find(key)) {
      contents.scheduler = *scheduler;
      return {};
    }
  }
  return refuse(what,
                "neither 'opt_param_scheduler' nor 'lr_scheduler'; load without optimizer by no-load-optim "
                "or finetune");
}

std::int64_t integer_or_0(const StateDict& dict, const char* key) {
  const Result<std::int64_t> value = dict.integer(key);
  return value ? *value : 0;
}

}  // namespace

std::string megatron_folder(const MegatronPlace& place) {
  std::string name = fmt::format("mp_rank_{:02}", place.tp);
  if (place.pp_size > 1) name += fmt::format("_{:03}", place.pp);
  if (place.ep_size > 1) name += fmt::format("_{:03}", place.ep);
  return name;
}

StateDict megatron_dict(const MegatronContents& contents, const MegatronSaveOptions& options) {
  StateDict args{
      {kPythonKey, "argparse.Namespace"}, {"args", StateList{}}, {"new", true}, {"state", contents.args}};
  StateDict dict{
      {"args", std::move(args)}, {"checkpoint_version", contents.version}, {"iteration", contents.iteration}};
  for (std::size_t chunk = 0; chunk < contents.models.size(); ++chunk)
    dict[contents.models.size() == 1 ? "model" : fmt::format("model{}", chunk)] = contents.models[chunk];
  if (!options.no_save_optim && !contents.optimizer.none()) dict["optimizer"] = contents.optimizer;
  if (!options.no_save_optim && !contents.scheduler.none()) dict["opt_param_scheduler"] = contents.scheduler;
  if (!options.no_save_rng && !contents.rng.empty()) dict["rng_state"] = contents.rng;
  for (const auto& [key, value] : contents.more) dict[key] = value;
  return dict;
}

Result<MegatronLoaded> megatron_contents(const StateValue& file, const std::string& what, bool release,
                                         const MegatronLoadOptions& options) {
  const auto* dict = file.get<StateDict>();
  if (dict == nullptr) return refuse(what, fmt::format("holds {}, not a dictionary", describe(file)));
  MegatronLoaded loaded;
  loaded.found = true;
  MegatronContents& contents = loaded.contents;
  const StateValue* version = dict->find("checkpoint_version");
  contents.version = 0.0;  // of before there were versions
  if (version != nullptr) {
    const Result<double> number = dict->number("checkpoint_version");
    if (!number || *number < 0.0 || *number > 3.0)
      return refuse(what, fmt::format("checkpoint_version is {}, 0 to 3 are known",
                                      number ? fmt::format("{}", *number) : describe(*version)));
    contents.version = *number;
  }
  const bool fresh = options.finetune || release;
  const Result<std::int64_t> iteration = iteration_of(*dict, what);
  if (!fresh && !iteration) return tl::unexpected(iteration.error());
  contents.iteration = fresh ? 0 : *iteration;
  if (const StateValue* args = dict->find("args"); args != nullptr && args->get<StateDict>() != nullptr)
    contents.args = *args->get<StateDict>();
  if (!options.finetune) {
    loaded.consumed_train_samples = integer_or_0(contents.args, "consumed_train_samples");
    loaded.consumed_valid_samples = integer_or_0(contents.args, "consumed_valid_samples");
  }
  PL_TRY(take_models(*dict, what, contents));
  if (!fresh && !options.no_load_optim) {
    PL_TRY(take_optimizer(*dict, what, contents));
  } else {
    loaded.reload_model_params = true;
    loaded.notices.push_back(what + ": optimizer and scheduler are not loaded");
  }
  if (!fresh && !options.no_load_rng) PL_TRY(take_rng(*dict, what, contents));
  constexpr const char* kKnown[] = {
      "args",         "checkpoint_version",  "iteration",      "total_iters",       "model",
      "optimizer",    "opt_param_scheduler", "lr_scheduler",   "rng_state",         "random_rng_state",
      "np_rng_state", "torch_rng_state",     "cuda_rng_state", "rng_tracker_states"};
  for (const auto& [key, value] : *dict) {
    const bool chunk = key.starts_with("model") && key.size() > 5 &&
                       key.find_first_not_of("0123456789", 5) == std::string::npos;
    if (!chunk && std::find(std::begin(kKnown), std::end(kKnown), key) == std::end(kKnown))
      contents.more[key] = value;
  }
  return loaded;
}

Status compare_megatron_args(const StateDict& saved, const StateDict& own, double version, bool vocabulary) {
  std::vector<std::pair<const char*, const char*>> names;  // own name, saved name
  for (const char* name : {"num_layers", "hidden_size", "num_attention_heads", "add_position_embedding"})
    names.emplace_back(name, name);
  if (vocabulary) {
    for (const char* name :
         {"max_position_embeddings", "make_vocab_size_divisible_by", "padded_vocab_size", "tokenizer_type"})
      names.emplace_back(name, name);
  }
  if (version < 3.0) {
    names.emplace_back("tensor_model_parallel_size", "model_parallel_size");
  } else {
    names.emplace_back("tensor_model_parallel_size", "tensor_model_parallel_size");
    names.emplace_back("pipeline_model_parallel_size", "pipeline_model_parallel_size");
  }
  std::string differences;
  for (const auto& [mine, theirs] : names) {
    const StateValue *left = saved.find(theirs), *right = own.find(mine);
    if (left == nullptr || right == nullptr) continue;
    const std::string difference = first_difference(*left, *right);
    if (difference.empty()) continue;
    const std::size_t colon = difference.find(": ");
    differences += fmt::format("{}{}{}", differences.empty() ? "" : "; ", mine,
                               colon == std::string::npos ? ": " + difference : difference.substr(colon));
  }
  if (differences.empty()) return {};
  return fail(ErrorCode::kState, "arguments of the checkpoint and of this run differ: " + differences);
}

Result<at::Tensor> repad_rows(const at::Tensor& table, std::int64_t tokens, std::int64_t rows) {
  if (tokens < 1 || rows < tokens || table.dim() < 1 || table.size(0) < tokens)
    return fail(ErrorCode::kState,
                fmt::format("a table of {} cannot be padded to {} rows: {} tokens must fit in both",
                            describe(StateValue(table)), rows, tokens));
  std::vector<std::int64_t> shape = table.sizes().vec();
  shape[0] = rows;
  at::Tensor out = at::zeros(shape, table.options().requires_grad(false));
  const std::int64_t kept = std::min(rows, table.size(0));
  out.narrow(0, 0, kept).copy_(table.detach().narrow(0, 0, kept));
  return out;
}

Result<at::Tensor> reorder_qkv(const at::Tensor& weight, double version, std::int64_t splits,
                               std::int64_t heads) {
  if (version >= 2.0) return weight;
  if ((splits != 2 && splits != 3) || heads < 1 || weight.dim() < 1 || weight.size(0) % (splits * heads) != 0)
    return fail(ErrorCode::kState, fmt::format("a fused weight of {} cannot be {} splits of {} heads",
                                               describe(StateValue(weight)), splits, heads));
  const std::int64_t size = weight.size(0) / (splits * heads);
  std::vector<std::int64_t> shape = weight.sizes().vec(), inner(shape.begin() + 1, shape.end());
  std::vector<std::int64_t> view = version < 1.0 ? std::vector<std::int64_t>{splits, heads, size}
                                                 : std::vector<std::int64_t>{heads, size, splits};
  view.insert(view.end(), inner.begin(), inner.end());
  const at::Tensor split = weight.reshape(view);
  return (version < 1.0 ? split.transpose(0, 1) : split.transpose(1, 2)).contiguous().reshape(shape);
}

}  // namespace plumbline

// Checkpoints as Megatron-LM users know them (its "torch" format): a tracker file,
// iter_0000100/mp_rank_00_000/ model_optim_rng.pt with arguments, models, optimizer, scheduler and random
// states, distrib_optim.pt beside it. The files are committed by the protocol of engine/storage/commit.h,
// which upstream does not do: a crash leaves no half checkpoint and no empty tracker.
//
// Loading never falls back to less than was asked for: missing keys are an error with Megatron's remedy
// (no-load-optim, no-load-rng, finetune), and no exit code says success.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/result.h"
#include "engine/optim/state_dict.h"
#include "engine/storage/control_channel.h"
#include "engine/storage/file_layer.h"
#include "engine/storage/layout.h"

namespace plumbline {

struct MegatronPlace {
  int tp = 0, pp = 0, ep = 0, dp = 0;
  int pp_size = 1, ep_size = 1;  // name parts appear with more than one
};

std::string megatron_folder(
    const MegatronPlace& place);  // "mp_rank_00", "mp_rank_00_000", "mp_rank_00_000_000"

// What model_optim_rng.pt of one model-parallel rank holds.
struct MegatronContents {
  double version = 3.0;
  std::int64_t iteration = 0;
  StateDict args;                 // of the run: names as Megatron's arguments
  std::vector<StateDict> models;  // one: "model"; several chunks: "model0", "model1", ...
  StateValue optimizer;           // None: absent
  StateValue scheduler;           // "opt_param_scheduler"
  StateList rng;                  // "rng_state": one a data-parallel rank if they differ, else one
  StateDict more;                 // whatever else there is, untouched
};

struct MegatronSaveOptions {
  bool no_save_optim = false;
  bool no_save_rng = false;
  bool release = false;  // under release/, tracker "release"
};

StateDict megatron_dict(const MegatronContents& contents, const MegatronSaveOptions& options = {});

// All ranks together. Only data-parallel rank 0 of each model-parallel rank writes `contents` (others may
// pass whatever), with `distributed_optimizer` as distrib_optim.pt. The path of the checkpoint.
Result<std::string> save_megatron(FileLayer& files, ControlChannel& channel, const std::string& directory,
                                  const MegatronPlace& place, const MegatronContents& contents,
                                  const std::optional<StateDict>& distributed_optimizer = {},
                                  const MegatronSaveOptions& options = {});

struct MegatronLoadOptions {
  bool finetune = false;  // iteration 0; no optimizer, scheduler, random states; arguments are not compared
  bool no_load_optim = false;
  bool no_load_rng = false;
  std::optional<std::int64_t> iteration;  // instead of the tracker's
  // Differences of arguments are errors when both sides have the argument. Vocabulary ones are compared on
  // demand.
  bool compare_vocabulary = false;
};

struct MegatronLoaded {
  bool found = false;  // no tracker: everything below is empty, and a notice says that the run starts at 0
  MegatronContents contents;
  std::int64_t consumed_train_samples = 0;
  std::int64_t consumed_valid_samples = 0;
  // The optimizer was left out though masters exist: the caller must copy model parameters to them
  // (MegatronOptimizer::reload_model_params()).
  bool reload_model_params = false;
  std::optional<StateDict> distributed_optimizer;
  std::vector<std::string> notices;
};

// All ranks together; an error on one is an error on all. `args` are the run's own, for comparison.
Result<MegatronLoaded> load_megatron(FileLayer& files, ControlChannel& channel, const std::string& directory,
                                     const MegatronPlace& place, const StateDict& args,
                                     const MegatronLoadOptions& options = {});

// --- parts of it, for tools and tests

// The contents of a file read by read_torch_file(): old names are understood (total_iters, lr_scheduler, flat
// random states, loss scalers pickled under their old modules). `what` names the file.
Result<MegatronLoaded> megatron_contents(const StateValue& file, const std::string& what, bool release,
                                         const MegatronLoadOptions& options = {});

// Every argument on which the two differ, in one error; versions below 3 call the tensor-parallel size
// model_parallel_size and know no pipeline.
Status compare_megatron_args(const StateDict& saved, const StateDict& own, double version, bool vocabulary);

// A table of one row a token (embedding, output layer) padded to another number of rows, as another
// tensor-parallel size or make_vocab_size_divisible_by has it: the first `tokens` rows count, rows beyond the
// table's are zeros. Refuses fewer rows than tokens, in the table or wanted.
Result<at::Tensor> repad_rows(const at::Tensor& table, std::int64_t tokens, std::int64_t rows);

// QKV weights of versions below 2 into today's order (heads, splits, head size), splits = 3, or 2 for
// key-value: version 0 stored (splits, heads, head size), version 1 (heads, head size, splits). The first
// dimension is the fused one.
Result<at::Tensor> reorder_qkv(const at::Tensor& weight, double version, std::int64_t splits,
                               std::int64_t heads);

}  // namespace plumbline

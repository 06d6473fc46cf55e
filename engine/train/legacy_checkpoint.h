// A run's state in Megatron-LM's own files (--ckpt-format torch, checkpoint/megatron.h): one model_optim_rng.pt a
// pipeline rank, written by data-parallel rank 0.
//
//   args                  Megatron's names; consumed samples among them
//   model | model0...     parameters of a stage by their names here
//   optimizer, opt_param_scheduler, rng_state     as the classes of those names have them
//   plumbline             {updates, skipped, args}: what Megatron has no place for
//
// These files know no parts of tensors, so that only the layout that saved them loads them, with any number of
// replicas. The distributed optimizer's file is not written: its states lie on all ranks and Megatron gathers them
// through one, which the native format does not need.
#pragma once

#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/checkpoint/megatron.h"
#include "engine/config/run_config.h"
#include "engine/storage/control_channel.h"
#include "engine/storage/file_layer.h"
#include "engine/train/run_state.h"

namespace plumbline {

// Whether there are such files below a checkpoint's path, and no manifest.
Result<bool> is_legacy_checkpoint(FileLayer& files, const std::string& path);

// One rank's part in a save; all ranks together.
Result<std::string> save_legacy(FileLayer& files, ControlChannel& ranks, const RunConfig& config,
                                const std::string& data_digest, const RunCounters& counters,
                                const RankState& rank);

struct LegacyState {
  MegatronLoaded file;  // of one rank
  RunCounters counters;
};
// One rank's part in opening one; all ranks together. Arguments are compared as run_arguments.h says.
Result<LegacyState> open_legacy(FileLayer& files, ControlChannel& ranks, const RunConfig& config,
                                const std::string& data_digest, std::vector<std::string>& notices);

// Fills a rank's model, optimizer, scheduler and random states. Parameters are all compared before one is changed.
Status load_legacy(const LegacyState& state, const RankState& rank, std::vector<std::string>& notices);

}  // namespace plumbline

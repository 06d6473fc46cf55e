// Saves and loads ShardedStateDicts, all ranks together: any layout saved, any layout loaded. The files and
// the protocol are engine/storage's; here tensors meet them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/optim/collective.h"
#include "engine/optim/sharded_tensor.h"
#include "engine/storage/load_plan.h"
#include "engine/storage/read.h"
#include "engine/storage/save.h"

namespace plumbline {

using AliasTable = std::vector<std::pair<std::string, std::string>>;  // second name -> key

// What save_checkpoint() takes, and the memory it points into: tensors that were contiguous on the CPU are
// not copied, so they must stay as they are until the save is done (AsyncSaver clones first).
struct PreparedState {
  CheckpointToSave request;
  std::vector<at::Tensor> held;
};
Result<PreparedState> prepare_state(std::int64_t iteration, const ShardedStateDict& state,
                                    const AliasTable& aliases = {});

// Objects that several ranks hold are saved by the lowest one that has them: it gets replica 0, all others 1. For
// states whose holders depend on what a rank happens to have (one without parameters has no steps). An exchange.
Status choose_owners(ControlChannel& channel, ShardedStateDict& state);

// What a rank holds as if no one else were: every part of a tensor is a whole tensor, whose name says which part it is,
// and every object is this rank's own. The tensors are the same memory. Saved and loaded over lone_channel() by a rank
// that holds the same parts. Of parts that it holds twice (a tied weight) one is saved and both are loaded.
ShardedStateDict localized(const ShardedStateDict& state, bool is_loading);

// A rank whose state cannot be stored makes the save fail on every rank.
Result<Saved> save_sharded(FileLayer& files, ControlChannel& channel, const std::string& directory,
                           std::int64_t iteration, const ShardedStateDict& state,
                           const AliasTable& aliases = {}, const SaveOptions& options = {});

struct LoadedState {
  std::int64_t iteration = 0;
  std::vector<ShardedObject> objects;  // those asked for, for MegatronOptimizer::load_sharded_objects()
  LoadPlan plan;
};

// `reader` is verified (open_verified()). Checks the requests of all ranks - every tensor of `state` and
// every object, whose values do not matter - and only then fills the tensors in place and reads the objects.
Result<LoadedState> load_sharded(const CheckpointReader& reader, ControlChannel& channel,
                                 ShardedStateDict& state, const LoadRules& rules = {});

// The whole tensor `key`, and the object; for tools and tests.
Result<at::Tensor> read_tensor(const CheckpointReader& reader, const std::string& key);
Result<StateValue> read_object(const CheckpointReader& reader, const std::string& key);

// ControlChannel over a group's all-gathers.
std::unique_ptr<ControlChannel> collective_channel(std::shared_ptr<Collective> group);

}  // namespace plumbline

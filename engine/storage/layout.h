// Names below a directory of checkpoints, as Megatron has them, and what else lies there while saving.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "engine/storage/file_layer.h"

namespace plumbline {

inline constexpr std::string_view kTrackerName = "latest_checkpointed_iteration.txt";

std::string iteration_name(std::int64_t iteration);                      // "iter_0000100"
std::optional<std::int64_t> iteration_from_name(std::string_view name);  // that form only

struct Tracker {
  bool release = false;  // "release" instead of a number
  std::int64_t iteration = 0;
};

// Absent when there is no tracker. One that is neither a number of at least 0 nor "release" is an error.
Result<std::optional<Tracker>> read_tracker(FileLayer& files, const std::string& directory);
// Durable on return; old or new, whatever happens.
Status write_tracker(FileLayer& files, const std::string& directory, const Tracker& tracker);
std::string tracker_folder(const Tracker& tracker);  // "iter_0000100" or "release"

// Iterations for which there is a directory, ascending.
Result<std::vector<std::int64_t>> list_iterations(FileLayer& files, const std::string& directory);

// A checkpoint of the same iteration is moved aside (`.old_iter_...`) before the new one takes its name, so
// for an instant there may be no other. The path to read: the name itself, else what was moved aside, if that
// is there.
Result<std::string> resolve_folder(FileLayer& files, const std::string& directory, const std::string& name);

// Removes what crashed saves left behind and moves back what they had moved aside. Only by who holds the
// lock.
Status clean_up(FileLayer& files, const std::string& directory);

std::string staging_path(const std::string& directory, const std::string& name);
std::string aside_path(const std::string& directory, const std::string& name);
std::string lock_path(const std::string& directory);
// Of these iterations the checkpoints of plumbline's own format; others' are not ours to remove. Only by who holds the
// lock.
Status retire_iterations(FileLayer& files, const std::string& directory,
                         const std::vector<std::int64_t>& iterations);
// What a run that was set back has left behind it: the iterations after `iteration` are removed, and a tracker that
// names one of them before that. Takes the lock. Fine when there is no such directory.
Status forget_later(FileLayer& files, const std::string& directory, std::int64_t iteration);
// Out of sight first, so that a crash in the middle leaves no half checkpoint under a name.
Status retire(FileLayer& files, const std::string& directory, const std::string& name);

}  // namespace plumbline

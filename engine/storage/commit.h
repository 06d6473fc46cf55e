// Commits a directory of any format as a checkpoint, all ranks together, by the protocol of save.h: staged,
// written, renamed, tracker last; a failure anywhere is the same error on every rank and leaves the old
// checkpoint the newest.
#pragma once

#include <functional>
#include <string>

#include "engine/base/result.h"
#include "engine/storage/control_channel.h"
#include "engine/storage/file_layer.h"
#include "engine/storage/layout.h"

namespace plumbline {

// `write` puts this rank's files below the path it gets, and syncs them and the directories it makes there.
// Returns the checkpoint's path.
Result<std::string> commit_directory(FileLayer& files, ControlChannel& channel, const std::string& directory,
                                     const Tracker& tracker,
                                     const std::function<Status(const std::string&)>& write);

}  // namespace plumbline

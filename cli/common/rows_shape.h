// A schedule that a file lists says how many ranks, chunks and microbatches there are: no command needs them said
// again, and none goes on where file and configuration contradict each other.
#pragma once

#include <string>

#include "engine/config/loader.h"
#include "engine/schedule/schedule.h"

namespace plumbline::cli {

// Puts them where nothing was given; `name` is the file's. Error (kConfig): a value that was given is another.
Status shape_from_rows(const Schedule& schedule, const std::string& name, LoadedConfig& loaded);

// The same from the file of a csv schedule; nothing for every other schedule.
Status shape_from_file(LoadedConfig& loaded);

}  // namespace plumbline::cli

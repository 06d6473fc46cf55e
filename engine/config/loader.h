// Loads a configuration: defaults < TOML file < environment PLUMBLINE_<SECTION>_<KEY> < --set and flags in
// command order. The result is typed but not validated (validate.h). The origin of each value is kept.
//
// Lists ([time] links, slow; [faults] overflow): a repeated flag adds to what lower layers gave, every other
// form replaces it. schedule.microbatches and schedule.global_batch_size describe one thing: the one given by
// the higher layer drops the other; in the same layer both stand, and the validator compares them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/config/assignment.h"
#include "engine/config/origins.h"
#include "engine/config/run_config.h"

namespace plumbline {

using Environment = std::map<std::string, std::string>;

struct LoadRequest {
  std::vector<std::string>
      arguments;  // flags and at most one word: FILE.toml, or FILE.csv as --schedule csv --schedule-csv FILE
  Environment environment;          // all variables may be given; only PLUMBLINE_* are read
  std::optional<std::string> text;  // of the file, where it has been read already (standard input)
};

struct LoadedConfig {
  RunConfig config;
  Origins origins;
  std::string file;                   // empty: none
  std::vector<std::string> warnings;  // one line each
};

Result<LoadedConfig> load_config(const LoadRequest& request);

// The variables of this process whose names begin with PLUMBLINE_.
Environment process_environment();

// Stores assignments in order; the error carries the origin, the value, what is wrong and the rule.
Status apply_assignments(const Assignments& assignments, LoadedConfig& loaded);

}  // namespace plumbline

// Megatron's launch flags as a configuration: what plumbline has too is taken over, by the same table of options;
// what it has not is listed. Some flags are translated: layers a virtual stage and layout strings to a number of
// chunks, the world size to data-parallel replicas, and calls to the interleaved schedule's default.
#pragma once

#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/config/launch_script.h"
#include "engine/config/options.h"
#include "engine/config/run_config.h"

namespace plumbline {

struct MegatronImport {
  RunConfig config;                    // not validated
  std::vector<const Option*> options;  // those that were given or translated, in table order
  int tp = 1, cp = 1, ep = 1;          // of the script; the configuration keeps 1
  std::vector<std::string> notes;      // what was translated, one line each
  std::vector<std::string> ignored;    // flags without a counterpart, in order of the script
};

// Errors: a value that an option refuses, with the script's line; sizes that do not divide.
Result<MegatronImport> import_megatron(const LaunchScript& script, const std::string& name);

// The TOML that loads to it: given options only, notes and ignored flags as comments.
std::string megatron_import_toml(const MegatronImport& import);

}  // namespace plumbline

// The one validator. It checks every rule of a configuration, derives what follows from the rest
// (microbatches from the global batch size, group_size, ffn_hidden, link latencies, the rank grid) and
// reports all broken rules, each with its origin, value, rule and fix. Validating a validated configuration
// changes nothing.
//
// Not refused: batched calls with pp = 2 and several chunks. Megatron refuses that combination in its
// argument parser (neighbours on both sides are the same rank, so a group may pair the wrong messages); here
// it is a warning, because finding that fault in the Program is what `plumbline check` is for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/config/origins.h"
#include "engine/config/run_config.h"

namespace plumbline {

// What the configuration is for. Only kRun needs a model that divides over its stages.
enum class Purpose : std::uint8_t { kCheck, kSim, kRun };

struct Validation {
  RunConfig config;                   // with derived values; meaningless when there are errors
  std::vector<Error> errors;          // in the order of the option table
  std::vector<std::string> warnings;  // one line each

  bool ok() const { return errors.empty(); }
};

Validation validate_all(RunConfig config, const Origins& origins = {}, Purpose purpose = Purpose::kRun);

// The first error, its message ending with how many more there are.
Result<RunConfig> validate(RunConfig config, const Origins& origins = {}, Purpose purpose = Purpose::kRun);

}  // namespace plumbline

// Random configurations from one 64-bit seed. Drawing a seed and deriving everything from it costs a
// thousandth of drawing element by element; a failing seed is the reproduction.
#pragma once

#include <cstdint>
#include <string>

#include "engine/config/run_config.h"

namespace plumbline::props {

struct ConfigLimits {
  int ranks = 6;
  int chunks = 3;
  int microbatches = 16;
  int replicas = 2;
};

// A valid configuration: schedule kind, pp, chunks, microbatches, group size, dp, p2p style, communicator
// map, precision, costs. It passes validate().
RunConfig random_config(std::uint64_t seed, const ConfigLimits& limits = {});

// "1f1b pp=4 m=8 dp=2 separate pair", for messages.
std::string config_words(const RunConfig& config);

}  // namespace plumbline::props

// Generators: one file each, self-registering, with picture, formula and source at its top. To add a
// schedule, copy gpipe.cc, change the three things it defines and run `plumbline check --schedule NAME`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "engine/schedule/costs.h"
#include "engine/schedule/schedule.h"

namespace plumbline {

struct GeneratorArgs {
  int ranks = 1;         // pipeline size P
  int chunks = 1;        // stages a rank V; stages = P * V
  int microbatches = 1;  // M
  int group_size = 0;    // microbatch group size G of the interleaved schedules; 0 means P
  bool forward_only = false;
  int slices = 1;  // parts a sequence is cut into (seq-1f1b); microbatches count whole sequences
  // What the steps cost: read by the generators that search, ignored by those that follow a rule.
  StageCosts costs;
  ActivationModel activations;
};

struct Generator {
  std::string name;         // "1f1b"
  std::string summary;      // one line
  std::string constraints;  // in words: "M >= 1"
  std::string bubble;       // formula of the bubble, metric named
  std::string memory;       // formula of the peak number of live activations
  std::string source;       // paper or upstream file
  // Refuses arguments that break the constraints, naming rule and fix.
  Result<Schedule> (*make)(const GeneratorArgs& args) = nullptr;
};

// All registered generators, sorted by name.
const std::vector<Generator>& generators();
// The generator of this name; an unknown name is an error with the nearest known one.
Result<const Generator*> find_generator(std::string_view name);

namespace detail {
// A global object of this type in a generator's file registers it before main. Two of one name are a
// programmer error.
struct RegisterGenerator {
  explicit RegisterGenerator(Generator generator);
};
// The generators of engine/schedule, listed by the build.
RegisterGenerator* const* linked_generators();
}  // namespace detail

}  // namespace plumbline

// The shape that both texts of a scenario share, as a tree of JSON values. Only for sim/scenario.
#pragma once

#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "sim/scenario/scenario.h"

namespace plumbline::scenario {

using Json = nlohmann::json;

// Where the values of a tree stand. A value's path reads "threads[1].host_ops[0].ops[2].peer".
struct Source {
  std::string file;
  int line = 0;
  // Places that are known exactly; others take the place of the nearest value around them.
  std::map<std::string, Where> places;

  Where where(std::string path) const;
};

// Checks every key, type, range and name.
Result<Scenario> scenario_of(const Json& tree, const Source& source);

}  // namespace plumbline::scenario

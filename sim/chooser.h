// Chooser: decides where more than one order of events is possible and the order may matter. One that draws at
// random samples schedules; one that goes through all combinations explores them (sim/explore.h).
#pragma once

#include <cstddef>

namespace plumbline {

class Chooser {
 public:
  virtual ~Chooser() = default;
  // From 0 to `alternatives` - 1; at least two.
  virtual std::size_t choose(std::size_t alternatives) = 0;
};

}  // namespace plumbline

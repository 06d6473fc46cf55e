// What check() is told, and tells, about a Program that stands for a larger one (quotient.h).
#pragma once

#include <cstdint>
#include <vector>

#include "sim/verify/check.h"

namespace plumbline::verify {

struct Reduced {
  int replicas = 1;
  std::vector<int> members;           // by communicator: as many as a collective's time is for
  std::vector<std::uint64_t> hashes;  // out, by thread: what goes into the trace hash
};

Result<Verdict> check_reduced(const LinkedProgram& linked, const CheckOptions& options, Reduced& reduced);

}  // namespace plumbline::verify

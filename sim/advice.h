// Advice: what a verdict says besides yes or no - which assumptions about NCCL it rests on, what in the Program is
// not portable, and a change that would mend a hang.
#pragma once

#include <cstdint>

#include "engine/program/link.h"
#include "engine/runtime/time_model.h"
#include "sim/verdict.h"

namespace plumbline {

struct AdviceOptions {
  // Sensitivity and hints cost tens of simulations: for Programs that do not hold and are at most this large, or
  // for all.
  std::int64_t most_operations = 20'000;
  // Portability is one walk over the items, with a few words kept for every group.
  std::int64_t most_portability = 2'000'000;
  bool always = false;
};

// Fills Verdict::portability, and where they are due Verdict::sensitivity and the hints of deadlocks.
Status add_advice(const LinkedProgram& linked, const TimeModel& time, const AdviceOptions& options,
                  Verdict& verdict);

}  // namespace plumbline

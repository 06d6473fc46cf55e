// Coverage: in a whole step every stage computes every microbatch once - one F, and unless the Program is
// forward only, one B or one I with its W. Slots find most of what is missing; they say nothing about a
// computation whose result nobody uses.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/verdict.h"
#include "sim/verify/host_pass.h"
#include "sim/verify/world.h"

namespace plumbline::verify {

// Sums of this number over microbatches tell sets apart without keeping them.
constexpr std::uint64_t microbatch_tally(int microbatch) {
  std::uint64_t x = (static_cast<std::uint64_t>(microbatch) + 1) * 0x9E3779B97F4A7C15u;
  x ^= x >> 29;
  return x * 0xBF58476D1CE4E5B9u;
}

std::vector<Finding> check_coverage(const CheckWorld& world,
                                    const ScratchVector<const RangeFacts*>& facts_of);

}  // namespace plumbline::verify

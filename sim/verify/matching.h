// Matching: which sends meet which receives, and whether they agree, decided from the items alone - k-th send
// with k-th receive of a directed link (N20), i-th collective of a communicator on each member (N57) -
// whether or not the run gets there. It is the explanation behind the fast pass's "something does not match",
// and visits everything again.
#pragma once

#include <array>
#include <vector>

#include "sim/verdict.h"
#include "sim/verify/world.h"

namespace plumbline::verify {

std::vector<Finding> explain_matching(const CheckWorld& world, Arm arm);

// Messages of one size whose ends are labelled differently, by the arm that is taken: [0] no, [1] yes (or no arm at
// all). For backends that move bytes and cannot see labels; the first operation of each is the receive.
std::array<std::vector<Finding>, 2> crossed_labels(const CheckWorld& world);

// Items of a thread that are executed in an arm and that `port_matches`, in host order.
template <typename Matches>
std::vector<std::uint32_t> items_where(const CheckWorld& world, std::size_t thread, Arm arm,
                                       Matches port_matches) {
  std::vector<std::uint32_t> out;
  const Program& program = *world.program;
  for (std::uint32_t first = program.threads[thread].begin; first < program.threads[thread].end;) {
    if (item_op(program.items[first]) != ItemOp::kOp) {
      ++first;
      continue;
    }
    const std::uint32_t end = group_end(program, first);
    // An arm is a property of the whole group, told by its last entry.
    const bool skipped = (item_flags(program.items[end - 1]) & skipped_flags(arm)) != 0;
    for (; first < end; ++first) {
      const Port& port = world.port(thread, item_ref(program.items[first]));
      if (!skipped && !port.dropped && port_matches(port)) out.push_back(first);
    }
  }
  return out;
}

}  // namespace plumbline::verify

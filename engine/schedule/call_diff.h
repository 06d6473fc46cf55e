// What differs between two lists of calls a rank - rows of a schedule, items of a Program - told as moves: the
// fewest calls whose removal leaves both ranks in the same order, and calls that are only in one of them, or on
// another rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/schedule/schedule.h"

namespace plumbline {

// A row a rank, each call in words. Equal words are told apart by their turn.
using CallRows = std::vector<std::vector<std::string>>;

enum class CallChange : std::uint8_t {
  kMoved,    // on the same rank, in another place among the others
  kRank,     // on another rank
  kRemoved,  // only before
  kAdded,    // only after
  kChanged,  // in its place, but done in another way: other groups, waits, streams
};

struct CallMove {
  CallChange change = CallChange::kMoved;
  std::string call;
  // Rank and position, from 0; -1 where there is none.
  int from_rank = -1, from = -1;
  int to_rank = -1, to = -1;
  // The calls that it stood behind and stands behind now, in words; empty: the row's begin. Of kChanged: how it was
  // done and is done now.
  std::string from_after, to_after;
};

struct CallDiff {
  std::vector<CallMove> moves;        // by rank and position before; then what was added
  std::size_t before = 0, after = 0;  // calls

  bool equal() const { return moves.empty(); }
};

CallDiff diff_calls(const CallRows& before, const CallRows& after);
// The same where each call has details that do not tell it from others, in rows of the same lengths.
CallDiff diff_calls(const CallRows& before, const CallRows& after, const CallRows& details_before,
                    const CallRows& details_after);

// The rows of a schedule in its grammar; a pair is one call.
CallRows call_rows(const Schedule& schedule);

}  // namespace plumbline

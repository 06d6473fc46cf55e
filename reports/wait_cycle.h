// A deadlock's cycle, folded to one hop a rank: what each rank is stuck in, and what it therefore keeps from
// the one before.
#pragma once

#include <string>
#include <vector>

#include "sim/verdict.h"

namespace plumbline {

// Rank `rank` is stuck in `stuck_in`, which needs `needs` of rank `next`. `needs` is behind what `next` is
// stuck in.
struct CycleHop {
  Rank rank = 0;
  Rank next = 0;
  std::string stuck_in;  // "1SEND_F0 to rank 0"
  std::string needs;     // "0RECV_F0 from rank 1"
  std::string reason;    // why it needs it
  std::string behind;    // why `next` does not get to `needs`
};

// In the cycle's order, the last hop leads back to the first. A cycle inside one rank gives one hop to
// itself.
std::vector<CycleHop> cycle_hops(const std::vector<WaitEdge>& cycle);

// "0 --SEND_F1--> 1 --SEND_F0--> 0"
std::string cycle_line(const std::vector<CycleHop>& hops);
// "2 ranks wait in a cycle: rank 0 is in 0SEND_F1, which waits for 1RECV_F1 of rank 1, which is behind its
// 1SEND_B0, ..."
std::string cycle_sentence(const std::vector<CycleHop>& hops);

// "rank 1's 1RECV_F0 from rank 0", "rank 1's host at turn of C".
std::string of_rank(Rank rank, const std::string& text);

// An operation's text without the stage before and the words after: "SEND_F5" of "2SEND_F5 to rank 3".
std::string short_operation(const std::string& text);

// The finding that a report leads with: the first deadlock with a cycle, else the first deadlock, else the
// first of all; null when the verdict holds. `mode` receives the name of its mode, or is emptied.
const Finding* leading_finding(const Verdict& verdict, std::string* mode = nullptr);

// What every finding kind means, in words: "deadlock", "a receive gets another tensor than its reader needs".
std::string_view finding_words(FindingKind kind);

}  // namespace plumbline

// torch's defer_pp_recv: receives move down to the computation that reads them.
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "engine/schedule/torch_passes.h"

namespace plumbline {
namespace {

bool sends_up(const Action& action) { return action.kind == ActionKind::kSendForward; }

// The receives of one rank that were passed and are not posted yet.
class Pending {
 public:
  explicit Pending(const Schedule& schedule) : schedule_(schedule) {}

  // False: the same receive is pending already.
  bool add(const Action& receive) {
    const int from = receive.kind == ActionKind::kRecvForward ? receive.stage - 1 : receive.stage + 1;
    const Entry entry{peer(from, receive), next_++};
    return by_label_.emplace(label(receive), entry).second &&
           by_peer_[entry.peer].emplace(entry.order, receive).second;
  }

  // What this computation reads, if that is pending.
  void post_for(const Action& computation, std::vector<Action>* row) {
    Action receive = computation;
    receive.paired = 0;
    if (computation.kind == ActionKind::kWeightGrad) return;
    receive.kind =
        computation.kind == ActionKind::kForward ? ActionKind::kRecvForward : ActionKind::kRecvBackward;
    const auto found = by_label_.find(label(receive));
    if (found == by_label_.end()) return;
    row->push_back(receive);
    by_peer_[found->second.peer].erase(found->second.order);
    by_label_.erase(found);
  }

  // Everything from the peer that this send goes to, if that is a higher rank.
  void post_before(const Action& send, int rank, std::vector<Action>* row) {
    const int to = peer(sends_up(send) ? send.stage + 1 : send.stage - 1, send);
    if (rank >= to) return;
    for (const auto& [order, receive] : by_peer_[to]) {
      row->push_back(receive);
      by_label_.erase(label(receive));
    }
    by_peer_[to].clear();
  }

  const Action* left() const {
    for (const auto& [peer, receives] : by_peer_)
      if (!receives.empty()) return &receives.begin()->second;
    return nullptr;
  }

 private:
  using Label = std::tuple<ActionKind, int, int>;
  struct Entry {
    int peer = 0;
    int order = 0;
  };
  static Label label(const Action& action) { return {action.kind, action.stage, action.microbatch}; }

  int peer(int stage, const Action& action) const {
    if (stage < 0 || stage >= schedule_.stages || action.microbatch < 0 ||
        action.microbatch >= schedule_.microbatches)
      return -1;
    return schedule_.rank_of(stage, action.microbatch);
  }

  const Schedule& schedule_;
  int next_ = 0;
  std::map<Label, Entry> by_label_;
  std::map<int, std::map<int, Action>> by_peer_;
};

}  // namespace

Result<Schedule> defer_receives(const Schedule& schedule) {
  Schedule out = schedule;
  out.actions.clear();
  out.offsets.assign(1, 0);
  std::vector<Action> row;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    Pending pending(schedule);
    row.clear();
    const std::span<const Action> given = schedule.row(rank);
    for (std::size_t i = 0; i < given.size(); ++i) {
      const Action& action = given[i];
      if (is_p2p(action.kind) && !is_send(action.kind)) {
        if (pending.add(action)) continue;
        return fail(ErrorCode::kConfig,
                    fmt::format("rank {} receives {} twice; remove one of them", rank, print_action(action)));
      }
      if (is_send(action.kind)) pending.post_before(action, rank, &row);
      if (is_compute(action.kind)) pending.post_for(action, &row);
      if (action.paired != 0) pending.post_for(given[i + 1], &row);
      row.push_back(action);
      if (action.paired != 0) row.push_back(given[++i]);
    }
    if (const Action* left = pending.left(); left != nullptr) {
      return fail(
          ErrorCode::kConfig,
          fmt::format("rank {} receives {}, but no computation after it reads that; remove the receive or "
                      "move it before its reader",
                      rank, print_action(*left)));
    }
    out.add_row(row);
  }
  return out;
}

}  // namespace plumbline

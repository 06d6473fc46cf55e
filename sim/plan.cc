#include "sim/plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace plumbline::sim {
namespace {

struct Item {
  std::uint32_t epoch = 0;
  std::int32_t round = 0;
  std::vector<std::uint32_t> ops;  // one or two
};

// What is still to be planned, by round.
class Queues {
 public:
  Queues(const std::vector<PlannedOp>& ops, std::int32_t place, std::int32_t members)
      : sends_(static_cast<std::size_t>(members)),
        receives_(static_cast<std::size_t>(members)),
        left_(ops.size()) {
    for (std::uint32_t i = 0; i < ops.size(); ++i) {
      const std::int32_t apart = ops[i].send ? ops[i].peer - place : place - ops[i].peer;
      const auto round = static_cast<std::size_t>((apart % members + members) % members);
      (ops[i].send ? sends_ : receives_)[round].ops.push_back(i);
    }
  }

  std::size_t rounds() const { return sends_.size(); }
  std::size_t left() const { return left_; }

  // The next pair of the round; empty when both of its queues are.
  std::vector<std::uint32_t> take(std::size_t round) {
    std::vector<std::uint32_t> pair;
    for (Queue* queue : {&sends_[round], &receives_[round]}) {
      if (queue->head < queue->ops.size()) pair.push_back(queue->ops[queue->head++]);
    }
    left_ -= pair.size();
    return pair;
  }

 private:
  struct Queue {
    std::vector<std::uint32_t> ops;
    std::size_t head = 0;
  };
  std::vector<Queue> sends_, receives_;
  std::size_t left_;
};

// The items of each kernel. One that is closed goes on where it stopped, or, in old versions, scans from the
// first round of the first epoch again.
std::vector<std::vector<Item>> kernels_of(Queues queues, const GroupProgress& progress) {
  const auto limit = progress.plan_items > 0 ? static_cast<std::size_t>(progress.plan_items) : queues.left();
  std::vector<std::vector<Item>> kernels;
  std::uint32_t epoch = 0;
  std::size_t round = 0;
  while (queues.left() > 0) {
    std::vector<Item>& kernel = kernels.emplace_back();
    while (queues.left() > 0 && kernel.size() < limit) {
      Item item{epoch, static_cast<std::int32_t>(round), queues.take(round)};
      if (!item.ops.empty()) kernel.push_back(std::move(item));
      if (++round < queues.rounds()) continue;
      round = 0;
      ++epoch;
    }
    if (!progress.plan_restart) continue;
    epoch = 0;
    round = 0;
  }
  return kernels;
}

bool same_batch(const std::vector<Item>& batch, const Item& item, const GroupProgress& progress) {
  if (batch.size() >= static_cast<std::size_t>(progress.batch)) return false;
  if (progress.batch_epochs && item.epoch != batch.back().epoch) return false;
  if (item.round / 8 != batch.back().round / 8) return false;
  return std::none_of(batch.begin(), batch.end(),
                      [&](const Item& other) { return other.round == item.round; });
}

}  // namespace

std::vector<PlanPiece> plan_pieces(const std::vector<PlannedOp>& ops, std::int32_t place,
                                   std::int32_t members, const GroupProgress& progress) {
  std::vector<PlanPiece> pieces;
  if (progress == GroupProgress{}) {
    PlanPiece& all = pieces.emplace_back();
    all.kernel = true;
    all.ops.resize(ops.size());
    std::iota(all.ops.begin(), all.ops.end(), 0U);
    return pieces;
  }
  for (const std::vector<Item>& kernel : kernels_of(Queues(ops, place, members), progress)) {
    std::vector<Item> batch;
    bool first = true;
    const auto close = [&] {
      if (batch.empty()) return;
      PlanPiece& piece = pieces.emplace_back();
      piece.kernel = std::exchange(first, false);
      for (const Item& item : batch) piece.ops.insert(piece.ops.end(), item.ops.begin(), item.ops.end());
      batch.clear();
    };
    for (const Item& item : kernel) {
      if (progress.batch > 0 && !batch.empty() && !same_batch(batch, item, progress)) close();
      batch.push_back(item);
    }
    close();
  }
  return pieces;
}

}  // namespace plumbline::sim

// Hanayo's waves: the model goes down the ranks and back up, W times; no copy of the weights, as a
// bidirectional pipeline needs, and smaller bubbles than 1F1B.
//
//   P = 2, V = 2, M = 2, a backward takes two steps
//   (0 1 forward, a b backward of the same microbatches, ' marks the second chunk, . idle)
//
//   rank 0   0  1  .  0' a' a' 1' b' b' .  a  a  .  .  b  b
//   rank 1   .  0  0' 1  1' .  a' a' a  a  b' b' b  b  .  .
//
// Order    list scheduling with a forward of 1 and a backward of 2: a free rank runs a backward that is
//          ready, lowest microbatch first, else the ready forward of the deepest stage; at most 2P-1
//          microbatches are under way.
// Bubble   share of makespan (2P-2)/(3PW+P-1) for M = P, B = 2F and no latency, W = V/2 waves, within 2
//          percent of the time; at most that for W = 1.
// Memory   2PW chunk activations for M = P; about 2PW + P more microbatches.
// Source   Liu et al., Hanayo, SC 2023, for placement and bubble. The authors' order is not public; this
//          one is ours.
#include <algorithm>
#include <queue>

#include "engine/schedule/generator_support.h"

namespace plumbline {
namespace {

constexpr const char* kName = "hanayo";
constexpr int kForwardTime = 1;
constexpr int kBackwardTime = 2;
constexpr int kNever = -1;

std::size_t at(int index) { return static_cast<std::size_t>(index); }

class ListScheduler {
 public:
  explicit ListScheduler(Schedule schedule)
      : schedule_(std::move(schedule)),
        most_under_way_(2 * schedule_.ranks - 1),
        next_forward_(at(schedule_.stages), 0),
        next_backward_(at(schedule_.stages), 0),
        forward_end_(at(schedule_.stages) * at(schedule_.microbatches), kNever),
        backward_end_(forward_end_),
        busy_until_(at(schedule_.ranks), 0),
        rows_(at(schedule_.ranks)) {
    for (int rank = 0; rank < schedule_.ranks; ++rank) held_.push_back(schedule_.stages_of_rank(rank));
  }

  Schedule run() {
    std::priority_queue<std::int64_t, std::vector<std::int64_t>, std::greater<>> times;
    times.push(0);
    std::int64_t last = kNever;
    while (!times.empty()) {
      const std::int64_t now = times.top();
      times.pop();
      if (now == last) continue;
      last = now;
      for (int rank = 0; rank < schedule_.ranks; ++rank) {
        if (busy_until_[at(rank)] > now) continue;
        const Action action = choose(rank, now);
        if (action.microbatch < 0) continue;
        busy_until_[at(rank)] = start(rank, action, now);
        times.push(busy_until_[at(rank)]);
      }
    }
    for (const std::vector<Action>& row : rows_) schedule_.add_row(row);
    return std::move(schedule_);
  }

 private:
  std::size_t cell(int stage, int microbatch) const {
    return at(stage) * at(schedule_.microbatches) + at(microbatch);
  }
  static bool done(const std::vector<std::int64_t>& ends, std::size_t cell, std::int64_t now) {
    return ends[cell] != kNever && ends[cell] <= now;
  }

  bool forward_ready(int stage, std::int64_t now) const {
    const int m = next_forward_[at(stage)];
    if (m == schedule_.microbatches) return false;
    if (stage > 0) return done(forward_end_, cell(stage - 1, m), now);
    const int finished = next_backward_[0];  // the last one may still run, which changes no choice of rank 0
    return m - finished < most_under_way_;
  }
  bool backward_ready(int stage, std::int64_t now) const {
    const int m = next_backward_[at(stage)];
    if (m == schedule_.microbatches || !done(forward_end_, cell(stage, m), now)) return false;
    return stage + 1 == schedule_.stages || done(backward_end_, cell(stage + 1, m), now);
  }

  // Microbatch -1: nothing is ready.
  Action choose(int rank, std::int64_t now) const {
    Action best;
    for (const int stage : held_[at(rank)]) {
      const int m = next_backward_[at(stage)];
      if (backward_ready(stage, now) && (best.microbatch < 0 || m < best.microbatch))
        best = backward(stage, m);
    }
    if (best.microbatch >= 0) return best;
    for (const int stage : held_[at(rank)]) {
      if (forward_ready(stage, now)) best = forward(stage, next_forward_[at(stage)]);
    }
    return best;
  }

  std::int64_t start(int rank, const Action& action, std::int64_t now) {
    rows_[at(rank)].push_back(action);
    const bool is_forward = action.kind == ActionKind::kForward;
    const std::int64_t end = now + (is_forward ? kForwardTime : kBackwardTime);
    (is_forward ? forward_end_ : backward_end_)[cell(action.stage, action.microbatch)] = end;
    ++(is_forward ? next_forward_ : next_backward_)[action.stage];
    return end;
  }

  Schedule schedule_;
  const int most_under_way_;
  std::vector<std::vector<int>> held_;                    // stages of each rank
  std::vector<int> next_forward_, next_backward_;         // per stage
  std::vector<std::int64_t> forward_end_, backward_end_;  // [stage][microbatch]
  std::vector<std::int64_t> busy_until_;                  // per rank
  std::vector<std::vector<Action>> rows_;
};

Result<Schedule> make(const GeneratorArgs& args) {
  PL_TRY(check_args(args, kName, Chunks::kEven));
  PL_TRY(refuse_forward_only(args, kName));
  Schedule schedule = begin_schedule(args, kName);
  schedule.rank_of_stage = wave_placement(schedule.stages, schedule.ranks);
  return ListScheduler(std::move(schedule)).run();
}

}  // namespace

namespace detail {

RegisterGenerator register_hanayo{Generator{
    .name = kName,
    .summary = "waves: down the ranks and back up, several times, without copies of the weights",
    .constraints = "an even number of chunks a rank; M >= 1",
    .bubble = "share of makespan: (2P-2)/(3PW+P-1) for M = P, B = 2F, W = V/2, within 2 percent of the time",
    .memory = "2PW chunks for M = P; about 2PW + P for more",
    .source = "Liu et al. 2023 (Hanayo); the order is ours",
    .make = make,
}};

}  // namespace detail
}  // namespace plumbline

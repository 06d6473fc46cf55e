// Ranks run until they need something that has not ended, and are put back in line by the rank that ends it: of all
// actions only F(s+1,m) waits for F(s,m), and only the backward of (s-1,m) for that of (s,m), so that the rank to
// wake follows from the placement.
#include "engine/schedule/evaluate.h"

#include <algorithm>
#include <array>
#include <functional>
#include <queue>
#include <tuple>

#include <fmt/format.h>

#include "engine/base/assert.h"
#include "engine/schedule/step_index.h"

namespace plumbline {
namespace {

constexpr Nanoseconds kNever = -1;

std::size_t at(int index) { return static_cast<std::size_t>(index); }

class Evaluator {
 public:
  Evaluator(const Schedule& schedule, const StageCosts& costs, ActionTimes* times)
      : schedule_(schedule),
        costs_(costs),
        times_(times),
        ends_(at(schedule.stages) * at(schedule.microbatches)),
        clock_(at(schedule.ranks), 0),
        next_(schedule.offsets.begin(), schedule.offsets.end() - 1),
        waiting_(at(schedule.ranks), false) {
    out_.busy.assign(at(schedule.ranks), 0);
    out_.first_start.assign(at(schedule.ranks), kNever);
    out_.last_end.assign(at(schedule.ranks), 0);
    for (int stage = 0; stage < schedule.stages; ++stage) {
      const Nanoseconds again = recompute_cost(costs, stage);
      cost_.push_back({entry_of(costs.forward, stage), backward_cost(costs, stage) + again,
                       input_grad_cost(costs, stage), entry_of(costs.weight_grad, stage)});
    }
    if (times_ == nullptr) return;
    times_->start.assign(schedule.actions.size(), 0);
    times_->end.assign(schedule.actions.size(), 0);
    times_->recomputed.assign(schedule.actions.size(), 0);
  }

  Result<Evaluation> run() {
    for (int rank = schedule_.ranks - 1; rank >= 0; --rank) ready_.push_back(rank);
    while (!ready_.empty()) {
      const int rank = ready_.back();
      ready_.pop_back();
      waiting_[at(rank)] = false;
      advance(rank);
    }
    return outcome();
  }

  // When all that can run has.
  Result<Evaluation> outcome() {
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      if (next_[at(rank)] < end_of(rank)) return stuck(rank);
      count_activations(rank);
    }
    summarize();
    return std::move(out_);
  }

  // What a rank computes next, one action or a pair.
  struct Step {
    std::uint32_t index = 0;
    std::uint32_t count = 0;  // 0: it has nothing left
    Nanoseconds ready = kNever;
    Nanoseconds cost = 0;
  };
  // A rank whose inputs are not there yet is woken when they are.
  Step look(int rank) {
    std::uint32_t& next = next_[at(rank)];
    const std::uint32_t end = end_of(rank);
    while (next < end && !is_compute(schedule_.actions[next].kind)) ++next;
    if (next == end) return {};
    const Action& first = schedule_.actions[next];
    const bool pair = first.paired != 0 && next + 1 < end;
    Step step{next, pair ? 2u : 1u, ready_at(first, rank), cost_of(first)};
    if (pair && step.ready != kNever) {
      const Action& second = schedule_.actions[next + 1];
      const Nanoseconds also = ready_at(second, rank);
      step.ready = also == kNever ? kNever : std::max(step.ready, also);
      const bool forward_first = first.kind == ActionKind::kForward;
      step.cost = forward_first ? pair_cost(costs_, first.stage, cost_of(second))
                                : pair_cost(costs_, second.stage, step.cost);
      // A pair's own time says nothing of what is recomputed.
      if (!costs_.pair.empty()) step.cost += recomputed(forward_first ? second : first);
    }
    step.cost = cost_on(costs_, rank, step.cost);
    if (step.ready == kNever) waiting_[at(rank)] = true;
    return step;
  }

  void book(int rank, const Step& step, Nanoseconds start, Nanoseconds end) {
    const std::size_t r = at(rank);
    if (out_.first_start[r] == kNever) out_.first_start[r] = start;
    clock_[r] = end;
    out_.busy[r] += end - start;
    out_.last_end[r] = end;
    for (std::uint32_t i = step.index; i < step.index + step.count; ++i) {
      if (times_ != nullptr) {
        times_->start[i] = start;
        times_->end[i] = end;
        times_->recomputed[i] =
            start + share_of(end - start, cost_on(costs_, rank, recomputed(schedule_.actions[i])), step.cost);
      }
      finish(schedule_.actions[i], end);
    }
    next_[r] += step.count;
  }

  // A rank that finish() has woken; none: -1.
  int woken() {
    if (ready_.empty()) return -1;
    const int rank = ready_.back();
    ready_.pop_back();
    return rank;
  }

 private:
  struct Ends {
    Nanoseconds forward = kNever;
    Nanoseconds gradient = kNever;  // B or I
  };

  std::uint32_t end_of(int rank) const { return schedule_.offsets[at(rank) + 1]; }
  Ends& ends(int stage, int microbatch) {
    return ends_[at(stage) * at(schedule_.microbatches) + at(microbatch)];
  }
  Nanoseconds cost_of(const Action& action) const {
    return cost_[action.stage][static_cast<std::size_t>(action.kind)];
  }

  Nanoseconds recomputed(const Action& action) const {
    const bool begins = action.kind == ActionKind::kBackward || action.kind == ActionKind::kInputGrad;
    return begins ? recompute_cost(costs_, action.stage) : 0;
  }

  // When a computation's inputs are at its rank; kNever if one of them has not ended.
  Nanoseconds ready_at(const Action& action, int rank) {
    const Dependencies needs =
        dependencies(action, schedule_.stages, schedule_.forward_only, schedule_.slices);
    Nanoseconds ready = 0;
    for (int i = 0; i < needs.count; ++i) {
      const Action& on = needs.on[i];
      const Ends& done = ends(on.stage, on.microbatch);
      const Nanoseconds end = on.kind == ActionKind::kForward ? done.forward : done.gradient;
      if (end == kNever) return kNever;
      const int from = schedule_.rank_of(on.stage, on.microbatch);
      ready = std::max(ready, from == rank ? end : end + hop_cost(costs_, from, rank));
    }
    return ready;
  }

  // `part` of `whole`, stretched to `time`.
  static Nanoseconds share_of(Nanoseconds time, Nanoseconds part, Nanoseconds whole) {
    if (time == whole || whole == 0) return part;
    return static_cast<Nanoseconds>(static_cast<double>(time) * static_cast<double>(part) /
                                    static_cast<double>(whole));
  }

  void advance(int rank) {
    while (true) {
      const Step step = look(rank);
      if (step.count == 0 || step.ready == kNever) return;
      const Nanoseconds start = std::max(step.ready, clock_[at(rank)]);
      book(rank, step, start, start + step.cost);
    }
  }

  void finish(const Action& action, Nanoseconds end) {
    if (action.kind == ActionKind::kWeightGrad) return;
    const bool forward = action.kind == ActionKind::kForward;
    Ends& done = ends(action.stage, action.microbatch);
    (forward ? done.forward : done.gradient) = end;
    const int to = forward ? action.stage + 1 : action.stage - 1;
    if (to < 0 || to >= schedule_.stages) return;
    const std::int32_t peer = schedule_.rank_of(to, action.microbatch);
    if (peer < 0 || !waiting_[at(peer)]) return;
    waiting_[at(peer)] = false;
    ready_.push_back(peer);
  }

  // Only the order on the rank matters: an activation lives from its F to its W on the same rank.
  void count_activations(int rank) {
    int until_w = 0, until_i = 0, most_until_w = 0, most_until_i = 0;
    const std::span<const Action> row = schedule_.row(rank);
    for (std::size_t i = 0; i < row.size(); ++i) {
      const bool second_of_pair = i > 0 && row[i - 1].paired != 0;
      const bool backward_first = row[i].paired != 0 && row[i].kind != ActionKind::kForward;
      if (backward_first) continue;  // counted behind its forward
      count_one(row[i], &until_w, &until_i);
      most_until_w = std::max(most_until_w, until_w);
      most_until_i = std::max(most_until_i, until_i);
      if (second_of_pair && row[i].kind == ActionKind::kForward) count_one(row[i - 1], &until_w, &until_i);
    }
    out_.peak_until_weight_grad.push_back(most_until_w);
    out_.peak_until_input_grad.push_back(schedule_.forward_only ? most_until_w : most_until_i);
  }

  void count_one(const Action& action, int* until_w, int* until_i) const {
    if (schedule_.forward_only || !is_compute(action.kind)) return;
    if (action.kind == ActionKind::kForward) {
      ++*until_w;
      ++*until_i;
    }
    if (action.kind == ActionKind::kBackward || action.kind == ActionKind::kWeightGrad) --*until_w;
    if (action.kind == ActionKind::kBackward || action.kind == ActionKind::kInputGrad) --*until_i;
  }

  void summarize() {
    for (std::size_t rank = 0; rank < clock_.size(); ++rank) {
      if (out_.first_start[rank] == kNever) out_.first_start[rank] = 0;  // nothing to compute
      out_.makespan = std::max(out_.makespan, out_.last_end[rank]);
      out_.stage_time = std::max(out_.stage_time, out_.last_end[rank] - out_.first_start[rank]);
      out_.work = std::max(out_.work, out_.busy[rank]);
    }
  }

  tl::unexpected<Error> stuck(int rank) const {
    return fail(
        ErrorCode::kConfig,
        fmt::format("schedule {} cannot run: {} on rank {} waits for something that never ends; check the "
                    "schedule's order",
                    schedule_.name, print_action(schedule_.actions[next_[at(rank)]]), rank));
  }

  const Schedule& schedule_;
  const StageCosts& costs_;
  ActionTimes* times_;
  std::vector<std::array<Nanoseconds, 4>> cost_;  // [stage][F, B, I, W]
  std::vector<Ends> ends_;                        // [stage][microbatch]
  std::vector<Nanoseconds> clock_;                // per rank: when it is free
  std::vector<std::uint32_t> next_;               // per rank: index into actions
  std::vector<bool> waiting_;                     // per rank: not in ready_
  std::vector<int> ready_;
  Evaluation out_;
};

// Several evaluators in the order of time, on devices that they share.
class SideBySide {
 public:
  SideBySide(Devices& devices, std::vector<Evaluator>& replicas, int ranks)
      : devices_(devices), replicas_(replicas), running_(replicas.size()) {
    for (auto& of_replica : running_) of_replica.resize(at(ranks));
  }

  void run() {
    for (std::size_t replica = 0; replica < running_.size(); ++replica)
      for (std::size_t rank = 0; rank < running_[replica].size(); ++rank)
        go_on({0, static_cast<int>(replica), static_cast<int>(rank)});
    while (true) {
      const std::optional<Devices::Completion> over = devices_.next();
      if (!arrivals_.empty() && (!over || arrivals_.top().time <= over->time)) {
        const Moment arrival = arrivals_.top();
        arrivals_.pop();
        go_on(arrival);
      } else if (over) {
        devices_.complete(*over);
        const auto& [step, start] = running_[at(over->replica)][at(over->rank)];
        replicas_[at(over->replica)].book(over->rank, step, start, over->time);
        go_on({over->time, over->replica, over->rank});
        wake(over->replica, over->time);
      } else {
        return;
      }
    }
  }

 private:
  struct Moment {
    Nanoseconds time = 0;
    int replica = 0;
    int rank = 0;
    bool operator>(const Moment& other) const {
      return std::tie(time, replica, rank) > std::tie(other.time, other.replica, other.rank);
    }
  };
  struct Running {
    Evaluator::Step step;
    Nanoseconds start = 0;
  };

  // The rank computes nothing at this moment.
  void go_on(const Moment& now) {
    Evaluator& replica = replicas_[at(now.replica)];
    while (true) {
      const Evaluator::Step step = replica.look(now.rank);
      if (step.count == 0 || step.ready == kNever) return;
      if (step.ready > now.time) return arrivals_.push({step.ready, now.replica, now.rank});
      if (step.cost > 0) {
        running_[at(now.replica)][at(now.rank)] = {step, now.time};
        return devices_.start(now.replica, now.rank, step.cost, now.time);
      }
      replica.book(now.rank, step, now.time, now.time);
      wake(now.replica, now.time);
    }
  }
  void wake(int replica, Nanoseconds now) {
    for (int rank = replicas_[at(replica)].woken(); rank >= 0; rank = replicas_[at(replica)].woken())
      go_on({now, replica, rank});
  }

  Devices& devices_;
  std::vector<Evaluator>& replicas_;
  std::vector<std::vector<Running>> running_;  // [replica][rank]
  std::priority_queue<Moment, std::vector<Moment>, std::greater<>> arrivals_;
};

double idle_share(Nanoseconds work, Nanoseconds time) {
  return time == 0 ? 0.0 : 1.0 - static_cast<double>(work) / static_cast<double>(time);
}

}  // namespace

double Evaluation::bubble() const { return idle_share(work, makespan); }
double Evaluation::stage_bubble() const { return idle_share(work, stage_time); }

std::vector<std::int64_t> peak_held(const Schedule& schedule, const ActivationModel& model) {
  std::vector<std::int64_t> peaks;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    std::int64_t held = 0, most = 0;  // held between computations
    const std::span<const Action> row = schedule.row(rank);
    for (std::size_t i = 0; i < row.size() && !schedule.forward_only; ++i) {
      const bool pair = row[i].paired != 0 && i + 1 < row.size();
      std::int64_t change = 0, beside = 0;
      for (std::size_t j = i; j <= i + (pair ? 1 : 0); ++j) {
        if (!is_compute(row[j].kind) || row[j].stage >= schedule.stages) continue;
        const std::int64_t all = entry_of(model.held, row[j].stage);
        const std::int64_t early = entry_of(model.freed_early, row[j].stage);
        if (row[j].kind == ActionKind::kForward) held += all;
        if (row[j].kind == ActionKind::kBackward) {
          change -= all;
          beside += entry_of(model.rebuilt, row[j].stage);
        }
        const std::int64_t again = entry_of(model.rebuilt_split, row[j].stage);
        if (row[j].kind == ActionKind::kInputGrad) {
          held += again;
          change -= early;
        }
        if (row[j].kind == ActionKind::kWeightGrad) change -= all - early + again;
      }
      most = std::max(most, held + beside);
      held += change;
      if (pair) ++i;
    }
    peaks.push_back(most);
  }
  return peaks;
}

namespace {

Status check_inputs(const Schedule& schedule, const StageCosts& costs) {
  PL_TRY(check_costs(costs, schedule.stages, "schedule " + schedule.name));
  PL_TRY(check_slow(costs, schedule.ranks, "schedule " + schedule.name));
  for (const Action& action : schedule.actions) {
    if (is_compute(action.kind) && !in_range(action, schedule)) {
      return fail(ErrorCode::kConfig,
                  fmt::format("schedule {} cannot run: {} is outside its {} stages and {} microbatches",
                              schedule.name, print_action(action), schedule.stages, schedule.microbatches));
    }
  }
  return {};
}

}  // namespace

Result<Evaluation> evaluate(const Schedule& schedule, const StageCosts& costs, ActionTimes* times) {
  PL_TRY(check_inputs(schedule, costs));
  return Evaluator(schedule, costs, times).run();
}

Result<Evaluation> evaluate_on(Devices& devices, const Schedule& schedule,
                               const std::vector<StageCosts>& replicas, ActionTimes* times) {
  PL_ASSERT(!replicas.empty());
  std::vector<Evaluator> evaluators;
  evaluators.reserve(replicas.size());
  for (const StageCosts& costs : replicas) {
    PL_TRY(check_inputs(schedule, costs));
    evaluators.emplace_back(schedule, costs, evaluators.empty() ? times : nullptr);
  }
  SideBySide(devices, evaluators, schedule.ranks).run();
  return evaluators.front().outcome();
}

}  // namespace plumbline

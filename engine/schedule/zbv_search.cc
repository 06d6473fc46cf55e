#include "engine/schedule/zbv_search.h"

#include <algorithm>
#include <deque>

#include <fmt/format.h>

#include "engine/schedule/v_legs.h"

namespace plumbline {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

struct Line {
  int count[kLegs] = {};  // passes placed
  std::vector<Nanoseconds> end[kLegs];
  std::deque<Action> weight_grads;  // of backwards placed, in their order
  Nanoseconds time = 0;
  Nanoseconds bubble = 0;  // idle time since the first pass
  std::int64_t memory = 0;
  std::vector<Action> row;
};

class Builder {
 public:
  // `allowed`: idle time of each rank in an earlier try; empty in the first.
  Builder(const GeneratorArgs& args, ZbvVariant variant, const std::vector<Nanoseconds>& allowed)
      : args_(args),
        variant_(variant),
        hop_(args.costs.hop),
        microbatches_(args.microbatches),
        lines_(at(args.ranks)),
        spare_(at(args.ranks), 0) {
    if (allowed.empty()) return;
    const Nanoseconds most = *std::max_element(allowed.begin(), allowed.end());
    for (std::size_t rank = 0; rank < spare_.size(); ++rank) spare_[rank] = most - allowed[rank];
  }

  Result<ZbvOrder> run() {
    PL_TRY(first_forwards());
    PL_TRY(level_forwards());
    for (int round = 0; round < 2 * microbatches_; ++round) {
      PL_TRY(backwards());
      PL_TRY(forwards());
    }
    ZbvOrder order;
    order.bubble = most_bubble_;
    for (Line& line : lines_) {
      while (!line.weight_grads.empty()) put_weight_grad(line);
      order.rows.push_back(std::move(line.row));
    }
    return order;
  }

  std::vector<Nanoseconds> bubbles() const {
    std::vector<Nanoseconds> out;
    for (const Line& line : lines_) out.push_back(line.bubble);
    return out;
  }

 private:
  int stage(int rank, int leg) const { return leg_stage(args_.ranks, rank, leg); }
  std::int64_t held(int rank, int leg) const { return entry_of(args_.activations.held, stage(rank, leg)); }
  std::int64_t cap(int rank) const { return entry_of(args_.activations.cap, rank); }
  Nanoseconds cost(int rank, int leg) const {
    return leg_is_forward(leg) ? entry_of(args_.costs.forward, stage(rank, leg))
                               : input_grad_cost(args_.costs, stage(rank, leg));
  }
  // Is there a next pass of this leg, with everything placed that it needs?
  bool can_run(int rank, int leg) const {
    const Line& line = lines_[at(rank)];
    const bool own = leg == 0 || line.count[leg] < line.count[leg - 1];
    return line.count[leg] < microbatches_ && own && arrived(rank, leg);
  }
  // Has the input of this leg's next pass been placed?
  bool arrived(int rank, int leg) const {
    const int from = leg_source(args_.ranks, rank, leg);
    return from < 0 || lines_[at(from)].count[leg] > lines_[at(rank)].count[leg];
  }
  // When it is there; 0 where no other rank is waited for.
  Nanoseconds ready(int rank, int leg) const {
    const int from = leg_source(args_.ranks, rank, leg);
    return from < 0 ? 0 : lines_[at(from)].end[leg][at(lines_[at(rank)].count[leg])] + hop_;
  }

  void place(Line& line, const Action& action, Nanoseconds cost, Nanoseconds ready) {
    const Nanoseconds start = std::max(line.time, ready);
    if (!line.row.empty()) {
      line.bubble += start - line.time;
      most_bubble_ = std::max(most_bubble_, line.bubble);
    }
    line.time = start + cost;
    line.row.push_back(action);
  }

  void put_weight_grad(Line& line) {
    const Action action = line.weight_grads.front();
    line.weight_grads.pop_front();
    place(line, action, entry_of(args_.costs.weight_grad, action.stage), 0);
    line.memory -= entry_of(args_.activations.held, action.stage) -
                   entry_of(args_.activations.freed_early, action.stage);
  }

  void put_backward(int rank, int leg) {
    Line& line = lines_[at(rank)];
    const Nanoseconds input = ready(rank, leg);
    const int microbatch = line.count[leg]++;
    place(line, input_grad(stage(rank, leg), microbatch), cost(rank, leg), input);
    line.end[leg].push_back(line.time);
    line.weight_grads.push_back(weight_grad(stage(rank, leg), microbatch));
    line.memory -= entry_of(args_.activations.freed_early, stage(rank, leg));
  }

  Status put_forward(int rank, int leg) {
    Line& line = lines_[at(rank)];
    if (!can_run(rank, leg)) return no_order(rank);
    if (line.memory + held(rank, leg) > cap(rank)) return does_not_fit(rank, leg);
    const Nanoseconds input = ready(rank, leg);
    const int microbatch = line.count[leg]++;
    place(line, forward(stage(rank, leg), microbatch), cost(rank, leg), input);
    line.end[leg].push_back(line.time);
    line.memory += held(rank, leg);
    return {};
  }

  // Leg 0 down to the last rank; then leg 1 up, every rank with as many further leg-0 passes as fit before
  // it comes.
  Status first_forwards() {
    for (int rank = 0; rank < args_.ranks; ++rank) PL_TRY(put_forward(rank, 0));
    for (int rank = args_.ranks - 1; rank >= 0; --rank) {
      if (!can_run(rank, 1)) return no_order(rank);
      const Line& line = lines_[at(rank)];
      while (rank + 1 < args_.ranks && line.memory + held(rank, 0) * (2 + 2 * rank) <= cap(rank) &&
             line.time + cost(rank, 0) <= ready(rank, 1) && line.count[0] < microbatches_) {
        for (int above = 0; above <= rank; ++above) PL_TRY(put_forward(above, 0));
      }
      PL_TRY(put_forward(rank, 1));
    }
    return {};
  }

  // Forwards of both chunks in turn, until every rank has run as many as the one above it and more of leg 1.
  Status level_forwards() {
    int leg = 0;
    for (int rank = 1; rank < args_.ranks; ++rank) {
      const Line& line = lines_[at(rank)];
      const Line& above = lines_[at(rank - 1)];
      while (line.count[0] + line.count[1] < above.count[0] + above.count[1] ||
             (line.count[1] <= above.count[1] && above.count[1] < microbatches_)) {
        for (int below = args_.ranks - 1; below >= rank; --below) {
          if (lines_[at(below)].count[leg] < microbatches_) PL_TRY(put_forward(below, leg));
        }
        leg = 1 - leg;
      }
    }
    return {};
  }

  Status backwards() {
    std::vector<int> legs;
    for (int rank = 0; rank < args_.ranks; ++rank) {
      const Line& line = lines_[at(rank)];
      const bool up = line.count[3] < line.count[2] && (arrived(rank, 3) || line.count[2] >= microbatches_);
      legs.push_back(up ? 3 : 2);
    }
    for (int rank = args_.ranks - 1; rank >= 0; --rank) {
      if (legs[at(rank)] == 3) PL_TRY(backward_pass(rank, 3));
    }
    for (int rank = 0; rank < args_.ranks; ++rank) {
      if (legs[at(rank)] == 2) PL_TRY(backward_pass(rank, 2));
    }
    return {};
  }

  Status backward_pass(int rank, int leg) {
    if (!can_run(rank, leg)) return no_order(rank);
    fill_gap(rank, leg, leg == 3 || variant_.fill_backwards);
    put_backward(rank, leg);
    return {};
  }

  // Weight gradients that fit before the leg's input arrives; one more, longer than the gap, if `overfill`
  // and the rank would otherwise become the one that idles longest. The leg's input must have been placed.
  void fill_gap(int rank, int leg, bool overfill) {
    Line& line = lines_[at(rank)];
    if (leg_source(args_.ranks, rank, leg) < 0) return;
    const Nanoseconds until = ready(rank, leg);
    while (!line.weight_grads.empty() && until >= line.time + next_weight_grad(line)) put_weight_grad(line);
    if (line.weight_grads.empty() || !overfill) return;
    const Nanoseconds most = std::max(most_bubble_, spare_[at(rank)]);
    if (until - line.time > most - line.bubble) put_weight_grad(line);
  }

  Nanoseconds next_weight_grad(const Line& line) const {
    return entry_of(args_.costs.weight_grad, line.weight_grads.front().stage);
  }

  Status forwards() {
    for (int rank = 0; rank < args_.ranks; ++rank) {
      const Line& line = lines_[at(rank)];
      if (line.count[1] >= microbatches_) continue;
      const int leg = next_forward(rank);
      if (leg < 0) continue;
      if (!can_run(rank, leg)) return no_order(rank);
      while (line.memory + held(rank, leg) > cap(rank)) {
        if (line.weight_grads.empty()) return does_not_fit(rank, leg);
        put_weight_grad(lines_[at(rank)]);
      }
      fill_gap(rank, leg, variant_.fill_forwards);
      PL_TRY(put_forward(rank, leg));
    }
    return {};
  }

  // -1: nothing has arrived.
  int next_forward(int rank) const {
    const Line& line = lines_[at(rank)];
    if (line.count[1] >= line.count[0]) return 0;
    if (arrived(rank, 1)) return 1;
    return line.count[0] < microbatches_ && arrived(rank, 0) ? 0 : -1;
  }

  tl::unexpected<Error> no_order(int rank) const {
    return fail(
        ErrorCode::kConfig,
        fmt::format("the heuristic finds no order for these costs and caps: the next pass of rank {} needs "
                    "something that comes later; use costs that differ less from stage to stage, or a higher "
                    "cap",
                    rank));
  }

  tl::unexpected<Error> does_not_fit(int rank, int leg) const {
    return fail(
        ErrorCode::kConfig,
        fmt::format(
            "an activation cap of {} on rank {} does not let its pipeline fill: it holds {} and needs "
            "{} for a forward; raise the cap",
            cap(rank), rank, lines_[at(rank)].memory, held(rank, leg)));
  }

  const GeneratorArgs& args_;
  const ZbvVariant variant_;
  const Nanoseconds hop_;
  const int microbatches_;
  std::vector<Line> lines_;
  std::vector<Nanoseconds> spare_;  // idle time that an earlier try has shown to be harmless, per rank
  Nanoseconds most_bubble_ = 0;
};

}  // namespace

Result<ZbvOrder> zbv_order(const GeneratorArgs& args, ZbvVariant variant) {
  std::vector<Nanoseconds> allowed;
  Result<ZbvOrder> best = fail(ErrorCode::kConfig, "no order was tried");
  while (true) {
    Builder builder(args, variant, allowed);
    Result<ZbvOrder> order = builder.run();
    if (!order) return allowed.empty() ? order : best;
    const bool better = allowed.empty() || order->bubble < best->bubble;
    if (!better) return best;
    best = std::move(order);
    allowed = builder.bubbles();
  }
}

}  // namespace plumbline

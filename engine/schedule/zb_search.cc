#include "engine/schedule/zb_search.h"

#include <algorithm>

#include <fmt/format.h>

namespace plumbline {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

// Everything known of one rank while the order grows.
struct Line {
  Nanoseconds forward, input_grad, weight_grad;  // costs
  std::int64_t held, freed_early, freed_late, cap;
  int f = 0, i = 0, w = 0;  // how many of each stand in the row
  Nanoseconds time = 0;     // end of the row
  Nanoseconds bubble = 0;   // idle time since the first F
  std::int64_t memory = 0;
  std::vector<Nanoseconds> f_end, i_end;
  std::vector<ActionKind> row;

  bool has_weight_grad() const { return w < i; }
};

class Builder {
 public:
  Builder(const GeneratorArgs& args, ZbVariant variant)
      : args_(args), variant_(variant), hop_(args.costs.hop) {
    for (int rank = 0; rank < args.ranks; ++rank) {
      Line line{};
      line.forward = entry_of(args.costs.forward, rank);
      line.input_grad = input_grad_cost(args.costs, rank);
      line.weight_grad = entry_of(args.costs.weight_grad, rank);
      line.held = entry_of(args.activations.held, rank);
      line.freed_early = entry_of(args.activations.freed_early, rank);
      line.freed_late = line.held - line.freed_early;
      line.cap = entry_of(args.activations.cap, rank);
      line.row.reserve(at(3 * args.microbatches));
      lines_.push_back(std::move(line));
    }
  }

  Result<ZbOrder> run() {
    for (int rank = 0; rank < args_.ranks; ++rank) {
      if (lines_[at(rank)].held > lines_[at(rank)].cap) return does_not_fit(rank);
    }
    warm_up();
    for (int round = 1; round < args_.microbatches; ++round) {
      PL_TRY(forwards());
      PL_TRY(input_grads(round));
    }
    ZbOrder order;
    for (int rank = 0; rank < args_.ranks; ++rank) {
      Line& line = lines_[at(rank)];
      while (line.w < args_.microbatches) put_weight_grad(line);
      order.stage_time = std::max(order.stage_time, line.time - (line.f_end.front() - line.forward));
      order.rows.push_back(std::move(line.row));
    }
    return order;
  }

 private:
  // `ready`: when the input is there; before the end of the row, the rank need not wait for it.
  void put(Line& line, ActionKind kind, Nanoseconds cost, Nanoseconds ready) {
    const Nanoseconds start = std::max(line.time, ready);
    if (line.f > 0) {
      line.bubble += start - line.time;
      most_bubble_ = std::max(most_bubble_, line.bubble);
    }
    line.time = start + cost;
    line.row.push_back(kind);
  }

  void put_forward(int rank) {
    Line& line = lines_[at(rank)];
    put(line, ActionKind::kForward, line.forward, forward_ready(rank));
    line.f_end.push_back(line.time);
    line.memory += line.held;
    ++line.f;
  }

  void put_input_grad(int rank) {
    Line& line = lines_[at(rank)];
    put(line, ActionKind::kInputGrad, line.input_grad, input_grad_ready(rank));
    line.i_end.push_back(line.time);
    line.memory -= line.freed_early;
    ++line.i;
  }

  void put_weight_grad(Line& line) {
    put(line, ActionKind::kWeightGrad, line.weight_grad, 0);
    line.memory -= line.freed_late;
    ++line.w;
  }

  // Inputs of the rank's next F and I; they must have been placed.
  Nanoseconds forward_ready(int rank) const {
    return rank == 0 ? 0 : lines_[at(rank - 1)].f_end[at(lines_[at(rank)].f)] + hop_;
  }
  Nanoseconds input_grad_ready(int rank) const {
    return rank + 1 == args_.ranks ? 0 : lines_[at(rank + 1)].i_end[at(lines_[at(rank)].i)] + hop_;
  }

  // The first F of every rank, as many more as fit before the first I comes back, and the first I.
  void warm_up() {
    const int ranks = args_.ranks;
    for (int rank = 0; rank < ranks; ++rank) put_forward(rank);
    std::vector<int> more(at(ranks), 0);
    Nanoseconds first_end = lines_.back().time + lines_.back().input_grad;  // of the successor's first I
    for (int rank = ranks - 2; rank >= 0; --rank) {
      const Line& line = lines_[at(rank)];
      const Nanoseconds ready = first_end + hop_;
      std::int64_t memory = line.memory;
      Nanoseconds time = line.time;
      int& count = more[at(rank)];
      while (line.f + count < args_.microbatches && memory + line.held <= line.cap) {
        if (variant_.warm_past_backward ? time + line.forward > ready : time >= ready) break;
        memory += line.held;
        time += line.forward;
        ++count;
      }
      first_end = std::max(time, ready) + line.input_grad;
    }
    for (int rank = 1; rank < ranks; ++rank) {
      // No more than what arrives from the rank above, and one less unless these are all there are.
      int& count = more[at(rank)];
      count = std::min(count, more[at(rank - 1)]);
      while (count > 0 && count >= more[at(rank - 1)] && lines_[at(rank)].f + count < args_.microbatches)
        --count;
    }
    for (int rank = 0; rank < ranks; ++rank) {
      for (int k = 0; k < more[at(rank)]; ++k) put_forward(rank);
    }
    for (int rank = ranks - 1; rank >= 0; --rank) put_input_grad(rank);
  }

  // Whether the rank may leave its F for a later round: it is two ahead, and either cannot start before its
  // successor is through with the next pair, or loses less by waiting than some other rank has lost
  // already.
  bool holds_back(int rank) const {
    if (!variant_.hold_forwards || rank + 1 == args_.ranks) return false;
    const Line& line = lines_[at(rank)];
    const Line& next = lines_[at(rank + 1)];
    if (line.f < next.f + 2) return false;
    const Nanoseconds pair_end = next.time + next.forward + next.input_grad + hop_;
    if (line.time >= pair_end) return true;
    Nanoseconds weight_grads = 0;  // needed before the F fits into memory
    std::int64_t memory = line.memory + line.held;
    for (int count = 0; memory > line.cap && line.w + count < line.i; ++count) {
      weight_grads += line.weight_grad;
      memory -= line.freed_late;
    }
    if (line.time + line.forward + weight_grads <= pair_end) return false;
    return pair_end - line.time <= most_bubble_ - line.bubble;
  }

  Status forwards() {
    std::vector<bool> runs(at(args_.ranks), false);
    for (int rank = 0; rank < args_.ranks; ++rank) {
      runs[at(rank)] = lines_[at(rank)].f < args_.microbatches && !holds_back(rank);
    }
    for (int rank = args_.ranks - 2; rank >= 0; --rank) {
      if (!runs[at(rank + 1)]) runs[at(rank)] = false;
    }
    for (int rank = 0; rank < args_.ranks; ++rank) {
      if (!runs[at(rank)]) continue;
      Line& line = lines_[at(rank)];
      while (line.memory + line.held > line.cap) {
        if (!line.has_weight_grad()) return does_not_fit(rank);
        put_weight_grad(line);
      }
      if (rank > 0) fill_gap(line, forward_ready(rank));
      put_forward(rank);
    }
    return {};
  }

  Status input_grads(int round) {
    for (int rank = args_.ranks - 1; rank >= 0; --rank) {
      Line& line = lines_[at(rank)];
      if (line.f <= line.i) return held_too_long(rank);
      if (rank + 1 < args_.ranks) fill_gap(line, input_grad_ready(rank));
      const bool only_backwards_left = rank == 0 && line.f == args_.microbatches && line.i == round;
      while (only_backwards_left && line.has_weight_grad()) put_weight_grad(line);
      put_input_grad(rank);
    }
    return {};
  }

  void fill_gap(Line& line, Nanoseconds until) {
    while (line.has_weight_grad() && line.time + line.weight_grad <= until) put_weight_grad(line);
    if (!line.has_weight_grad() || line.time >= until) return;
    const bool harmless = until - line.time <= most_bubble_ - line.bubble;
    if (!harmless || variant_.fill_small_gaps) put_weight_grad(line);
  }

  // Costs of about nothing can make a rank leave out one F too many.
  tl::unexpected<Error> held_too_long(int rank) const {
    return fail(ErrorCode::kConfig,
                fmt::format("rank {} holds back a forward that its next backward needs; set "
                            "costs above 0",
                            rank));
  }

  tl::unexpected<Error> does_not_fit(int rank) const {
    const Line& line = lines_[at(rank)];
    return fail(
        ErrorCode::kConfig,
        fmt::format(
            "an activation cap of {} on rank {} does not let its pipeline fill: it holds {} and needs "
            "{} for a forward; raise the cap",
            line.cap, rank, line.memory, line.held));
  }

  const GeneratorArgs& args_;
  const ZbVariant variant_;
  const Nanoseconds hop_;
  std::vector<Line> lines_;
  Nanoseconds most_bubble_ = 0;
};

}  // namespace

Result<ZbOrder> zb_order(const GeneratorArgs& args, ZbVariant variant) {
  return Builder(args, variant).run();
}

}  // namespace plumbline

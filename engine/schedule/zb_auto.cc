// The zero-bubble heuristic, ZB-1p and ZB-2p: an order made for the costs at hand under an activation cap,
// one chunk a rank, split backward. With the cap P it is ZB-H1's bubble, with 2P about none.
//
//   P = 3, M = 6, cap = 6 (0..5 forward, a..f input gradient, A..F weight gradient, . idle)
//
//   rank 0   0 1 2 3 4 a 5 A b B c C d D e E f F . .
//   rank 1   . 0 1 2 a 3 b 4 c 5 d A e B f C D E F .
//   rank 2   . . 0 a 1 b 2 c 3 d 4 e 5 f A B C D E F
//
// Costs    F, I and W a stage, latency between ranks: the time options. Activations: what F takes, what I
//          gives back of it already, and the cap a rank; by default 1, 0 and 2P.
// Bubble   cap P: (P-1)(F+I-W) of stage time, as ZB-H1, and nothing better exists at unit costs; cap 2P: 0 of
//          stage time where I <= 2W or so. Not optimal in general, see engine/schedule/zb_search.h.
// Memory   at most the cap on every rank.
// Source   Qi et al., Zero Bubble Pipeline Parallelism, arXiv 2401.10241, section 3.1;
//          sail-sg/zero-bubble-pipeline-parallelism, scheduler/zb.py.
#include <optional>

#include "engine/schedule/generator_support.h"
#include "engine/schedule/zb_search.h"

namespace plumbline {
namespace {

constexpr const char* kName = "zb-auto";

Status check(const GeneratorArgs& args) {
  PL_TRY(check_args(args, kName, Chunks::kOne));
  PL_TRY(refuse_forward_only(args, kName));
  PL_TRY(check_costs(args.costs, args.ranks, std::string("schedule ") + kName));
  return check_activations(args.activations, args.ranks, args.ranks, std::string("schedule ") + kName);
}

Schedule schedule_of(const GeneratorArgs& args, const ZbOrder& order) {
  Schedule schedule = begin_schedule(args, kName, Backward::kSplit);
  std::vector<Action> row;
  for (int rank = 0; rank < args.ranks; ++rank) {
    row.clear();
    int next[kActionKinds] = {};
    for (const ActionKind kind : order.rows[static_cast<std::size_t>(rank)]) {
      row.push_back(Action{next[static_cast<int>(kind)]++, static_cast<std::uint16_t>(rank), kind, 0});
    }
    schedule.add_row(row);
  }
  return schedule;
}

Result<Schedule> make(const GeneratorArgs& requested) {
  GeneratorArgs args = requested;
  PL_TRY(check(args));
  if (args.activations.cap.empty())
    args.activations.cap = default_cap(args.activations, args.ranks, 2 * args.ranks);
  std::optional<ZbOrder> best;
  std::optional<Error> first_error;
  for (const bool warm : {true, false}) {
    for (const bool hold : {true, false}) {
      for (const bool fill : {true, false}) {
        Result<ZbOrder> order = zb_order(args, {warm, hold, fill});
        if (!order && !first_error) first_error = order.error();
        if (order && (!best || order->stage_time < best->stage_time)) best = std::move(*order);
      }
    }
  }
  if (best) return schedule_of(args, *best);
  return fail(first_error->code, std::string("schedule ") + kName + ": " + first_error->message);
}

}  // namespace

namespace detail {

RegisterGenerator register_zb_auto{Generator{
    .name = kName,
    .summary = "zero-bubble heuristic for given costs and activation cap (ZB-1p, ZB-2p)",
    .constraints = "one chunk a rank; M >= 1; cap of at least one activation",
    .bubble = "stage time: that of zb-h1 with cap P, about 0 with cap 2P; a heuristic",
    .memory = "at most the cap on every rank; 2P by default",
    .source = "arXiv 2401.10241 (Zero Bubble), section 3.1; sail-sg scheduler/zb.py",
    .make = make,
}};

}  // namespace detail
}  // namespace plumbline

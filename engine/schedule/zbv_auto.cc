// The zero-bubble heuristic on a V (ZB-V for given costs and cap): two chunks a rank, split backward. Both
// ends of a microbatch's way are on rank 0, so that all ranks hold the same and the bubble vanishes at
// 1F1B's memory.
//
//   P = 2, V = 2, M = 3
//   (0..2 forward, a..c input gradient, A..C weight gradient, ' marks the second chunk, . idle)
//
//   rank 0   0  1  2  0' a' A' 1' b' B' a  A  2' c' b  C' c  B  C  .
//   rank 1   .  0  0' 1  1' a' A' 2  a  A  2' b' b  c' c  B' B  C' C
//
// Costs    F, I and W a stage, latency between ranks: the time options. Activations: what F takes, what I
//          gives back of it already, and the cap a rank; by default 1, 0 and 2P.
// Bubble   about 0 of stage time at the default cap where F, I and W are alike; a heuristic.
// Memory   at most the cap on every rank; the default of 2P chunk activations is 1F1B's memory.
// Source   Qi et al., Zero Bubble Pipeline Parallelism, arXiv 2401.10241, section 6;
//          sail-sg/zero-bubble-pipeline-parallelism, scheduler/zbv.py. ColossalAI's zero-bubble V graph
//          (get_v_schedule) gives the same orders.
#include <optional>

#include "engine/schedule/v_legs.h"
#include "engine/schedule/zbv_search.h"

namespace plumbline {
namespace {

constexpr const char* kName = "zbv-auto";

Status check(const GeneratorArgs& args) {
  PL_TRY(check_args(args, kName, Chunks::kTwo));
  PL_TRY(refuse_forward_only(args, kName));
  PL_TRY(check_costs(args.costs, 2 * args.ranks, std::string("schedule ") + kName));
  return check_activations(args.activations, 2 * args.ranks, args.ranks, std::string("schedule ") + kName);
}

Result<Schedule> make(const GeneratorArgs& requested) {
  GeneratorArgs args = requested;
  PL_TRY(check(args));
  if (args.activations.cap.empty())
    args.activations.cap = default_cap(args.activations, args.ranks, 2 * args.ranks);
  std::optional<ZbvOrder> best;
  std::optional<Error> first_error;
  for (const bool backwards : {true, false}) {
    for (const bool forwards : {true, false}) {
      Result<ZbvOrder> order = zbv_order(args, {forwards, backwards});
      if (!order && !first_error) first_error = order.error();
      if (order && (!best || order->bubble < best->bubble)) best = std::move(*order);
    }
  }
  if (!best) return fail(first_error->code, std::string("schedule ") + kName + ": " + first_error->message);
  Schedule schedule = begin_v_schedule(args, kName, Backward::kSplit);
  for (const std::vector<Action>& row : best->rows) schedule.add_row(row);
  return schedule;
}

}  // namespace

namespace detail {

RegisterGenerator register_zbv_auto{Generator{
    .name = kName,
    .summary = "zero-bubble heuristic on a V for given costs and activation cap",
    .constraints = "two chunks a rank; M >= 1; cap of about 2P activations",
    .bubble = "stage time: about 0 at the default cap; a heuristic",
    .memory = "at most the cap on every rank; 2P chunks by default",
    .source = "arXiv 2401.10241 (Zero Bubble), section 6; sail-sg scheduler/zbv.py",
    .make = make,
}};

}  // namespace detail
}  // namespace plumbline

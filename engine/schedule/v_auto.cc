// The adaptive V: the best building block for the costs at hand under an activation cap, two chunks a rank,
// split backward. Between V-Min and V-ZB it trades memory for bubble in steps of one activation.
//
//   P = 2, V = 2, M = 4, cap = 4
//   (0..3 forward, a..d input gradient, A..D weight gradient, ' marks the second chunk, . idle)
//
//   rank 0   0  1  2  0' a' A' 1' b' a  B' A  3  2' c' b  C' B  3' d' c  D' d  C  D  .
//   rank 1   .  0  0' 1  1' a' A' a  2  A  b' 2' B' b  3  B  3' c' c  d' d  C' C  D' D
//
// Costs    F, I and W a stage, latency between ranks: the time options. Activations count from F to W; the
//          cap is in chunk activations a rank, by default 2P, which is no limit.
// Bubble   least idle slots at unit costs, M >= 2P: P = 4, caps 4 to 8: 11, 8, 5, 3, 0; P = 8, caps 8 to
//          16: 23, 20, 17, 14, 11, 8, 5, 3, 0. Over the blocks searched, not over all orders.
// Memory   at most the cap on every rank. Below V-Min's memory no block exists, though orders do: refused.
// Source   Qi et al., Pipeline Parallelism with Controllable Memory, arXiv 2405.15362, appendix A;
//          sail-sg/zero-bubble-pipeline-parallelism, scheduler/v_auto_schedule.py.
#include <fmt/format.h>

#include "engine/schedule/v_auto_search.h"
#include "engine/schedule/v_legs.h"

namespace plumbline {
namespace {

constexpr const char* kName = "v-auto";

Status check(const GeneratorArgs& args) {
  PL_TRY(check_args(args, kName, Chunks::kTwo));
  PL_TRY(refuse_forward_only(args, kName));
  PL_TRY(check_costs(args.costs, 2 * args.ranks, std::string("schedule ") + kName));
  PL_TRY(check_activations(args.activations, 2 * args.ranks, args.ranks, std::string("schedule ") + kName));
  if (args.ranks < 2) {
    return fail(ErrorCode::kConfig, fmt::format("schedule {}: one rank makes no V; use two or more", kName));
  }
  return {};
}

// Chunk activations that fit everywhere.
std::int64_t cap_of(const GeneratorArgs& args) {
  std::int64_t cap = 2 * args.ranks;
  for (int stage = 0; stage < 2 * args.ranks && !args.activations.cap.empty(); ++stage) {
    const int rank = stage < args.ranks ? stage : 2 * args.ranks - 1 - stage;
    const std::int64_t held = entry_of(args.activations.held, stage);
    if (held > 0) cap = std::min(cap, entry_of(args.activations.cap, rank) / held);
  }
  return cap;
}

Result<Schedule> make(const GeneratorArgs& args) {
  PL_TRY(check(args));
  const std::int64_t cap = cap_of(args);
  const VAutoResult found = search_v_blocks(args, cap, VAutoGoal::kOrder);
  if (!found.rows) {
    return fail(
        ErrorCode::kConfig,
        fmt::format(
            "schedule {}: no building block on {} ranks with {} microbatches fits {} chunk activations; "
            "raise the cap (2P is no limit)",
            kName, args.ranks, args.microbatches, cap));
  }
  Schedule schedule = begin_v_schedule(args, kName, Backward::kSplit);
  for (int rank = 0; rank < args.ranks; ++rank) {
    schedule.add_row(
        actions_of((*found.rows)[static_cast<std::size_t>(rank)], args.ranks, rank, Backward::kSplit));
  }
  return schedule;
}

}  // namespace

namespace detail {

RegisterGenerator register_v_auto{Generator{
    .name = kName,
    .summary = "best building block on a V for given costs and activation cap",
    .constraints = "two chunks a rank; P >= 2; M >= 1; a cap that some block fits, from about 2P/3 to 2P",
    .bubble = "idle slots at unit costs for P = 4 and caps 4 to 8: 11, 8, 5, 3, 0",
    .memory = "at most the cap on every rank; 2P chunks by default",
    .source = "arXiv 2405.15362 (Pipeline Parallelism with Controllable Memory), appendix A; sail-sg "
              "v_auto_schedule.py",
    .make = make,
}};

}  // namespace detail
}  // namespace plumbline

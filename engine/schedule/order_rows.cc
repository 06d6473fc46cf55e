#include "engine/schedule/order_rows.h"

#include <algorithm>

#include <fmt/format.h>

#include "engine/schedule/quote.h"

namespace plumbline::detail {
namespace {

int stage_of(Placement placement, int ranks, int rank, int chunk) {
  if (placement == Placement::kLoop || chunk == 0) return chunk * ranks + rank;
  return 2 * ranks - 1 - rank;
}

}  // namespace

Status OrderRows::add(ActionKind kind, std::int64_t chunk, std::int64_t microbatch, const RowToken& token) {
  if (chunk < 0 || chunk >= kMaxStages || microbatch < 0 || microbatch >= kMaxMicrobatches) {
    return fail(ErrorCode::kParse,
                fmt::format("{}: chunk {} and microbatch {}; the limits are {} and {}, from 0",
                            quote(token.text), chunk, microbatch, kMaxStages - 1, kMaxMicrobatches - 1),
                token.where(name_));
  }
  rows_.back().push_back(OrderStep{
      Action{static_cast<std::int32_t>(microbatch), static_cast<std::uint16_t>(chunk), kind, 0}, token});
  return {};
}

Result<Schedule> OrderRows::finish(Placement placement) const {
  const auto refuse = [&](std::string message, const Where& where) {
    return fail(ErrorCode::kParse, std::move(message), where);
  };
  Schedule schedule;
  schedule.name = name_;
  schedule.ranks = static_cast<int>(rows_.size());
  int chunks = 0;
  const OrderStep* widest = nullptr;
  bool backward = false;
  std::vector<bool> computed;
  for (const auto& row : rows_) {
    for (const OrderStep& step : row) {
      if (step.action.stage >= chunks) widest = &step;
      chunks = std::max(chunks, step.action.stage + 1);
      const std::size_t microbatch = static_cast<std::size_t>(step.action.microbatch);
      if (microbatch >= computed.size()) computed.resize(microbatch + 1, false);
      if (is_compute(step.action.kind)) computed[microbatch] = true;
      backward = backward || (step.action.kind != ActionKind::kForward && is_compute(step.action.kind));
    }
  }
  if (widest == nullptr) return refuse("no step in it; write one row of steps a rank", Where{name_, 0, 0});
  if (placement == Placement::kV && chunks > 2)
    return refuse(
        fmt::format("chunk {}, but a V has two chunks a rank; choose the placement 'loop'", chunks - 1),
        widest->token.where(name_));
  if (std::int64_t{chunks} * schedule.ranks > kMaxStages)
    return refuse(
        fmt::format("{} ranks x {} chunks are more than {} stages", schedule.ranks, chunks, kMaxStages),
        widest->token.where(name_));
  const auto hole = std::find(computed.begin(), computed.end(), false);
  if (hole != computed.end())
    return refuse(fmt::format("microbatch {} is named, but no rank computes microbatch {}; they count from 0",
                              computed.size() - 1, hole - computed.begin()),
                  Where{name_, 0, 0});
  schedule.stages = chunks * schedule.ranks;
  schedule.microbatches = static_cast<int>(computed.size());
  schedule.forward_only = !backward;
  schedule.rank_of_stage = placement == Placement::kV && chunks == 2
                               ? wave_placement(schedule.stages, schedule.ranks)
                               : loop_placement(schedule.stages, schedule.ranks);
  std::vector<Action> actions;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    actions.clear();
    for (const OrderStep& step : rows_[static_cast<std::size_t>(rank)]) {
      actions.push_back(step.action);
      actions.back().stage =
          static_cast<std::uint16_t>(stage_of(placement, schedule.ranks, rank, step.action.stage));
    }
    schedule.add_row(actions);
  }
  return schedule;
}

std::optional<Placement> placement_of(const Schedule& schedule) {
  if (schedule.ranks < 1 || schedule.stages % schedule.ranks != 0) return std::nullopt;
  if (schedule.rank_of_stage == loop_placement(schedule.stages, schedule.ranks)) return Placement::kLoop;
  const bool two = schedule.stages == 2 * schedule.ranks;
  if (two && schedule.rank_of_stage == wave_placement(schedule.stages, schedule.ranks)) return Placement::kV;
  return std::nullopt;
}

int chunk_of(const Schedule& schedule, Placement placement, int stage) {
  if (placement == Placement::kV) return stage >= schedule.ranks ? 1 : 0;
  return stage / schedule.ranks;
}

}  // namespace plumbline::detail

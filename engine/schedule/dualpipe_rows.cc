#include "engine/schedule/dualpipe_rows.h"

#include <fmt/format.h>

#include "engine/schedule/v_legs.h"

namespace plumbline {

Result<Schedule> dualpipe_v_schedule(const GeneratorArgs& args, std::string_view name,
                                     DualPipeEnding ending) {
  PL_TRY(check_args(args, name, Chunks::kTwo));
  PL_TRY(refuse_forward_only(args, name));
  if (args.microbatches < 2 * args.ranks) {
    return fail(ErrorCode::kConfig,
                fmt::format("schedule {}: {} microbatches are too few for {} stages; use {} or more", name,
                            args.microbatches, 2 * args.ranks, 2 * args.ranks));
  }
  Schedule schedule = begin_v_schedule(args, name, Backward::kSplit);
  std::vector<Action> row;
  for (int rank = 0; rank < args.ranks; ++rank) {
    row.clear();
    for (const PhaseStep& step : DualPipeRow(args.ranks, rank, args.microbatches, ending).build()) {
      const int stage = v_stage(args.ranks, rank, step.phase);
      row.push_back(Action{step.microbatch, static_cast<std::uint16_t>(stage), step.kind, step.paired});
    }
    schedule.add_row(row);
  }
  return schedule;
}

}  // namespace plumbline

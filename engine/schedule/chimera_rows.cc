#include "engine/schedule/chimera_rows.h"

#include <algorithm>

#include <fmt/format.h>

#include "engine/base/assert.h"
#include "engine/schedule/generator_support.h"

namespace plumbline {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

Status check(const GeneratorArgs& args, std::string_view name, int pairs) {
  PL_TRY(check_args(args, name, Chunks::kOne));
  PL_TRY(refuse_forward_only(args, name));
  const auto refuse = [&](std::string problem) {
    return fail(ErrorCode::kConfig, fmt::format("schedule {}: {}", name, problem));
  };
  if (args.ranks % (2 * pairs) != 0) {
    return refuse(fmt::format("{} ranks do not split over {} pipelines; use a multiple of {}", args.ranks,
                              2 * pairs, 2 * pairs));
  }
  if (2 * args.microbatches == args.ranks || args.microbatches % args.ranks == 0) return {};
  const int down = args.microbatches - args.microbatches % args.ranks;
  return refuse(
      fmt::format("{} microbatches are neither half of the {} ranks nor a multiple of them; use {} or {}",
                  args.microbatches, args.ranks, down == 0 ? args.ranks / 2 : down, down + args.ranks));
}

// Ranks of the stages, pipeline by pipeline: the ones that run down first.
std::vector<std::int32_t> placements(int ranks, int pipelines) {
  std::vector<std::int32_t> placement;
  const int down = std::max(1, pipelines / 2);
  for (int pipeline = 0; pipeline < pipelines; ++pipeline) {
    const int shift = pipeline % down * (ranks / down);
    for (int stage = 0; stage < ranks; ++stage) {
      placement.push_back(pipeline < down ? (shift + stage) % ranks
                                          : (2 * ranks - 1 - shift - stage) % ranks);
    }
  }
  return placement;
}

}  // namespace

Result<Schedule> chimera_schedule(const GeneratorArgs& args, std::string_view name, int pairs) {
  PL_TRY(check(args, name, pairs));
  const int ranks = args.ranks;
  // Half a unit leaves half of the pipelines without work.
  const int pipelines = args.microbatches < ranks ? pairs : 2 * pairs;
  const int unit = std::min(args.microbatches, ranks);
  Schedule schedule = begin_schedule(args, name);
  schedule.rank_of_stage = placements(ranks, pipelines);
  for (int m = 0; m < args.microbatches; ++m) {
    schedule.pipeline_of.push_back(static_cast<std::uint8_t>(m % unit % pipelines));
  }
  const int slots = 2 * ranks * (args.microbatches / unit) + 2 * ranks;
  std::vector<std::vector<Action>> grid(at(ranks), std::vector<Action>(at(slots + 2 * unit)));
  for (int m = 0; m < args.microbatches; ++m) {
    const int start = 2 * ranks * (m / unit) + 2 * (m % unit / pipelines);
    for (int stage = 0; stage < ranks; ++stage) {
      std::vector<Action>& row = grid[at(schedule.rank_of(stage, m))];
      Action& down = row[at(start + stage)];
      Action& up = row[at(start + 2 * ranks - 1 - stage)];
      PL_ASSERT(down.microbatch < 0 && up.microbatch < 0);
      down = forward(stage, m);
      up = backward(stage, m);
    }
  }
  for (std::vector<Action>& row : grid) {
    row.erase(
        std::remove_if(row.begin(), row.end(), [](const Action& action) { return action.microbatch < 0; }),
        row.end());
    schedule.add_row(row);
  }
  return schedule;
}

}  // namespace plumbline

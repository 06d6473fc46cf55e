// What every generator starts from: checked arguments, an empty schedule of the right size, and short names
// for actions.
#pragma once

#include <string_view>

#include "engine/base/result.h"
#include "engine/schedule/generator.h"
#include "engine/schedule/schedule.h"

namespace plumbline {

enum class Chunks { kOne, kTwo, kEven, kMany };  // how many chunks a rank the schedule knows
enum class Backward { kWhole, kSplit };          // B, or I and W

// Sizes that every schedule refuses: below one, above the limits of an Action or of memory; and a number of
// chunks the schedule does not know.
Status check_args(const GeneratorArgs& args, std::string_view schedule, Chunks chunks);
// For the schedules that are nothing without a backward.
Status refuse_forward_only(const GeneratorArgs& args, std::string_view schedule);

// Name, sizes and loop placement of `args`, no rows yet, memory for all of them taken.
Schedule begin_schedule(const GeneratorArgs& args, std::string_view schedule,
                        Backward backward = Backward::kWhole);

constexpr Action forward(int stage, int microbatch) {
  return Action{microbatch, static_cast<std::uint16_t>(stage), ActionKind::kForward, 0};
}
constexpr Action backward(int stage, int microbatch) {
  return Action{microbatch, static_cast<std::uint16_t>(stage), ActionKind::kBackward, 0};
}

constexpr Action input_grad(int stage, int microbatch) {
  return Action{microbatch, static_cast<std::uint16_t>(stage), ActionKind::kInputGrad, 0};
}
constexpr Action weight_grad(int stage, int microbatch) {
  return Action{microbatch, static_cast<std::uint16_t>(stage), ActionKind::kWeightGrad, 0};
}

// Two chunks a rank in a V: rank r holds stage r and stage 2P-1-r.
constexpr int v_stage(int ranks, int rank, int chunk) { return chunk == 0 ? rank : 2 * ranks - 1 - rank; }

}  // namespace plumbline

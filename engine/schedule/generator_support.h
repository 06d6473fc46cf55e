// What every generator starts from: checked arguments, an empty schedule of the right size, and short names
// for actions.
#pragma once

#include <string_view>

#include "engine/base/result.h"
#include "engine/schedule/generator.h"
#include "engine/schedule/schedule.h"

namespace plumbline {

enum class Chunks { kOne, kMany };  // how many chunks a rank the schedule knows

// Sizes that every schedule refuses: below one, above the limits of an Action or of memory; with kOne, more
// chunks.
Status check_args(const GeneratorArgs& args, std::string_view schedule, Chunks chunks);

// Name, sizes and loop placement of `args`, no rows yet, memory for all of them taken.
Schedule begin_schedule(const GeneratorArgs& args, std::string_view schedule);

constexpr Action forward(int stage, int microbatch) {
  return Action{microbatch, static_cast<std::uint16_t>(stage), ActionKind::kForward, 0};
}
constexpr Action backward(int stage, int microbatch) {
  return Action{microbatch, static_cast<std::uint16_t>(stage), ActionKind::kBackward, 0};
}

}  // namespace plumbline

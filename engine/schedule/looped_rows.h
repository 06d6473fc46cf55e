// Breadth-first rows: all forwards of one chunk, then of the next; backwards from the last chunk to the first. The
// two schedules that have them differ in the order of a chunk's backwards alone.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/schedule/generator_support.h"

namespace plumbline {

enum class BackwardOrder : std::uint8_t { kFirstInFirstOut, kLastInFirstOut };

inline Result<Schedule> looped_schedule(const GeneratorArgs& args, std::string_view name,
                                        BackwardOrder order) {
  PL_TRY(check_args(args, name, Chunks::kMany));
  Schedule schedule = begin_schedule(args, name);
  const int count = args.microbatches;
  std::vector<Action> row;
  for (int rank = 0; rank < args.ranks; ++rank) {
    row.clear();
    for (int stage = rank; stage < schedule.stages; stage += args.ranks)
      for (int m = 0; m < count; ++m) row.push_back(forward(stage, m));
    for (int stage = schedule.stages - args.ranks + rank; stage >= 0 && !args.forward_only;
         stage -= args.ranks) {
      for (int m = 0; m < count; ++m)
        row.push_back(backward(stage, order == BackwardOrder::kFirstInFirstOut ? m : count - 1 - m));
    }
    schedule.add_row(row);
  }
  return schedule;
}

}  // namespace plumbline

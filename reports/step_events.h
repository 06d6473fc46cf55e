// The drawable events of one step, sorted by rank and start, with the step's own time span.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/runtime/run_record.h"

namespace plumbline {

struct StepEvents {
  std::int32_t step = 0;
  bool evaluation = false;
  Nanoseconds begin = 0;  // the step's row, or what its events span where there is no row
  Nanoseconds end = 0;
  std::vector<std::uint32_t>
      index;  // into RunRecord::events: by rank, then start, then end, then record order
  std::vector<std::uint32_t> offsets;  // size ranks + 1: the range of each rank in `index`

  std::span<const std::uint32_t> of_rank(Rank rank) const {
    const std::size_t r = static_cast<std::size_t>(rank);
    return std::span<const std::uint32_t>(index).subspan(offsets[r], offsets[r + 1] - offsets[r]);
  }
};

// One entry a step that has events or a row, ascending.
std::vector<StepEvents> step_events(const RunRecord& record);

}  // namespace plumbline

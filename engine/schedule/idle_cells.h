// Idle steps of a schedule's rows. torch's compute-only rows hold empty cells that line the ranks up in unit time;
// they mean nothing to who runs the rows, so a Schedule has no place for them. Who prints rows as torch does keeps
// them beside it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace plumbline {

struct IdleCells {
  // A row a rank: for every idle step the index in the row of the action that it stands before (the row's length:
  // at its end), ascending; as often as there are idle steps. An overlapped pair is two actions, and no step is
  // between them.
  std::vector<std::vector<std::uint32_t>> before;

  bool empty() const {
    for (const auto& row : before)
      if (!row.empty()) return false;
    return true;
  }
  std::size_t count(int rank) const { return before[static_cast<std::size_t>(rank)].size(); }

  bool operator==(const IdleCells&) const = default;
};

}  // namespace plumbline

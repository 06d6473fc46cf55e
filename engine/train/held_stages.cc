#include "engine/train/held_stages.h"

#include <algorithm>

namespace plumbline {
namespace {

// Its coordinate in every pipeline.
std::vector<int> holders(const Program& program, int stage) {
  std::vector<int> out;
  for (int pipeline = 0; pipeline < program.pipelines(); ++pipeline)
    out.push_back(program.rank_of_stage[static_cast<std::size_t>(pipeline * program.stages + stage)]);
  return out;
}

}  // namespace

std::vector<int> stages_held(const Program& program, int coordinate) {
  std::vector<int> held;
  for (int stage = 0; stage < program.stages; ++stage) {
    const std::vector<int> all = holders(program, stage);
    if (std::find(all.begin(), all.end(), coordinate) != all.end()) held.push_back(stage);
  }
  return held;
}

std::vector<ParameterSlice> slices_held(const Program& program, const ModelTable& table, int coordinate,
                                        const std::vector<int>& held) {
  std::vector<ParameterSlice> out = table.slices(held);
  for (ParameterSlice& slice : out) {
    const std::vector<int> all = holders(program, slice.stage);
    slice.counted = slice.counted && *std::min_element(all.begin(), all.end()) == coordinate;
  }
  return out;
}

}  // namespace plumbline

// A stage's passes over the slices of its sequences (SliceState in stage.h): which slice a pass is, what it reads,
// where its backward begins. For whoever runs stages: the worker and the sequential reference.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "engine/model/stage.h"

namespace plumbline {

class SlicedPasses {
 public:
  explicit SlicedPasses(int slices) : slices_(slices) {}

  // The stage's output of a pass, which is a slice or a whole sequence.
  at::Tensor forward(Stage& stage, int number, int pass, const at::Tensor& input, Batch batch) {
    if (slices_ == 1) return stage.forward(input, batch);
    SlicePlace place;
    place.slice = pass % slices_;
    for (int before = pass - place.slice; before < pass; ++before)
      place.before.push_back(&states_.at({number, before}));
    place.here = &states_[{number, pass}];
    *place.here = {};
    batch.place = &place;
    return stage.forward(input, batch);
  }

  // Adds to the roots of the pass's backward, and forgets the pass.
  void begin_backward(int number, int pass, std::vector<at::Tensor>& roots,
                      std::vector<at::Tensor>& gradients) {
    if (slices_ == 1) return;
    const SliceState& state = states_.at({number, pass});
    for (std::size_t i = 0; i < state.own.size(); ++i) {
      if (!state.shared[i].grad().defined()) continue;
      roots.push_back(state.own[i]);
      gradients.push_back(state.shared[i].grad());
    }
    states_.erase({number, pass});
  }

  void clear() { states_.clear(); }

 private:
  int slices_;
  std::map<std::pair<int, int>, SliceState> states_;  // by stage and pass
};

}  // namespace plumbline

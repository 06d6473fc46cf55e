// Random tensors and random ways to cut them: boxes of any number of dimensions - column, row and expert
// splits among them - and ranges of flattened boxes, empty ones too.
#pragma once

#include <algorithm>
#include <vector>

#include <rapidcheck.h>

#include "engine/storage/place.h"

namespace plumbline::test {

// The whole range at every size of a case.
inline int below(int end) { return *rc::gen::resize(100, rc::gen::inRange(0, end)); }

inline Shape any_shape() {
  Shape shape;
  for (int dims = below(4); dims > 0; --dims) shape.push_back(1 + below(5));
  return shape;
}

// Cuts a box along random dimensions, and some of the boxes into flattened ranges.
inline void cut(const Place& box, int depth, std::vector<Place>& out) {
  const std::size_t dims = box.shape.size();
  const std::size_t along = dims == 0 ? 0 : static_cast<std::size_t>(below(static_cast<int>(dims)));
  if (depth > 0 && dims > 0 && box.shape[along] > 1) {
    const std::int64_t first = 1 + below(static_cast<int>(box.shape[along]) - 1);
    Place left = box, right = box;
    left.shape[along] = first;
    right.shape[along] -= first;
    right.offset[along] += first;
    cut(left, depth - 1, out);
    cut(right, depth - 1, out);
    return;
  }
  if (below(3) != 0) {
    out.push_back(box);
    return;
  }
  const std::int64_t count = *element_count(box.shape);
  for (std::int64_t at = 0; at < count;) {
    Place range = box;
    range.flattened = true;
    range.begin = at;
    range.count = std::min<std::int64_t>(count - at, below(7));  // empty ones among them
    at += range.count;
    out.push_back(range);
  }
}

inline std::vector<Place> any_cover(const Shape& global) {
  std::vector<Place> places;
  cut(whole_place(global), 3, places);
  return places;
}

}  // namespace plumbline::test

#include "engine/storage/place.h"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace plumbline {
namespace {

std::int64_t product(const Shape& shape) {
  std::int64_t result = 1;
  for (const std::int64_t size : shape) result *= size;
  return result;
}

bool boxes_overlap(const Place& a, const Place& b) {
  for (std::size_t d = 0; d < a.shape.size(); ++d) {
    if (a.offset[d] + a.shape[d] <= b.offset[d] || b.offset[d] + b.shape[d] <= a.offset[d]) return false;
  }
  return true;
}

// Boxes that do not overlap and together have as many elements as the tensor cover it exactly. Flattened
// ranges are boxes here once the ranges of one box follow each other. False: not known, the runs must be
// looked at.
bool covers_by_boxes(const Shape& global, const std::vector<Place>& places) {
  std::vector<Place> sorted;
  for (const Place& place : places) {
    if (place.elements() > 0) sorted.push_back(place);
  }
  std::sort(sorted.begin(), sorted.end(), [](const Place& a, const Place& b) {
    return std::tie(a.offset, a.shape, a.flattened, a.begin) <
           std::tie(b.offset, b.shape, b.flattened, b.begin);
  });
  std::vector<Place> boxes;
  std::int64_t total = 0;
  for (std::size_t i = 0; i < sorted.size();) {
    const Place& box = sorted[i];
    if (boxes.size() > 4096) return false;
    boxes.push_back(box);
    total += product(box.shape);
    if (total > product(global)) return false;
    if (!box.flattened) {
      ++i;
      continue;
    }
    std::int64_t at = 0;
    for (; i < sorted.size() && sorted[i].flattened && sorted[i].offset == boxes.back().offset &&
           sorted[i].shape == boxes.back().shape;
         ++i) {
      if (sorted[i].begin != at) return false;
      at += sorted[i].count;
    }
    if (at != product(boxes.back().shape)) return false;
  }
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    for (std::size_t j = i + 1; j < boxes.size(); ++j) {
      if (boxes_overlap(boxes[i], boxes[j])) return false;
    }
  }
  return total == product(global);
}

std::string element_text(std::int64_t element, const Shape& global) {
  Shape index(global.size());
  for (std::size_t d = global.size(); d-- > 0;) {
    index[d] = element % global[d];
    element /= global[d];
  }
  return shape_text(index);
}

}  // namespace

std::int64_t Place::elements() const { return flattened ? count : product(shape); }

Place whole_place(const Shape& global) { return {Shape(global.size(), 0), global, false, 0, 0}; }

std::string place_suffix(const Place& place, const Shape& global) {
  if (!place.flattened && place.shape == global) return "";
  std::string text = fmt::format("@{}", fmt::join(place.offset, ","));
  if (place.flattened) text += fmt::format("+{}", place.begin);
  return text;
}

std::string place_text(const Place& place) {
  std::string text = fmt::format("offset {}, shape {}", shape_text(place.offset), shape_text(place.shape));
  // Of places that were read from a file too: their sum may not be a number.
  if (place.flattened) text += fmt::format(", {} elements from {}", place.count, place.begin);
  return text;
}

Status check_place(const Place& place, const Shape& global, const std::string& what) {
  const auto bad = [&](const char* why) {
    return fail(ErrorCode::kState,
                fmt::format("{}: {} of a tensor {}: {}", what, place_text(place), shape_text(global), why));
  };
  if (!element_count(global)) return bad("the tensor's size overflows");
  if (place.offset.size() != global.size() || place.shape.size() != global.size())
    return bad("the number of dimensions differs");
  for (std::size_t d = 0; d < global.size(); ++d) {
    if (place.offset[d] < 0 || place.shape[d] < 0 || place.offset[d] > global[d] ||
        place.shape[d] > global[d] - place.offset[d])
      return bad("it does not lie inside");
  }
  const std::int64_t box = product(place.shape);
  if (place.flattened &&
      (place.begin < 0 || place.count < 0 || place.begin > box || place.count > box - place.begin))
    return bad("the range does not lie inside the part");
  return {};
}

std::vector<Run> runs_of(const Place& place, const Shape& global) {
  std::vector<Run> runs;
  const std::int64_t box = product(place.shape);
  const std::int64_t first = place.flattened ? place.begin : 0;
  const std::int64_t last = place.flattened ? place.begin + place.count : box;
  if (first == last) return runs;
  // Dimensions from `inner` on are whole, so that a row is the product of those and of one more.
  const std::size_t dims = global.size();
  std::size_t inner = dims;
  while (inner > 0 && place.shape[inner - 1] == global[inner - 1]) --inner;
  if (inner > 0) --inner;
  std::int64_t row = 1;
  for (std::size_t d = inner; d < dims; ++d) row *= place.shape[d];
  Shape stride(dims, 1);
  for (std::size_t d = dims; d-- > 1;) stride[d - 1] = stride[d] * global[d];

  for (std::int64_t at = first / row; at * row < last; ++at) {
    std::int64_t start = 0;
    std::int64_t rest = at;
    for (std::size_t d = inner; d-- > 0;) {
      start += (place.offset[d] + rest % place.shape[d]) * stride[d];
      rest /= place.shape[d];
    }
    for (std::size_t d = inner; d < dims; ++d) start += place.offset[d] * stride[d];
    const std::int64_t begin = std::max(first, at * row), end = std::min(last, (at + 1) * row);
    const Run run{start + begin - at * row, begin - first, end - begin};
    if (!runs.empty() && runs.back().global + runs.back().length == run.global) {
      runs.back().length += run.length;
    } else {
      runs.push_back(run);
    }
  }
  return runs;
}

Status check_cover(const Shape& global, const std::vector<Place>& places,
                   const std::function<std::string(std::size_t)>& name, const std::string& what) {
  for (std::size_t i = 0; i < places.size(); ++i)
    PL_TRY(check_place(places[i], global, what + ": " + name(i)));
  const std::optional<std::int64_t> total = element_count(global);
  if (!total) return fail(ErrorCode::kState, what + ": the size overflows");
  if (covers_by_boxes(global, places)) return {};
  struct Owned {
    Run run;
    std::size_t owner;
  };
  std::vector<Owned> all;
  for (std::size_t i = 0; i < places.size(); ++i) {
    for (const Run& run : runs_of(places[i], global)) all.push_back({run, i});
  }
  std::sort(all.begin(), all.end(), [](const Owned& a, const Owned& b) {
    return std::pair(a.run.global, a.owner) < std::pair(b.run.global, b.owner);
  });
  std::int64_t at = 0;
  std::size_t before = 0;
  for (const Owned& owned : all) {
    if (owned.run.global > at) break;
    if (owned.run.global < at)
      return fail(ErrorCode::kState,
                  fmt::format("{}: element {} is held twice, by {} and by {}", what,
                              element_text(owned.run.global, global), name(before), name(owned.owner)));
    at += owned.run.length;
    before = owned.owner;
  }
  if (at < *total)
    return fail(ErrorCode::kState,
                fmt::format("{}: element {} is held by no one ({} places hold part of {})", what,
                            element_text(at, global), places.size(), shape_text(global)));
  return {};
}

void for_each_common(const std::vector<Run>& from, const std::vector<Run>& to,
                     const std::function<void(std::int64_t, std::int64_t, std::int64_t)>& copy) {
  for (std::size_t i = 0, j = 0; i < from.size() && j < to.size();) {
    const std::int64_t begin = std::max(from[i].global, to[j].global);
    const std::int64_t from_end = from[i].global + from[i].length, to_end = to[j].global + to[j].length;
    const std::int64_t end = std::min(from_end, to_end);
    if (begin < end)
      copy(from[i].local + begin - from[i].global, to[j].local + begin - to[j].global, end - begin);
    if (from_end <= to_end) {
      ++i;
    } else {
      ++j;
    }
  }
}

}  // namespace plumbline

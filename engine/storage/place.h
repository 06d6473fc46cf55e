// Place: which elements of a global tensor a piece holds - a box, or a range of the flattened box (a
// distributed optimizer's shard). Everything about layouts reduces to runs: stretches of elements that lie
// next to each other both in the global tensor (row-major) and in the piece.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/storage/element_type.h"

namespace plumbline {

struct Place {
  Shape offset;  // of the box in the global tensor
  Shape shape;   // of the box
  bool flattened = false;
  std::int64_t begin = 0;  // flattened: elements [begin, begin + count) of the box
  std::int64_t count = 0;

  std::int64_t elements() const;  // what the piece holds
  bool operator==(const Place&) const = default;
};

Place whole_place(const Shape& global);
// "", "@2,0" or "@2,0+5": what tells pieces of one tensor apart, unique for places with elements in a cover.
std::string place_suffix(const Place& place, const Shape& global);
std::string place_text(const Place& place);  // for messages: "offset [2, 0], shape [2, 4], 5 elements from 3"
// Same number of dimensions, inside the tensor, range inside the box.
Status check_place(const Place& place, const Shape& global, const std::string& what);

struct Run {
  std::int64_t global = 0;  // first element in the flattened global tensor
  std::int64_t local = 0;   // ... in the piece
  std::int64_t length = 0;
};

// In order of both; neighbours are merged. A checked place.
std::vector<Run> runs_of(const Place& place, const Shape& global);

// Every element of the tensor is in exactly one place, or an error (kState) that names the first hole or the
// first overlap and its owners; `name(i)` says what place i is.
Status check_cover(const Shape& global, const std::vector<Place>& places,
                   const std::function<std::string(std::size_t)>& name, const std::string& what);

// Calls copy(from, to, length) for every stretch of elements that both pieces hold: `from` counts in the one,
// `to` in the other.
void for_each_common(const std::vector<Run>& from, const std::vector<Run>& to,
                     const std::function<void(std::int64_t, std::int64_t, std::int64_t)>& copy);

}  // namespace plumbline

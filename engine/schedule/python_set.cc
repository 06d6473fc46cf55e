#include "engine/schedule/python_set.h"

#include "engine/base/assert.h"

namespace plumbline {

template <typename Visit>
void PythonSet::probe(int value, Visit visit) const {
  constexpr std::size_t kRun = 9;  // neighbours looked at before jumping, if the table reaches that far
  const std::size_t mask = places_.size() - 1;
  std::size_t perturb = static_cast<std::size_t>(value);
  std::size_t at = perturb & mask;
  while (true) {
    const std::size_t run = at + kRun <= mask ? kRun : 0;
    for (std::size_t i = 0; i <= run; ++i)
      if (visit(at + i)) return;
    perturb >>= 5;
    at = (at * 5 + 1 + perturb) & mask;
  }
}

bool PythonSet::has(int value) const {
  bool found = false;
  probe(value, [&](std::size_t at) {
    found = places_[at] == value;
    return found || places_[at] == kFree;
  });
  return found;
}

void PythonSet::add(int value) {
  PL_ASSERT(value >= 0);
  // The last removed place on the way is taken again before a free one is.
  std::size_t place = 0;
  bool again = false;
  probe(value, [&](std::size_t at) {
    if (places_[at] == kRemoved) again = true;
    if (places_[at] == kRemoved || (places_[at] == kFree && !again)) place = at;
    return places_[at] == kFree;
  });
  places_[place] = value;
  ++used_;
  if (again) return;
  ++filled_;
  if (filled_ * 5 >= (places_.size() - 1) * 3) grow();
}

void PythonSet::remove(int value) {
  probe(value, [&](std::size_t at) {
    PL_ASSERT(places_[at] != kFree);
    if (places_[at] != value) return false;
    places_[at] = kRemoved;
    return true;
  });
  --used_;
}

std::vector<int> PythonSet::values() const {
  std::vector<int> out;
  for (const int value : places_)
    if (value >= 0) out.push_back(value);
  return out;
}

// Four times what is used, and all values again in the order of the old table.
void PythonSet::grow() {
  const std::vector<int> old = values();
  std::size_t size = kSmallest;
  while (size <= used_ * 4) size *= 2;
  places_.assign(size, kFree);
  for (const int value : old) {
    probe(value, [&](std::size_t at) {
      if (places_[at] != kFree) return false;
      places_[at] = value;
      return true;
    });
  }
  filled_ = used_;
}

}  // namespace plumbline

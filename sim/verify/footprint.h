// Footprint: bytes that are live on a rank, and the part of them that waits for a backward (ClassCost), in one
// register: both are added, taken away and compared with a peak at once.
#pragma once

#include <algorithm>

#include "engine/base/units.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace plumbline::verify {

class Footprint {
 public:
  Footprint() = default;  // nothing
  Footprint(Bytes bytes, Bytes activations) : both_{bytes, activations} {}

  Bytes bytes() const { return both_[0]; }
  Bytes activations() const { return both_[1]; }
  void operator+=(const Footprint& more) { both_ += more.both_; }
  void operator-=(const Footprint& less) { both_ -= less.both_; }

  // Whether one of the two is larger than there.
  bool exceeds(const Footprint& peak) const {
    const Pair left = peak.both_ - both_;
#if defined(__SSE2__)
    return _mm_movemask_pd(reinterpret_cast<__m128d>(left)) != 0;
#else
    return (left[0] | left[1]) < 0;
#endif
  }
  void raise(const Footprint& to) {
    both_ = Pair{std::max(both_[0], to.both_[0]), std::max(both_[1], to.both_[1])};
  }

 private:
  using Pair = Bytes __attribute__((vector_size(16)));

  Pair both_{};
};

}  // namespace plumbline::verify

// Footprint: bytes that are live on a rank, and the part of them that waits for a backward (ClassCost), in one
// register: both are added, taken away and looked at together.
#pragma once

#include "engine/base/units.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace plumbline::verify {

class Footprint {
 public:
  Footprint() = default;  // of no value, for tables; Footprint{} is nothing
  Footprint(Bytes bytes, Bytes activations) : both_{bytes, activations} {}

  Bytes bytes() const { return both_[0]; }
  Bytes activations() const { return both_[1]; }
  void operator+=(const Footprint& more) { both_ += more.both_; }
  void operator-=(const Footprint& less) { both_ -= less.both_; }

  // Whether one of the two is below zero: more was taken away than there was.
  bool overdrawn() const {
#if defined(__SSE2__)
    return _mm_movemask_pd(reinterpret_cast<__m128d>(both_)) != 0;
#else
    return (both_[0] | both_[1]) < 0;
#endif
  }
  // Raises what is below zero to zero, and says by how much.
  Footprint settle() {
    Footprint missing;
    missing.both_ = -(both_ & (both_ >> 63));
    both_ += missing.both_;
    return missing;
  }

 private:
  using Pair = Bytes __attribute__((vector_size(16)));

  Pair both_;
};

}  // namespace plumbline::verify

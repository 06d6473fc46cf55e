// Lanes: the virtual times of both modes in one value - lane 0 of the certification mode, lane 1 of the default mode.
//
// They are whole numbers of nanoseconds kept as doubles, because every x86-64 and every AArch64 has one instruction for
// the larger of two pairs of doubles, and none for pairs of 64-bit integers. Up to kExact (104 days) each whole number
// is a double and every sum is exact. Times only grow on their way to the end: where the end is below the limit,
// nothing before it was rounded, and who asks for the end looks whether it is.
#pragma once

#include <cstddef>

#include "engine/base/units.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace plumbline::verify {

class Lanes {
 public:
  static constexpr double kExact = 9007199254740992.0;  // 2^53

  Lanes() = default;  // both zero
  Lanes(double certification, double by_default) : both_{certification, by_default} {}

  double operator[](std::size_t i) const { return both_[i]; }
  Nanoseconds nanoseconds(std::size_t i) const { return static_cast<Nanoseconds>(both_[i]); }
  bool exact() const { return both_[0] < kExact && both_[1] < kExact; }

  // At least `to`, in each lane.
  void raise(const Lanes& to) { both_ = larger(both_, to.both_); }
  void raise_certification(double to) { both_[0] = both_[0] < to ? to : both_[0]; }
  Lanes plus(double duration) const {
    Lanes sum;
    sum.both_ = both_ + Pair{duration, duration};
    return sum;
  }
  // Lane 0 alone, the other zero.
  Lanes certification() const { return {both_[0], 0.0}; }

 private:
  using Pair = double __attribute__((vector_size(16)));

  static Pair larger(Pair a, Pair b) {
#if defined(__SSE2__)
    return _mm_max_pd(a, b);
#else
    return a > b ? a : b;
#endif
  }

  Pair both_{};
};

inline Lanes later(Lanes a, const Lanes& b) {
  a.raise(b);
  return a;
}

}  // namespace plumbline::verify

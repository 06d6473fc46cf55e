// ExactSum: the sum of squares of floats without rounding, as a fixed-point number of 15 digits of 40 bits.
// Addition is exact, hence associative and commutative: a norm computed from it is the same bits for any
// order, any sharding over pipeline, data, tensor or expert ranks, any bucket size and any vector width.
// Digits of several ranks are added as plain int64 sums (up to 2^22 ranks without carry in between).
//
// The square of a float is a multiple of 2^-298 below 2^256; digit k counts units of 2^(40 k - 298). Values
// that are not finite cannot be added: they are counted, and make value() a NaN.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace plumbline {

class ExactSum {
 public:
  static constexpr int kDigits = 15;  // 554 bits of the largest square; the last digit takes the carries
  static constexpr int kWords = kDigits + 1;  // and the count of values that were not finite
  static constexpr int kDigitBits = 40;
  static constexpr int kUnit = -298;

  void add_square(float value);  // plain and slow; the fast loop over an array is optim's kernel
  // value * 2^exponent; for kernels that add up part of a sum exactly by themselves. A part may be negative, the
  // whole must not be when it is read. kUnit <= exponent <= kUnit + 519.
  void add_scaled(std::int64_t value, int exponent);
  void add_not_finite(std::int64_t count = 1) { words_[kDigits] += count; }
  ExactSum& operator+=(const ExactSum& other);

  // Carries done: digits in [0, 2^40) but the last, which grows without bound, so equal sums have equal words.
  void normalize();
  // What travels: digits (normalized), then the count.
  std::array<std::int64_t, kWords> words() const;
  // From words added up over ranks.
  static ExactSum of(std::span<const std::int64_t, kWords> words);

  // The sum rounded to the nearest double, ties to even; NaN when something was not finite.
  double value() const;
  bool finite() const { return words_[kDigits] == 0; }

  bool operator==(const ExactSum& other) const { return words() == other.words(); }

 private:
  std::array<std::int64_t, kWords> words_{};
};

}  // namespace plumbline

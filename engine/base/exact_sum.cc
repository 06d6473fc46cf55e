#include "engine/base/exact_sum.h"

#include <bit>
#include <cmath>
#include <limits>

#include "engine/base/assert.h"

namespace plumbline {
namespace {

using Wide = __int128;

constexpr int kBits = ExactSum::kDigitBits;
constexpr std::int64_t kMask = (std::int64_t{1} << kBits) - 1;
constexpr std::int64_t kAlmostFull = std::int64_t{1} << 61;

int bit_width(unsigned __int128 value) {
  const auto high = static_cast<std::uint64_t>(value >> 64);
  if (high != 0) return 64 + static_cast<int>(std::bit_width(high));
  return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(value)));
}

}  // namespace

void ExactSum::add_square(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto exponent = static_cast<int>((bits >> 23) & 0xFFu);
  const std::int64_t fraction = bits & 0x7FFFFFu;
  if (exponent == 0xFF) return add_not_finite();
  // value = significand * 2^(exponent - 150); subnormals have exponent 1 and no hidden bit.
  const std::int64_t significand = exponent == 0 ? fraction : fraction | 0x800000;
  add_scaled(significand * significand, 2 * ((exponent == 0 ? 1 : exponent) - 150));
}

void ExactSum::add_scaled(std::int64_t value, int exponent) {
  const int place = exponent - kUnit;
  PL_ASSERT(place >= 0 && place / kBits + 2 < kDigits);
  std::int64_t* digit = &words_[static_cast<std::size_t>(place / kBits)];
  // At most 63 + 39 bits: two whole digits, and a third that carries the sign.
  const Wide shifted = static_cast<Wide>(value) * (std::int64_t{1} << (place % kBits));
  digit[0] += static_cast<std::int64_t>(shifted) & kMask;
  digit[1] += static_cast<std::int64_t>(shifted >> kBits) & kMask;
  digit[2] += static_cast<std::int64_t>(shifted >> (2 * kBits));
  // Only whole digits bring a word near its limit: 2^21 of them without a carry.
  if (digit[0] >= kAlmostFull || digit[1] >= kAlmostFull) normalize();
}

ExactSum& ExactSum::operator+=(const ExactSum& other) {
  const auto theirs = other.words();
  normalize();
  for (std::size_t i = 0; i < theirs.size(); ++i) words_[i] += theirs[i];
  return *this;
}

void ExactSum::normalize() {
  for (std::size_t i = 0; i + 1 < kDigits; ++i) {
    words_[i + 1] += words_[i] >> kBits;  // rounds down, so what stays is not negative
    words_[i] &= kMask;
  }
}

std::array<std::int64_t, ExactSum::kWords> ExactSum::words() const {
  ExactSum copy = *this;
  copy.normalize();
  return copy.words_;
}

ExactSum ExactSum::of(std::span<const std::int64_t, kWords> words) {
  ExactSum sum;
  for (std::size_t i = 0; i < kWords; ++i) sum.words_[i] = words[i];
  sum.normalize();
  return sum;
}

double ExactSum::value() const {
  if (!finite()) return std::numeric_limits<double>::quiet_NaN();
  const auto digits = words();
  int top = kDigits - 1;
  while (top > 0 && digits[static_cast<std::size_t>(top)] == 0) --top;
  PL_ASSERT_MSG(digits[static_cast<std::size_t>(top)] >= 0, "a sum of squares is not negative");
  // The leading digits, at least 41 bits more than a double holds unless there are no more; of the rest it only
  // matters whether it is zero.
  unsigned __int128 head = 0;
  int lowest = top + 1;
  while (lowest > 0 && bit_width(head) + kBits <= 128) {
    head = (head << kBits) + static_cast<std::uint64_t>(digits[static_cast<std::size_t>(--lowest)]);
  }
  bool rest = false;
  for (int i = 0; i < lowest; ++i) rest = rest || digits[static_cast<std::size_t>(i)] != 0;

  const int exponent = lowest * kBits + kUnit;
  const int drop = bit_width(head) - std::numeric_limits<double>::digits;
  if (drop <= 0) return std::ldexp(static_cast<double>(static_cast<std::uint64_t>(head)), exponent);
  auto kept = static_cast<std::uint64_t>(head >> drop);
  const unsigned __int128 dropped = head - (static_cast<unsigned __int128>(kept) << drop);
  const unsigned __int128 half = static_cast<unsigned __int128>(1) << (drop - 1);
  const bool tie = dropped == half && !rest;
  if (tie ? (kept & 1u) != 0 : dropped >= half) ++kept;
  return std::ldexp(static_cast<double>(kept), exponent + drop);
}

}  // namespace plumbline

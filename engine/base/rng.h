// Counter-based random numbers: Philox 4x32-10 (Salmon, Moraes, Dror, Shaw, SC'11). A draw is a pure function of
// (seed, stream name, index), so no layout of ranks, order of calls or library version changes it.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace plumbline {

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key);

// One named stream of draws, indexed by element.
class CounterRng {
 public:
  CounterRng(std::uint64_t seed, std::string_view stream);

  std::uint64_t bits(std::uint64_t index) const;  // 64 uniform bits
  double uniform(std::uint64_t index) const;      // [0, 1), 53 bits
  double normal(std::uint64_t index) const;       // standard normal (Box-Muller, one per index)
  std::uint64_t below(std::uint64_t index, std::uint64_t bound) const;  // [0, bound), bound > 0

 private:
  std::array<std::uint32_t, 2> key_;
  std::uint64_t stream_;
};

}  // namespace plumbline

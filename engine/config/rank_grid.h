// RankGrid: the one place where a rank number is computed. A world of tp * cp * ep * dp * pp ranks is a
// five-axis grid; `order` names the axes from the fastest-varying to the slowest, Megatron-core's default
// being tp-cp-ep-dp-pp (megatron/core/parallel_state.py, RankGenerator). --use-tp-pp-dp-mapping is the order
// tp-cp-ep-pp-dp.
//
// A group is the set of ranks that agree on every axis outside a chosen set of axes, in increasing rank
// order: the pipeline group varies pp, the data-parallel group dp (and cp), the model-parallel group tp and
// pp. The embedding group of a pipeline is its first and last rank.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"

namespace plumbline {

using Rank = std::int32_t;

enum class Axis : std::uint8_t { kTp, kCp, kEp, kDp, kPp };
constexpr int kAxes = 5;
constexpr std::array<Axis, kAxes> kAllAxes{Axis::kTp, Axis::kCp, Axis::kEp, Axis::kDp, Axis::kPp};

std::string_view axis_name(Axis axis);  // "tp", "cp", ...

// A set of axes as a bit mask, bit i for Axis i.
using AxisSet = std::uint8_t;
constexpr AxisSet axis_bit(Axis axis) { return static_cast<AxisSet>(1u << static_cast<unsigned>(axis)); }

class RankGrid {
 public:
  struct Sizes {
    int tp = 1;
    int cp = 1;
    int ep = 1;
    int dp = 1;
    int pp = 1;
  };

  // Refuses sizes below 1, worlds above 2^20 ranks, and orders that do not name each axis once.
  static Result<RankGrid> create(Sizes sizes, std::string_view order = "tp-cp-ep-dp-pp");

  RankGrid() = default;  // one rank

  int world() const { return world_; }
  int size(Axis axis) const { return size_[static_cast<std::size_t>(axis)]; }
  int pp() const { return size(Axis::kPp); }
  int dp() const { return size(Axis::kDp); }
  const std::string& order() const { return order_; }

  int coordinate(Rank rank, Axis axis) const;
  // The rank whose coordinate on `axis` is moved by `delta`, wrapping around; all other coordinates stay.
  Rank shifted(Rank rank, Axis axis, int delta) const;
  // The rank with this coordinate on `axis`, all other coordinates as in `rank`.
  Rank moved(Rank rank, Axis axis, int coordinate) const;

  // All groups that vary exactly `axes`, ordered by their first rank; members ascend.
  std::vector<std::vector<Rank>> groups(AxisSet axes) const;
  // First and last rank of every pipeline; one rank where pp = 1.
  std::vector<std::vector<Rank>> embedding_groups() const;

  bool operator==(const RankGrid&) const = default;

 private:
  std::array<int, kAxes> size_{1, 1, 1, 1, 1};
  std::array<int, kAxes> stride_{1, 1, 1, 1, 1};
  int world_ = 1;
  std::string order_ = "tp-cp-ep-dp-pp";
};

}  // namespace plumbline

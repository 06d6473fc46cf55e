#include "engine/config/rank_grid.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "engine/base/assert.h"
#include "engine/base/text.h"

namespace plumbline {
namespace {

constexpr std::int64_t kLargestWorld = 1 << 20;

std::size_t index(Axis axis) { return static_cast<std::size_t>(axis); }

std::optional<Axis> axis_from_name(std::string_view name) {
  for (const Axis axis : kAllAxes) {
    if (axis_name(axis) == name) return axis;
  }
  return std::nullopt;
}

// The axes from fastest to slowest.
Result<std::array<Axis, kAxes>> parse_order(std::string_view order) {
  const std::vector<std::string_view> names = split(order, '-');
  std::array<Axis, kAxes> axes{};
  AxisSet seen = 0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::optional<Axis> axis = axis_from_name(names[i]);
    const bool repeated = axis && (seen & axis_bit(*axis)) != 0;
    if (!axis || repeated || i >= axes.size()) break;
    axes[i] = *axis;
    seen = static_cast<AxisSet>(seen | axis_bit(*axis));
  }
  if (names.size() != axes.size() || seen != (1u << kAxes) - 1u) {
    return fail(
        ErrorCode::kConfig,
        fmt::format("rank order '{}' must name tp, cp, ep, dp and pp once each — for example tp-cp-ep-dp-pp",
                    order));
  }
  return axes;
}

}  // namespace

std::string_view axis_name(Axis axis) {
  constexpr std::array<std::string_view, kAxes> kNames{"tp", "cp", "ep", "dp", "pp"};
  return kNames[index(axis)];
}

Result<RankGrid> RankGrid::create(Sizes sizes, std::string_view order) {
  const Result<std::array<Axis, kAxes>> axes = parse_order(order);
  if (!axes) return tl::unexpected(axes.error());
  RankGrid grid;
  grid.size_ = {sizes.tp, sizes.cp, sizes.ep, sizes.dp, sizes.pp};
  grid.order_ = std::string(order);
  std::int64_t stride = 1;
  for (const Axis axis : *axes) {
    const int size = grid.size(axis);
    if (size < 1) {
      return fail(ErrorCode::kConfig,
                  fmt::format("{} size {} must be at least 1 — leave the axis out by setting it to 1",
                              axis_name(axis), size));
    }
    grid.stride_[index(axis)] = static_cast<int>(stride);
    stride *= size;
    if (stride > kLargestWorld) {
      return fail(
          ErrorCode::kConfig,
          fmt::format("a world of tp={} cp={} ep={} dp={} pp={} has more than {} ranks — use smaller sizes",
                      sizes.tp, sizes.cp, sizes.ep, sizes.dp, sizes.pp, kLargestWorld));
    }
  }
  grid.world_ = static_cast<int>(stride);
  return grid;
}

int RankGrid::coordinate(Rank rank, Axis axis) const {
  PL_ASSERT(rank >= 0 && rank < world_);
  return rank / stride_[index(axis)] % size(axis);
}

Rank RankGrid::shifted(Rank rank, Axis axis, int delta) const {
  const std::int64_t sum = std::int64_t{coordinate(rank, axis)} + delta;
  const std::int64_t remainder = sum % size(axis);
  return moved(rank, axis, static_cast<int>(remainder < 0 ? remainder + size(axis) : remainder));
}

Rank RankGrid::moved(Rank rank, Axis axis, int target) const {
  PL_ASSERT(target >= 0 && target < size(axis));
  return rank + (target - coordinate(rank, axis)) * stride_[index(axis)];
}

std::vector<std::vector<Rank>> RankGrid::groups(AxisSet axes) const {
  // A group is named by its smallest member, whose coordinates on `axes` are all zero.
  std::vector<std::vector<Rank>> all;
  std::vector<std::int32_t> group_of(static_cast<std::size_t>(world_));
  for (Rank rank = 0; rank < world_; ++rank) {
    Rank first = rank;
    for (const Axis axis : kAllAxes) {
      if ((axes & axis_bit(axis)) != 0) first = moved(first, axis, 0);
    }
    if (first == rank) {
      group_of[static_cast<std::size_t>(rank)] = static_cast<std::int32_t>(all.size());
      all.emplace_back();
    }
    all[static_cast<std::size_t>(group_of[static_cast<std::size_t>(first)])].push_back(rank);
  }
  return all;
}

std::vector<std::vector<Rank>> RankGrid::embedding_groups() const {
  std::vector<std::vector<Rank>> all = groups(axis_bit(Axis::kPp));
  for (std::vector<Rank>& pipeline : all) {
    if (pipeline.size() > 1) pipeline = {pipeline.front(), pipeline.back()};
  }
  return all;
}

}  // namespace plumbline

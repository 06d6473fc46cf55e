#include "engine/schedule/bounds.h"

#include <algorithm>
#include <array>
#include <string>

#include <fmt/format.h>

#include "engine/schedule/step_index.h"

namespace plumbline {
namespace {

enum Held : std::size_t { kUntilWeightGrad, kUntilInputGrad, kOpenWeightGrads, kHelds };

// What an action takes and lets go, by Held.
constexpr std::array<int, kHelds> change_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return {1, 1, 0};
    case ActionKind::kBackward:
      return {-1, -1, 0};
    case ActionKind::kInputGrad:
      return {0, -1, 1};
    case ActionKind::kWeightGrad:
      return {-1, 0, -1};
    default:
      return {0, 0, 0};
  }
}

// Calls visit(position, what is held after the action there). Of a pair the forward comes first.
template <typename Visit>
void walk(const Schedule& schedule, int rank, Visit visit) {
  if (schedule.forward_only) return;  // keeps nothing
  const std::span<const Action> row = schedule.row(rank);
  std::array<int, kHelds> held{};
  const auto take = [&](std::size_t position) {
    if (!in_range(row[position], schedule)) return;
    const std::array<int, kHelds> change = change_of(row[position].kind);
    for (std::size_t i = 0; i < kHelds; ++i) held[i] += change[i];
    visit(position, held);
  };
  for (std::size_t i = 0; i < row.size(); ++i) {
    const bool swapped = row[i].paired != 0 && i + 1 < row.size() && row[i].kind != ActionKind::kForward;
    if (!swapped) {
      take(i);
      continue;
    }
    take(i + 1);
    take(i);
    ++i;
  }
}

std::array<int, kHelds> peaks_of(const Schedule& schedule, int rank) {
  std::array<int, kHelds> peak{};
  walk(schedule, rank, [&](std::size_t, const std::array<int, kHelds>& held) {
    for (std::size_t i = 0; i < kHelds; ++i) peak[i] = std::max(peak[i], held[i]);
  });
  return peak;
}

const char* words_of(std::size_t which) {
  switch (which) {
    case kUntilWeightGrad:
      return "activations, each until its W or B";
    case kUntilInputGrad:
      return "activations, each until its I or B";
    default:
      return "weight gradients whose W is still to come";
  }
}

}  // namespace

Holdings peak_holdings(const Schedule& schedule) {
  Holdings out;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const std::array<int, kHelds> peak = peaks_of(schedule, rank);
    out.until_weight_grad.push_back(peak[kUntilWeightGrad]);
    out.until_input_grad.push_back(peak[kUntilInputGrad]);
    out.open_weight_grads.push_back(peak[kOpenWeightGrads]);
  }
  return out;
}

std::vector<ScheduleFinding> check_bounds(const Schedule& schedule, const HoldingBounds& bounds) {
  const std::array<int, kHelds> limits{bounds.until_weight_grad, bounds.until_input_grad,
                                       bounds.open_weight_grads};
  std::vector<ScheduleFinding> findings;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    std::array<bool, kHelds> told{};
    walk(schedule, rank, [&](std::size_t position, const std::array<int, kHelds>& held) {
      for (std::size_t i = 0; i < kHelds; ++i) {
        if (limits[i] == 0 || held[i] <= limits[i] || told[i]) continue;
        told[i] = true;
        findings.push_back({i == kOpenWeightGrads ? "weight-queue" : "activations",
                            fmt::format("with {} rank {} holds {} {}; the bound is {}, its peak {}",
                                        print_action(schedule.row(rank)[position]), rank, held[i],
                                        words_of(i), limits[i], peaks_of(schedule, rank)[i]),
                            rank, static_cast<int>(position)});
      }
    });
  }
  return findings;
}

}  // namespace plumbline

#include "engine/schedule/costs.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace plumbline {
namespace {

Status check_list(const std::vector<std::int64_t>& list, bool may_be_empty, int entries, std::string_view who,
                  std::string_view what, std::string_view each) {
  if (list.empty() && may_be_empty) return {};
  if (list.size() != 1 && list.size() != static_cast<std::size_t>(entries)) {
    return fail(ErrorCode::kConfig, fmt::format("{}: {} has {} entries for {} {}; give 1 or {}", who, what,
                                                list.size(), entries, each, entries));
  }
  for (const std::int64_t value : list) {
    if (value < 0) {
      return fail(ErrorCode::kConfig, fmt::format("{}: {} is {}; set 0 or more", who, what, value));
    }
  }
  return {};
}

}  // namespace

Nanoseconds cost_on(const StageCosts& costs, int rank, Nanoseconds cost) {
  if (costs.slow.empty()) return cost;
  const double factor = costs.slow[static_cast<std::size_t>(rank)];
  return static_cast<Nanoseconds>(std::llround(static_cast<double>(cost) * factor));
}

Nanoseconds recompute_cost(const StageCosts& costs, int stage) {
  return costs.recompute.empty() ? 0 : entry_of(costs.recompute, stage);
}

Nanoseconds input_grad_cost(const StageCosts& costs, int stage) {
  return entry_of(costs.input_grad, stage) + recompute_cost(costs, stage);
}

Nanoseconds hop_cost(const StageCosts& costs, int from, int to) {
  if (costs.hops.empty()) return costs.hop;
  const auto found = costs.hops.find({from, to});
  return found == costs.hops.end() ? costs.hop : found->second;
}

Nanoseconds backward_cost(const StageCosts& costs, int stage) {
  if (!costs.backward.empty()) return entry_of(costs.backward, stage);
  return entry_of(costs.input_grad, stage) + entry_of(costs.weight_grad, stage);
}

Nanoseconds pair_cost(const StageCosts& costs, int forward_stage, Nanoseconds other) {
  if (!costs.pair.empty()) return entry_of(costs.pair, forward_stage);
  return entry_of(costs.forward, forward_stage) + other;
}

Status check_costs(const StageCosts& costs, int stages, std::string_view who) {
  PL_TRY(check_list(costs.forward, false, stages, who, "the forward time", "stages"));
  PL_TRY(check_list(costs.input_grad, false, stages, who, "the input-gradient time", "stages"));
  PL_TRY(check_list(costs.weight_grad, false, stages, who, "the weight-gradient time", "stages"));
  PL_TRY(check_list(costs.backward, true, stages, who, "the backward time", "stages"));
  PL_TRY(check_list(costs.pair, true, stages, who, "the time of an overlapped pair", "stages"));
  PL_TRY(check_list(costs.recompute, true, stages, who, "the recomputation time", "stages"));
  for (const auto& [ends, hop] : costs.hops)
    PL_TRY(check_list({hop}, false, 1, who, "the latency of a link", "link"));
  return check_list({costs.hop}, false, 1, who, "the latency between ranks", "link");
}

Status check_slow(const StageCosts& costs, int ranks, std::string_view who) {
  if (costs.slow.empty()) return {};
  if (costs.slow.size() != static_cast<std::size_t>(ranks)) {
    return fail(ErrorCode::kConfig, fmt::format("{}: {} factors of slow ranks for {} ranks; give 0 or {}",
                                                who, costs.slow.size(), ranks, ranks));
  }
  for (const double factor : costs.slow) {
    if (!(factor > 0.0 && factor <= 1000.0)) {
      return fail(
          ErrorCode::kConfig,
          fmt::format("{}: a rank is slow by {}; set a factor above 0 and at most 1000", who, factor));
    }
  }
  return {};
}

Status check_activations(const ActivationModel& model, int stages, int ranks, std::string_view who) {
  PL_TRY(check_list(model.held, false, stages, who, "a forward's activation", "stages"));
  PL_TRY(check_list(model.freed_early, false, stages, who, "what the input gradient frees", "stages"));
  PL_TRY(check_list(model.cap, true, ranks, who, "the activation cap", "ranks"));
  for (int stage = 0; stage < stages; ++stage) {
    if (entry_of(model.freed_early, stage) > entry_of(model.held, stage)) {
      return fail(
          ErrorCode::kConfig,
          fmt::format("{}: the input gradient of stage {} frees {} of an activation of {}; free at most that",
                      who, stage, entry_of(model.freed_early, stage), entry_of(model.held, stage)));
    }
  }
  return {};
}

std::vector<std::int64_t> default_cap(const ActivationModel& model, int ranks, std::int64_t forwards) {
  std::vector<std::int64_t> cap(static_cast<std::size_t>(ranks), 0);
  for (std::size_t stage = 0; stage < std::max(model.held.size(), cap.size()); ++stage) {
    std::int64_t& of_rank = cap[stage % cap.size()];
    of_rank = std::max(of_rank, forwards * entry_of(model.held, static_cast<int>(stage)));
  }
  return cap;
}

}  // namespace plumbline

// What a schedule's steps cost in time and in memory: the input of the evaluator and of the generators that
// search. Every list holds one entry for all stages, or one entry a stage.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/result.h"
#include "engine/base/units.h"

namespace plumbline {

struct StageCosts {
  std::vector<Nanoseconds> forward{1};      // F
  std::vector<Nanoseconds> input_grad{1};   // I
  std::vector<Nanoseconds> weight_grad{1};  // W
  std::vector<Nanoseconds> backward;        // B; empty: I + W
  std::vector<Nanoseconds>
      pair;             // a forward overlapped with a backward, by the forward's stage; empty: F + B
  Nanoseconds hop = 0;  // from one rank to another, pure latency
  std::map<std::pair<int, int>, Nanoseconds> hops;  // (from, to) -> another one
  // Forward done again ahead of B or I, alone or in a pair; empty: nothing.
  std::vector<Nanoseconds> recompute;
  // A factor on the computations of each rank, rounded to nanoseconds; empty: 1.
  std::vector<double> slow;

  bool operator==(const StageCosts&) const = default;
};

// Activations in any unit, as long as all three lists and the cap have the same.
struct ActivationModel {
  std::vector<std::int64_t> held{1};         // taken by F
  std::vector<std::int64_t> freed_early{0};  // given back by I; W gives back the rest, B everything
  // The most a rank may hold; one entry for all ranks, or one a rank. Empty: what the schedule holds by
  // itself.
  std::vector<std::int64_t> cap;
  // What is recomputed beside: during B, and from I to W.
  std::vector<std::int64_t> rebuilt{0}, rebuilt_split{0};

  bool operator==(const ActivationModel&) const = default;
};

// Entry `at` of a list as above.
template <typename Value>
Value entry_of(const std::vector<Value>& list, int at) {
  return list.size() == 1 ? list.front() : list[static_cast<std::size_t>(at)];
}

// What takes `cost` on a rank that is not slow.
Nanoseconds cost_on(const StageCosts& costs, int rank, Nanoseconds cost);
Nanoseconds recompute_cost(const StageCosts& costs, int stage);
// From one rank to another.
Nanoseconds hop_cost(const StageCosts& costs, int from, int to);
// I behind what is recomputed.
Nanoseconds input_grad_cost(const StageCosts& costs, int stage);
// B without what is recomputed.
Nanoseconds backward_cost(const StageCosts& costs, int stage);
// A forward of one stage overlapped with a backward (or I, or W) that alone takes `other`.
Nanoseconds pair_cost(const StageCosts& costs, int forward_stage, Nanoseconds other);

// Lists of 1 entry or `stages` entries (caps: `ranks`), nothing negative. `who` begins the message.
Status check_costs(const StageCosts& costs, int stages, std::string_view who);
// `slow` has an entry for each of `ranks`, or none; each above 0.
Status check_slow(const StageCosts& costs, int ranks, std::string_view who);
Status check_activations(const ActivationModel& model, int stages, int ranks, std::string_view who);
// A cap of `forwards` activations a rank, where rank r's stages (r, and r plus multiples of `ranks`) may
// differ: the largest counts.
std::vector<std::int64_t> default_cap(const ActivationModel& model, int ranks, std::int64_t forwards);

}  // namespace plumbline

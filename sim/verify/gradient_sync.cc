#include "sim/verify/gradient_sync.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "sim/verify/coverage.h"
#include "sim/verify/sync_events.h"

namespace plumbline::verify {
namespace {

constexpr std::size_t kMostFindings = 8;

// One sum over a communicator: consecutive reductions of a stage's parts.
struct Round {
  std::uint32_t communicator = 0;
  Bytes bytes = 0;
  std::uint32_t item = 0;
  bool shards = false;  // reduce-scatter
};

// What ranks a value is the sum over: sums of one number a rank.
struct Summed {
  std::uint64_t tally = 0;
  std::int64_t count = 0;
  std::int64_t replicas = 1;  // that each of them stands for
  std::int64_t ranks() const { return count * replicas; }
  bool operator==(const Summed&) const = default;
};

// A stage's gradients on one rank.
struct Gradients {
  bool zeroed = false, added = false, unscaled = false;
  std::uint32_t first_use = kNone32;
  std::vector<Round> rounds;  // before the first use
};

// A stage's parameters on one rank, where they persist whole.
struct Parameters {
  std::uint32_t first_read = kNone32, step = kNone32;
  Bytes before = 0, after = 0;  // gathered before the first read, and after the step
};

class GradientSync {
 public:
  GradientSync(const CheckWorld& world, const SyncReplicas& replicas)
      : world_(world), program_(*world.program), replicas_(replicas), tables_(program_) {}

  std::vector<Finding> run() {
    if (!tables_.steps()) return {};
    ranks_.resize(world_.threads());
    std::map<std::uint32_t, std::vector<SyncEvent>> known;  // by first item: ranks share ranges
    for (std::size_t t = 0; t < world_.threads(); ++t) {
      const Thread& thread = program_.threads[t];
      if (thread.begin == thread.end) continue;
      auto [events, fresh] = known.try_emplace(thread.begin);
      if (fresh) events->second = tables_.events(t);
      walk(t, events->second);
    }
    for (std::uint16_t slot = 0; slot < program_.slots.size(); ++slot) {
      if (program_.slots[slot].kind != SlotKind::kMainGrads) continue;
      check_sums(slot);
      check_unscaling(slot);
    }
    check_gathers();
    return std::move(findings_);
  }

 private:
  struct OfRank {
    std::map<std::uint16_t, Gradients> gradients;    // by slot
    std::map<std::uint16_t, Parameters> parameters;  // by slot
  };

  int stage_of(std::uint16_t slot) const { return program_.slots[slot].stage; }
  int pipeline_of(
      std::size_t t) const {  // ranks of other tensor- or expert-parallel parts have other gradients
    const auto rank = static_cast<Rank>(t);
    return program_.grid.coordinate(rank, Axis::kTp) * program_.grid.size(Axis::kEp) +
           program_.grid.coordinate(rank, Axis::kEp);
  }

  void add(std::size_t t, std::uint32_t item, std::string why) {
    if (findings_.size() >= kMostFindings) return;
    Finding finding;
    finding.kind = FindingKind::kStructure;
    finding.operations.push_back(world_.operation(t, item));
    finding.why = std::move(why);
    findings_.push_back(std::move(finding));
  }

  std::string gradients_text(std::size_t t, std::uint16_t slot) const {
    return fmt::format("the gradients of stage {} on rank {}", stage_of(slot), t);
  }

  void walk(std::size_t t, const std::vector<SyncEvent>& events) {
    for (const SyncEvent& event : events) {
      if (event.kind == SyncKind::kRead || event.kind == SyncKind::kGather ||
          program_.slots[event.slot].kind == SlotKind::kParameters) {
        parameters(t, event);
      } else {
        gradients(t, event, ranks_[t].gradients[event.slot]);
      }
    }
  }

  void gradients(std::size_t t, const SyncEvent& event, Gradients& state) {
    switch (event.kind) {
      case SyncKind::kZero:
        state.zeroed = true;
        return;
      case SyncKind::kAdd:
        return adds(t, event, state);
      case SyncKind::kReduce:
        return reduces(t, event, state);
      case SyncKind::kUnscale:
        if (state.unscaled)
          add(t, event.item,
              fmt::format("{} are divided by the loss scale twice", gradients_text(t, event.slot)));
        state.unscaled = true;
        state.first_use = std::min(state.first_use, event.item);
        return;
      default:
        state.first_use = std::min(state.first_use, event.item);
    }
  }

  void adds(std::size_t t, const SyncEvent& event, Gradients& state) {
    const auto what = [&] { return world_.operation(t, event.item).text; };
    if (!state.zeroed && !state.added)
      add(t, event.item,
          fmt::format("{} adds to {}, which nothing has set to zero: the last step's are in them", what(),
                      gradients_text(t, event.slot)));
    state.added = true;
    if (!state.rounds.empty()) {
      add(t, event.item,
          fmt::format("{} adds to {} after their reduction has begun: other ranks do not get it", what(),
                      gradients_text(t, event.slot)));
    } else if (state.first_use != kNone32) {
      add(t, event.item,
          fmt::format("{} adds to {} after {} has used them: the step does not get it", what(),
                      gradients_text(t, event.slot), world_.operation(t, state.first_use).text));
    }
  }

  void reduces(std::size_t t, const SyncEvent& event, Gradients& state) {
    const unsigned row = item_ref(program_.items[event.item]);
    const Port& port = world_.port(t, row);
    if (state.first_use != kNone32) {
      add(t, event.item,
          fmt::format("{} are reduced after {} has used them", gradients_text(t, event.slot),
                      world_.operation(t, state.first_use).text));
      return;
    }
    const bool shards = port.kind == EndpointKind::kReduceScatter;
    const Bytes bytes = program_.endpoints[row].bytes;
    const Bytes whole = program_.slots[event.slot].bytes;
    const bool goes_on = !state.rounds.empty() && state.rounds.back().communicator == port.communicator &&
                         state.rounds.back().bytes < whole;
    if (!goes_on) state.rounds.push_back({port.communicator, 0, event.item, shards});
    state.rounds.back().bytes += bytes;
  }

  // Who adds to them, and whether every rank's use sees all of it.
  void check_sums(std::uint16_t slot) {
    std::vector<std::size_t> adding;
    adding.reserve(ranks_.size());
    std::map<int, Summed> due;  // by part of the model
    std::size_t rounds = 0;
    for (std::size_t t = 0; t < ranks_.size(); ++t) {
      const auto found = ranks_[t].gradients.find(slot);
      if (found == ranks_[t].gradients.end()) continue;
      adding.push_back(t);
      if (found->second.added) {
        due[pipeline_of(t)].tally += microbatch_tally(static_cast<int>(t));
        ++due[pipeline_of(t)].count;
      }
      rounds = std::max(rounds, found->second.rounds.size());
    }
    std::vector<Summed> sums(ranks_.size());
    for (const std::size_t t : adding) {
      if (ranks_[t].gradients[slot].added) sums[t] = {microbatch_tally(static_cast<int>(t)), 1};
    }
    for (std::size_t round = 0; round < rounds; ++round) reduce_round(slot, round, adding, sums);
    for (const std::size_t t : adding) check_sum(t, slot, sums[t], due[pipeline_of(t)]);
  }

  void reduce_round(std::uint16_t slot, std::size_t round, const std::vector<std::size_t>& adding,
                    std::vector<Summed>& sums) {
    const auto of = [&](std::size_t t) -> const Round* {
      const std::vector<Round>& all = ranks_[t].gradients[slot].rounds;
      return round < all.size() ? &all[round] : nullptr;
    };
    std::map<std::uint32_t, Summed> totals;  // by communicator
    for (const std::size_t t : adding) {
      if (of(t) == nullptr) continue;
      Summed& total = totals[of(t)->communicator];
      total.tally += sums[t].tally;
      total.count += sums[t].count;
      total.replicas = sums[t].replicas * replicas_of(of(t)->communicator);
    }
    for (const std::size_t t : adding) {
      if (of(t) != nullptr) sums[t] = totals[of(t)->communicator];
    }
  }

  // Replicas that a communicator joins, where this world shows one.
  std::int64_t replicas_of(std::uint32_t communicator) const {
    if (replicas_.members == nullptr) return 1;
    return (*replicas_.members)[communicator] /
           static_cast<std::int64_t>(world_.communicator_size(communicator));
  }

  void check_sum(std::size_t t, std::uint16_t slot, const Summed& sum, Summed due) {
    due.replicas = replicas_.replicas;
    const Gradients& state = ranks_[t].gradients[slot];
    if (state.first_use == kNone32) return;
    const Bytes whole = program_.slots[slot].bytes;
    for (const Round& round : state.rounds) {
      if (round.bytes == whole) continue;
      add(t, round.item,
          round.bytes < whole
              ? fmt::format("of {}, {} bytes of {} are reduced", gradients_text(t, slot), round.bytes, whole)
              : fmt::format("parts of {} are reduced more than once", gradients_text(t, slot)));
      return;
    }
    if (sum == due) return;
    const std::string use = world_.operation(t, state.first_use).text;
    add(t, state.first_use,
        sum.ranks() < due.ranks()
            ? fmt::format("{} uses {}, the sum over {} of the {} ranks that add to this "
                          "stage's: a reduction is missing",
                          use, gradients_text(t, slot), sum.ranks(), due.ranks())
            : fmt::format("{} uses {}, which are reduced more than once: some of the {} "
                          "ranks that add to this stage's "
                          "count twice",
                          use, gradients_text(t, slot), due.ranks()));
  }

  void check_unscaling(std::uint16_t slot) {
    std::optional<std::pair<std::size_t, bool>> first;
    for (std::size_t t = 0; t < ranks_.size(); ++t) {
      const auto found = ranks_[t].gradients.find(slot);
      if (found == ranks_[t].gradients.end() || found->second.first_use == kNone32) continue;
      const bool unscaled = found->second.unscaled;
      if (!first) first = {t, unscaled};
      if (first->second == unscaled) continue;
      add(t, found->second.first_use,
          fmt::format("{} are {}divided by the loss scale, those on rank {} are {}", gradients_text(t, slot),
                      unscaled ? "" : "not ", first->first, unscaled ? "not" : ""));
      return;
    }
  }

  void parameters(std::size_t t, const SyncEvent& event) {
    Parameters& state = ranks_[t].parameters[event.slot];
    if (event.kind == SyncKind::kRead) {
      state.first_read = std::min(state.first_read, event.item);
      if (state.step != kNone32)
        add(t, event.item,
            fmt::format("{} reads parameters of stage {} on rank {} after the step has changed them",
                        world_.operation(t, event.item).text, stage_of(event.slot), t));
    } else if (event.kind == SyncKind::kStep) {
      state.step = event.item;
    } else if (event.kind == SyncKind::kGather) {
      const Bytes bytes = program_.endpoints[item_ref(program_.items[event.item])].bytes;
      if (state.step != kNone32) {
        state.after += bytes;
      } else if (state.first_read == kNone32) {
        state.before += bytes;
      } else {
        add(t, event.item,
            fmt::format("parameters of stage {} on rank {} are gathered after {} has read them",
                        stage_of(event.slot), t, world_.operation(t, state.first_read).text));
      }
    }
  }

  // Gathers are due where gradients ended in shards.
  void check_gathers() {
    for (std::size_t t = 0; t < ranks_.size(); ++t) {
      for (const auto& [slot, state] : ranks_[t].parameters) {
        if (state.step == kNone32 || !ends_in_shards(t, stage_of(slot))) continue;
        const Bytes whole = program_.slots[slot].bytes;
        if (state.after == whole || state.before == whole) continue;
        add(t, state.step,
            fmt::format(
                "the step leaves the parameters of stage {} on rank {} in shards, and {} bytes of {} are "
                "gathered before they are read again",
                stage_of(slot), t, std::max(state.after, state.before), whole));
      }
    }
  }

  bool ends_in_shards(std::size_t t, int stage) const {
    return std::any_of(ranks_[t].gradients.begin(), ranks_[t].gradients.end(), [&](const auto& entry) {
      return stage_of(entry.first) == stage && !entry.second.rounds.empty() &&
             entry.second.rounds.back().shards;
    });
  }

  const CheckWorld& world_;
  const Program& program_;
  SyncReplicas replicas_;
  SyncTables tables_;
  std::vector<OfRank> ranks_;
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> check_gradient_sync(const CheckWorld& world, const SyncReplicas& replicas) {
  return GradientSync(world, replicas).run();
}

}  // namespace plumbline::verify

#include "sim/verify/gradient_sync.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "sim/verify/coverage.h"

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
  std::uint32_t thread = 0;
  std::uint16_t slot = 0;
  bool zeroed = false, added = false, unscaled = false;
  std::uint32_t first_use = kNone32;
  ScratchVector<Round> rounds;  // before the first use
};

// A stage's parameters on one rank, where they persist whole.
struct Parameters {
  std::uint32_t thread = 0;
  std::uint16_t slot = 0;
  std::uint32_t first_read = kNone32, step = kNone32;
  Bytes before = 0, after = 0;  // gathered before the first read, and after the step
};

class GradientSync {
 public:
  GradientSync(const CheckWorld& world, const ScratchVector<const RangeFacts*>& facts_of,
               const SyncReplicas& replicas)
      : world_(world), program_(*world.program), facts_of_(facts_of), replicas_(replicas) {}

  std::vector<Finding> run() {
    const bool nothing = std::all_of(facts_of_.begin(), facts_of_.end(),
                                     [](const RangeFacts* facts) { return facts->sync.empty(); });
    if (nothing) return {};
    first_.reserve(world_.threads() + 1);
    gradients_.reserve(world_.threads());  // mostly one stage a rank
    parameters_.reserve(world_.threads());
    for (std::uint32_t t = 0; t < world_.threads(); ++t) walk(t, facts_of_[t]->sync);
    first_.push_back(static_cast<std::uint32_t>(gradients_.size()));
    sort_by_slot();
    for (std::uint16_t slot = 0; slot < program_.slots.size(); ++slot) {
      if (program_.slots[slot].kind != SlotKind::kMainGrads || is_alone(slot)) continue;
      check_sums(slot);
      check_unscaling(slot);
    }
    check_gathers();
    return std::move(findings_);
  }

 private:
  int stage_of(std::uint16_t slot) const { return program_.slots[slot].stage; }
  // Ranks of other tensor- or expert-parallel parts have other gradients.
  std::size_t part_of(std::uint32_t t) const {
    const auto rank = static_cast<Rank>(t);
    return static_cast<std::size_t>(program_.grid.coordinate(rank, Axis::kTp) *
                                        program_.grid.size(Axis::kEp) +
                                    program_.grid.coordinate(rank, Axis::kEp));
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

  void walk(std::uint32_t t, const ScratchVector<SyncEvent>& events) {
    first_.push_back(static_cast<std::uint32_t>(gradients_.size()));
    const std::size_t first_parameters = parameters_.size();
    for (const SyncEvent& event : events) {
      if (event.kind == SyncKind::kRead || event.kind == SyncKind::kGather ||
          program_.slots[event.slot].kind == SlotKind::kParameters) {
        parameters(t, event, found(parameters_, first_parameters, t, event.slot));
      } else {
        gradients(t, event, found(gradients_, first_.back(), t, event.slot));
      }
    }
    const auto begin = parameters_.begin() + static_cast<std::ptrdiff_t>(first_parameters);
    std::sort(begin, parameters_.end(),
              [](const Parameters& a, const Parameters& b) { return a.slot < b.slot; });
  }

  // The thread's own are those from `first` on: one a stage that the rank has.
  template <typename T>
  static T& found(ScratchVector<T>& all, std::size_t first, std::uint32_t t, std::uint16_t slot) {
    for (std::size_t i = first; i < all.size(); ++i) {
      if (all[i].slot == slot) return all[i];
    }
    T& fresh = all.emplace_back();
    fresh.thread = t;
    fresh.slot = slot;
    return fresh;
  }

  // by_slot_: places in gradients_, by slot, then by thread.
  void sort_by_slot() {
    slot_begin_.assign(program_.slots.size() + 1, 0);
    for (const Gradients& state : gradients_) ++slot_begin_[state.slot + 1u];
    for (std::size_t s = 0; s < program_.slots.size(); ++s) slot_begin_[s + 1] += slot_begin_[s];
    by_slot_.resize(gradients_.size());
    ScratchVector<std::uint32_t> next(slot_begin_.begin(), slot_begin_.end() - 1);
    for (std::uint32_t i = 0; i < gradients_.size(); ++i) by_slot_[next[gradients_[i].slot]++] = i;
  }
  std::span<const std::uint32_t> of_slot(std::uint16_t slot) const {
    return std::span<const std::uint32_t>(by_slot_).subspan(slot_begin_[slot],
                                                            slot_begin_[slot + 1u] - slot_begin_[slot]);
  }

  // One rank has them and reduces nothing: what it has is all there is, and nobody disagrees.
  bool is_alone(std::uint16_t slot) const {
    const std::span<const std::uint32_t> states = of_slot(slot);
    return replicas_.replicas == 1 && states.size() == 1 && gradients_[states.front()].rounds.empty();
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
    const std::span<const std::uint32_t> adding = of_slot(slot);
    due_.assign(static_cast<std::size_t>(program_.grid.size(Axis::kTp) * program_.grid.size(Axis::kEp)), {});
    sums_.assign(adding.size(), {});
    std::size_t rounds = 0;
    for (std::size_t k = 0; k < adding.size(); ++k) {
      const Gradients& state = gradients_[adding[k]];
      rounds = std::max(rounds, state.rounds.size());
      if (!state.added) continue;
      sums_[k] = {microbatch_tally(static_cast<int>(state.thread)), 1};
      Summed& due = due_[part_of(state.thread)];
      due.tally += sums_[k].tally;
      ++due.count;
    }
    for (std::size_t round = 0; round < rounds; ++round) reduce_round(round, adding);
    for (std::size_t k = 0; k < adding.size(); ++k) {
      const Gradients& state = gradients_[adding[k]];
      check_sum(state, sums_[k], due_[part_of(state.thread)]);
    }
  }

  void reduce_round(std::size_t round, std::span<const std::uint32_t> adding) {
    totals_.resize(world_.member_base.size());
    const auto communicator = [&](std::size_t k) {
      const ScratchVector<Round>& all = gradients_[adding[k]].rounds;
      return round < all.size() ? all[round].communicator : kNone32;
    };
    for (std::size_t k = 0; k < adding.size(); ++k) {
      if (communicator(k) == kNone32) continue;
      Summed& total = totals_[communicator(k)];
      total.tally += sums_[k].tally;
      total.count += sums_[k].count;
      total.replicas = sums_[k].replicas * replicas_of(communicator(k));
    }
    for (std::size_t k = 0; k < adding.size(); ++k) {
      if (communicator(k) != kNone32) sums_[k] = totals_[communicator(k)];
    }
    for (std::size_t k = 0; k < adding.size(); ++k) {
      if (communicator(k) != kNone32) totals_[communicator(k)] = {};
    }
  }

  // Replicas that a communicator joins, where this world shows one.
  std::int64_t replicas_of(std::uint32_t communicator) const {
    if (replicas_.members == nullptr) return 1;
    return (*replicas_.members)[communicator] /
           static_cast<std::int64_t>(world_.communicator_size(communicator));
  }

  void check_sum(const Gradients& state, const Summed& sum, Summed due) {
    due.replicas = replicas_.replicas;
    const std::size_t t = state.thread;
    const std::uint16_t slot = state.slot;
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
    for (const std::uint32_t i : of_slot(slot)) {
      const Gradients& state = gradients_[i];
      if (state.first_use == kNone32) continue;
      const std::size_t t = state.thread;
      const bool unscaled = state.unscaled;
      if (!first) first = {t, unscaled};
      if (first->second == unscaled) continue;
      add(t, state.first_use,
          fmt::format("{} are {}divided by the loss scale, those on rank {} are {}", gradients_text(t, slot),
                      unscaled ? "" : "not ", first->first, unscaled ? "not" : ""));
      return;
    }
  }

  void parameters(std::size_t t, const SyncEvent& event, Parameters& state) {
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
    for (const Parameters& state : parameters_) {
      const std::size_t t = state.thread;
      if (state.step == kNone32 || !ends_in_shards(t, stage_of(state.slot))) continue;
      const Bytes whole = program_.slots[state.slot].bytes;
      if (state.after == whole || state.before == whole) continue;
      add(t, state.step,
          fmt::format(
              "the step leaves the parameters of stage {} on rank {} in shards, and {} bytes of {} are "
              "gathered before they are read again",
              stage_of(state.slot), t, std::max(state.after, state.before), whole));
    }
  }

  bool ends_in_shards(std::size_t t, int stage) const {
    const auto begin = gradients_.begin();
    return std::any_of(begin + first_[t], begin + first_[t + 1], [&](const Gradients& state) {
      return stage_of(state.slot) == stage && !state.rounds.empty() && state.rounds.back().shards;
    });
  }

  const CheckWorld& world_;
  const Program& program_;
  const ScratchVector<const RangeFacts*>& facts_of_;
  SyncReplicas replicas_;
  ScratchVector<Gradients> gradients_;    // by thread, one a slot
  ScratchVector<Parameters> parameters_;  // by thread, then slot
  ScratchVector<std::uint32_t> first_;    // by thread: its first of gradients_; one more at the end
  ScratchVector<std::uint32_t> by_slot_, slot_begin_;
  ScratchVector<Summed> due_;     // by part of the model
  ScratchVector<Summed> sums_;    // beside of_slot()
  ScratchVector<Summed> totals_;  // by communicator
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> check_gradient_sync(const CheckWorld& world,
                                         const ScratchVector<const RangeFacts*>& facts_of,
                                         const SyncReplicas& replicas) {
  return GradientSync(world, facts_of, replicas).run();
}

}  // namespace plumbline::verify

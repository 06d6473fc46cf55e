#include "sim/explore.h"

#include <algorithm>
#include <utility>

#include "engine/base/rng.h"
#include "sim/examine.h"
#include "sim/simulator.h"

namespace plumbline {
namespace {

// Follows given decisions, then takes the first alternative; keeps what there was to choose from.
class Replay final : public Chooser {
 public:
  explicit Replay(std::vector<std::size_t> given) : given_(std::move(given)) {}

  std::size_t choose(std::size_t alternatives) override {
    const std::size_t taken = taken_.size() < given_.size() ? given_[taken_.size()] : 0;
    taken_.push_back(taken);
    alternatives_.push_back(alternatives);
    return taken;
  }

  const std::vector<std::size_t>& taken() const { return taken_; }
  // The decisions of the next schedule in lexicographic order; empty: this was the last.
  std::vector<std::size_t> next() const {
    std::vector<std::size_t> decisions = taken_;
    while (!decisions.empty() && decisions.back() + 1 >= alternatives_[decisions.size() - 1])
      decisions.pop_back();
    if (!decisions.empty()) ++decisions.back();
    return decisions;
  }

 private:
  std::vector<std::size_t> given_, taken_, alternatives_;
};

class Random final : public Chooser {
 public:
  Random(std::uint64_t seed, std::uint64_t run) : rng_(seed, "schedule"), base_(run << 32) {}
  std::size_t choose(std::size_t alternatives) override {
    taken_.push_back(static_cast<std::size_t>(rng_.below(base_ + taken_.size(), alternatives)));
    return taken_.back();
  }
  const std::vector<std::size_t>& taken() const { return taken_; }

 private:
  CounterRng rng_;
  std::uint64_t base_;
  std::vector<std::size_t> taken_;
};

class Explorer {
 public:
  Explorer(const LinkedProgram& linked, const NcclModel& model, const TimeModel& time, double read_value)
      : linked_(linked), model_(model), time_(time), read_value_(read_value) {}

  Result<ModeVerdict> run(Chooser& chooser) const {
    SimOptions options;
    options.model = model_;
    options.time = time_;
    options.record_events = false;
    options.record_memory = false;
    options.read_value = read_value_;
    options.chooser = &chooser;
    RunRecord record;
    Result<SimStep> step = Simulator(linked_, std::move(options)).run_step(0, record);
    if (!step) return tl::unexpected(step.error());
    ModeVerdict verdict;
    verdict.mode = model_.name();
    verdict.completes = step->completed;
    verdict.makespan = step->completed ? step->end - step->begin : 0;
    for (Finding& finding : step->findings) {
      if (about_communication(finding.kind)) verdict.findings.push_back(std::move(finding));
    }
    return verdict;
  }

 private:
  const LinkedProgram& linked_;
  const NcclModel& model_;
  const TimeModel& time_;
  double read_value_;
};

bool holds(const ModeVerdict& verdict) { return verdict.completes && verdict.findings.empty(); }

}  // namespace

bool order_decides(const Program& program) {
  return program.extras.failures ||
         std::any_of(program.comm_calls.begin(), program.comm_calls.end(), [](const CommCall& call) {
           return call.nonblocking || call.abort_parent || call.kind == CommCallKind::kAbort ||
                  call.kind == CommCallKind::kRevoke;
         });
}

bool decided_by_one_run(const Program& program, const NcclModel& model) {
  return !model.depends_on_timing() && !order_decides(program) &&
         program.threads.size() == static_cast<std::size_t>(program.grid.world());
}

Result<Exploration> explore(const LinkedProgram& linked, const NcclModel& model, const TimeModel& time,
                            const ExploreOptions& options, double read_value) {
  const Explorer explorer(linked, model, time, read_value);
  Exploration out;
  std::vector<std::size_t> decisions;
  while (out.schedules < options.most_schedules) {
    Replay replay(decisions);
    Result<ModeVerdict> verdict = explorer.run(replay);
    if (!verdict) return tl::unexpected(verdict.error());
    ++out.schedules;
    out.verdict = std::move(*verdict);
    out.decisions = replay.taken();
    decisions = replay.next();
    out.exhaustive = decisions.empty();
    if (!holds(out.verdict) || out.exhaustive) break;
  }
  const bool sampled = holds(out.verdict) && !out.exhaustive;
  for (std::int64_t sample = 0; sampled && sample < options.samples && holds(out.verdict); ++sample) {
    Random random(options.seed, static_cast<std::uint64_t>(sample));
    Result<ModeVerdict> verdict = explorer.run(random);
    if (!verdict) return tl::unexpected(verdict.error());
    ++out.schedules;
    out.verdict = std::move(*verdict);
    out.decisions = random.taken();
  }
  out.verdict.evidence = sampled ? Evidence::kTested : Evidence::kProved;
  out.verdict.schedules = out.schedules;
  out.verdict.seed = sampled ? options.seed : 0;
  return out;
}

}  // namespace plumbline

#include "sim/simulator.h"

#include <algorithm>
#include <utility>

#include "engine/base/assert.h"
#include "engine/runtime/interpreter.h"
#include "sim/deadlock.h"
#include "sim/explore.h"
#include "sim/world.h"

namespace plumbline {

struct Simulator::World {
  World(SimOptions options, std::vector<Worker*> workers) : sim(std::move(options), std::move(workers)) {}
  sim::World sim;
  const LinkedProgram* linked = nullptr;
};

Simulator::Simulator(const LinkedProgram& linked, SimOptions options, std::vector<Worker*> workers)
    : world_(std::make_unique<World>(std::move(options), std::move(workers))) {
  set_program(linked);
}

Simulator::~Simulator() = default;

void Simulator::set_program(const LinkedProgram& linked) {
  world_->linked = &linked;
  world_->sim.bind(linked);
}

Backend& Simulator::backend() { return world_->sim; }

namespace {

// The hosts of one step, and the loop that alternates between them and the devices.
class Driver {
 public:
  Driver(sim::World& world, const LinkedProgram& linked) : world_(world), linked_(linked) {
    const Program& program = *linked.program;
    const auto ranks = static_cast<std::size_t>(program.grid.world());
    // Threads of one rank share its events.
    const bool shares = program.threads.size() > ranks;
    if (shares) events_.assign(ranks, std::vector<Token>(program.events.size()));
    states_.resize(program.threads.size());
    for (std::uint32_t t = 0; t < program.threads.size(); ++t) {
      const auto rank = static_cast<std::size_t>(program.threads[t].rank);
      hosts_.emplace_back(world, linked, t, shares ? &events_[rank] : nullptr);
      ready_.push_back(t);
    }
  }

  // Hosts go on until they wait, devices start what they can; when neither moves, the earliest completion moves
  // virtual time. Nothing left to complete is quiescence: the step is over, or dead.
  Status run() {
    do {
      while (!ready_.empty()) {
        for (const std::uint32_t t : std::exchange(ready_, {})) PL_TRY(advance(t, false));
        PL_TRY(settle());
      }
      if (!world_.fire()) return {};
      PL_TRY(settle());
    } while (true);
  }

  // The same with choices. Steps that no order can change are taken first.
  Status explore(Chooser& chooser) {
    choosy_ = choosy_ranks();
    do {
      std::vector<std::uint32_t> choosy;
      for (const std::uint32_t t : std::exchange(ready_, {})) {
        if (choosy_[static_cast<std::size_t>(linked_.program->threads[t].rank)]) {
          choosy.push_back(t);
        } else {
          PL_TRY(advance(t, false));
        }
      }
      PL_TRY(settle());
      const bool others = std::any_of(ready_.begin(), ready_.end(), [&](std::uint32_t t) {
        return !choosy_[static_cast<std::size_t>(linked_.program->threads[t].rank)];
      });
      ready_.insert(ready_.end(), choosy.begin(), choosy.end());
      std::sort(ready_.begin(), ready_.end());
      if (others) continue;
      if (!ready_.empty()) {
        PL_TRY(one_host(chooser));
      } else if (world_.fire()) {
        PL_TRY(settle());
      } else if (!world_.choose_request(chooser)) {
        return {};
      } else {
        PL_TRY(settle());
      }
    } while (true);
  }

  bool finished() const {
    return world_.idle() && std::all_of(states_.begin(), states_.end(), [](const sim::HostState& state) {
             return state.last.state == AdvanceState::kFinished;
           });
  }
  const std::vector<sim::HostState>& states() const { return states_; }
  const std::vector<Interpreter>& hosts() const { return hosts_; }

 private:
  Status advance(std::uint32_t t, bool one) {
    const Rank rank = linked_.program->threads[t].rank;
    if (world_.ended(rank)) return {};
    states_[t] = {one ? hosts_[t].step() : hosts_[t].advance(), hosts_[t].arm()};
    if (world_.ended(rank)) bury(rank);
    const Advance& last = states_[t].last;
    if (last.state == AdvanceState::kFailed) return tl::unexpected(last.error);
    if (last.state == AdvanceState::kBlocked) world_.wake_on(t, last.waiting_for);
    if (last.state == AdvanceState::kReady) ready_.push_back(t);
    return {};
  }

  // The process has ended: none of its threads goes on.
  void bury(Rank rank) {
    const auto [first, last] = world_.threads_of(rank);
    for (std::uint32_t t = first; t < last; ++t) {
      states_[t].last = {AdvanceState::kFinished, 0, linked_.program->threads[t].end, {}};
      std::erase(ready_, t);
    }
  }

  Status settle() {
    if (!world_.settle()) return tl::unexpected(*world_.error());
    const std::vector<std::uint32_t> woken = world_.take_woken();
    ready_.insert(ready_.end(), woken.begin(), woken.end());
    return {};
  }

  // Ranks whose hosts' steps may disturb each other, or whose calls depend on how far the others are.
  std::vector<bool> choosy_ranks() const {
    const Program& program = *linked_.program;
    const bool timed = order_decides(program);
    std::vector<bool> choosy(static_cast<std::size_t>(program.grid.world()), timed);
    for (std::size_t t = 1; t < program.threads.size(); ++t) {
      if (program.threads[t].rank == program.threads[t - 1].rank)
        choosy[static_cast<std::size_t>(program.threads[t].rank)] = true;
    }
    return choosy;
  }

  // One of the hosts takes a step, or time passes. Without calls on communicators, ranks do not disturb each
  // other, and the first of them will do.
  Status one_host(Chooser& chooser) {
    std::vector<std::uint32_t> candidates;
    for (const std::uint32_t t : ready_) {
      const bool first = linked_.program->threads[t].rank == linked_.program->threads[ready_.front()].rank;
      if (first || !linked_.program->comm_calls.empty() || linked_.program->extras.failures)
        candidates.push_back(t);
    }
    const std::size_t alternatives = candidates.size() + (world_.events_pending() ? 1 : 0);
    const std::size_t chosen = alternatives > 1 ? chooser.choose(alternatives) : 0;
    if (chosen == candidates.size()) {
      world_.fire();
      return settle();
    }
    ready_.erase(std::find(ready_.begin(), ready_.end(), candidates[chosen]));
    return advance(candidates[chosen], true);
  }

  sim::World& world_;
  const LinkedProgram& linked_;
  std::vector<std::vector<Token>> events_;
  std::vector<Interpreter> hosts_;
  std::vector<sim::HostState> states_;
  std::vector<std::uint32_t> ready_;
  std::vector<bool> choosy_;
};

}  // namespace

Result<SimStep> Simulator::run_step(int step, RunRecord& record) {
  sim::World& world = world_->sim;
  world.set_step(step);
  PL_TRY(world.begin_step(*world_->linked));
  SimStep outcome;
  outcome.begin = world.now();
  Driver driver(world, *world_->linked);
  Chooser* const chooser = world.chooser();
  PL_TRY(chooser == nullptr ? driver.run() : driver.explore(*chooser));
  outcome.completed = driver.finished();
  outcome.end = world.now();
  if (!outcome.completed) world.log().add(deadlock_finding(sim::wait_graph_of(world, driver.states())));
  world.end_step(outcome.completed, record);
  outcome.findings = world.log().take();
  for (const Interpreter& host : driver.hosts()) outcome.decisions.push_back(host.decisions());
  return outcome;
}

Result<ModeVerdict> simulate(const LinkedProgram& linked, const NcclModel& model, const TimeModel& time) {
  SimOptions options;
  options.model = model;
  options.time = time;
  options.record_events = false;
  options.record_memory = false;
  RunRecord record;
  Simulator simulator(linked, std::move(options));
  Result<SimStep> step = simulator.run_step(0, record);
  if (!step) return tl::unexpected(step.error());
  ModeVerdict verdict;
  verdict.mode = model.name();
  verdict.completes = step->completed;
  verdict.findings = std::move(step->findings);
  verdict.makespan = step->completed ? step->end - step->begin : 0;
  return verdict;
}

}  // namespace plumbline

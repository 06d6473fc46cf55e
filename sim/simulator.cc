#include "sim/simulator.h"

#include <utility>

#include "engine/base/assert.h"
#include "engine/runtime/interpreter.h"
#include "sim/deadlock.h"
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

// Alternates between hosts, which go on until they wait, and devices, which start what they can; when neither
// moves, the earliest completion moves virtual time. Nothing left to complete is quiescence: the step is
// over, or dead.
Result<SimStep> Simulator::run_step(int step, RunRecord& record) {
  sim::World& world = world_->sim;
  const LinkedProgram& linked = *world_->linked;
  world.set_step(step);
  PL_TRY(world.begin_step(linked));
  SimStep outcome;
  outcome.begin = world.now();

  const auto threads = static_cast<std::uint32_t>(linked.program->threads.size());
  std::vector<Interpreter> hosts;
  std::vector<sim::HostState> states(threads);
  std::vector<std::uint32_t> ready;
  // Threads of one rank share its events.
  std::vector<std::vector<Token>> events(static_cast<std::size_t>(linked.program->grid.world()));
  for (std::uint32_t t = 0; t < threads; ++t) {
    std::vector<Token>* shared = nullptr;
    if (threads > events.size()) {
      shared = &events[static_cast<std::size_t>(linked.program->threads[t].rank)];
      shared->resize(linked.program->events.size());
    }
    hosts.emplace_back(world, linked, t, shared);
    ready.push_back(t);
  }
  do {
    while (!ready.empty()) {
      for (const std::uint32_t t : ready) {
        states[t] = {hosts[t].advance(), hosts[t].arm()};
        if (states[t].last.state == AdvanceState::kFailed) return tl::unexpected(states[t].last.error);
        if (states[t].last.state == AdvanceState::kBlocked) world.wake_on(t, states[t].last.waiting_for);
      }
      if (!world.settle()) return tl::unexpected(*world.error());
      ready = world.take_woken();
    }
    if (!world.fire()) break;
    if (!world.settle()) return tl::unexpected(*world.error());
    ready = world.take_woken();
  } while (true);

  outcome.completed = world.idle();
  for (const sim::HostState& state : states) {
    outcome.completed = outcome.completed && state.last.state == AdvanceState::kFinished;
  }
  outcome.end = world.now();
  if (!outcome.completed) world.log().add(deadlock_finding(sim::wait_graph_of(world, states)));
  world.end_step(outcome.completed, record);
  outcome.findings = world.log().take();
  for (const Interpreter& host : hosts) outcome.decisions.push_back(host.decisions());
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

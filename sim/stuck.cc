#include "sim/stuck.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "engine/base/assert.h"
#include "engine/runtime/interpreter.h"
#include "sim/deadlock.h"
#include "sim/world.h"

namespace plumbline {
namespace {

// The arm that any host has taken: the decision was agreed, so it is the same for all.
double decided(const std::vector<HostPosition>& positions) {
  const auto taken = std::find_if(positions.begin(), positions.end(),
                                  [](const HostPosition& position) { return position.arm >= 0; });
  return taken == positions.end() ? 0.0 : taken->arm;
}

// Hosts whose clock is stopped at their positions, on a World that is not.
class Replay {
 public:
  Replay(sim::World& world, const LinkedProgram& linked, const std::vector<HostPosition>& positions)
      : world_(world), positions_(positions), states_(positions.size()), held_(positions.size()) {
    for (std::uint32_t t = 0; t < positions.size(); ++t) hosts_.emplace_back(world, linked, t);
  }

  Status run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (std::uint32_t t = 0; t < hosts_.size(); ++t) {
        const Result<bool> went = advance(t);
        if (!went) return tl::unexpected(went.error());
        moved = moved || *went;
      }
      world_.settle();
      moved = world_.fire() || moved;
      world_.settle();
      world_.take_woken();
    }
    return {};
  }
  const std::vector<sim::HostState>& states() const { return states_; }
  // Threads that stand at their position although nothing of what they wait for is open.
  const std::vector<bool>& held() const { return held_; }

 private:
  // Steps up to and into the item that the host stood at; whether it moved.
  Result<bool> advance(std::uint32_t t) {
    Advance& last = states_[t].last;
    bool went = false;
    while (!held_[t] && !(started_[t] && last.state == AdvanceState::kFinished)) {
      if (started_[t] && last.state == AdvanceState::kBlocked) {
        if (world_.poll(t, last.waiting_for).state == PollState::kPending) return went;
        went = true;
        states_[t] = {hosts_[t].finish_item(), hosts_[t].arm()};
        if (last.state == AdvanceState::kFailed) return tl::unexpected(last.error);
        if (last.state != AdvanceState::kReady) continue;
      }
      went = true;
      // What it stood at is over here.
      if (started_[t] && !positions_[t].finished && last.item_index > positions_[t].item) {
        held_[t] = true;
        last = {AdvanceState::kBlocked, 0, positions_[t].item, {}};
        break;
      }
      states_[t] = {hosts_[t].step(), hosts_[t].arm()};
      started_[t] = true;
      if (last.state == AdvanceState::kFailed) return tl::unexpected(last.error);
    }
    return went;
  }

  sim::World& world_;
  const std::vector<HostPosition>& positions_;
  std::vector<Interpreter> hosts_;
  std::vector<sim::HostState> states_;
  std::vector<bool> held_;
  std::vector<bool> started_ = std::vector<bool>(positions_.size());
};

Finding standing(const LinkedProgram& linked, const std::vector<HostPosition>& positions,
                 const std::vector<bool>& held, sim::World& world) {
  Finding finding;
  finding.kind = FindingKind::kDeadlock;
  finding.cause = "host";
  for (std::uint32_t t = 0; t < positions.size(); ++t) {
    if (positions[t].finished || !held[t]) continue;
    OperationRef at = world.log().operation(t, positions[t].item);
    at.text = "the host at " + at.text;
    finding.operations.push_back(std::move(at));
  }
  finding.why =
      finding.operations.empty()
          ? fmt::format("By NCCL's rules all {} hosts could go on from where they stood.",
                        linked.program->threads.size())
          : fmt::format("By NCCL's rules nothing held {} on rank {}: it was slow, or its process is gone.",
                        finding.operations.front().text, finding.operations.front().rank);
  return finding;
}

}  // namespace

Result<Finding> stuck_finding(const LinkedProgram& linked, const NcclModel& model,
                              const std::vector<HostPosition>& positions) {
  PL_ASSERT(positions.size() == linked.program->threads.size());
  SimOptions options;
  options.model = model;
  options.record_events = options.record_memory = false;
  options.read_value = decided(positions);
  sim::World world(std::move(options), {});
  PL_TRY(world.begin_step(linked));
  Replay replay(world, linked, positions);
  PL_TRY(replay.run());
  const WaitGraph graph = sim::wait_graph_of(world, replay.states());
  if (!graph.deadlocked().empty()) return deadlock_finding(graph);
  return standing(linked, positions, replay.held(), world);
}

}  // namespace plumbline

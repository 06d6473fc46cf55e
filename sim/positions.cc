#include "sim/positions.h"

#include <set>
#include <utility>

#include <fmt/format.h>

#include "engine/base/assert.h"
#include "engine/runtime/interpreter.h"
#include "sim/deadlock.h"
#include "sim/world.h"

namespace plumbline {
namespace {

SimOptions options_of(const NcclModel& model, double read_value) {
  SimOptions options;
  options.model = model;
  options.record_events = options.record_memory = false;
  options.read_value = read_value;
  return options;
}

class Led {
 public:
  Led(const LinkedProgram& linked, const NcclModel& model, const std::vector<HostPosition>& positions,
      double read_value)
      : linked_(linked), positions_(positions), world_(options_of(model, read_value), {}) {}

  Result<Stall> run() {
    PL_TRY(world_.begin_step(linked_));
    const std::size_t threads = linked_.program->threads.size();
    hosts_.reserve(threads);
    states_.resize(threads);
    for (std::uint32_t t = 0; t < threads; ++t) {
      hosts_.emplace_back(world_, linked_, t);
      states_[t].last.state = AdvanceState::kReady;
      states_[t].last.item_index = linked_.program->threads[t].begin;
    }
    for (bool moved = true; moved;) {
      moved = false;
      for (std::uint32_t t = 0; t < threads; ++t) {
        const Result<bool> went = lead(t);
        if (!went) return tl::unexpected(went.error());
        moved = moved || *went;
      }
      if (!world_.settle()) return tl::unexpected(*world_.error());
      while (world_.fire()) {
        moved = true;
        if (!world_.settle()) return tl::unexpected(*world_.error());
      }
    }
    return explain();
  }

 private:
  bool at_its_position(std::uint32_t t) const {
    const HostPosition& position = positions_[t];
    if (position.state == HostPosition::State::kUnknown) return true;
    if (position.state == HostPosition::State::kFinished) return false;
    return states_[t].last.item_index > position.item;
  }

  // Takes the host on while it may go on and has not gone as far as the real one.
  Result<bool> lead(std::uint32_t t) {
    bool moved = false;
    Advance& last = states_[t].last;
    while (last.state != AdvanceState::kFinished && !at_its_position(t)) {
      const std::uint32_t before = last.item_index;
      const AdvanceState state = last.state;
      last = hosts_[t].step();
      states_[t].arm = hosts_[t].arm();
      if (last.state == AdvanceState::kFailed) return tl::unexpected(last.error);
      moved = moved || last.item_index != before || last.state != state;
      if (last.state == AdvanceState::kBlocked) break;
    }
    return moved;
  }

  // The operation a rank is at, in words.
  OperationRef at(std::uint32_t t, std::uint32_t item, const std::string& how) {
    OperationRef operation = world_.log().operation(t, item);
    operation.text = how + operation.text;
    return operation;
  }

  Result<Stall> explain() {
    Stall stall;
    bool stuck = false;
    for (std::uint32_t t = 0; t < hosts_.size(); ++t) {
      const HostPosition& position = positions_[t];
      if (position.kernel) {
        stall.late.push_back(at(t, *position.kernel, "the computation of "));
      } else if (position.state == HostPosition::State::kUnknown) {
        stall.late.push_back(
            {linked_.program->threads[t].rank, -1, -1, "an unknown place: it did not answer"});
      } else if (states_[t].last.state == AdvanceState::kBlocked) {
        stuck = true;
      } else if (position.state == HostPosition::State::kBlocked) {
        stall.late.push_back(at(t, position.item, "a wait that its Program lets end, at "));
      }
    }
    const bool work_left = !world_.idle();
    // With a rank that may still go on, those that wait may be waiting for it alone.
    if (!stall.late.empty() || !(stuck || work_left)) return stall;
    stall.deadlock = deadlock_finding(sim::wait_graph_of(world_, states_));
    return stall;
  }

  const LinkedProgram& linked_;
  const std::vector<HostPosition>& positions_;
  sim::World world_;
  std::vector<Interpreter> hosts_;
  std::vector<sim::HostState> states_;
};

}  // namespace

Result<Stall> explain_positions(const LinkedProgram& linked, const NcclModel& model,
                                const std::vector<HostPosition>& positions, double read_value) {
  PL_ASSERT(positions.size() == linked.program->threads.size());
  return Led(linked, model, positions, read_value).run();
}

}  // namespace plumbline

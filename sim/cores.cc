#include "sim/cores.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "engine/base/assert.h"

namespace plumbline::sim {
namespace {

constexpr std::int64_t kMillion = 1'000'000;

}  // namespace

Cores::Cores(int cores, double interference, std::size_t machines)
    : cores_(cores), interference_(std::llround(interference * kMillion)), machines_(machines) {
  PL_ASSERT(cores >= 1 && interference >= 0.0);
}

void Cores::clear() {
  for (Machine& machine : machines_) machine = Machine{};
}

// Of n tasks, busy = min(n, cores) run; each has busy / n of the time, and takes 1 + interference * (busy - 1) /
// (cores - 1) times as long.
Cores::Rate Cores::rate(std::size_t tasks) const {
  const auto n = static_cast<std::int64_t>(tasks);
  const std::int64_t busy = std::min(n, cores_);
  if (cores_ == 1 || interference_ == 0) return {busy, n};
  return {busy * (cores_ - 1) * kMillion, n * ((cores_ - 1) * kMillion + interference_ * (busy - 1))};
}

void Cores::advance(Machine& machine, Nanoseconds now) const {
  PL_ASSERT(now >= machine.since);
  if (machine.running.empty()) {
    machine.given = 0;
  } else {
    const Rate rate = this->rate(machine.running.size());
    machine.given += static_cast<Work>(now - machine.since) * kScale * rate.done / rate.of;
  }
  machine.since = now;
}

void Cores::start(std::size_t index, std::uint32_t thread, NodeId node, Nanoseconds work, Nanoseconds now) {
  Machine& machine = machines_[index];
  advance(machine, now);
  machine.running.push_back({machine.given + static_cast<Work>(work) * kScale, thread, node});
}

const Cores::Task& Cores::first_of(const Machine& machine) {
  return *std::min_element(machine.running.begin(), machine.running.end(), [](const Task& a, const Task& b) {
    return std::tie(a.ends, a.thread, a.node) < std::tie(b.ends, b.thread, b.node);
  });
}

Nanoseconds Cores::end_of(const Machine& machine, const Task& task) const {
  const Rate rate = this->rate(machine.running.size());
  const Work left = std::max<Work>(0, task.ends - machine.given);
  const Work done = static_cast<Work>(kScale) * rate.done;
  return machine.since + static_cast<Nanoseconds>((left * rate.of + done - 1) / done);
}

std::optional<Cores::Completion> Cores::next() const {
  std::optional<Completion> first;
  for (const Machine& machine : machines_) {
    if (machine.running.empty()) continue;
    const Task& task = first_of(machine);
    const Completion here{end_of(machine, task), task.thread, task.node};
    if (!first ||
        std::tie(here.time, here.thread, here.node) < std::tie(first->time, first->thread, first->node))
      first = here;
  }
  return first;
}

void Cores::complete(const Completion& completion) {
  for (Machine& machine : machines_) {
    const auto found = std::find_if(machine.running.begin(), machine.running.end(),
                                    [&](const Task& task) { return task.node == completion.node; });
    if (found == machine.running.end()) continue;
    advance(machine, completion.time);
    machine.running.erase(found);
    return;
  }
  PL_ASSERT_MSG(false, "a kernel that does not run is over");
}

}  // namespace plumbline::sim

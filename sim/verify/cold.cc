#include "sim/verify/cold.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "engine/base/assert.h"

namespace plumbline::verify {
namespace {

constexpr std::uint8_t kSends = 1;
constexpr std::uint8_t kReceives = 2;
constexpr std::uint8_t kCrossWireTold = 4;  // in connected_

std::uint8_t mirror(std::uint8_t content) {
  return static_cast<std::uint8_t>((content & kSends) << 1 | (content & kReceives) >> 1);
}

}  // namespace

ColdConnect::ColdConnect(const CheckWorld& world, const ScratchVector<const RangeFacts*>& facts_of, Arm arm)
    : world_(&world),
      states_(world.threads()),
      notes_(world.links.size() * 4, -1),
      boxes_(world.links.size() * 2),
      connected_(world.links.size()) {
  for (std::uint32_t t = 0; t < world.threads(); ++t) {
    states_[t].step = static_cast<std::uint32_t>(steps_.size());
    states_[t].group = static_cast<std::uint32_t>(groups_.size());
    states_[t].device = world.program->threads[t].begin;
    add_steps(t, *facts_of[t], arm);
    states_[t].end = static_cast<std::uint32_t>(steps_.size());
    states_[t].group_end = static_cast<std::uint32_t>(groups_.size());
  }
}

// Directions that are new, one group after the other.
void ColdConnect::add_steps(std::uint32_t thread, const RangeFacts& facts, Arm arm) {
  for (const FirstUse& use : facts.first_uses[arm == Arm::kNo ? 1 : 0]) {
    if (!fresh_.empty() && fresh_.front().group != use.group) add_group(thread);
    const Port& port = world_->port(thread, item_ref(world_->program->items[use.item]));
    const bool sends = port.kind == EndpointKind::kSend;
    const std::uint8_t side = sends ? 1 : 2;
    if (world_->links[port.link].distance == 0 || (connected_[port.link] & side) != 0) continue;
    connected_[port.link] = static_cast<std::uint8_t>(connected_[port.link] | side);
    Step step;
    step.item = use.item;
    step.group = use.group;
    step.need = use.need;
    (sends ? step.send : step.receive) = port.link;
    overtakes_ = overtakes_ || use.overtakes;
    fresh_.push_back(step);
  }
  if (!fresh_.empty()) add_group(thread);
}

// Both passes of each communicator, by distance; a send and a receive of one distance are one step.
void ColdConnect::add_group(std::uint32_t thread) {
  const Program& program = *world_->program;
  const auto key = [&](const Step& step) {
    const std::uint32_t communicator = world_->port(thread, item_ref(program.items[step.item])).communicator;
    return std::pair(communicator, world_->links[step.send != kNone32 ? step.send : step.receive].distance);
  };
  const auto before = [&](const Step& a, const Step& b) { return key(a) < key(b); };
  // Mostly two in order, for which a stable sort would ask for memory.
  if (!std::is_sorted(fresh_.begin(), fresh_.end(), before))
    std::stable_sort(fresh_.begin(), fresh_.end(), before);
  merged_.clear();
  for (const Step& step : fresh_) {
    if (merged_.empty() || key(merged_.back()) != key(step)) {
      merged_.push_back(step);
    } else if (step.send != kNone32) {
      merged_.back().send = step.send;
    } else {
      merged_.back().receive = step.receive;
    }
  }
  for (std::size_t first = 0; first < merged_.size();) {
    std::size_t last = first;
    while (last < merged_.size() && key(merged_[last]).first == key(merged_[first]).first) ++last;
    for (std::uint8_t pass = 0; pass < 2; ++pass) {
      for (std::size_t i = first; i < last; ++i) {
        steps_.push_back(merged_[i]);
        steps_.back().pass = pass;
      }
    }
    first = last;
  }
  groups_.push_back({fresh_.front().group, static_cast<std::uint32_t>(steps_.size()) - 1, 0});
  fresh_.clear();
  merged_.clear();
}

void ColdConnect::post(std::uint32_t thread, const Step& step) {
  const Nanoseconds now = states_[thread].time;
  const auto wake = [&](std::uint32_t other) {
    if (other != thread) work_.push_back(other);
  };
  if (mirrored(step)) {
    MirrorBox& box = boxes_[outgoing(step) * 2 + step.pass];
    const unsigned content =
        (step.send != kNone32 ? kSends : 0u) | (step.receive != kNone32 ? kReceives : 0u);
    PL_ASSERT(box.posted < box.content.size());  // each direction is set up once
    box.time[box.posted] = now;
    box.content[box.posted++] = static_cast<std::uint8_t>(content);
    wake(world_->links[outgoing(step)].destination);
    return;
  }
  if (step.send != kNone32) {
    notes_[note_index(step.send, true, step.pass)] = now;
    wake(world_->links[step.send].destination);
  }
  if (step.receive != kNone32) {
    notes_[note_index(step.receive, false, step.pass)] = now;
    wake(world_->links[step.receive].source);
  }
}

Nanoseconds ColdConnect::arrived(const Step& step) const {
  if (mirrored(step)) {
    const MirrorBox& box = boxes_[(outgoing(step) ^ 1u) * 2 + step.pass];
    return box.taken < box.posted ? box.time[box.taken] : -1;
  }
  Nanoseconds time = 0;
  if (step.send != kNone32) time = notes_[note_index(step.send, false, step.pass)];
  if (step.receive == kNone32 || time < 0) return time;
  const Nanoseconds other = notes_[note_index(step.receive, true, step.pass)];
  return other < 0 ? other : std::max(time, other);
}

void ColdConnect::take_mirrored(std::uint32_t thread, const Step& step) {
  MirrorBox& box = boxes_[(outgoing(step) ^ 1u) * 2 + step.pass];
  const std::uint8_t theirs = box.content[box.taken++];
  const unsigned content = (step.send != kNone32 ? kSends : 0u) | (step.receive != kNone32 ? kReceives : 0u);
  const auto own = static_cast<std::uint8_t>(content);
  if (mirror(theirs) == own) return;
  const bool truncated = std::popcount(theirs) != std::popcount(own);
  states_[thread].halted = truncated;
  const std::uint32_t peer = world_->links[outgoing(step)].destination;
  const auto directions = [](std::uint8_t c) {
    return c == kSends ? "sends" : c == kReceives ? "receives" : "sends and receives";
  };
  // Each pass and each end would tell the same again.
  std::uint8_t& told = connected_[outgoing(step) & ~1u];
  if ((told & kCrossWireTold) != 0) return;
  told = static_cast<std::uint8_t>(told | kCrossWireTold);
  Finding finding;
  finding.kind = FindingKind::kCrossWired;
  finding.operations.push_back(world_->operation(thread, step.item));
  finding.why = fmt::format(
      "on first use rank {} sets up a connection that {} while rank {} sets up one that {}; in one "
      "message both must mirror each other{}",
      thread, directions(own), peer, directions(theirs),
      truncated ? ", and messages of different length end in an internal error" : "");
  findings_.push_back(std::move(finding));
}

bool ColdConnect::run_step(std::uint32_t thread, const Step& step) {
  State& state = states_[thread];
  if (!state.posted) {
    if (step.need > state.device) return false;
    if (step.need != 0) state.time = std::max(state.time, state.waited);
    post(thread, step);
    state.posted = true;
  }
  const Nanoseconds time = arrived(step);
  if (time < 0) return false;
  state.time = std::max(state.time, time);
  if (mirrored(step)) take_mirrored(thread, step);
  if (state.halted) return false;
  state.posted = false;
  for (std::uint32_t g = state.group; g < state.group_end && groups_[g].last_step <= state.step; ++g) {
    if (groups_[g].last_step == state.step) groups_[g].over = state.time;
  }
  ++state.step;
  return true;
}

void ColdConnect::host(std::uint32_t thread) {
  State& state = states_[thread];
  while (!state.halted && state.step < state.end && run_step(thread, steps_[state.step])) {
  }
  update_stop(thread);
}

void ColdConnect::update_stop(std::uint32_t thread) {
  State& state = states_[thread];
  std::uint32_t stop = state.group < state.group_end ? groups_[state.group].item : kNone32;
  if (state.step < state.end && !state.posted && !state.halted && steps_[state.step].need > state.device) {
    stop = std::min(stop, steps_[state.step].need);
  }
  state.stop = stop;
}

void ColdConnect::run_hosts() {
  while (!work_.empty()) {
    const std::uint32_t next = work_.back();
    work_.pop_back();
    host(next);
    changed_.push_back(next);
  }
}

void ColdConnect::start() {
  for (std::uint32_t t = static_cast<std::uint32_t>(states_.size()); t-- > 0;) work_.push_back(t);
  run_hosts();
}

bool ColdConnect::enter(std::uint32_t thread, std::uint32_t item, Nanoseconds& host) {
  changed_.clear();
  State& state = states_[thread];
  state.device = item;
  state.waited = host;
  work_.push_back(thread);
  run_hosts();
  if (state.group < state.group_end && groups_[state.group].item == item &&
      groups_[state.group].last_step < state.step) {
    host = std::max(host, groups_[state.group].over);
    ++state.group;
    update_stop(thread);
  }
  return item < state.stop;
}

ColdConnect::Blocked ColdConnect::blocked(std::uint32_t thread) const {
  Blocked out;
  const State& state = states_[thread];
  if (state.step == state.end) return out;
  const Step& step = steps_[state.step];
  out.item = step.item;
  out.halted = state.halted;
  if (state.halted) return out;
  if (!state.posted) {
    out.need = step.need;
    return out;
  }
  if (step.send != kNone32 && (mirrored(step) || notes_[note_index(step.send, false, step.pass)] < 0)) {
    out.peers.push_back(world_->links[step.send].destination);
  }
  if (step.receive != kNone32 && (mirrored(step) || notes_[note_index(step.receive, true, step.pass)] < 0)) {
    const std::uint32_t peer = world_->links[step.receive].source;
    if (out.peers.empty() || out.peers.back() != peer) out.peers.push_back(peer);
  }
  return out;
}

}  // namespace plumbline::verify

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
      notes_(kFirstNote + world.links.size() * 4, -1),
      boxes_(world.links.size() * 2),
      connected_(world.links.size()),
      work_(world.threads()),
      changed_(world.threads()) {
  notes_[kAlways] = 0;
  steps_.reserve(world.links.size() * 4);  // each end of each link, twice
  groups_.reserve(1 + world.links.size() * 2);
  groups_.emplace_back();
  fresh_.reserve(4);
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

// Steps are in the order of this number: by communicator, then by distance.
std::uint64_t ColdConnect::key(const Step& step) const {
  const std::uint32_t link = step.send != kNone32 ? step.send : step.receive;
  return std::uint64_t{world_->links[link].communicator} << 32 | world_->links[link].distance;
}

// Fresh steps in order, a send and a receive of one distance as one; how many are left.
std::size_t ColdConnect::merge_fresh() {
  if (fresh_.size() == 1) return 1;
  const auto before = [&](const Step& a, const Step& b) { return key(a) < key(b); };
  // Mostly two in order, for which a stable sort would ask for memory.
  if (!std::is_sorted(fresh_.begin(), fresh_.end(), before))
    std::stable_sort(fresh_.begin(), fresh_.end(), before);
  std::size_t count = 1;
  for (std::size_t i = 1; i < fresh_.size(); ++i) {
    const Step& step = fresh_[i];
    if (key(fresh_[count - 1]) != key(step)) {
      fresh_[count++] = step;
    } else if (step.send != kNone32) {
      fresh_[count - 1].send = step.send;
    } else {
      fresh_[count - 1].receive = step.receive;
    }
  }
  return count;
}

// Both passes of each communicator, by distance.
void ColdConnect::add_group(std::uint32_t thread) {
  const std::size_t count = merge_fresh();
  for (std::size_t first = 0; first < count;) {
    std::size_t last = first + 1;
    while (last < count && key(fresh_[last]) >> 32 == key(fresh_[first]) >> 32) ++last;
    for (std::uint8_t pass = 0; pass < 2; ++pass) {
      for (std::size_t i = first; i < last; ++i) add_step(thread, fresh_[i], pass);
    }
    first = last;
  }
  steps_.back().closes = static_cast<std::uint32_t>(groups_.size());
  groups_.push_back({fresh_.front().group, static_cast<std::uint32_t>(steps_.size()) - 1, 0});
  fresh_.clear();
}

[[gnu::always_inline]] inline void ColdConnect::add_step(std::uint32_t thread, const Step& model,
                                                         std::uint8_t pass) {
  Step& step = steps_.emplace_back(model);
  step.pass = pass;
  step.mirrored = world_->links[outgoing(step)].mirrored;
  step.peers = {thread, thread};
  if (step.send != kNone32) {
    step.posts[0] = note_index(step.send, true, pass);
    step.awaits[0] = note_index(step.send, false, pass);
    step.peers[0] = world_->links[step.send].destination;
  }
  if (step.receive != kNone32) {
    step.posts[1] = note_index(step.receive, false, pass);
    step.awaits[1] = note_index(step.receive, true, pass);
    step.peers[1] = world_->links[step.receive].source;
  }
}

[[gnu::always_inline]] inline void ColdConnect::post(std::uint32_t thread, const Step& step) {
  const Nanoseconds now = states_[thread].time;
  if (step.mirrored) {
    MirrorBox& box = boxes_[outgoing(step) * 2 + step.pass];
    const unsigned content =
        (step.send != kNone32 ? kSends : 0u) | (step.receive != kNone32 ? kReceives : 0u);
    PL_ASSERT(box.posted < box.content.size());  // each direction is set up once
    box.time[box.posted] = now;
    box.content[box.posted++] = static_cast<std::uint8_t>(content);
    wake(thread, world_->links[outgoing(step)].destination);
    return;
  }
  notes_[step.posts[0]] = notes_[step.posts[1]] = now;
  wake(thread, step.peers[0]);
  wake(thread, step.peers[1]);
}

[[gnu::always_inline]] inline Nanoseconds ColdConnect::arrived(const Step& step) const {
  if (step.mirrored) {
    const MirrorBox& box = boxes_[(outgoing(step) ^ 1u) * 2 + step.pass];
    return box.taken < box.posted ? box.time[box.taken] : -1;
  }
  const Nanoseconds one = notes_[step.awaits[0]], other = notes_[step.awaits[1]];
  return std::max(one, other) | ((one | other) >> 63);  // -1 where one of them is
}

[[gnu::noinline]] void ColdConnect::take_mirrored(std::uint32_t thread, const Step& step) {
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

[[gnu::always_inline]] inline bool ColdConnect::run_step(std::uint32_t thread, const Step& step) {
  State& state = states_[thread];
  if (!state.posted) {
    if (step.need > state.device) return false;
    state.time = std::max(state.time, step.need != 0 ? state.waited : 0);
    post(thread, step);
    state.posted = true;
  }
  const Nanoseconds time = arrived(step);
  if (time < 0) return false;
  state.time = std::max(state.time, time);
  if (step.mirrored) take_mirrored(thread, step);
  if (state.halted) return false;
  state.posted = false;
  groups_[step.closes].over = state.time;
  ++state.step;
  return true;
}

[[gnu::always_inline]] inline void ColdConnect::host(std::uint32_t thread) {
  State& state = states_[thread];
  while (!state.halted && state.step < state.end && run_step(thread, steps_[state.step])) {
  }
  update_stop(thread);
}

[[gnu::always_inline]] inline void ColdConnect::update_stop(std::uint32_t thread) {
  State& state = states_[thread];
  std::uint32_t stop = state.group < state.group_end ? groups_[state.group].item : kNone32;
  if (state.step < state.end && !state.posted && !state.halted) {
    const std::uint32_t need = steps_[state.step].need;
    stop = std::min(stop, need > state.device ? need : kNone32);
  }
  state.stop = stop;
}

void ColdConnect::run_hosts() {
  while (!work_.empty()) {
    const std::uint32_t next = work_.pop();
    host(next);
    changed_.push(next);
  }
}

void ColdConnect::start() {
  for (std::uint32_t t = static_cast<std::uint32_t>(states_.size()); t-- > 0;) work_.push(t);
  starting_ = true;
  run_hosts();
  starting_ = false;
}

bool ColdConnect::enter(std::uint32_t thread, std::uint32_t item, Nanoseconds& host) {
  changed_.clear();
  State& state = states_[thread];
  state.device = item;
  state.waited = host;
  work_.push(thread);
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
  if (step.send != kNone32 && (step.mirrored || notes_[note_index(step.send, false, step.pass)] < 0)) {
    out.peers.push_back(world_->links[step.send].destination);
  }
  if (step.receive != kNone32 && (step.mirrored || notes_[note_index(step.receive, true, step.pass)] < 0)) {
    const std::uint32_t peer = world_->links[step.receive].source;
    if (out.peers.empty() || out.peers.back() != peer) out.peers.push_back(peer);
  }
  return out;
}

}  // namespace plumbline::verify

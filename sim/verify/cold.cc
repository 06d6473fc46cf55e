#include "sim/verify/cold.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "engine/base/assert.h"

namespace plumbline::verify {
namespace {

// What a message says, and in connected_ which ends of a link have a row.
constexpr unsigned kSends = 1;
constexpr unsigned kReceives = 2;
// In connected_: the sending end's row is alone, the receiving one's is; its cross-wiring is told.
constexpr unsigned kAloneSends = 4;
constexpr unsigned kBothAlone = kAloneSends | kAloneSends << 1;
constexpr unsigned kCrossWireTold = 16;

unsigned mirror(unsigned content) { return (content & kSends) << 1 | (content & kReceives) >> 1; }

}  // namespace

ColdConnect::ColdConnect(const CheckWorld& world, const ScratchVector<const RangeFacts*>& facts_of, Arm arm)
    : world_(&world),
      states_(world.threads()),
      notes_(world.links.size() * 4, -1.0),
      connected_(world.links.size()),
      work_(world.threads() * 2),
      changed_(world.threads()) {
  rows_.reserve(world.links.size() * 2 + world.threads());  // each end of each link
  for (std::uint32_t t = 0; t < world.threads(); ++t) {
    states_[t].row = states_[t].group = static_cast<std::uint32_t>(rows_.size());
    states_[t].device = world.program->threads[t].begin;
    add_rows(t, *facts_of[t], arm);
    Row& end = rows_.emplace_back();
    end.item = end.group = end.need = kNone32;
  }
}

// Directions that are new, one group after the other.
void ColdConnect::add_rows(std::uint32_t thread, const RangeFacts& facts, Arm arm) {
  const Port* const ports = world_->ports.data();
  const std::uint32_t offset = world_->port_offset(thread);
  const Item* const items = world_->program->items.data();
  const Link* const links = world_->links.data();
  auto count = static_cast<std::uint32_t>(rows_.size());
  std::uint32_t first = count;  // of the group
  for (const FirstUse& use : facts.first_uses[arm == Arm::kNo ? 1 : 0]) {
    const Port& port = ports[offset + item_ref(items[use.item])];
    const Link& link = links[port.link];
    const unsigned end = port.side < 0 ? 1 : 0;
    std::uint32_t& known = connected_[port.link];
    if (link.distance == 0 || (known >> end & 1u) != 0) continue;
    known |= (link.mirrored ? kSends : kSends | kAloneSends) << end;
    overtakes_ |= use.overtakes;
    if (count != first && rows_[first].group != use.group) {
      if (count - first > 1) count = merge_rows(first);
      first = count;
    }
    add_row(use, count, {port.link * 4 + end, port.peer}, link.mirrored);
    ++count;
  }
  if (count - first > 1) merge_rows(first);
}

// As if it were all of its group.
[[gnu::always_inline]] inline void ColdConnect::add_row(const FirstUse& use, std::uint32_t number, End end,
                                                        bool mirrored) {
  Row& row = rows_.emplace_back();
  row.item = use.item;
  row.group = use.group;
  row.need = use.need;
  row.first = number;
  row.next = number + 1;
  row.last = true;
  row.alone = !mirrored;
  row.mirrored = mirrored;
  row.two = false;
  row.ends[0] = end;
}

// Rows are in the order of this number: by communicator, then by distance.
std::uint64_t ColdConnect::key(const Row& row) const {
  const Link& link = world_->links[row.ends[0].link()];
  return std::uint64_t{link.communicator} << 32 | link.distance;
}

// Rows of a group in order, a send and a receive of one distance as one; the number of all rows then.
std::uint32_t ColdConnect::merge_rows(std::size_t first) {
  const auto before = [&](const Row& a, const Row& b) { return key(a) < key(b); };
  const auto begin = rows_.begin() + static_cast<std::ptrdiff_t>(first);
  // Mostly two in order, for which a stable sort would ask for memory.
  if (!std::is_sorted(begin, rows_.end(), before)) std::stable_sort(begin, rows_.end(), before);
  std::size_t count = first + 1;
  for (std::size_t i = first + 1; i < rows_.size(); ++i) {
    Row& last = rows_[count - 1];
    if (key(last) != key(rows_[i])) {
      rows_[count++] = rows_[i];
      continue;
    }
    last.two = true;
    last.ends[1] = rows_[i].ends[0];
    if (last.ends[0].receives()) std::swap(last.ends[0], last.ends[1]);
  }
  rows_.erase(rows_.begin() + static_cast<std::ptrdiff_t>(count), rows_.end());
  for (std::size_t i = first; i < count;) {
    std::size_t last = i;
    while (last + 1 < count && key(rows_[last + 1]) >> 32 == key(rows_[i]) >> 32) ++last;
    close_set_up(i, last);
    i = last + 1;
  }
  return static_cast<std::uint32_t>(count);
}

void ColdConnect::close_set_up(std::size_t first, std::size_t last) {
  for (std::size_t i = first; i <= last; ++i) {
    Row& row = rows_[i];
    row.first = static_cast<std::uint32_t>(first);
    row.next = static_cast<std::uint32_t>(rows_.size());
    row.last = i == last;
    row.alone = row.alone && first == last && !row.two;
    for (unsigned d = 0; d < row.directions() && !row.alone; ++d)
      connected_[row.ends[d].link()] &= ~(kAloneSends << (row.ends[d].receives() ? 1 : 0));
  }
}

// From a row whose messages are all there to what its host does next.
[[gnu::always_inline]] inline void ColdConnect::go_on(State& state, Row& row) {
  state.posted = false;
  row.over = state.time;
  if (row.last && !state.second) {
    state.second = true;
    state.row = row.first;
    return;
  }
  state.second = state.second && !row.last;
  ++state.row;
}

// A direction that is alone at both ends. Its one pass is the second.
[[gnu::always_inline]] inline void ColdConnect::meet(std::uint32_t thread, State& state, Row& row) {
  const auto begins_next = [&](const State& of) { return rows_[of.row + 1].need <= of.device; };
  const std::uint32_t peer = row.ends[0].peer, note = row.ends[0].note + 2;
  State& other = states_[peer];
  notes_[note] = state.time;
  state.second = true;
  const double theirs = notes_[note ^ 1u];
  if (theirs >= 0 && !begins_next(state) && !begins_next(other)) {  // both must wait for their devices next
    state.time = other.time = std::max(state.time, theirs);
    go_on(state, row);
    go_on(other, rows_[other.row]);
    if (!starting_) changed_.push(peer);
    return;
  }
  // The host that waited goes on first, as it does in the second of two passes.
  state.posted = true;
  if (theirs >= 0) work_.push(thread);
  wake(peer);
}

[[gnu::always_inline]] inline void ColdConnect::post(State& state, const Row& row) {
  state.posted = true;
  if (row.mirrored) return post_mirrored(state, row);
  const unsigned pass = state.second ? 2 : 0;
  notes_[row.ends[0].note + pass] = state.time;
  wake(row.ends[0].peer);
  if (!row.two) return;
  notes_[row.ends[1].note + pass] = state.time;
  wake(row.ends[1].peer);
}

unsigned ColdConnect::content(const Row& row) {
  return row.two ? kSends | kReceives : row.ends[0].receives() ? kReceives : kSends;
}

[[gnu::noinline]] void ColdConnect::post_mirrored(const State& state, const Row& row) {
  if (boxes_.empty()) boxes_.resize(world_->links.size() * 2);
  MirrorBox& box = boxes_[outgoing(row) * 2 + (state.second ? 1 : 0)];
  PL_ASSERT(box.posted < box.content.size());  // each direction is set up once
  box.time[box.posted] = state.time;
  box.content[box.posted++] = static_cast<std::uint8_t>(content(row));
  wake(row.ends[0].peer);
}

// The messages of a row that has posted its own are all there.
[[gnu::always_inline]] inline bool ColdConnect::arrived(std::uint32_t thread, State& state, const Row& row) {
  if (row.mirrored) [[unlikely]]
    return take_mirrored(thread, state, row);
  double time = notes_[(row.ends[0].note ^ 1u) + (state.second ? 2u : 0u)];
  if (time < 0) return false;
  if (row.two) {
    const double other = notes_[(row.ends[1].note ^ 1u) + (state.second ? 2u : 0u)];
    if (other < 0) return false;
    time = std::max(time, other);
  }
  state.time = std::max(state.time, time);
  return true;
}

[[gnu::noinline]] bool ColdConnect::take_mirrored(std::uint32_t thread, State& state, const Row& row) {
  MirrorBox& box = boxes_[(outgoing(row) ^ 1u) * 2 + (state.second ? 1 : 0)];
  if (state.halted || box.taken == box.posted) return false;
  state.time = std::max(state.time, box.time[box.taken]);
  const unsigned theirs = box.content[box.taken++];
  if (mirror(theirs) == content(row)) return true;
  state.halted = std::popcount(theirs) != std::popcount(content(row));
  tell_cross_wired(thread, row, theirs);
  return !state.halted;
}

// Each pass and each end would tell the same again.
void ColdConnect::tell_cross_wired(std::uint32_t thread, const Row& row, unsigned theirs) {
  std::uint32_t& told = connected_[outgoing(row) & ~1u];
  if ((told & kCrossWireTold) != 0) return;
  told |= kCrossWireTold;
  const unsigned own = content(row);
  const auto directions = [](unsigned c) {
    return c == kSends ? "sends" : c == kReceives ? "receives" : "sends and receives";
  };
  Finding finding;
  finding.kind = FindingKind::kCrossWired;
  finding.operations.push_back(world_->operation(thread, row.item));
  finding.why = fmt::format(
      "on first use rank {} sets up a connection that {} while rank {} sets up one that {}; in one "
      "message both must mirror each other{}",
      thread, directions(own), row.ends[0].peer, directions(theirs),
      std::popcount(theirs) != std::popcount(own)
          ? ", and messages of different length end in an internal error"
          : "");
  findings_.push_back(std::move(finding));
}

[[gnu::always_inline]] inline void ColdConnect::host(std::uint32_t thread) {
  State& state = states_[thread];
  while (true) {
    Row& row = rows_[state.row];
    if (!state.posted) {
      if (row.need > state.device) return;
      state.time = std::max(state.time, row.need != 0 ? state.waited : 0.0);
      if (row.alone && (connected_[row.ends[0].link()] & kBothAlone) == kBothAlone)
        return meet(thread, state, row);
      post(state, row);
    }
    if (!arrived(thread, state, row)) return;
    go_on(state, row);
  }
}

void ColdConnect::run_hosts(std::uint32_t entering) {
  host(entering);
  while (!work_.empty()) {
    const std::uint32_t next = work_.pop();
    if (!starting_) changed_.push(next);
    host(next);
  }
}

void ColdConnect::start() {
  const auto threads = static_cast<std::uint32_t>(states_.size());
  if (threads == 0) return;
  for (std::uint32_t t = threads; t-- > 1;) work_.push(t);
  starting_ = true;
  run_hosts(0);
  starting_ = false;
}

ColdConnect::Blocked ColdConnect::blocked(std::uint32_t thread) const {
  Blocked out;
  const State& state = states_[thread];
  const Row& row = rows_[state.row];
  out.item = row.item;
  if (row.item == kNone32) return out;
  out.halted = state.halted;
  if (state.halted) return out;
  if (!state.posted) {
    out.need = row.need;
    return out;
  }
  for (unsigned d = 0; d < row.directions(); ++d) {
    const End& end = row.ends[d];
    const bool missing = row.mirrored || notes_[(end.note ^ 1u) + (state.second ? 2u : 0u)] < 0;
    if (missing && (out.peers.empty() || out.peers.back() != end.peer)) out.peers.push_back(end.peer);
  }
  return out;
}

}  // namespace plumbline::verify

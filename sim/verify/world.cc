#include "sim/verify/world.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <utility>

#include "engine/base/assert.h"

namespace plumbline::verify {
namespace {

using Content = std::array<std::int64_t, 6>;

Content content_of(const Program& program, const Endpoint& endpoint) {
  if (is_p2p(endpoint.kind)) return {0, endpoint.slot, endpoint.bytes, endpoint.offset, 0, 0};
  return {1 + static_cast<std::int64_t>(endpoint.kind),
          static_cast<std::int64_t>(endpoint.dtype),
          endpoint.bytes,
          endpoint.offset,
          static_cast<std::int64_t>(endpoint.reduce),
          static_cast<std::int64_t>(program.slots[endpoint.slot].kind)};
}

// What two matched ends must agree on, as a number; the root of a collective is compared by itself.
ScratchVector<std::uint32_t> endpoint_keys(const Program& program) {
  const std::size_t places = std::bit_ceil(program.endpoints.size() * 2 + 1);
  ScratchVector<std::uint32_t> number(places, kNone32);  // a hash table of the distinct contents
  ScratchVector<Content> distinct;
  distinct.reserve(program.endpoints.size());
  ScratchVector<std::uint32_t> keys;
  keys.reserve(program.endpoints.size());
  for (const Endpoint& endpoint : program.endpoints) {
    const Content content = content_of(program, endpoint);
    std::uint64_t hash = 0;
    for (const std::int64_t part : content)
      hash = (std::rotl(hash, 23) ^ static_cast<std::uint64_t>(part)) * 0x9E3779B97F4A7C15u;
    std::size_t at = (hash >> 32) & (places - 1);
    while (number[at] != kNone32 && distinct[number[at]] != content) at = (at + 1) & (places - 1);
    if (number[at] == kNone32) {
      number[at] = static_cast<std::uint32_t>(distinct.size());
      distinct.push_back(content);
    }
    keys.push_back(number[at]);
  }
  return keys;
}

class WorldBuilder {
 public:
  explicit WorldBuilder(const LinkedProgram& linked) {
    world_.linked = &linked;
    world_.program = linked.program;
  }

  CheckWorld build() {
    ranges();
    members();
    pairs();
    ports();
    return std::move(world_);
  }

 private:
  void ranges() {
    const std::vector<Thread>& threads = world_.program->threads;
    world_.range_of.reserve(threads.size());
    std::uint32_t last = 0;
    bool apart = true;  // mostly, where replicas do not share their items
    for (const Thread& thread : threads) {
      apart = apart && thread.begin >= last && thread.end > thread.begin;
      last = thread.end;
    }
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> known;
    for (const Thread& thread : threads) {
      std::uint32_t range = world_.ranges;
      if (!apart) range = known.try_emplace({thread.begin, thread.end}, range).first->second;
      world_.ranges += range == world_.ranges ? 1 : 0;
      world_.range_of.push_back(range);
    }
  }

  void members() {
    std::size_t members = 0;
    for (const Communicator& communicator : world_.linked->communicators)
      members += communicator.members.size();
    world_.member_base.reserve(world_.linked->communicators.size() + 1);
    world_.member_thread.reserve(members);
    for (const Communicator& communicator : world_.linked->communicators) {
      world_.member_base.push_back(static_cast<std::uint32_t>(world_.member_thread.size()));
      for (const Rank rank : communicator.members)
        world_.member_thread.push_back(static_cast<std::uint32_t>(rank));
    }
    world_.member_base.push_back(static_cast<std::uint32_t>(world_.member_thread.size()));
  }

  // The two members of a p2p endpoint, lower first, in one number.
  std::uint64_t pair_key(const LinkedEndpoint& endpoint) const {
    const std::uint32_t base = world_.member_base[static_cast<std::size_t>(endpoint.communicator)];
    const auto own = base + static_cast<std::uint32_t>(endpoint.position);
    const auto peer = base + static_cast<std::uint32_t>(endpoint.peer_position);
    return std::uint64_t{std::min(own, peer)} << 32 | std::max(own, peer);
  }

  template <typename Visit>
  void for_each_used(Visit visit) {
    for (std::size_t t = 0; t < world_.threads(); ++t) {
      const LinkedProgram::Window& window = world_.linked->windows[t];
      for (std::uint32_t i = 0; i < window.count; ++i) {
        if (world_.linked->endpoints[window.base + i].communicator >= 0)
          visit(window.base + i, window.first + i);
      }
    }
  }

  void pairs() {
    pairs_.reserve(world_.linked->endpoints.size());
    for_each_used([&](std::uint32_t index, std::uint32_t row) {
      if (!is_p2p(world_.program->endpoints[row].kind)) return;
      const std::uint64_t key = pair_key(world_.linked->endpoints[index]);
      if (pairs_.empty() || pairs_.back() != key) pairs_.push_back(key);
    });
    std::sort(pairs_.begin(), pairs_.end());
    pairs_.erase(std::unique(pairs_.begin(), pairs_.end()), pairs_.end());
    world_.links.resize(pairs_.size() * 2);
  }

  void ports() {
    const ScratchVector<std::uint32_t> keys = endpoint_keys(*world_.program);
    world_.ports.resize(world_.linked->endpoints.size());
    for_each_used([&](std::uint32_t index, std::uint32_t row) {
      const LinkedEndpoint& linked = world_.linked->endpoints[index];
      const Endpoint& endpoint = world_.program->endpoints[row];
      Port& port = world_.ports[index];
      port.communicator = static_cast<std::uint32_t>(linked.communicator);
      port.member = world_.member_base[port.communicator] + static_cast<std::uint32_t>(linked.position);
      port.peer = static_cast<std::uint32_t>(linked.peer);
      port.key = keys[row];
      port.kind = endpoint.kind;
      port.dropped = !is_p2p(endpoint.kind) && endpoint.bytes == 0;
      if (is_p2p(endpoint.kind)) link(linked, port);
    });
  }

  void link(const LinkedEndpoint& linked, Port& port) {
    const auto pair = std::lower_bound(pairs_.begin(), pairs_.end(), pair_key(linked)) - pairs_.begin();
    const bool sends = port.kind == EndpointKind::kSend;
    const std::int32_t from = sends ? linked.position : linked.peer_position;
    const std::int32_t to = sends ? linked.peer_position : linked.position;
    const auto size = static_cast<std::int32_t>(world_.communicator_size(port.communicator));
    const std::uint32_t base = world_.member_base[port.communicator];
    const auto up = static_cast<std::uint32_t>(pair) * 2;
    port.link = from <= to ? up : up + 1;
    Link& row = world_.links[port.link];
    row.source = world_.member_thread[base + static_cast<std::uint32_t>(from)];
    row.destination = world_.member_thread[base + static_cast<std::uint32_t>(to)];
    row.distance = static_cast<std::uint32_t>((to - from + size) % size);
    row.mirrored = from != to && row.distance * 2 == static_cast<std::uint32_t>(size);
    const auto back = static_cast<std::uint32_t>((from - to + size) % size);
    if (from != to) world_.links[port.link ^ 1u] = {row.destination, row.source, back, row.mirrored};
  }

  CheckWorld world_;
  ScratchVector<std::uint64_t> pairs_;
};

}  // namespace

OperationRef CheckWorld::operation(std::size_t thread, std::uint32_t item) const {
  PL_ASSERT(thread < threads());
  OperationRef out;
  out.rank = static_cast<Rank>(thread);
  if (item == kNone32) return out;
  out.item = item;
  const int microbatch = item_microbatch(program->items[item]);
  out.microbatch = microbatch == kNoMicrobatch ? -1 : microbatch;
  out.text = describe_item(*program, out.rank, program->items[item]);
  return out;
}

CheckWorld make_world(const LinkedProgram& linked) { return WorldBuilder(linked).build(); }

}  // namespace plumbline::verify

#include "sim/verify/world.h"

#include <algorithm>
#include <array>

#include "engine/base/assert.h"

namespace plumbline::verify {
namespace {

// What two matched ends must agree on, as a number; the root of a collective is compared by itself.
std::vector<std::uint32_t> endpoint_keys(const Program& program) {
  using Content = std::array<std::int64_t, 6>;
  std::vector<Content> contents;
  contents.reserve(program.endpoints.size());
  for (const Endpoint& endpoint : program.endpoints) {
    if (is_p2p(endpoint.kind)) {
      contents.push_back({0, endpoint.slot, endpoint.bytes, endpoint.offset, 0, 0});
    } else {
      contents.push_back({1 + static_cast<std::int64_t>(endpoint.kind),
                          static_cast<std::int64_t>(endpoint.dtype), endpoint.bytes, endpoint.offset,
                          static_cast<std::int64_t>(endpoint.reduce),
                          static_cast<std::int64_t>(program.slots[endpoint.slot].kind)});
    }
  }
  std::vector<Content> distinct = contents;
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  std::vector<std::uint32_t> keys;
  keys.reserve(contents.size());
  for (const Content& content : contents) {
    keys.push_back(static_cast<std::uint32_t>(std::lower_bound(distinct.begin(), distinct.end(), content) -
                                              distinct.begin()));
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
    members();
    pairs();
    ports();
    return std::move(world_);
  }

 private:
  void members() {
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
    for_each_used([&](std::uint32_t index, std::uint32_t row) {
      if (is_p2p(world_.program->endpoints[row].kind))
        pairs_.push_back(pair_key(world_.linked->endpoints[index]));
    });
    std::sort(pairs_.begin(), pairs_.end());
    pairs_.erase(std::unique(pairs_.begin(), pairs_.end()), pairs_.end());
    world_.links.resize(pairs_.size() * 2);
  }

  void ports() {
    const std::vector<std::uint32_t> keys = endpoint_keys(*world_.program);
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
  std::vector<std::uint64_t> pairs_;
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

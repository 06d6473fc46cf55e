#include "sim/verify/world.h"

#include <algorithm>
#include <array>
#include <bit>
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

// What two matched ends must agree on, as a number; the root of a collective is compared by itself. Messages of whole
// slots, which are nearly all, have the number of their slot class.
ScratchVector<std::uint32_t> endpoint_keys(const Program& program) {
  const std::size_t places = std::bit_ceil(program.endpoints.size() * 2 + 1);
  ScratchVector<std::uint32_t> number(places, kNone32);  // a hash table of the distinct contents
  ScratchVector<Content> distinct;
  distinct.reserve(program.endpoints.size());
  ScratchVector<std::uint32_t> keys;
  keys.reserve(program.endpoints.size());
  for (const Endpoint& endpoint : program.endpoints) {
    if (is_p2p(endpoint.kind) && endpoint.offset == 0 &&
        endpoint.bytes == program.slots[endpoint.slot].bytes) {
      keys.push_back(endpoint.slot);
      continue;
    }
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
    keys.push_back(static_cast<std::uint32_t>(program.slots.size()) + number[at]);
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
    if (apart) {
      for (std::size_t t = 0; t < threads.size(); ++t) world_.range_of.push_back(world_.ranges++);
      return;
    }
    const std::size_t places = std::bit_ceil(threads.size() * 2 + 1);
    ScratchVector<std::uint32_t> first(places, kNone32);  // a hash table of the first threads of ranges
    for (std::uint32_t t = 0; t < threads.size(); ++t) {
      const std::uint64_t key = std::uint64_t{threads[t].begin} << 32 | threads[t].end;
      std::size_t at = (key * 0x9E3779B97F4A7C15u >> 32) & (places - 1);
      const auto same = [&](std::uint32_t other) {
        return threads[other].begin == threads[t].begin && threads[other].end == threads[t].end;
      };
      while (first[at] != kNone32 && !same(first[at])) at = (at + 1) & (places - 1);
      const bool fresh = first[at] == kNone32;
      if (fresh) first[at] = t;
      world_.range_of.push_back(fresh ? world_.ranges++ : world_.range_of[first[at]]);
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

  // The two members of a p2p endpoint, lower first.
  std::pair<std::uint32_t, std::uint32_t> pair_of(const LinkedEndpoint& endpoint) const {
    const std::uint32_t base = world_.member_base[static_cast<std::size_t>(endpoint.communicator)];
    const auto own = base + static_cast<std::uint32_t>(endpoint.position);
    const auto peer = base + static_cast<std::uint32_t>(endpoint.peer_position);
    return {std::min(own, peer), std::max(own, peer)};
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

  // Pairs are numbered by their lower member, then by the higher one. Most members have two partners, so the higher
  // ones of each lie in a short list: from first_pair_[lower] to the next one's in higher_.
  void pairs() {
    ScratchVector<std::pair<std::uint32_t, std::uint32_t>> uses;
    uses.reserve(world_.linked->endpoints.size());
    first_pair_.resize(world_.member_thread.size() + 2);
    for_each_used([&](std::uint32_t index, std::uint32_t row) {
      if (!is_p2p(world_.program->endpoints[row].kind)) return;
      const auto pair = pair_of(world_.linked->endpoints[index]);
      if (!uses.empty() && uses.back() == pair) return;
      uses.push_back(pair);
      ++first_pair_[pair.first + 2];
    });
    for (std::size_t m = 1; m < first_pair_.size(); ++m) first_pair_[m] += first_pair_[m - 1];
    higher_.resize(uses.size());
    for (const auto& [low, high] : uses) higher_[first_pair_[low + 1]++] = high;
    std::uint32_t begin = 0, count = 0;
    for (std::size_t m = 0; m < world_.member_thread.size(); ++m) {
      const std::uint32_t end = first_pair_[m + 1], first = count;
      if (end - begin > 1) std::sort(higher_.begin() + begin, higher_.begin() + end);
      for (; begin != end; ++begin) {
        if (count == first || higher_[count - 1] != higher_[begin]) higher_[count++] = higher_[begin];
      }
      first_pair_[m] = first;
    }
    first_pair_[world_.member_thread.size()] = count;
    world_.links.resize(std::size_t{count} * 2);
  }

  std::uint32_t number_of(const std::pair<std::uint32_t, std::uint32_t>& pair) const {
    constexpr std::uint32_t kShort = 8;
    const std::uint32_t begin = first_pair_[pair.first], end = first_pair_[pair.first + 1];
    if (end - begin > kShort)
      return static_cast<std::uint32_t>(
          std::lower_bound(higher_.begin() + begin, higher_.begin() + end, pair.second) - higher_.begin());
    std::uint32_t at = begin;
    while (higher_[at] != pair.second) ++at;
    return at;
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
      port.side = endpoint.kind == EndpointKind::kSend ? 1 : endpoint.kind == EndpointKind::kRecv ? -1 : 0;
      port.dropped = !is_p2p(endpoint.kind) && endpoint.bytes == 0;
      if (is_p2p(endpoint.kind)) link(linked, port);
    });
  }

  void link(const LinkedEndpoint& linked, Port& port) {
    const std::uint32_t pair = number_of(pair_of(linked));
    const bool sends = port.kind == EndpointKind::kSend;
    const std::int32_t from = sends ? linked.position : linked.peer_position;
    const std::int32_t to = sends ? linked.peer_position : linked.position;
    const auto size = static_cast<std::int32_t>(world_.communicator_size(port.communicator));
    const std::uint32_t base = world_.member_base[port.communicator];
    const std::uint32_t up = pair * 2;
    port.link = from <= to ? up : up + 1;
    Link& row = world_.links[port.link];
    row.source = world_.member_thread[base + static_cast<std::uint32_t>(from)];
    row.destination = world_.member_thread[base + static_cast<std::uint32_t>(to)];
    row.distance = static_cast<std::uint32_t>(to < from ? to - from + size : to - from);
    row.communicator = port.communicator;
    row.mirrored = from != to && row.distance * 2 == static_cast<std::uint32_t>(size);
    const auto back = static_cast<std::uint32_t>(size) - row.distance;
    if (from != to)
      world_.links[port.link ^ 1u] = {row.destination, row.source, back, row.communicator, row.mirrored};
  }

  CheckWorld world_;
  ScratchVector<std::uint32_t> first_pair_, higher_;
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

#include "sim/verify/world.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "engine/base/assert.h"

namespace plumbline::verify {
namespace {

// What two matched ends must agree on, as a number; the root of a collective is compared by itself. Messages of whole
// slots, which are nearly all, have the number of their slot class.
class Keys {
 public:
  explicit Keys(const Program& program) : program_(program), keys_(program.endpoints.size(), kNone32) {}

  std::uint32_t of(std::uint32_t row) {
    const Endpoint& endpoint = program_.endpoints[row];
    if (is_p2p(endpoint.kind) && endpoint.offset == 0 &&
        endpoint.bytes == program_.slots[endpoint.slot].bytes)
      return endpoint.slot;
    std::uint32_t& key = keys_[row];
    if (key == kNone32)
      key = static_cast<std::uint32_t>(program_.slots.size()) + number(content_of(endpoint));
    return key;
  }

 private:
  using Content = std::array<std::int64_t, 3>;

  Content content_of(const Endpoint& endpoint) const {
    if (is_p2p(endpoint.kind))
      return {std::int64_t{endpoint.slot} << 32 | 0xFF, endpoint.bytes, endpoint.offset};
    return {static_cast<std::int64_t>(endpoint.kind) | static_cast<std::int64_t>(endpoint.dtype) << 8 |
                static_cast<std::int64_t>(endpoint.reduce) << 16 |
                static_cast<std::int64_t>(program_.slots[endpoint.slot].kind) << 24,
            endpoint.bytes, endpoint.offset};
  }

  std::uint32_t number(const Content& content) {
    if (places_.empty()) places_.resize(std::bit_ceil(program_.endpoints.size() * 2 + 1), kNone32);
    std::uint64_t hash = 0;
    for (const std::int64_t part : content)
      hash = (std::rotl(hash, 23) ^ static_cast<std::uint64_t>(part)) * 0x9E3779B97F4A7C15u;
    const std::size_t last = places_.size() - 1;
    std::size_t at = (hash >> 32) & last;
    while (places_[at] != kNone32 && distinct_[places_[at]] != content) at = (at + 1) & last;
    if (places_[at] == kNone32) {
      places_[at] = static_cast<std::uint32_t>(distinct_.size());
      distinct_.push_back(content);
    }
    return places_[at];
  }

  const Program& program_;
  ScratchVector<std::uint32_t> keys_;    // by row; kNone32: not asked yet
  ScratchVector<std::uint32_t> places_;  // a hash table of the distinct contents
  ScratchVector<Content> distinct_;
};

class WorldBuilder {
 public:
  explicit WorldBuilder(const LinkedProgram& linked) {
    world_.linked = &linked;
    world_.program = linked.program;
  }

  CheckWorld build() {
    ranges();
    members();
    ports();
    links();
    return std::move(world_);
  }

 private:
  void ranges() {
    const std::vector<Thread>& threads = world_.program->threads;
    world_.range_of.resize(threads.size());
    std::uint32_t last = 0;
    bool apart = true;  // mostly, where replicas do not share their items
    for (const Thread& thread : threads) {
      apart = apart && thread.begin >= last && thread.end > thread.begin;
      last = thread.end;
    }
    if (apart) {
      for (std::uint32_t& range : world_.range_of) range = world_.ranges++;
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
      world_.range_of[t] = fresh ? world_.ranges++ : world_.range_of[first[at]];
    }
  }

  void members() {
    const std::vector<Communicator>& communicators = world_.linked->communicators;
    world_.member_base.resize(communicators.size() + 1);
    std::uint32_t members = 0;
    for (std::size_t c = 0; c < communicators.size(); ++c) {
      world_.member_base[c] = members;
      members += static_cast<std::uint32_t>(communicators[c].members.size());
    }
    world_.member_base.back() = members;
    world_.member_thread.resize(members);
    std::uint32_t* out = world_.member_thread.data();
    for (const Communicator& communicator : communicators) {
      for (const Rank rank : communicator.members) *out++ = static_cast<std::uint32_t>(rank);
    }
  }

  // A message gets a use of its pair for its link, until links() knows the number of the pair.
  void ports() {
    const LinkedProgram& linked = *world_.linked;
    const Program& program = *world_.program;
    Keys keys(program);
    world_.ports.resize(linked.endpoints.size());
    latest_.resize(world_.member_thread.size());
    for (const LinkedProgram::Window& window : linked.windows) {
      for (std::uint32_t i = 0; i < window.count; ++i) {
        const LinkedEndpoint& end = linked.endpoints[window.base + i];
        if (end.communicator < 0) continue;
        const std::uint32_t row = window.first + i;
        const Endpoint& endpoint = program.endpoints[row];
        Port& port = world_.ports[window.base + i];
        port.communicator = static_cast<std::uint32_t>(end.communicator);
        const std::uint32_t base = world_.member_base[port.communicator];
        port.member = base + static_cast<std::uint32_t>(end.position);
        port.peer = static_cast<std::uint32_t>(end.peer);
        port.key = keys.of(row);
        port.kind = endpoint.kind;
        if (!is_p2p(endpoint.kind)) {
          port.dropped = endpoint.bytes == 0;
          continue;
        }
        const bool sends = endpoint.kind == EndpointKind::kSend;
        const std::uint32_t peer = base + static_cast<std::uint32_t>(end.peer_position);
        port.side = sends ? 1 : -1;
        const bool down = sends ? port.member > peer : port.member < peer;
        port.link = used_pair(std::min(port.member, peer), std::max(port.member, peer)) * 2 + (down ? 1 : 0);
      }
    }
  }

  // The number of a use of the pair.
  std::uint32_t used_pair(std::uint32_t low, std::uint32_t high) {
    Latest& latest = latest_[low];
    if (latest.high != high) {
      latest = {high, static_cast<std::uint32_t>(uses_.size()), latest.uses + 1};
      uses_.push_back({low, high});
    }
    return latest.use;
  }

  // Pairs are numbered by their lower member, then by the higher one. Most members have two partners, so the higher
  // ones of each lie in a short list: from first_pair_[lower] to the next one's in higher_.
  void links() {
    list_uses();
    world_.links.resize(uses_.size() * 2);
    std::uint32_t begin = 0, count = 0;
    for (std::uint32_t c = 0; c + 1 < world_.member_base.size(); ++c) {
      for (std::uint32_t low = world_.member_base[c]; low < world_.member_base[c + 1]; ++low) {
        const std::uint32_t end = first_pair_[low + 1], first = count;
        if (end - begin > 1) std::sort(higher_.begin() + begin, higher_.begin() + end);
        for (; begin != end; ++begin) {
          if (count != first && higher_[count - 1] == higher_[begin]) continue;
          higher_[count] = higher_[begin];
          link(c, low, higher_[count], count);
          ++count;
        }
        first_pair_[low] = first;
      }
    }
    first_pair_[world_.member_thread.size()] = count;
    world_.links.resize(std::size_t{count} * 2);
    RawVector<std::uint32_t> upward(uses_.size());
    for (std::size_t u = 0; u < uses_.size(); ++u) upward[u] = number_of(uses_[u].low, uses_[u].high) * 2;
    for (Port& port : world_.ports) {
      if (port.link != kNone32) port.link = upward[port.link / 2] + port.link % 2;
    }
  }

  void list_uses() {
    first_pair_.resize(latest_.size() + 1);
    std::uint32_t first = 0;
    for (std::size_t m = 0; m < latest_.size(); ++m) {
      first_pair_[m] = first;
      first += latest_[m].uses;
    }
    first_pair_.back() = first;
    higher_.resize(uses_.size());
    for (auto use = uses_.rbegin(); use != uses_.rend(); ++use)
      higher_[first_pair_[use->low] + --latest_[use->low].uses] = use->high;
  }

  // The two links of a pair; of one with itself the second is none.
  void link(std::uint32_t communicator, std::uint32_t low, std::uint32_t high, std::uint32_t pair) {
    const std::uint32_t source = world_.member_thread[low], destination = world_.member_thread[high];
    const auto size = static_cast<std::uint32_t>(world_.communicator_size(communicator));
    const std::uint32_t up = high - low, down = size - up;
    world_.links[pair * 2] = {source, destination, up, communicator, up == down};
    if (up != 0) world_.links[pair * 2 + 1] = {destination, source, down, communicator, up == down};
  }

  std::uint32_t number_of(std::uint32_t low, std::uint32_t high) const {
    constexpr std::uint32_t kShort = 8;
    const std::uint32_t begin = first_pair_[low], end = first_pair_[low + 1];
    if (end - begin > kShort)
      return static_cast<std::uint32_t>(
          std::lower_bound(higher_.begin() + begin, higher_.begin() + end, high) - higher_.begin());
    std::uint32_t at = begin;
    while (higher_[at] != high) ++at;
    return at;
  }

  // Of a lower member: the pair that was used last, and how many uses are listed.
  struct Latest {
    std::uint32_t high = kNone32;
    std::uint32_t use = 0;
    std::uint32_t uses = 0;
  };
  struct Pair {
    std::uint32_t low, high;
  };

  CheckWorld world_;
  ScratchVector<Latest> latest_;  // by member
  ScratchVector<Pair> uses_;      // of pairs, not twice the same in a row of a lower member
  RawVector<std::uint32_t> first_pair_, higher_;
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

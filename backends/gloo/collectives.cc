#include "backends/gloo/collectives.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "engine/base/assert.h"
#include "engine/runtime/reduce.h"

namespace plumbline::gloo {

std::uint32_t Membership::next_tag(bool send, Rank peer) {
  const std::size_t n = members.size();
  if (counts_.empty()) counts_.assign(2 * n, 0);
  const auto at = static_cast<std::size_t>(std::find(members.begin(), members.end(), peer) - members.begin());
  PL_ASSERT(at < n);
  return tag_of(lane, counts_[send ? at : n + at]++);
}

namespace {

struct Part {
  Bytes begin = 0, bytes = 0;
};

class Run {
 public:
  Run(Transport& transport, Membership& own, const CollectiveCall& call)
      : transport_(transport), own_(own), call_(call), element_(dtype_bytes(call.dtype)) {}

  Status run() {
    const auto n = static_cast<Bytes>(own_.members.size());
    const auto root = static_cast<std::size_t>(call_.root);
    switch (call_.kind) {
      case EndpointKind::kAllReduce: {
        // Each member reduces one part of the elements, then all get all parts.
        const Bytes elements = call_.bytes / element_;
        const auto part = [&](std::size_t i) {
          const Bytes at = elements * static_cast<Bytes>(i) / n,
                      end = elements * static_cast<Bytes>(i + 1) / n;
          return Part{at * element_, (end - at) * element_};
        };
        PL_TRY(scatter_reduce(part));
        return gather(part);
      }
      case EndpointKind::kReduceScatter:
        return scatter_reduce([&](std::size_t i) { return share(i); });
      case EndpointKind::kAllGather:
        return gather([&](std::size_t i) { return share(i); });
      case EndpointKind::kReduce:
        return scatter_reduce([&](std::size_t i) { return i == root ? Part{0, call_.bytes} : Part{}; });
      case EndpointKind::kBroadcast:
        return gather([&](std::size_t i) { return i == root ? Part{0, call_.bytes} : Part{}; });
      case EndpointKind::kSend:
      case EndpointKind::kRecv:
        break;
    }
    return fail(ErrorCode::kUnsupported, "not a collective");
  }

 private:
  std::size_t me() const { return static_cast<std::size_t>(own_.position); }

  // Equal shares, as the simulator's.
  Part share(std::size_t i) const {
    const Bytes bytes = call_.bytes / static_cast<Bytes>(own_.members.size()) / element_ * element_;
    return {static_cast<Bytes>(i) * bytes, bytes};
  }

  void add(std::vector<Message>& messages, bool send, std::size_t peer, std::byte* data, Bytes bytes) {
    if (bytes == 0) return;
    const Rank rank = own_.members[peer];
    messages.push_back({send, rank, own_.next_tag(send, rank), data, bytes, 0});
  }

  // Everyone sends each other member that member's part; the own part becomes the reduction of all.
  template <typename PartOf>
  Status scatter_reduce(PartOf part_of) {
    const std::size_t n = own_.members.size();
    const Part mine = part_of(me());
    std::vector<std::byte> arrived(static_cast<std::size_t>(mine.bytes) * (n - 1));
    std::vector<const std::byte*> sources(n);
    std::vector<Message> messages;
    std::byte* free = arrived.data();
    for (std::size_t i = 0; i < n; ++i) {
      if (i == me()) {
        sources[i] = call_.data + mine.begin;
        continue;
      }
      const Part theirs = part_of(i);
      add(messages, true, i, call_.data + theirs.begin, theirs.bytes);
      add(messages, false, i, free, mine.bytes);
      sources[i] = free;
      free += mine.bytes;
    }
    PL_TRY(transport_.exchange(messages));
    if (mine.bytes > 0) {
      reduce_ordered(call_.dtype, call_.reduce, sources, call_.data + mine.begin,
                     static_cast<std::size_t>(mine.bytes / element_));
    }
    return {};
  }

  // Everyone's part goes to all others.
  template <typename PartOf>
  Status gather(PartOf part_of) {
    const Part mine = part_of(me());
    std::vector<Message> messages;
    for (std::size_t i = 0; i < own_.members.size(); ++i) {
      if (i == me()) continue;
      const Part theirs = part_of(i);
      add(messages, true, i, call_.data + mine.begin, mine.bytes);
      add(messages, false, i, call_.data + theirs.begin, theirs.bytes);
    }
    return transport_.exchange(messages);
  }

  Transport& transport_;
  Membership& own_;
  const CollectiveCall& call_;
  Bytes element_;
};

}  // namespace

Status run_collective(Transport& transport, Membership& own, const CollectiveCall& call) {
  return Run(transport, own, call).run();
}

}  // namespace plumbline::gloo

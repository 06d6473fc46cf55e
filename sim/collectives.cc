#include "sim/collectives.h"

#include <algorithm>
#include <cstring>
#include <span>

#include <fmt/format.h>

namespace plumbline::sim {

void Collectives::begin_step(const LinkedProgram& linked) {
  linked_ = &linked;
  states_.assign(linked.communicators.size(), State{});
}

std::vector<EntryId> Collectives::activate(std::int32_t communicator, std::int32_t position, EntryId entry) {
  State& state = states_[static_cast<std::size_t>(communicator)];
  const std::size_t members = linked_->communicators[static_cast<std::size_t>(communicator)].members.size();
  if (state.count.empty()) state.count.assign(members, 0);
  const std::uint32_t number = state.count[static_cast<std::size_t>(position)]++;
  while (state.base + state.calls.size() <= number) state.calls.emplace_back();
  Call& call = state.calls[number - state.base];
  (*entries_)[entry].next = call.first;
  call.first = entry;
  if (++call.arrived < members) return {};

  std::vector<EntryId> all(members);
  for (EntryId e = call.first; e != 0; e = (*entries_)[e].next) {
    all[static_cast<std::size_t>(linked_->endpoints[(*entries_)[e].route].position)] = e;
  }
  // Calls complete in order, since every member makes them in order: this one is the oldest.
  state.calls.pop_front();
  ++state.base;
  return all;
}

void Collectives::drop(std::int32_t communicator, std::int32_t position, EntryId entry) {
  State& state = states_[static_cast<std::size_t>(communicator)];
  state.dropped.resize(state.count.size());
  state.dropped[static_cast<std::size_t>(position)] = true;
  for (Call& call : state.calls) {
    EntryId* link = &call.first;
    while (*link != 0 && *link != entry) link = &(*entries_)[*link].next;
    if (*link == 0) continue;
    *link = (*entries_)[entry].next;
    --call.arrived;
    return;
  }
}

bool Collectives::dropped(std::int32_t communicator, std::int32_t position) const {
  const State& state = states_[static_cast<std::size_t>(communicator)];
  return !state.dropped.empty() && state.dropped[static_cast<std::size_t>(position)];
}

std::uint32_t Collectives::activated(std::int32_t communicator, std::int32_t position) const {
  const State& state = states_[static_cast<std::size_t>(communicator)];
  return state.count.empty() ? 0 : state.count[static_cast<std::size_t>(position)];
}

std::string collective_difference(const Endpoint& a, Rank root_a, const Endpoint& b, Rank root_b) {
  if (a.kind != b.kind)
    return fmt::format("{} against {}", endpoint_kind_name(a.kind), endpoint_kind_name(b.kind));
  if (a.bytes != b.bytes) return fmt::format("{} bytes against {}", a.bytes, b.bytes);
  if (a.offset != b.offset) return fmt::format("byte {} of the slot against {}", a.offset, b.offset);
  if (root_a != root_b) return fmt::format("root {} against {}", root_a, root_b);
  const bool reduces = a.kind == EndpointKind::kAllReduce || a.kind == EndpointKind::kReduce ||
                       a.kind == EndpointKind::kReduceScatter;
  if (!reduces) return {};
  if (a.dtype != b.dtype) return fmt::format("{} against {}", dtype_name(a.dtype), dtype_name(b.dtype));
  if (a.reduce != b.reduce)
    return fmt::format("{} against {}", reduce_op_name(a.reduce), reduce_op_name(b.reduce));
  return {};
}

void run_collective(const Endpoint& endpoint, std::int32_t root, Bytes bytes,
                    const std::vector<std::byte*>& slots, const CollectiveNumerics& numerics) {
  if (std::any_of(slots.begin(), slots.end(), [](const std::byte* slot) { return slot == nullptr; })) return;
  const std::vector<const std::byte*> sources(slots.begin(), slots.end());
  const auto element = static_cast<std::size_t>(dtype_bytes(endpoint.dtype));
  const auto size = static_cast<std::size_t>(bytes);
  const std::size_t shard = size / slots.size() / element * element;
  const auto copy_to_all = [&](std::size_t from, std::size_t offset, std::size_t count) {
    for (std::size_t i = 0; i < slots.size(); ++i) {
      if (i != from) std::memcpy(slots[i] + offset, slots[from] + offset, count);
    }
  };
  switch (endpoint.kind) {
    case EndpointKind::kAllReduce:
      all_reduce_as(numerics, endpoint.dtype, endpoint.reduce, sources, slots[0], size / element);
      return copy_to_all(0, 0, size);
    case EndpointKind::kReduce:
      return reduce_as(numerics, endpoint.dtype, endpoint.reduce, static_cast<std::size_t>(root), sources,
                       slots[static_cast<std::size_t>(root)], size / element);
    case EndpointKind::kBroadcast:
      return copy_to_all(static_cast<std::size_t>(root), 0, size);
    case EndpointKind::kAllGather:
      for (std::size_t i = 0; i < slots.size(); ++i) copy_to_all(i, i * shard, shard);
      return;
    case EndpointKind::kReduceScatter:
      for (std::size_t i = 0; i < slots.size(); ++i) {
        std::vector<const std::byte*> parts;
        for (const std::byte* source : sources) parts.push_back(source + i * shard);
        reduce_as(numerics, endpoint.dtype, endpoint.reduce, i, parts, slots[i] + i * shard, shard / element);
      }
      return;
    case EndpointKind::kSend:
    case EndpointKind::kRecv:
      return;
  }
}

}  // namespace plumbline::sim

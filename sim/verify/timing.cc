#include "sim/verify/timing.h"

#include <functional>
#include <numeric>
#include <span>
#include <utility>

#include "engine/base/assert.h"

namespace plumbline::verify {

Timing::Timing(const CheckWorld& world, const TimeModel& model, int streams)
    : world_(&world),
      model_(&model),
      streams_(static_cast<std::size_t>(streams)),
      kernels_(model.is_uniform() ? 0 : world.program->kernels.size()),
      tails_(world.threads() * streams_),
      events_(world.threads() * world.program->events.size()) {
  const std::vector<Kernel>& kernels = world.program->kernels;
  if (kernels_ == 0) {
    costs_.resize(kernels.size());
    model.kernels(kernels, costs_.data());
    for (double& cost : costs_) cost = cost == 0 ? kNothing : cost;
    return;
  }
  costs_by_thread_.reset(static_cast<double*>(std::calloc(world.threads() * kernels_, sizeof(double))),
                         std::free);  // bytes of 0 are 0.0
  PL_ASSERT_MSG(costs_by_thread_ != nullptr, "out of memory");
}

void set_durations(CheckWorld& world, const TimeModel& model, const std::vector<int>* members) {
  // A collective costs the same for all its members; computed once, by the first.
  using Key = std::pair<std::uint32_t, std::uint32_t>;
  std::map<Key, Nanoseconds, std::less<>, scratch::Allocator<std::pair<const Key, Nanoseconds>>> collectives;
  // Where links are alike, what is as large as the message before takes as long.
  const bool alike = model.is_uniform();
  Bytes bytes = -1;
  double took = 0;
  const Port* last = nullptr;
  for (std::uint32_t t = 0; t < world.threads(); ++t) {
    const LinkedProgram::Window& window = world.linked->windows[t];
    const Endpoint* endpoint_at = world.program->endpoints.data() + window.first;
    Port* const ports = world.ports.data() + window.base;
    for (Port& port : std::span(ports, window.count)) {
      const Endpoint& endpoint = *endpoint_at++;
      if (port.member == kNone32) continue;
      if (is_p2p(port.kind)) {
        if (port.peer == t) continue;
        if (!alike || endpoint.bytes != bytes)
          took = static_cast<double>(
              model.message(static_cast<Rank>(t), static_cast<Rank>(port.peer), endpoint.bytes));
        bytes = endpoint.bytes;
        port.duration = took;
        continue;
      }
      const Port* const before = std::exchange(last, &port);
      if (before != nullptr && before->communicator == port.communicator && before->key == port.key) {
        port.duration = before->duration;
        continue;
      }
      const auto [at, fresh] = collectives.try_emplace({port.communicator, port.key}, 0);
      if (fresh && members != nullptr) {
        std::vector<Rank> as_many(static_cast<std::size_t>((*members)[port.communicator]));
        std::iota(as_many.begin(), as_many.end(), 0);
        at->second = model.collective(port.kind, as_many, endpoint.bytes);
      } else if (fresh) {
        at->second = model.collective(port.kind, world.linked->communicators[port.communicator].members,
                                      endpoint.bytes);
      }
      port.duration = static_cast<double>(at->second);
    }
  }
}

double Timing::ask(const Track& track, std::uint32_t thread, unsigned kernel) {
  const Nanoseconds cost = model_->kernel(static_cast<Rank>(thread), world_->program->kernels[kernel]);
  return track.costs[kernel] = cost == 0 ? kNothing : static_cast<double>(cost);
}

void Timing::step(std::uint32_t thread, Item item, Lanes& host) {
  switch (item_op(item)) {
    case ItemOp::kWait:
      return wait_handles(thread, item, host);
    case ItemOp::kWaitSlot: {
      if (kept_.empty()) return;
      const auto found = kept_[thread].slots.find(slot_key(item_ref(item), item_microbatch(item)));
      if (found != kept_[thread].slots.end()) waited(thread, item, found->second, host);
      return;
    }
    case ItemOp::kRecord:
      events_[thread * world_->program->events.size() + item_ref(item)] =
          tails_[stream_index(thread, item_stream(item))];
      return;
    case ItemOp::kWaitEvent:
      tails_[stream_index(thread, item_stream(item))].raise(
          events_[thread * world_->program->events.size() + item_ref(item)]);
      return;
    case ItemOp::kSyncEvent:
      return host.raise(events_[thread * world_->program->events.size() + item_ref(item)]);
    case ItemOp::kSyncStream:
      return host.raise(tails_[stream_index(thread, item_stream(item))]);
    case ItemOp::kSyncDevice:
      for (std::size_t s = 0; s < streams_; ++s)
        host.raise(tails_[stream_index(thread, static_cast<int>(s))]);
      return;
    case ItemOp::kRead:
      return host.raise(tails_[stream_index(thread, kComputeStream)]);
    default:
      return;
  }
}

void Timing::waited(std::uint32_t thread, Item item, const Lanes& until, Lanes& host) {
  ((item_flags(item) & kHostWaits) != 0 ? host : tails_[stream_index(thread, kComputeStream)]).raise(until);
}

void Timing::wait_handles(std::uint32_t thread, Item item, Lanes& host) {
  if (kept_.empty()) return;
  Kept& kept = kept_[thread];
  const std::size_t queue = item_ref(item);
  if (queue >= kept.queues.size()) return;  // the host pass reports it
  for (unsigned i = 0; i < item_aux(item); ++i) {
    const Lanes* until = kept.queues[queue].pop(1);
    if (until == nullptr) return;
    waited(thread, item, *until, host);
  }
}

void Timing::keep_handles(std::uint32_t thread, std::uint32_t first, std::uint32_t end, Lanes finish) {
  const Program& program = *world_->program;
  if (kept_.empty()) kept_.resize(world_->threads());
  Kept& kept = kept_[thread];
  const auto queue = static_cast<std::size_t>(item_queue(program.items[end - 1]));
  if (queue == static_cast<std::size_t>(kSlotQueue)) {
    for (std::uint32_t i = first; i < end; ++i) {
      const Item item = program.items[i];
      const Endpoint& endpoint = program.endpoints[item_ref(item)];
      if (endpoint.kind != EndpointKind::kSend)
        kept.slots[slot_key(endpoint.slot, item_microbatch(item))] = finish;
    }
    return;
  }
  if (kept.queues.size() <= queue) kept.queues.resize(queue + 1);
  kept.queues[queue].push(&finish, 1);
}

Lanes Timing::end() const {
  Lanes end{};
  for (const Lanes& tail : tails_) end.raise(tail);
  return end;
}

}  // namespace plumbline::verify

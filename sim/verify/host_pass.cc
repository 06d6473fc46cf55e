#include "sim/verify/host_pass.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "engine/base/hash.h"
#include "sim/verify/coverage.h"
#include "sim/verify/handle_queue.h"
#include "sim/verify/host_tables.h"
#include "sim/verify/ordered_pass.h"

namespace plumbline::verify {
namespace {

class Walk {
 public:
  Walk(HostTables& tables, std::size_t thread, int streams)
      : tables_(tables),
        program_(*tables.world->program),
        clocks_(streams),
        events_(program_.events.size()),
        buffers_(*tables.world, thread, tables.costs, tables.slots, clocks_),
        next_(program_.threads[thread].begin),
        end_(program_.threads[thread].end) {
    tables_.slots.reset();
    ++tables_.mark;
  }

  // False: an item names a stream beyond `streams`; facts().streams says how many are needed.
  bool run() {
    walk(Arm::kNone);
    facts_.first_uses[1] = facts_.first_uses[0];
    if (next_ == end_) {
      buffers_.report_leaks();
    } else {
      both_arms();
    }
    take_tallies();
    facts_.findings = buffers_.take_findings();
    facts_.memory = buffers_.memory();
    return facts_.streams <= clocks_.streams();
  }

  RangeFacts& facts() { return facts_; }

 private:
  using Queues = ScratchVector<HandleQueue<std::uint32_t>>;  // rows of clocks

  void both_arms() {
    const std::uint32_t start = next_;
    for (std::uint32_t i = start; i < end_; ++i)
      facts_.operations += tables_.counts(program_.items[i]) ? 1 : 0;
    const StreamClocks clocks = clocks_;
    const Queues queues = queues_;
    const auto events = events_;
    const bool host_overtakes = host_overtakes_;
    const std::uint32_t host_waits = host_waits_;
    buffers_.begin_trial();
    walk(Arm::kYes);
    buffers_.report_leaks();
    buffers_.roll_back();
    clocks_ = clocks;
    queues_ = queues;
    events_ = events;
    host_overtakes_ = host_overtakes;
    host_waits_ = host_waits;
    next_ = start;
    ++tables_.mark;  // p2p connections of the common part are found again, which the cold protocol ignores
    walk(Arm::kNo);
    buffers_.report_leaks();
  }

  void walk(Arm arm) {
    arm_ = arm;
    const unsigned skip = skipped_flags(arm);
    while (next_ < end_) {
      const Item item = program_.items[next_];
      const ItemOp op = item_op(item);
      if (op == ItemOp::kOp) {
        group();
      } else if ((item_flags(item) & skip) != 0) {
        ++next_;
      } else if (op == ItemOp::kDecide && arm == Arm::kNone) {
        return;
      } else {
        step(item);
        ++next_;
      }
    }
  }

  int stream_of(Item item) {
    const int stream = item_stream(item);
    if (stream < clocks_.streams()) return stream;
    facts_.streams = std::max(facts_.streams, stream + 1);
    return 0;
  }

  void step(Item item) {
    switch (item_op(item)) {
      case ItemOp::kLaunch:
        return launch(item);
      case ItemOp::kOp:
        return;
      case ItemOp::kWait:
        return wait(item);
      case ItemOp::kWaitSlot:
        return wait_slot(item);
      case ItemOp::kRecord: {
        const std::uint32_t* row = clocks_.row(stream_of(item));
        events_[item_ref(item)].assign(row, row + clocks_.width());
        return;
      }
      case ItemOp::kWaitEvent:
        if (!events_[item_ref(item)].empty()) clocks_.join(stream_of(item), events_[item_ref(item)].data());
        return;
      case ItemOp::kSyncEvent:
        if (!events_[item_ref(item)].empty()) clocks_.host_join(events_[item_ref(item)].data());
        return host_waited();
      case ItemOp::kSyncStream:
        clocks_.host_join(stream_of(item));
        return host_waited();
      case ItemOp::kSyncDevice:
        clocks_.host_join_all(next_);
        return host_waited();
      case ItemOp::kFree:
        return buffers_.release(item_ref(item), item_microbatch(item), {kComputeStream, next_});
      case ItemOp::kRead:
        return read_variable(item);
      case ItemOp::kDecide:
        return decide(item);
      case ItemOp::kMark:
      case ItemOp::kComm:  // these three are not in what the checker takes (is_plain)
      case ItemOp::kGraph:
      case ItemOp::kFail:
        return;
    }
  }

  void launch(Item item) {
    const KernelRow& kernel = tables_.kernels[item_ref(item)];
    const int microbatch = item_microbatch(item);
    const Use use{stream_of(item), next_};
    if (kernel.counts) computation(item_ref(item), microbatch);
    clocks_.enqueue(use.stream, next_ + 1);
    const std::uint16_t* slot = tables_.kernel_slots.data() + kernel.begin;
    const std::uint16_t* const reads_end = slot + kernel.reads;
    const std::uint16_t* const writes_end = reads_end + kernel.writes;
    const std::uint16_t* const frees_end = writes_end + kernel.frees;
    const std::uint16_t* const reads = slot;
    for (; slot != reads_end; ++slot) buffers_.read(*slot, microbatch, use);
    for (const std::uint16_t* freed = writes_end; freed != frees_end; ++freed)
      buffers_.read(*freed, microbatch, use);
    for (; slot != writes_end; ++slot) {
      if (kernel.in_place && std::find(reads, reads_end, *slot) != reads_end) {
        buffers_.update(*slot, microbatch, use);
      } else {
        buffers_.write(*slot, microbatch, use);
      }
    }
    for (; slot != frees_end; ++slot) buffers_.release(*slot, microbatch, use);
  }

  void computation(unsigned kernel, int microbatch) {
    if (arm_ == Arm::kNone) ++facts_.operations;
    if (arm_ == Arm::kYes) return;
    std::uint64_t& tally = tables_.tallies[kernel];
    if (tally == 0) tables_.tallied.push_back(kernel);
    tally += microbatch_tally(microbatch);
  }

  void take_tallies() {
    for (const std::uint32_t kernel : tables_.tallied) {
      if (tables_.tallies[kernel] != 0) facts_.tallies.emplace_back(kernel, tables_.tallies[kernel]);
      tables_.tallies[kernel] = 0;
    }
    tables_.tallied.clear();
  }

  void group() {
    const std::uint32_t first = next_;
    const std::uint32_t end = group_end(program_, first);
    next_ = end;
    const Item last = program_.items[end - 1];
    const unsigned flags = item_flags(last);
    if ((flags & skipped_flags(arm_)) != 0) return;
    const int stream = stream_of(last);
    if ((flags & kAfterCompute) != 0) clocks_.join(stream, kComputeStream);
    const std::uint32_t need = std::max(clocks_.host_group(), host_waits_);
    clocks_.enqueue_group(stream, end);
    if (arm_ == Arm::kNone) facts_.operations += end - first;
    if (end - first > 1 && !facts_.mixed_groups) facts_.mixed_groups = mixed(first, end);
    bool releases = false;
    for (std::uint32_t i = first; i < end; ++i) {
      const Item item = program_.items[i];
      const EndpointRow& endpoint = tables_.endpoints[item_ref(item)];
      first_use(item_ref(item), endpoint, {i, first, need, host_overtakes_});
      if (endpoint.dropped) continue;
      entry(endpoint, item_microbatch(item), {stream, i});
      releases = releases || endpoint.free_after;
    }
    if (releases) release_after(first, end, stream);
    after_group(end, flags, stream);
  }

  // The group may be more than one kernel: several communicators, or collectives beside p2p.
  bool mixed(std::uint32_t first, std::uint32_t end) const {
    const Endpoint& model = program_.endpoints[item_ref(program_.items[first])];
    if (program_.families[model.family].pairs) return true;
    return std::any_of(program_.items.begin() + first + 1, program_.items.begin() + end, [&](Item item) {
      const Endpoint& endpoint = program_.endpoints[item_ref(item)];
      return endpoint.family != model.family || is_p2p(endpoint.kind) != is_p2p(model.kind);
    });
  }

  void release_after(std::uint32_t first, std::uint32_t end, int stream) {
    for (std::uint32_t i = first; i < end; ++i) {
      const EndpointRow& endpoint = tables_.endpoints[item_ref(program_.items[i])];
      if (endpoint.free_after)
        buffers_.release(endpoint.slot, item_microbatch(program_.items[i]), {stream, i});
    }
  }

  void entry(const EndpointRow& endpoint, int microbatch, Use use) {
    switch (endpoint.kind) {
      case EndpointKind::kSend:
        return buffers_.read(endpoint.slot, microbatch, use);
      case EndpointKind::kRecv:
        return buffers_.write(endpoint.slot, microbatch, use);
      case EndpointKind::kBroadcast:
        // A rank that is not the root may receive into a new slot.
        if (buffers_.live(endpoint.slot, microbatch) == nullptr)
          return buffers_.write(endpoint.slot, microbatch, use);
        [[fallthrough]];
      default:
        buffers_.read(endpoint.slot, microbatch, use);
        buffers_.update(endpoint.slot, microbatch, use);
    }
  }

  void first_use(unsigned endpoint, const EndpointRow& row, FirstUse use) {
    if (arm_ != Arm::kNone && (item_flags(program_.items[use.item]) & (kArmYes | kArmNo)) != 0 &&
        tables_.armed_seen[endpoint] != tables_.mark) {
      tables_.armed_seen[endpoint] = tables_.mark;
      facts_.armed.push_back(use.item);
    }
    if (!is_p2p(row.kind) || tables_.seen[endpoint] == tables_.mark) return;
    tables_.seen[endpoint] = tables_.mark;
    facts_.first_uses[arm_ == Arm::kNo ? 1 : 0].push_back(use);
  }

  void after_group(std::uint32_t end, unsigned flags, int stream) {
    if ((flags & kHandle) != 0) {
      const auto queue = static_cast<std::size_t>(item_queue(program_.items[end - 1]));
      if (queue != static_cast<std::size_t>(kSlotQueue)) {
        if (queues_.size() <= queue) queues_.resize(queue + 1);
        queues_[queue].push(clocks_.row(stream), clocks_.width());
      }
    }
    if ((flags & kHostWaits) != 0) {
      clocks_.host_join(stream);
      host_waited();
    }
    if ((flags & kComputeWaits) != 0) clocks_.join(kComputeStream, stream);
  }

  void wait(Item item) {
    const std::size_t queue = item_ref(item);
    for (unsigned i = 0; i < item_aux(item); ++i) {
      const std::uint32_t* row = queue < queues_.size() ? queues_[queue].pop(clocks_.width()) : nullptr;
      if (row == nullptr) {
        buffers_.report(FindingKind::kStructure, next_,
                        fmt::format("waits for {} operations of queue {}, which keeps {} at this point",
                                    item_aux(item), queue, i));
        return;
      }
      if ((item_flags(item) & kHostWaits) != 0) {
        clocks_.host_join(row);
        host_waited();
      } else {
        clocks_.join(kComputeStream, row);
      }
    }
  }

  void wait_slot(Item item) {
    const SlotState* slot = buffers_.live(item_ref(item), item_microbatch(item));
    const std::uint32_t end =
        slot == nullptr || slot->writer == 0 || item_op(program_.items[slot->writer - 1]) != ItemOp::kOp
            ? 0
            : group_end(program_, slot->writer - 1);
    const Item last = end == 0 ? 0 : program_.items[end - 1];
    if (end == 0 || (item_flags(last) & kHandle) == 0 || item_queue(last) != kSlotQueue) {
      buffers_.report(FindingKind::kStructure, next_, "waits for a slot that no kept operation has filled");
    } else if ((item_flags(item) & kHostWaits) != 0) {
      clocks_.host_join_group(slot->writer_stream, end);
      host_waited();
    } else {
      clocks_.join_group(kComputeStream, slot->writer_stream, end);
    }
  }

  // The value is fetched in the order of the compute stream, and the host waits for it.
  void read_variable(Item item) {
    clocks_.enqueue(kComputeStream, next_ + 1);
    buffers_.read(program_.variables[item_ref(item)].slot, kNoMicrobatch, {kComputeStream, next_});
    clocks_.host_join(kComputeStream);
    host_waited();
  }

  void host_waited() {
    host_overtakes_ = clocks_.host_group() < clocks_.last_group();
    if (clocks_.last_group() == 0) host_waits_ = next_ + 1;
  }

  void decide(Item item) {
    const SlotState* slot = buffers_.live(program_.variables[item_ref(item)].slot, kNoMicrobatch);
    const std::uint32_t writer = slot == nullptr || slot->writer == 0 ? kNone32 : slot->writer - 1;
    if (arm_ == Arm::kYes) facts_.decisions.push_back({next_, writer});
  }

  HostTables& tables_;
  const Program& program_;
  StreamClocks clocks_;
  Queues queues_;
  ScratchVector<ScratchVector<std::uint32_t>> events_;
  Buffers buffers_;
  RangeFacts facts_;
  std::uint32_t next_;
  std::uint32_t end_;
  Arm arm_ = Arm::kNone;
  bool host_overtakes_ = false;
  std::uint32_t host_waits_ = 0;  // item after the host's last wait before the first group; 0: none
};

}  // namespace

HostPass::HostPass(const CheckWorld& world, Kind kind)
    : kind_(kind),
      tables_(std::make_unique<HostTables>(world)),
      ordered_(std::make_unique<OrderedPass>(*tables_)) {}
HostPass::~HostPass() = default;

void HostPass::run(std::size_t thread, RangeFacts& facts) {
  if (kind_ != Kind::kAny || !ordered_->run(thread, facts)) facts = general(thread);
  const Program& program = *tables_->world->program;
  const std::span<const Item> items = program.thread_items(thread);
  facts.hash = hash64(items.data(), items.size() * sizeof(Item));
  if (facts.memory.peak_item >= 0) {
    facts.memory.peak_text = describe_item(program, static_cast<Rank>(thread),
                                           program.items[static_cast<std::size_t>(facts.memory.peak_item)]);
  }
}

RangeFacts HostPass::general(std::size_t thread) {
  tables_->make_general();
  int streams = std::max(static_cast<int>(tables_->world->program->streams.size()), 1);
  while (true) {
    Walk walk(*tables_, thread, streams);
    const bool done = walk.run();
    RangeFacts facts = std::move(walk.facts());
    if (done) {
      facts.sync = tables_->sync.events(thread);
      facts.streams = streams;
      return facts;
    }
    streams = facts.streams;
  }
}

}  // namespace plumbline::verify

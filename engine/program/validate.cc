#include <array>

#include <fmt/format.h>

#include "engine/program/program.h"

namespace plumbline {
namespace {

class Validator {
 public:
  explicit Validator(const Program& program) : program_(program) {
    for (std::size_t op = 0; op < limits_.size(); ++op) limits_[op] = limit(static_cast<ItemOp>(op));
  }

  Status run() {
    PL_TRY(tables());
    PL_TRY(threads());
    for (std::size_t t = 0; t < program_.threads.size(); ++t) {
      // Ranks that share a range are checked once.
      if (t > 0 && program_.threads[t].begin == program_.threads[t - 1].begin &&
          program_.threads[t].end == program_.threads[t - 1].end) {
        continue;
      }
      PL_TRY(items(t));
    }
    return {};
  }

 private:
  Status bad(const std::string& message) const { return fail(ErrorCode::kParse, "program: " + message); }

  Status indices(const std::string& owner, const RowList& slots) const {
    for (const std::uint16_t slot : slots) {
      if (slot >= program_.slots.size())
        return bad(fmt::format("{} names slot row {} of {}", owner, slot, program_.slots.size()));
    }
    return {};
  }

  Status tables() const {
    for (const std::size_t rows :
         {program_.slots.size(), program_.kernels.size(), program_.endpoints.size(), program_.families.size(),
          program_.comm_calls.size(), program_.variables.size(), program_.events.size(),
          program_.marks.size()}) {
      if (rows > static_cast<std::size_t>(kMaxTableRows)) {
        return fail(
            ErrorCode::kUnsupported,
            fmt::format("program: a table has {} rows; an item's reference holds {}", rows, kMaxTableRows));
      }
    }
    if (program_.streams.empty() || program_.streams.size() > 256)
      return bad("1 to 256 streams, the first of them compute");
    if (program_.extras.legacy_stream < -1 ||
        program_.extras.legacy_stream >= static_cast<int>(program_.streams.size()))
      return bad(fmt::format("legacy stream {} does not exist", program_.extras.legacy_stream));
    if (program_.stages < 1 || program_.stages > kMaxTableRows)
      return bad(fmt::format("stages = {}", program_.stages));
    const std::size_t placed = program_.rank_of_stage.size();
    if (placed == 0 || placed % static_cast<std::size_t>(program_.stages) != 0)
      return bad(
          fmt::format("placement has {} ranks for {} stages; list them once, or as often as there are "
                      "pipelines",
                      placed, program_.stages));
    for (std::size_t stage = 0; stage < placed; ++stage) {
      if (program_.rank_of_stage[stage] < program_.grid.pp()) continue;
      return bad(fmt::format("stage {} is placed at pipeline coordinate {}, pp is {}",
                             stage % static_cast<std::size_t>(program_.stages), program_.rank_of_stage[stage],
                             program_.grid.pp()));
    }
    for (const SlotClass& slot : program_.slots) {
      if (slot.bytes < 0) return bad("slot " + slot.name + " has a negative size");
      if (slot.persistent && slot.per_microbatch)
        return bad("slot " + slot.name + " is persistent but not of step scope");
    }
    for (const Kernel& kernel : program_.kernels) {
      PL_TRY(indices("kernel " + kernel.name, kernel.reads));
      PL_TRY(indices("kernel " + kernel.name, kernel.frees));
      PL_TRY(indices("kernel " + kernel.name, kernel.writes));
    }
    for (const HostVariable& variable : program_.variables)
      PL_TRY(indices("variable " + variable.name, {variable.slot}));
    for (const CommFamily& family : program_.families) PL_TRY(members(family));
    for (const Endpoint& endpoint : program_.endpoints) PL_TRY(endpoint_row(endpoint));
    for (const CommCall& call : program_.comm_calls) PL_TRY(comm_call(call));
    return {};
  }

  Status comm_call(const CommCall& call) const {
    const std::string who = "communicator call " + call.name;
    if (call.family >= program_.families.size()) return bad(who + " names no communicator family");
    if (has_parent(call.kind) && call.parent >= program_.families.size())
      return bad(who + " names no parent");
    if (has_parent(call.kind) && call.parent == call.family)
      return bad(who + " makes a communicator from itself");
    if (!has_parent(call.kind) && call.parent != 0) return bad(who + " takes no parent");
    if (call.share && call.kind != CommCallKind::kSplit) return bad(who + " is no split, but shares");
    if (call.abort_parent && call.kind != CommCallKind::kShrink)
      return bad(who + " is no shrink, but aborts its parent");
    if ((call.duplicate_device || call.release != 0) && call.kind != CommCallKind::kInit)
      return bad(who + " is no init, but names devices or a release");
    if (call.kind == CommCallKind::kTurn && call.nonblocking) return bad(who + " is a turn, which waits");
    if (call.kind == CommCallKind::kTurn && program_.extras.failures)
      return bad(
          who + " says that a process drives several ranks: all of them would end, so there are no failures");
    const bool pairs = program_.families[call.family].pairs;
    if (pairs == (call.form == PeerForm::kNone))
      return bad(who + (pairs ? " lacks the peer of its pair" : " takes no peer: its family has no pairs"));
    return peer(who, call.form, call.peer);
  }

  Status peer(const std::string& who, PeerForm form, std::int32_t value) const {
    const bool coordinate_ok = form != PeerForm::kCoordinate || (value >= 0 && value < program_.grid.pp());
    const bool rank_ok = form != PeerForm::kRank || (value >= 0 && value < program_.grid.world());
    if (!coordinate_ok || !rank_ok) return bad(who + " has a peer outside the grid");
    return {};
  }

  Status members(const CommFamily& family) const {
    for (const auto& instance : family.instances) {
      if (instance.empty()) return bad("communicator family " + family.name + " has an empty instance");
      if (family.pairs && instance.size() != 2)
        return bad("pair family " + family.name + " has an instance without two members");
      std::vector<bool> seen(static_cast<std::size_t>(program_.grid.world()));
      for (const Rank rank : instance) {
        if (rank < 0 || rank >= program_.grid.world())
          return bad(fmt::format("family {} has rank {} outside the world", family.name, rank));
        if (seen[static_cast<std::size_t>(rank)])
          return bad(fmt::format("family {} has rank {} twice in one instance", family.name, rank));
        seen[static_cast<std::size_t>(rank)] = true;
      }
    }
    return {};
  }

  Status endpoint_row(const Endpoint& endpoint) const {
    PL_TRY(indices("endpoint " + endpoint.name, {endpoint.slot}));
    if (endpoint.family >= program_.families.size())
      return bad("endpoint " + endpoint.name + " names no communicator family");
    const Bytes room = program_.slots[endpoint.slot].bytes;
    if (endpoint.bytes < 0 || endpoint.offset < 0)
      return bad("endpoint " + endpoint.name + " has a negative size or offset");
    if (endpoint.bytes > room || endpoint.offset > room - endpoint.bytes) {
      const std::string from = endpoint.offset > 0 ? fmt::format(" from byte {} on", endpoint.offset) : "";
      return bad(fmt::format("endpoint {} moves {} bytes{}, its slot {} has {}", endpoint.name,
                             endpoint.bytes, from, program_.slots[endpoint.slot].name, room));
    }
    const bool rooted = endpoint.kind == EndpointKind::kBroadcast || endpoint.kind == EndpointKind::kReduce;
    if ((is_p2p(endpoint.kind) || rooted) == (endpoint.form == PeerForm::kNone)) {
      return bad("endpoint " + endpoint.name +
                 (rooted || is_p2p(endpoint.kind) ? " lacks its peer or root" : " takes no peer"));
    }
    return peer("endpoint " + endpoint.name, endpoint.form, endpoint.peer);
  }

  Status threads() const {
    Rank last = -1;
    for (std::size_t t = 0; t < program_.threads.size(); ++t) {
      const Thread& thread = program_.threads[t];
      if (thread.begin > thread.end || thread.end > program_.items.size())
        return bad("a thread's range is outside the items");
      if (thread.rank != last && thread.rank != last + 1) return bad("threads are not in rank order");
      if (thread.rank == last && thread.begin < program_.threads[t - 1].begin)
        return bad(fmt::format("the threads of rank {} are not in the order of their items", last));
      last = thread.rank;
    }
    if (last + 1 != program_.grid.world())
      return bad(fmt::format("threads for {} ranks of {}", last + 1, program_.grid.world()));
    return {};
  }

  std::size_t limit(ItemOp op) const {
    switch (op) {
      case ItemOp::kLaunch:
        return program_.kernels.size();
      case ItemOp::kOp:
        return program_.endpoints.size();
      case ItemOp::kWait:
        return 256;
      case ItemOp::kRecord:
      case ItemOp::kWaitEvent:
      case ItemOp::kSyncEvent:
        return program_.events.size();
      case ItemOp::kFree:
      case ItemOp::kWaitSlot:
        return program_.slots.size();
      case ItemOp::kRead:
      case ItemOp::kDecide:
        return program_.variables.size();
      case ItemOp::kMark:
        return program_.marks.size();
      case ItemOp::kComm:
        return program_.comm_calls.size();
      case ItemOp::kGraph:
      case ItemOp::kFail:
        return 2;
      case ItemOp::kSyncStream:
      case ItemOp::kSyncDevice:
        return 1;
    }
    return 0;
  }

  static int stream_of(const Item item) {
    switch (item_op(item)) {
      case ItemOp::kLaunch:
      case ItemOp::kOp:
        return item_stream(item);
      case ItemOp::kRecord:
      case ItemOp::kWaitEvent:
      case ItemOp::kSyncStream:
      case ItemOp::kGraph:
      case ItemOp::kFail:
        return static_cast<int>(item_aux(item));
      default:
        return 0;
    }
  }

  // Called for every item, so nothing is written down unless it is wrong.
  bool in_scope(std::uint16_t slot, int microbatch) const {
    return program_.slots[slot].per_microbatch == (microbatch != kNoMicrobatch);
  }

  Status out_of_scope(const std::string& owner, std::uint16_t slot) const {
    const SlotClass& row = program_.slots[slot];
    return bad(fmt::format("{} uses slot {} {} a microbatch", owner, row.name,
                           row.per_microbatch ? "without" : "with"));
  }

  Status scopes(const Item item) const {
    const int microbatch = item_microbatch(item);
    if (item_op(item) == ItemOp::kOp) {
      const Endpoint& endpoint = program_.endpoints[item_ref(item)];
      return in_scope(endpoint.slot, microbatch) ? Status()
                                                 : out_of_scope("endpoint " + endpoint.name, endpoint.slot);
    }
    if (item_op(item) == ItemOp::kFree || item_op(item) == ItemOp::kWaitSlot) {
      const auto slot = static_cast<std::uint16_t>(item_ref(item));
      return in_scope(slot, microbatch) ? Status() : out_of_scope("a release or wait", slot);
    }
    // A kernel with a microbatch may also touch slots of step scope; one without may touch nothing else.
    if (item_op(item) != ItemOp::kLaunch || microbatch != kNoMicrobatch) return {};
    const Kernel& kernel = program_.kernels[item_ref(item)];
    for (const auto* list : {&kernel.reads, &kernel.frees, &kernel.writes}) {
      for (const std::uint16_t slot : *list) {
        if (!in_scope(slot, microbatch)) return out_of_scope("kernel " + kernel.name, slot);
      }
    }
    return {};
  }

  // A graph holds nothing that its capture could not: the host does not wait inside.
  Status graph(Rank rank, Item item, bool& open) const {
    const ItemOp op = item_op(item);
    if (op == ItemOp::kGraph) {
      if (!program_.extras.graphs) return bad("a graph without the line 'extras graphs'");
      if ((item_ref(item) == 0) == open)
        return bad(
            fmt::format("rank {} {}", rank,
                        open ? "begins a graph inside a graph" : "ends a graph that it did not begin"));
      if ((item_flags(item) & (kArmYes | kArmNo)) != 0) return bad("a graph begins or ends in an arm");
      open = !open;
      return {};
    }
    if (op == ItemOp::kFail && !program_.extras.failures)
      return bad("a failure without the line 'extras failures'");
    if (open && op == ItemOp::kFail) return bad(fmt::format("rank {} fails inside a graph", rank));
    const bool waits = op == ItemOp::kSyncEvent || op == ItemOp::kSyncStream || op == ItemOp::kSyncDevice ||
                       op == ItemOp::kRead || op == ItemOp::kDecide || op == ItemOp::kComm ||
                       (item_flags(item) & kHostWaits) != 0;
    if (open && waits) return bad(fmt::format("rank {} waits on the host inside a graph", rank));
    return {};
  }

  Status items(std::size_t thread) const {
    const Rank rank = program_.threads[thread].rank;
    bool chained = false;
    bool decided = false;
    bool graph_open = false;
    int stream = -1;        // of the open group
    unsigned captures = 0;  // what the open group has: 1 calls inside of a graph's capture, 2 outside
    for (const Item item : program_.thread_items(thread)) {
      if (item_ref(item) >= limits_[static_cast<std::size_t>(item_op(item))])
        return bad(
            fmt::format("rank {} has an item with reference {} out of its table", rank, item_ref(item)));
      if (chained && item_op(item) != ItemOp::kOp)
        return bad(fmt::format("rank {} has a group that is not closed", rank));
      const unsigned flags = item_flags(item);
      if ((flags & kMore) != 0 && item_op(item) != ItemOp::kOp)
        return bad("only communication chains into a group");
      if ((flags & kArmYes) != 0 && (flags & kArmNo) != 0)
        return bad("an item is in both arms; leave the flags out instead");
      if ((flags & (kArmYes | kArmNo)) != 0 && !decided)
        return bad("an item is in an arm before the decision");
      const bool has_microbatch = item_microbatch(item) != kNoMicrobatch;
      if (has_microbatch && item_microbatch(item) >= program_.microbatches) {
        return bad(fmt::format("rank {} names microbatch {} of {}", rank, item_microbatch(item),
                               program_.microbatches));
      }
      if (stream_of(item) >= static_cast<int>(program_.streams.size())) {
        return bad(fmt::format("rank {} uses stream {}, which does not exist", rank, stream_of(item)));
      }
      if (chained && item_stream(item) != stream && !program_.extras.mixed_streams)
        return bad(fmt::format(
            "rank {} has a group on several streams without the line 'extras mixed-streams'", rank));
      stream = stream_of(item);
      if (graph_open || item_op(item) == ItemOp::kGraph || item_op(item) == ItemOp::kFail)
        PL_TRY(graph(rank, item, graph_open));
      PL_TRY(scopes(item));
      captures |= (flags & kUncaptured) != 0 ? 2u : 1u;
      chained = (flags & kMore) != 0;
      if (!chained) {
        const bool fits = captures == 3 && item_op(item) == ItemOp::kOp && graph_open;
        if (captures != 1 && !fits)
          return bad(
              fmt::format("rank {} has an uncaptured call outside of a graph, or in a group of its own; it "
                          "goes before the graph",
                          rank));
        captures = 0;
      }
      decided = decided || item_op(item) == ItemOp::kDecide;
    }
    if (chained) return bad(fmt::format("rank {} ends inside a group", rank));
    if (graph_open) return bad(fmt::format("rank {} ends inside a graph", rank));
    return {};
  }

  const Program& program_;
  std::array<std::size_t, kItemOps> limits_{};  // of references, by operation
};

}  // namespace

Status validate_program(const Program& program) { return Validator(program).run(); }

}  // namespace plumbline

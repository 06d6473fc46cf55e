#include <map>

#include <fmt/format.h>

#include "engine/program/names.h"
#include "engine/program/text.h"

namespace plumbline {
namespace {

template <typename... Args>
void put(std::string& out, fmt::format_string<Args...> format, Args&&... args) {
  fmt::format_to(std::back_inserter(out), format, std::forward<Args>(args)...);
}

template <typename Enum, std::size_t N>
std::string_view word(const std::array<std::string_view, N>& names, Enum value) {
  return names[static_cast<std::size_t>(value)];
}

class Printer {
 public:
  explicit Printer(const Program& program) : program_(program) {}

  std::string one(Item only) {
    item(only);
    return out_.substr(2, out_.size() - 3);
  }

  std::string run() {
    frame();
    tables();
    blocks();
    return std::move(out_);
  }

 private:
  void frame() {
    put(out_, "plumbline-program 1\nname {}\ngrid", program_.name);
    for (const Axis axis : kAllAxes) put(out_, " {}={}", axis_name(axis), program_.grid.size(axis));
    put(out_, " order={}\nstages {}\nmicrobatches {}\n", program_.grid.order(), program_.stages,
        program_.microbatches);
    if (program_.fragment) out_ += "fragment\n";
    out_ += "placement";
    for (const std::uint16_t rank : program_.rank_of_stage) put(out_, " {}", rank);
    out_ += '\n';
  }

  void slot_list(const char* key, const RowList& slots) {
    for (std::size_t i = 0; i < slots.size(); ++i) {
      put(out_, "{}{}", i == 0 ? fmt::format(" {}=", key) : ",", program_.slots[slots[i]].name);
    }
  }

  void tables() {
    const ProgramExtras& extras = program_.extras;
    for (std::size_t s = 0; s < program_.streams.size(); ++s)
      put(out_, "stream {}{}\n", program_.streams[s],
          static_cast<int>(s) == extras.legacy_stream ? " legacy" : "");
    if (extras.mixed_streams || extras.graphs || extras.failures) {
      put(out_, "extras{}{}{}\n", extras.mixed_streams ? " mixed-streams" : "",
          extras.graphs ? " graphs" : "", extras.failures ? " failures" : "");
    }
    for (const SlotClass& slot : program_.slots) {
      put(out_, "slot {} kind={} stage={} dtype={} bytes={}{}{}\n", slot.name,
          word(kSlotKindNames, slot.kind), slot.stage, dtype_name(slot.dtype), slot.bytes,
          slot.per_microbatch ? "" : " step", slot.persistent ? " persistent" : "");
    }
    for (const CommFamily& family : program_.families) {
      put(out_, "family {}{}", family.name, family.pairs ? " pairs" : "");
      for (const auto& members : family.instances) put(out_, " {}", fmt::join(members, ","));
      out_ += '\n';
    }
    for (const Kernel& kernel : program_.kernels) {
      put(out_, "kernel {} kind={} stage={}", kernel.name, word(kKernelKindNames, kernel.kind), kernel.stage);
      slot_list("reads", kernel.reads);
      slot_list("frees", kernel.frees);
      slot_list("writes", kernel.writes);
      out_ += '\n';
    }
    for (const Endpoint& e : program_.endpoints) {
      put(out_, "endpoint {} kind={} family={} slot={} dtype={} bytes={}", e.name,
          word(kEndpointKindNames, e.kind), program_.families[e.family].name, program_.slots[e.slot].name,
          dtype_name(e.dtype), e.bytes);
      if (e.offset != 0) put(out_, " offset={}", e.offset);
      if (e.form != PeerForm::kNone) put(out_, " peer={}:{}", word(kPeerFormNames, e.form), e.peer);
      if (!is_p2p(e.kind)) put(out_, " reduce={}", word(kReduceOpNames, e.reduce));
      out_ += e.free_after ? " free-after\n" : "\n";
    }
    for (const CommCall& c : program_.comm_calls) comm_call(c);
    for (const HostVariable& v : program_.variables)
      put(out_, "variable {} slot={}\n", v.name, program_.slots[v.slot].name);
    for (const std::string& event : program_.events) put(out_, "event {}\n", event);
    for (const std::string& mark : program_.marks) put(out_, "mark {}\n", mark);
  }

  void comm_call(const CommCall& call) {
    put(out_, "communicator {} call={} family={}", call.name, word(kCommCallKindNames, call.kind),
        program_.families[call.family].name);
    if (has_parent(call.kind)) put(out_, " parent={}", program_.families[call.parent].name);
    if (call.form != PeerForm::kNone) put(out_, " peer={}:{}", word(kPeerFormNames, call.form), call.peer);
    if (call.release != 0) put(out_, " release={}", call.release);
    put(out_, "{}{}{}{}\n", call.nonblocking ? " nonblocking" : "", call.share ? " share" : "",
        call.abort_parent ? " abort" : "", call.duplicate_device ? " duplicate" : "");
  }

  // One block a distinct range of items, in the order of the items. A rank's further threads are marked.
  void blocks() {
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<std::string>> ranges;
    for (std::size_t t = 0; t < program_.threads.size(); ++t) {
      const Thread& thread = program_.threads[t];
      const bool further = t > 0 && program_.threads[t - 1].rank == thread.rank;
      ranges[{thread.begin, thread.end}].push_back(fmt::format("{}{}", further ? "+" : "", thread.rank));
    }
    for (const auto& [range, ranks] : ranges) {
      put(out_, "ranks {}\n", fmt::join(ranks, " "));
      for (std::uint32_t i = range.first; i < range.second; ++i) item(program_.items[i]);
    }
  }

  std::string_view reference(Item item) const {
    const unsigned ref = item_ref(item);
    switch (item_op(item)) {
      case ItemOp::kLaunch:
        return program_.kernels[ref].name;
      case ItemOp::kOp:
        return program_.endpoints[ref].name;
      case ItemOp::kRecord:
      case ItemOp::kWaitEvent:
      case ItemOp::kSyncEvent:
        return program_.events[ref];
      case ItemOp::kFree:
      case ItemOp::kWaitSlot:
        return program_.slots[ref].name;
      case ItemOp::kRead:
      case ItemOp::kDecide:
        return program_.variables[ref].name;
      case ItemOp::kMark:
        return program_.marks[ref];
      case ItemOp::kComm:
        return program_.comm_calls[ref].name;
      case ItemOp::kGraph:
        return ref == 0 ? "begin" : "end";
      case ItemOp::kFail:
        return ref == 0 ? "exit" : "fault";
      case ItemOp::kWait:
      case ItemOp::kSyncStream:
      case ItemOp::kSyncDevice:
        return {};
    }
    return {};
  }

  void item(Item item) {
    const ItemOp op = item_op(item);
    put(out_, "  {}", word(kItemOpNames, op));
    if (const std::string_view name = reference(item); !name.empty()) put(out_, " {}", name);
    if (item_microbatch(item) != kNoMicrobatch) put(out_, " mb={}", item_microbatch(item));
    if (op == ItemOp::kLaunch || op == ItemOp::kOp) {
      put(out_, " stream={}", program_.streams[static_cast<std::size_t>(item_stream(item))]);
    } else if (op == ItemOp::kRecord || op == ItemOp::kWaitEvent || op == ItemOp::kSyncStream ||
               (op == ItemOp::kGraph && item_ref(item) == 0) ||
               (op == ItemOp::kFail && item_ref(item) == 1)) {
      put(out_, " stream={}", program_.streams[item_aux(item)]);
    }
    if (op == ItemOp::kOp && (item_flags(item) & kHandle) != 0) put(out_, " queue={}", item_queue(item));
    if (op == ItemOp::kWait) put(out_, " queue={} count={}", item_ref(item), item_aux(item));
    for (std::size_t bit = 0; bit < kItemFlagNames.size(); ++bit) {
      if ((item_flags(item) >> bit & 1U) != 0) put(out_, " {}", kItemFlagNames[bit]);
    }
    out_ += '\n';
  }

  const Program& program_;
  std::string out_;
};

}  // namespace

std::string print_program(const Program& program) { return Printer(program).run(); }
std::string print_item(const Program& program, Item item) { return Printer(program).one(item); }

bool looks_like_program(std::string_view text) { return text.substr(0, 18) == "plumbline-program "; }

}  // namespace plumbline

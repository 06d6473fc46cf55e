#include "engine/program/program.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include <fmt/format.h>

#include "engine/base/hash.h"

namespace plumbline {
namespace {

template <typename T>
std::int64_t vector_bytes(const std::vector<T>& values) {
  return static_cast<std::int64_t>(values.size() * sizeof(T));
}

// Beyond those that lie in the list.
std::int64_t row_bytes(const RowList& rows) {
  return rows.size() <= RowList::kInside ? 0 : static_cast<std::int64_t>(rows.size() * sizeof(std::uint16_t));
}

void hash_indices(Hasher& hasher, const RowList& values) {
  hasher.u64(values.size());
  for (const std::uint16_t value : values) hasher.u64(value);
}

void hash_tables(Hasher& hasher, const Program& program) {
  hasher.u64(program.slots.size());
  for (const SlotClass& slot : program.slots) {
    hasher.u64(static_cast<std::uint64_t>(slot.kind) | static_cast<std::uint64_t>(slot.dtype) << 8 |
               static_cast<std::uint64_t>(slot.stage) << 16 | std::uint64_t{slot.per_microbatch} << 32 |
               std::uint64_t{slot.persistent} << 33);
    hasher.i64(slot.bytes);
  }
  hasher.u64(program.kernels.size());
  for (const Kernel& kernel : program.kernels) {
    hasher.u64(static_cast<std::uint64_t>(kernel.kind) | static_cast<std::uint64_t>(kernel.stage) << 16);
    hash_indices(hasher, kernel.reads);
    hash_indices(hasher, kernel.frees);
    hash_indices(hasher, kernel.writes);
  }
  hasher.u64(program.endpoints.size());
  for (const Endpoint& e : program.endpoints) {
    hasher.u64(static_cast<std::uint64_t>(e.kind) | static_cast<std::uint64_t>(e.dtype) << 8 |
               static_cast<std::uint64_t>(e.reduce) << 16 | static_cast<std::uint64_t>(e.form) << 24 |
               std::uint64_t{e.free_after} << 32);
    hasher.u64(std::uint64_t{e.family} | std::uint64_t{e.slot} << 16);
    hasher.i64(e.peer);
    hasher.i64(e.bytes);
    hasher.i64(e.offset);
  }
  hasher.u64(program.families.size());
  for (const CommFamily& family : program.families) {
    hasher.u64(family.pairs);
    hasher.u64(family.instances.size());
    for (const auto& members : family.instances) {
      hasher.u64(members.size());
      for (const Rank rank : members) hasher.i64(rank);
    }
  }
  for (const CommCall& call : program.comm_calls) {
    hasher.u64(static_cast<std::uint64_t>(call.kind) | static_cast<std::uint64_t>(call.form) << 8 |
               std::uint64_t{call.nonblocking} << 16 | std::uint64_t{call.share} << 17 |
               std::uint64_t{call.abort_parent} << 18 | std::uint64_t{1} << 63);
    hasher.u64(std::uint64_t{call.family} | std::uint64_t{call.parent} << 16);
    hasher.i64(call.peer);
    if (call.duplicate_device || call.release != 0)
      hasher.u64(std::uint64_t{call.duplicate_device} << 32 | static_cast<std::uint32_t>(call.release) |
                 std::uint64_t{1} << 61);
  }
  if (program.extras != ProgramExtras{}) {
    hasher.u64(std::uint64_t{program.extras.mixed_streams} | std::uint64_t{program.extras.graphs} << 1 |
               std::uint64_t{program.extras.failures} << 2 | std::uint64_t{1} << 62);
    hasher.i64(program.extras.legacy_stream);
  }
  hasher.u64(program.variables.size());
  for (const HostVariable& variable : program.variables) hasher.u64(variable.slot);
}

// A few words and numbers. Verdicts have as many as ranks, hence neither formats nor strings that grow.
class ShortText {
 public:
  ShortText& operator<<(std::string_view words) {
    std::copy(words.begin(), words.end(), text_.begin() + size_);
    size_ += static_cast<std::ptrdiff_t>(words.size());
    return *this;
  }
  ShortText& operator<<(int number) {
    size_ = std::to_chars(text_.data() + size_, text_.data() + text_.size(), number).ptr - text_.data();
    return *this;
  }
  std::string text() const { return {text_.data(), static_cast<std::size_t>(size_)}; }

 private:
  std::array<char, 64> text_;  // three numbers take 33 at most
  std::ptrdiff_t size_ = 0;
};

std::string p2p_text(const Program& program, const Endpoint& endpoint, int microbatch, Rank peer) {
  const SlotClass& slot = program.slots[endpoint.slot];
  const bool send = endpoint.kind == EndpointKind::kSend;
  const std::string_view towards = send ? " to rank " : " from rank ";
  if (!slot.per_microbatch || (slot.kind != SlotKind::kActivation && slot.kind != SlotKind::kGradient)) {
    return fmt::format("{} of {}{}{}", send ? "send" : "receive", slot.name, towards, peer);
  }
  // In the action grammar a send or receive carries the stage that executes it: an activation that enters
  // stage s is sent by s-1 and received by s; its gradient is sent by s and received by s-1.
  const bool forward = slot.kind == SlotKind::kActivation;
  const int stage = (forward == send) ? slot.stage - 1 : slot.stage;
  ShortText text;
  text << stage << (send ? "SEND_" : "RECV_") << (forward ? "F" : "B") << microbatch << towards << peer;
  return text.text();
}

std::string part_text(const Endpoint& endpoint) {
  return fmt::format(", bytes {} to {}", endpoint.offset, endpoint.offset + endpoint.bytes);
}

std::string microbatch_suffix(int microbatch) {
  return microbatch == kNoMicrobatch ? std::string() : fmt::format(", microbatch {}", microbatch);
}

}  // namespace

ProgramSize program_size(const Program& program) {
  ProgramSize size;
  for (std::size_t t = 0; t < program.threads.size(); ++t) {
    for (const Item item : program.thread_items(t)) {
      if (item_op(item) == ItemOp::kLaunch) {
        size.computations += is_computation(program.kernels[item_ref(item)].kind) ? 1 : 0;
      } else if (item_op(item) == ItemOp::kOp) {
        switch (program.endpoints[item_ref(item)].kind) {
          case EndpointKind::kSend:
            ++size.sends;
            break;
          case EndpointKind::kRecv:
            ++size.receives;
            break;
          default:
            ++size.collectives;
            break;
        }
      }
    }
  }
  size.bytes = vector_bytes(program.items) + vector_bytes(program.threads) + vector_bytes(program.slots) +
               vector_bytes(program.kernels) + vector_bytes(program.endpoints) +
               vector_bytes(program.rank_of_stage);
  for (const Kernel& k : program.kernels) {
    size.bytes += row_bytes(k.reads) + row_bytes(k.frees) + row_bytes(k.writes);
  }
  for (const CommFamily& family : program.families) {
    for (const auto& members : family.instances) size.bytes += vector_bytes(members) + sizeof(members);
  }
  return size;
}

std::uint64_t program_digest(const Program& program) {
  Hasher hasher;
  for (const Axis axis : kAllAxes) hasher.i64(program.grid.size(axis));
  hasher.text(program.grid.order());
  hasher.i64(program.stages);
  hasher.i64(program.microbatches);
  hasher.u64(program.fragment);
  for (const std::uint16_t rank : program.rank_of_stage) hasher.u64(rank);
  hash_tables(hasher, program);
  for (const Thread& thread : program.threads) {
    hasher.i64(thread.rank);
    hasher.u64(thread.begin);
    hasher.u64(thread.end);
  }
  for (const Item item : program.items) hasher.u64(item);
  return hasher.digest();
}

Rank peer_of(const RankGrid& grid, PeerForm form, std::int32_t peer, Rank rank) {
  switch (form) {
    case PeerForm::kNone:
      return -1;
    case PeerForm::kShift:
      return grid.shifted(rank, Axis::kPp, peer);
    case PeerForm::kCoordinate:
      return grid.moved(rank, Axis::kPp, peer);
    case PeerForm::kRank:
      return peer;
  }
  return -1;
}

Rank endpoint_peer(const RankGrid& grid, const Endpoint& endpoint, Rank rank) {
  return peer_of(grid, endpoint.form, endpoint.peer, rank);
}

bool is_plain(const Program& program) {
  return program.comm_calls.empty() && program.extras == ProgramExtras{} &&
         program.threads.size() == static_cast<std::size_t>(program.grid.world());
}

std::string describe_item(const Program& program, Rank rank, Item item) {
  const int microbatch = item_microbatch(item);
  switch (item_op(item)) {
    case ItemOp::kLaunch: {
      const Kernel& kernel = program.kernels[item_ref(item)];
      constexpr std::string_view kLetters = "FBIW";
      if (is_computation(kernel.kind) && microbatch != kNoMicrobatch) {
        ShortText text;
        text << kernel.stage << kLetters.substr(static_cast<std::size_t>(kernel.kind), 1) << microbatch;
        return text.text();
      }
      if (kernel.kind == KernelKind::kRecompute)
        return fmt::format("recomputation for stage {}{}", kernel.stage, microbatch_suffix(microbatch));
      return kernel.name + microbatch_suffix(microbatch);
    }
    case ItemOp::kOp: {
      const Endpoint& endpoint = program.endpoints[item_ref(item)];
      if (is_p2p(endpoint.kind))
        return p2p_text(program, endpoint, microbatch, endpoint_peer(program.grid, endpoint, rank));
      const SlotClass& slot = program.slots[endpoint.slot];
      return fmt::format("{} of {}{}{}", endpoint_kind_name(endpoint.kind), slot.name,
                         endpoint.bytes == slot.bytes ? std::string() : part_text(endpoint),
                         microbatch_suffix(microbatch));
    }
    case ItemOp::kWait:
      return fmt::format("wait for {} operation{} of queue {}", item_aux(item),
                         item_aux(item) == 1 ? "" : "s", item_ref(item));
    case ItemOp::kRecord:
      return fmt::format("record of event {}", program.events[item_ref(item)]);
    case ItemOp::kWaitEvent:
      return fmt::format("stream wait for event {}", program.events[item_ref(item)]);
    case ItemOp::kSyncEvent:
      return fmt::format("host wait for event {}", program.events[item_ref(item)]);
    case ItemOp::kSyncStream:
      return fmt::format("host wait for stream {}", program.streams[item_aux(item)]);
    case ItemOp::kSyncDevice:
      return "host wait for the device";
    case ItemOp::kFree:
      return fmt::format("release of {}{}", program.slots[item_ref(item)].name,
                         microbatch_suffix(microbatch));
    case ItemOp::kRead:
      return fmt::format("read of {}", program.variables[item_ref(item)].name);
    case ItemOp::kDecide:
      return fmt::format("decision on {}", program.variables[item_ref(item)].name);
    case ItemOp::kWaitSlot:
      return fmt::format("wait for {}{}", program.slots[item_ref(item)].name, microbatch_suffix(microbatch));
    case ItemOp::kComm: {
      const CommCall& call = program.comm_calls[item_ref(item)];
      const std::string& made = program.families[call.family].name;
      if (!has_parent(call.kind)) return fmt::format("{} of {}", comm_call_kind_name(call.kind), made);
      return fmt::format("{} of {} into {}", comm_call_kind_name(call.kind),
                         program.families[call.parent].name, made);
    }
    case ItemOp::kGraph:
      return item_ref(item) == 0 ? fmt::format("graph launch on {}", program.streams[item_aux(item)])
                                 : std::string("end of the graph");
    case ItemOp::kFail:
      return item_ref(item) == 0 ? std::string("end of the process")
                                 : fmt::format("faulty kernel on {}", program.streams[item_aux(item)]);
    case ItemOp::kMark:
      return fmt::format("mark {}", program.marks[item_ref(item)]);
  }
  return "?";
}

}  // namespace plumbline

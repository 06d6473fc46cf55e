// Program: per host thread, the exact list of host operations of one training step. It is what the checker
// proves, the simulator executes, the backends run and the report draws; nothing is re-derived from the
// schedule afterwards.
//
// An item is 64 bits: microbatch (20) | operation (4) | flags (8) | ref (16) | aux (16), from the low end.
// `ref` is an index into a table that depends on the operation:
//
//   operation    ref         aux        meaning
//   kLaunch      kernel      stream     enqueue a kernel; what it reads, releases and writes is in the table
//   kOp          endpoint    queue << 8 one send, receive or collective; kMore chains it with the next kOp
//                            | stream   into one group, in call order; edge flags count on the last entry
//   kWait        queue       count      the compute stream waits for the `count` oldest kept handles of a
//                                       queue (flag kHostWaits: the host waits instead)
//   kRecord      event       stream     record an event on a stream
//   kWaitEvent   event       stream     the stream waits for the event's latest record
//   kSyncEvent   event       -          the host waits for the event's latest record
//   kSyncStream  -           stream     the host waits for all work of the stream
//   kSyncDevice  -           -          the host waits for all work of the rank's device
//   kFree        slot class  -          release a slot (where Megatron deallocates a sent output)
//   kRead        variable    -          the host waits for the variable's slot and reads it (0 or not 0)
//   kDecide      variable    -          opens the arms: items flagged kArmYes run when it is not 0, kArmNo
//                                       when it is 0, all others always
//   kMark        mark        -          a phase begins (a name for people; no effect)
//   kWaitSlot    slot class  -          the compute stream waits for the kept handle (kHandle on queue
//                                       kSlotQueue) of the operation that last filled the slot
//   kComm        comm call   -          creates or ends a communicator (CommCall)
//   kGraph       0, 1        stream     begin (0) and end (1) of what a CUDA graph replays on a stream: it starts
//                                       after what is before it there, orders itself by its own streams and
//                                       events, and what is behind it waits for all of it
//   kFail        0, 1        stream     the process of the rank ends (0), all its host threads with it; or a kernel
//                                       on the stream ends in an illegal address (1), which the device does not
//                                       recover from
//
// Streams: 0 is the compute stream; the others are the rows of `streams`, one a communicator a rank is in
// (PyTorch gives each communicator a stream of its own). Edges: kAfterCompute - the group starts after
// everything enqueued on the compute stream so far; kComputeWaits - the compute stream waits for the group;
// kHostWaits - the host does; kHandle - the completion is appended to handle queue `queue` and waited for by
// a later kWait.
//
// Communicators exist from the start, unless some item of the Program creates them: then they exist from that
// call to the one that ends them. Host threads: a rank has one, or several, which share its device, streams,
// events and slots and issue independently of each other.
//
// Slots: a slot is (class, microbatch) on a rank, or (class, -1) for a class of step scope. It is written
// once a step - by a kernel or a receive - read, and released by a kernel (reads-and-frees), an endpoint
// (free_after) or kFree. A message carries the label (class, microbatch) of the slot it is sent from; NCCL
// has no tags, so the label is how a swap is seen. Slots of step scope with `persistent` are live for the
// whole run: they begin as zeros or as their worker fills them (runtime/worker.h), and one of the same name in
// another Program of the run is the same memory.
//
// An endpoint moves `bytes` of its slot from `offset` on; buckets of a gradient buffer are such parts.
// Collectives work in place. Of a reduce-scatter and an all-gather that part holds one equal share a member, in
// member order: before an all-gather, and after a reduce-scatter, the own share is what counts.
//
// Memory is counted in host order: a receive allocates when posted, a kernel's outputs at launch; releases
// take effect in host order, so the peak does not depend on the execution mode.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/base/result.h"
#include "engine/base/units.h"
#include "engine/config/rank_grid.h"
#include "engine/program/row_list.h"

namespace plumbline {

using Item = std::uint64_t;

enum class ItemOp : std::uint8_t {
  kLaunch,
  kOp,
  kWait,
  kRecord,
  kWaitEvent,
  kSyncEvent,
  kSyncStream,
  kSyncDevice,
  kFree,
  kRead,
  kDecide,
  kMark,
  kWaitSlot,
  kComm,
  kGraph,
  kFail,
};
constexpr int kItemOps = 16;     // as many as an item can say
constexpr int kSlotQueue = 255;  // handles that are found by slot (kWaitSlot) instead of by order (kWait)

enum ItemFlag : std::uint8_t {
  kMore = 1 << 0,
  kAfterCompute = 1 << 1,
  kComputeWaits = 1 << 2,
  kHostWaits = 1 << 3,
  kHandle = 1 << 4,
  kArmYes = 1 << 5,
  kArmNo = 1 << 6,
  kUncaptured =
      1
      << 7,  // inside a graph: on a stream that its capture does not reach, in a group with one that is (N18)
};

constexpr int kNoMicrobatch = (1 << 20) - 1;  // the item's slots are of step scope
constexpr int kComputeStream = 0;
constexpr int kMaxTableRows = 1 << 16;

constexpr Item make_item(ItemOp op, int microbatch, unsigned flags, unsigned ref, unsigned aux) {
  return (static_cast<Item>(microbatch) & 0xFFFFFu) | (static_cast<Item>(op) << 20) |
         (static_cast<Item>(flags & 0xFFu) << 24) | (static_cast<Item>(ref & 0xFFFFu) << 32) |
         (static_cast<Item>(aux & 0xFFFFu) << 48);
}
constexpr int item_microbatch(Item item) { return static_cast<int>(item & 0xFFFFFu); }
constexpr ItemOp item_op(Item item) { return static_cast<ItemOp>((item >> 20) & 0xFu); }
constexpr unsigned item_flags(Item item) { return static_cast<unsigned>((item >> 24) & 0xFFu); }
constexpr unsigned item_ref(Item item) { return static_cast<unsigned>((item >> 32) & 0xFFFFu); }
constexpr unsigned item_aux(Item item) { return static_cast<unsigned>((item >> 48) & 0xFFFFu); }
constexpr int item_stream(Item item) { return static_cast<int>(item_aux(item) & 0xFFu); }  // kLaunch, kOp
constexpr int item_queue(Item item) { return static_cast<int>(item_aux(item) >> 8); }      // kOp with kHandle

enum class SlotKind : std::uint8_t {
  kActivation,  // the tensor that enters stage `stage`
  kGradient,    // the loss's gradient with respect to that tensor
  kStash,       // what a forward keeps for its backward
  kMainGrads,   // gradient buffer of stage `stage` (param_layout.h), persistent
  kParameters,  // parameter buffer of stage `stage` in the model's precision; persistent, unless it is sharded
  kTiedGrad,    // gradient of the embedding shared by the first and the last stage
  kFoundInf,    // one float: not 0 when a gradient is not finite
  kLocalFoundInf,  // the same of this rank alone
  kNormSums,  // int64 words of the gradient's sum of squares (base/exact_sum.h); then the zeros, if counted
  kSnapshot,  // optimizer state before a speculative step
  kOther,     // named by the program's author
  kParameterShard,  // the part of kParameters that a data-parallel rank keeps, persistent
  kShape,           // three int64: the shape of a tensor between stages, where shapes are exchanged before it
  kRebuilt,         // activations that a kRecompute built again, until the backward is through with them
};

struct SlotClass {
  std::string name;  // unique: "activation.3"
  SlotKind kind = SlotKind::kOther;
  DType dtype = DType::kF32;
  std::uint16_t stage = 0;
  bool per_microbatch = true;  // false: one slot a step
  bool persistent = false;     // step scope only: live at the start and at the end of the step
  Bytes bytes = 0;
};

enum class KernelKind : std::uint8_t {
  kForward,
  kBackward,
  kInputGrad,
  kWeightGrad,
  kZeroGrad,         // begin of the step: gradients to zero
  kCollectTied,      // copies the tied embedding's gradient out of kMainGrads into kTiedGrad
  kMergeTied,        // puts the sum of both uses of the tied embedding back into kMainGrads
  kUnscaleCheck,     // multiplies by 1/scale, writes kFoundInf
  kNormSums,         // writes kNormSums
  kOptimizerStep,    // clip, step, copy back; scaler growth
  kSkipStep,         // scaler back-off, nothing else
  kSpeculativeStep,  // steps without clipping unless the own gradients overflowed, after a snapshot
  kValidateStep,     // keeps that step, takes it back, or does it again clipped; scaler
  kOther,
  kUnshard,    // puts the own kParameterShard into a new kParameters, for an all-gather to complete
  kReshard,    // releases kParameters
  kRecompute,  // ahead of a B or I: what the forward did not keep is computed again into kRebuilt
};

struct Kernel {
  std::string name;  // unique: "F.3"
  KernelKind kind = KernelKind::kOther;
  std::uint16_t stage = 0;
  RowList reads;   // slot classes read and kept
  RowList frees;   // read, then released
  RowList writes;  // allocated and written
};

enum class EndpointKind : std::uint8_t {
  kSend,
  kRecv,
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter
};
enum class ReduceOp : std::uint8_t { kSum, kMax, kMin, kProd, kAvg };

// How an endpoint names its peer (p2p) or root (broadcast, reduce).
enum class PeerForm : std::uint8_t {
  kNone,        // all-reduce and the like
  kShift,       // own rank moved by `peer` along the pipeline axis, wrapping around
  kCoordinate,  // the rank with pipeline coordinate `peer`, other coordinates as one's own
  kRank,        // rank `peer`
};

struct Endpoint {
  std::string name;  // unique: "send.activation.3"
  EndpointKind kind = EndpointKind::kSend;
  DType dtype = DType::kF32;
  ReduceOp reduce = ReduceOp::kSum;
  PeerForm form = PeerForm::kNone;
  bool free_after = false;   // the slot is released (send) when the operation has completed
  std::uint16_t family = 0;  // communicator family
  std::uint16_t slot = 0;    // slot class sent from or received into
  std::int32_t peer = 0;
  Bytes bytes = 0;
  Bytes offset = 0;  // in the slot
};

// Communicators that play one role. A rank is in at most one instance of a family, except in a family of
// pairs, where the instance is the one that holds both ends.
struct CommFamily {
  std::string name;  // "pp", "dp", "pair", "pp.forward"
  bool pairs = false;
  std::vector<std::vector<Rank>> instances;  // members in communicator rank order
};

enum class CommCallKind : std::uint8_t {
  kInit,    // ncclCommInitRank: the hosts of all members meet (N69)
  kSplit,   // ncclCommSplit: the hosts of all members of `parent` meet; ranks in no instance of `family` pass
            // NCCL_SPLIT_NOCOLOR (N73)
  kShrink,  // ncclCommShrink: the hosts of the members of `family`, who are left of `parent`, meet (N74)
  kFinalize,  // ncclCommFinalize: what is enqueued completes; nothing may follow (N77)
  kDestroy,   // ncclCommDestroy: finalizes if need be, and the hosts of all members meet (N77)
  kAbort,     // ncclCommAbort: what is enqueued here ends at once; nobody is waited for (N77)
  kReady,     // the host polls ncclCommGetAsyncError until the last call on the communicator is through (N79)
  kSync,  // the host polls the device and ncclCommGetAsyncError until what is enqueued on the communicator is
          // complete or an error is reported (N82): what a watchdog does
  kRevoke,  // ncclCommRevoke: what is enqueued here ends at once, and nothing may follow but its end (N76)
  kGrow,    // ncclCommGrow: the hosts of all members of `family` meet, those of `parent` and new ones (N75)
  kTurn,  // no call of NCCL: one host thread drives all members of `family`, and goes on from one to the next here,
          // so that their hosts meet (N17)
};

// A row of calls on communicators. The communicator is the instance of `family` that holds the calling rank - of
// a family of pairs, and the peer.
struct CommCall {
  std::string name;  // unique: "init.pp"
  CommCallKind kind = CommCallKind::kInit;
  std::uint16_t family = 0;
  std::uint16_t parent = 0;       // split, shrink, grow: family of the communicator that it is made from
  bool nonblocking = false;       // config.blocking = 0: the call returns ncclInProgress
  bool share = false;             // split: config.splitShare, one internal stream with the parent (N7)
  bool abort_parent = false;      // shrink: NCCL_SHRINK_ABORT, what is enqueued on the parent ends at once
  bool duplicate_device = false;  // init: ncclCommInitAll with a device named twice (N70)
  std::int32_t release =
      0;  // init: of the NCCL that the caller has, 22809 for 2.28.9; 0: as all others (N72)
  PeerForm form = PeerForm::kNone;
  std::int32_t peer = 0;
};
constexpr bool creates(CommCallKind kind) {
  return kind <= CommCallKind::kShrink || kind == CommCallKind::kGrow;
}
constexpr bool has_parent(CommCallKind kind) {
  return kind == CommCallKind::kSplit || kind == CommCallKind::kShrink || kind == CommCallKind::kGrow;
}

struct HostVariable {
  std::string name;        // "found_inf"
  std::uint16_t slot = 0;  // step-scope slot class it is read from
};

struct Thread {
  Rank rank = 0;
  std::uint32_t begin = 0;  // items [begin, end); ranks with identical steps share a range
  std::uint32_t end = 0;
};

// What most Programs do not use; each has to be declared. The checker takes Programs without (is_plain).
struct ProgramExtras {
  bool mixed_streams =
      false;               // some group's operations are on several streams, which then wait for each other
  bool graphs = false;     // kGraph
  bool failures = false;   // kFail
  int legacy_stream = -1;  // the legacy default stream: its work waits for all streams, and they for it

  bool operator==(const ProgramExtras&) const = default;
};

struct Program {
  std::string name;
  RankGrid grid;
  int stages = 1;
  int microbatches = 1;
  bool fragment = false;  // slots that nobody writes count as written before the step
  // Pipeline coordinate of each stage; and again for every further pipeline over the same ranks, which has a copy of
  // each stage. A microbatch passes through one of them, and the gradients of a stage's copies are added up.
  std::vector<std::uint16_t> rank_of_stage;
  std::vector<SlotClass> slots;
  std::vector<Kernel> kernels;
  std::vector<Endpoint> endpoints;
  std::vector<CommFamily> families;
  std::vector<CommCall> comm_calls;
  std::vector<HostVariable> variables;
  std::vector<std::string> streams{"compute"};
  ProgramExtras extras;
  std::vector<std::string> events;
  std::vector<std::string> marks;
  std::vector<Item> items;
  std::vector<Thread>
      threads;  // at least one a rank, in rank order; a rank's are in the order of their items

  int pipelines() const { return stages == 0 ? 1 : static_cast<int>(rank_of_stage.size()) / stages; }
  std::span<const Item> thread_items(std::size_t thread) const {
    return std::span<const Item>(items).subspan(threads[thread].begin,
                                                threads[thread].end - threads[thread].begin);
  }
};

// One host thread a rank, no calls on communicators and no extras: what the checker proves (sim/verify).
bool is_plain(const Program& program);

// Counts and sizes of a Program. An operation is a computation (F, B, I or W kernel), a send, a receive or a
// collective, counted over all threads.
struct ProgramSize {
  std::int64_t computations = 0;
  std::int64_t sends = 0;
  std::int64_t receives = 0;
  std::int64_t collectives = 0;
  std::int64_t bytes = 0;  // items, tables and offsets in memory
  std::int64_t operations() const { return computations + sends + receives + collectives; }
};
ProgramSize program_size(const Program& program);

// Digest over everything that decides behaviour; names of kernels, marks and the program do not enter it.
std::uint64_t program_digest(const Program& program);

// Table indices, ranges, arms, groups and slot scopes are in order. Everything that reads a Program relies on
// this; the text parser and the lowering call it.
Status validate_program(const Program& program);

std::string_view slot_kind_name(SlotKind kind);
std::string_view kernel_kind_name(KernelKind kind);
std::string_view endpoint_kind_name(EndpointKind kind);
std::string_view comm_call_kind_name(CommCallKind kind);
std::string_view reduce_op_name(ReduceOp op);
// F, B, I and W: what ProgramSize counts as computations.
constexpr bool is_computation(KernelKind kind) { return kind <= KernelKind::kWeightGrad; }
constexpr bool is_p2p(EndpointKind kind) { return kind <= EndpointKind::kRecv; }

// The peer or root of an endpoint as seen by `rank`; -1 for kNone.
Rank endpoint_peer(const RankGrid& grid, const Endpoint& endpoint, Rank rank);
// The same of any way to name a peer.
Rank peer_of(const RankGrid& grid, PeerForm form, std::int32_t peer, Rank rank);

// An item in words for messages, in the field's grammar where there is one: "2SEND_F5 to rank 3", "F of stage 2,
// microbatch 5", "all-reduce of found_inf".
std::string describe_item(const Program& program, Rank rank, Item item);

}  // namespace plumbline

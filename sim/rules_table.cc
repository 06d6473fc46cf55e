// The table of rules. Sources are the NCCL user guide, the NCCL source and the public reports named.
#include "sim/rules.h"

namespace plumbline {

const std::vector<NcclRule>& nccl_rules() {
  using S = RuleStatus;
  static const std::vector<NcclRule> kRules = {
      {"N1",
       "A call enqueues and returns",
       S::kAlways,
       "A communication call puts work on a stream and returns; the host does not wait for the operation.",
       "The host runs ahead of the device. A hang shows on the device while every call returned ncclSuccess, "
       "and "
       "a host that never synchronizes ends without noticing.",
       "",
       {"0: recv C from 1 8 on S\n1: launch on S", "rendezvous=DEADLOCK"},
       "user guide, streams"},
      {"N2",
       "A first use connects the hosts",
       S::kMode,
       "The first use of a (communicator, peer, direction) is a rendezvous of the two hosts inside the call, "
       "in "
       "ring distance order and in two passes. In a communicator of two ranks - and across the middle of an "
       "even "
       "one - both directions travel in one message, which each side takes for the mirror image of its own.",
       "Cold connections hang programs that warm ones would not, through third ranks as well. Two ranks that "
       "both "
       "send first on a fresh pair are cross-wired instead of connected.",
       "sim.connect",
       {"0: group on S: send C to 1 8; send C to 2 8\n1: recv C from 0 8 on S\n1: send C to 2 8 on S\n"
        "2: group on S: recv C from 0 8; recv C from 1 8",
        "rendezvous=OK rendezvous+cold=DEADLOCK"},
       "PiPPy#969; NVIDIA/nccl#2057, #1279"},
      {"N4",
       "A stream is a queue",
       S::kAlways,
       "An operation starts after everything before it on its stream; what comes behind waits for it.",
       "A receive in front of independent work delays that work, and a send occupies its stream until it "
       "completes.",
       "",
       {"0: recv C from 1 8 on S\n0: send D to 1 8 on S\n1: recv D from 0 8 on S\n1: send C to 0 8 on T",
        "rendezvous=OK"},
       "user guide, streams"},
      {"N6",
       "A communicator is a queue",
       S::kAlways,
       "Operations of one communicator run one after another on a device, whatever streams they are issued "
       "on.",
       "Two streams do not make a send and a receive of one communicator overlap; a stuck receive blocks the "
       "send "
       "behind it.",
       "",
       {"0: recv C from 1 8 on S\n0: send C to 1 8 on T\n1: recv C from 0 8 on S\n1: send C to 0 8 on T",
        "rendezvous=DEADLOCK eager_64MiB=DEADLOCK"},
       "NVIDIA/nccl#592"},
      {"N7",
       "A split that shares has one queue with its parent",
       S::kAlways,
       "Communicators made by ncclCommSplit with splitShare = 1 use their parent's internal stream: "
       "operations of "
       "both, and of their siblings, run one after another on a device.",
       "Sharing resources takes back the independence that a second communicator was made for.",
       "",
       {"0: comm_split C into T 0 1 share\n0: recv C from 1 8 on S\n0: send T to 1 8 on R\n"
        "1: comm_split C into T 0 1 share\n1: recv T from 0 8 on R\n1: send C to 0 8 on S",
        "rendezvous=DEADLOCK"},
       "NCCL source"},
      {"N8",
       "Nested groups are one",
       S::kAlways,
       "Only the outermost ncclGroupEnd launches; what inner groups hold belongs to the outer one.",
       "A wrapper that groups on its own can be used inside a larger group.",
       "",
       {},
       "user guide, groups"},
      {"N9",
       "A call alone is a group of one",
       S::kAlways,
       "A call outside of a group starts and ends a group of its own.",
       "send, then recv, without a group are strictly ordered: the recv starts when the send has completed.",
       "",
       {"0: send C to 1 1MiB on S\n0: recv C from 1 1MiB on S\n1: send C to 0 1MiB on S\n1: recv C from 0 "
        "1MiB on S",
        "rendezvous=DEADLOCK eager_2MiB=OK"},
       "NVIDIA/nccl#479"},
      {"N10",
       "An error in a group launches nothing",
       S::kReported,
       "A call that fails inside a group returns its code at once; ncclGroupEnd returns it too, and drops "
       "every "
       "operation of the group.",
       "The peers of the dropped operations wait for ever, while this rank saw an error that it may have "
       "ignored.",
       "",
       {"0: comm_init X 0 1 nonblocking\n0: group on S: send C to 1 8; send X to 1 8\n"
        "1: comm_init X 0 1\n1: recv C from 0 8 on S",
        "rendezvous=DEADLOCK+ERROR(ncclInvalidArgument)"},
       "NCCL source"},
      {"N11",
       "A group completes as a whole",
       S::kAlways,
       "The stream goes on when all operations of the group are done.",
       "One unmatched operation keeps the whole group, its communicator and its stream busy, although its "
       "other "
       "operations have long been served.",
       "",
       {"0: group on S: send C to 1 8; recv C from 1 8\n0: sync_stream S\n1: send C to 0 8 on S",
        "rendezvous=DEADLOCK"},
       "NVIDIA/nccl#2130"},
      {"N12",
       "Inside a group all progress together",
       S::kAlways,
       "Operations of a group do not wait for each other, except those to the same peer in the same "
       "direction, "
       "which keep their order.",
       "A neighbour exchange in one group needs no order, if every rank groups the counterparts alike. "
       "Groups cut "
       "differently at the two ends work in practice, but are undefined by the maintainers' word.",
       "",
       {"0: group on S: send C to 1 1MiB; recv C from 1 1MiB\n1: group on S: send C to 0 1MiB; recv C from 0 "
        "1MiB",
        "rendezvous=OK rendezvous+strict=OK rendezvous+cold=OK"},
       "user guide, p2p; NVIDIA/nccl#1279"},
      {"N13",
       "A kernel runs eight messages a channel at a time",
       S::kMode,
       "Sends and receives are executed in rounds - to the next rank and from the previous, then two away, "
       "and so "
       "on - of which up to eight run together on a channel; the next batch starts when the first is done. "
       "Since "
       "2.29.2 a batch does not reach into the next message of the same peer.",
       "Large groups progress batch by batch. As long as all ranks group the counterparts alike, all have "
       "the same "
       "order and nothing hangs.",
       "sim.progress",
       {},
       "NCCL source"},
      {"N14",
       "A large group is split into several kernels",
       S::kMode,
       "A kernel holds a limited number of messages; what does not fit goes into another, which runs after "
       "it. Up to "
       "2.29.3 each of them begins with the first round again, so that ranks that split at different places "
       "run "
       "their messages in different orders; from 2.29.7 on all follow one order.",
       "Ragged exchanges of very many messages in one group hang on old versions, though every rank groups "
       "them "
       "alike.",
       "sim.progress",
       {},
       "NVIDIA/Megatron-LM#7189; pytorch/pytorch#174288"},
      {"N15",
       "Collectives run before messages",
       S::kAlways,
       "Within a group and communicator, collectives are executed before sends and receives, in whatever "
       "order "
       "they were called.",
       "An all-reduce in one group with a send on one rank, and after the receive on another, hangs.",
       "",
       {"0: group on S: send C to 1 8; all_reduce C 8\n1: recv C from 0 8 on S\n1: all_reduce C 8 on S",
        "rendezvous=DEADLOCK"},
       "user guide, groups"},
      {"N16",
       "Communicators of a group run in one order",
       S::kAlways,
       "Each communicator of a group gets kernels of its own, launched in the same order on every rank since "
       "2.26.2.",
       "Naming two communicators in another order inside a group is harmless there; in two groups it is N46.",
       "",
       {"0: group on S: all_reduce C 8; all_reduce D 8\n1: group on S: all_reduce D 8; all_reduce C 8",
        "rendezvous=OK rendezvous+strict=OK"},
       "NCCL release notes 2.26"},
      {"N20",
       "Messages match first in, first out",
       S::kReported,
       "The k-th send of (communicator, sender, receiver) meets the k-th receive, in issue order. There are "
       "no tags.",
       "With pp = 2 and interleaving, previous and next are the same rank: an activation and a gradient of "
       "equal "
       "size change places in silence.",
       "",
       {"0: group on S: send C to 1 8 as activation; send C to 1 8 as gradient\n"
        "1: group on S: recv C from 0 8 as gradient; recv C from 0 8 as activation",
        "rendezvous=WRONGDATA"},
       "user guide, p2p"},
      {"N21",
       "Order between peers is free in a group",
       S::kAlways,
       "Inside a group only operations with the same peer are ordered; across groups of a communicator all "
       "are.",
       "Sorting a batch by peer changes nothing; splitting it does.",
       "",
       {},
       "user guide, p2p"},
      {"N22",
       "Only bytes count",
       S::kAlways,
       "The type of a message is erased; only its number of bytes matters.",
       "Four fp32 numbers arrive as eight bf16 numbers, without an error.",
       "",
       {},
       "NCCL source"},
      {"N23",
       "A send larger than its receive is undefined",
       S::kReported,
       "The receive completes with a part, and what is left over waits, hangs the sender or is taken by the "
       "next "
       "receive.",
       "Reported where the two meet, whatever NCCL would make of it that day.",
       "",
       {"0: send C to 1 16 on S\n1: recv C from 0 8 on S", "rendezvous=BYTES"},
       "NVIDIA/nccl#1938"},
      {"N24",
       "A receive larger than its send is undefined",
       S::kReported,
       "The receive waits for the missing part, which the next message supplies, or returns early.",
       "Reported where the two meet.",
       "",
       {"0: send C to 1 8 on S\n1: recv C from 0 16 on S", "rendezvous=BYTES"},
       "pytorch/pytorch#113376"},
      {"N28",
       "An empty message is a message",
       S::kAlways,
       "A send or receive of no bytes has to be matched like any other.",
       "Skipping an empty tensor on one side only shifts every later message of the pair.",
       "",
       {"0: send C to 1 0 on S\n0: send C to 1 8 on S\n1: recv C from 0 8 on S", "rendezvous=DEADLOCK+BYTES"},
       "NVIDIA/nccl#345, #695"},
      {"N32",
       "A send may wait for its receive",
       S::kMode,
       "By contract a send may wait for its receive (rendezvous), or complete alone while its bytes fit into "
       "buffers (eager). A correct program needs neither.",
       "A program that needs buffers works with small models and hangs with large ones.",
       "sim.send",
       {"0: send C to 1 4MiB on S\n0: recv C from 1 4MiB on S\n1: send C to 0 4MiB on S\n1: recv C from 0 "
        "4MiB on S",
        "rendezvous=DEADLOCK eager_2MiB=DEADLOCK eager_64MiB=OK"},
       "user guide, p2p; NVIDIA/nccl#544"},
      {"N38",
       "A buffer is in use until its operation completes",
       S::kReported,
       "A send's buffer may be written, and a receive's read, only after the operation has completed on its "
       "stream.",
       "Whatever is not ordered after the completion by a stream, an event or a host wait is a race.",
       "",
       {},
       "user guide, streams"},
      {"N46",
       "Kernels of two communicators may run one at a time",
       S::kMode,
       "Operations of different communicators run together if hardware queues and processors allow; nothing "
       "promises it. The worst case is one NCCL kernel at a time, in the order the host launched them.",
       "Ranks that use two communicators in opposite order may hang. The certification assumes they do.",
       "sim.cross",
       {"0: all_reduce C 8 on S\n0: all_reduce D 8 on T\n1: all_reduce D 8 on T\n1: all_reduce C 8 on S",
        "rendezvous=OK rendezvous+strict=DEADLOCK"},
       "user guide, communicators; NVIDIA/nccl#899"},
      {"N49",
       "CUDA_LAUNCH_BLOCKING=1 makes the host wait",
       S::kMode,
       "Every launch waits for its kernel on the host.",
       "With one host thread a rank the same programs complete as under strict launch order.",
       "sim.launch_blocking",
       {"0: send C to 1 8 on S\n0: recv D from 1 8 on T\n1: send D to 0 8 on T\n1: recv C from 0 8 on S",
        "rendezvous=OK rendezvous+launch_blocking=DEADLOCK"},
       "NVIDIA/nccl#750"},
      {"N50",
       "Some calls wait for the whole device",
       S::kAlways,
       "cudaMalloc, cudaFree, cudaDeviceSynchronize and work on the legacy default stream wait for "
       "everything on "
       "the device.",
       "Between two launches they make the host wait for an operation whose peer waits for the next one. "
       "sync_device stands for them.",
       "",
       {"0: all_reduce C 8 on S\n0: sync_device\n0: send D to 1 8 on S\n1: recv D from 0 8 on S\n"
        "1: all_reduce C 8 on S",
        "rendezvous=DEADLOCK"},
       "NVIDIA/nccl#744, #48"},
      {"N52",
       "A host that waits enqueues nothing",
       S::kAlways,
       "A host that synchronizes with a stream or an event does not get to its next call before that is "
       "over.",
       "Reading a value, for a print or a decision, between two calls orders everything after it behind "
       "everything "
       "it waits for.",
       "",
       {"0: recv C from 1 8 on S\n0: sync_stream S\n0: send D to 1 8 on T\n1: recv D from 0 8 on T\n"
        "1: sync_stream T\n1: send C to 0 8 on S",
        "rendezvous=DEADLOCK"},
       "user guide, streams"},
      {"N55",
       "Nothing times out",
       S::kAlways,
       "A kernel waits for its peer by spinning, for ever; NCCL raises no error for an operation without a "
       "counterpart.",
       "The simulator reports a standstill the moment it happens; on a cluster a watchdog does, ten minutes "
       "later.",
       "",
       {},
       "NVIDIA/nccl#1260"},
      {"N57",
       "All members make the same collectives",
       S::kReported,
       "The i-th collective of a communicator must be the same on all members: kind, size, type, root, "
       "reduction.",
       "A difference is undefined: a hang, garbage or a crash. It is a finding; the run goes on as if it "
       "matched.",
       "",
       {"0: all_reduce C 8 on S\n1: all_reduce C 16 on S", "rendezvous=COLLMISMATCH"},
       "user guide, collectives; NVIDIA/nccl#1417"},
      {"N59",
       "A collective waits for all members",
       S::kAlways,
       "A collective completes on no rank before all members have started it. (NCCL lets some ranks of a "
       "broadcast "
       "or reduce leave earlier; the simulator takes the worst case.)",
       "It is as strong as a barrier for deadlocks, but it is no barrier.",
       "",
       {"0: all_reduce C 8 on S\n0: send C to 1 8 on S\n1: recv C from 0 8 on S\n1: all_reduce C 8 on S",
        "rendezvous=DEADLOCK"},
       "NVIDIA/nccl#592"},
      {"N60",
       "A collective of no bytes is dropped",
       S::kAlways,
       "A collective with count 0 returns at once on the rank that calls it.",
       "A rank with nothing to contribute leaves the others waiting for ever.",
       "",
       {"0: all_reduce C 0 on S\n1: all_reduce C 8 on S", "rendezvous=DEADLOCK"},
       "NCCL source"},
      {"N69",
       "Creating a communicator is a meeting of hosts",
       S::kAlways,
       "ncclCommInitRank returns when all ranks have called it; streams have no part in it.",
       "Ranks that create two communicators in different orders wait for each other before anything runs. "
       "PyTorch "
       "creates one a pair of ranks at the first unbatched send or receive.",
       "",
       {"0: comm_init X 0 1\n0: comm_init Y 0 2\n1: comm_init Z 1 2\n1: comm_init X 0 1\n"
        "2: comm_init Y 0 2\n2: comm_init Z 1 2",
        "rendezvous=DEADLOCK"},
       "Megatron-LM#5240; pytorch/pytorch#74701"},
      {"N73",
       "Every rank of the parent takes part in a split",
       S::kAlways,
       "ncclCommSplit is called by all ranks of the parent, by those without a colour too, and with nothing "
       "left to "
       "do on the parent.",
       "A rank that leaves the call out stops all others; so does an operation on the parent whose "
       "counterpart comes "
       "after the split.",
       "",
       {"0: comm_split C into X 0 1\n1: comm_split C into X 0 1\n2: launch on S", "rendezvous=DEADLOCK"},
       "pytorch/pytorch#134314"},
      {"N74",
       "Only those who are left call a shrink",
       S::kReported,
       "ncclCommShrink is called by the ranks that stay. A rank that is left out gets ncclInvalidArgument. "
       "With "
       "NCCL_SHRINK_ABORT what is enqueued on the parent ends first.",
       "Code that runs the same on all ranks has to leave the lost ones out of the call.",
       "",
       {"0: all_reduce C 8 on S\n0: comm_shrink C into X 0 abort\n1: launch on S", "rendezvous=OK"},
       "NCCL release notes 2.27"},
      {"N77",
       "Finalize flushes, destroy meets, abort cuts",
       S::kAlways,
       "ncclCommFinalize waits for what is enqueued, and nothing may follow; a second call is an invalid "
       "argument. "
       "ncclCommDestroy waits for its ranks as well (the simulator takes all of them). ncclCommAbort ends "
       "what is "
       "enqueued on its own rank, with garbage, and waits for nobody.",
       "Destroying a communicator with a stuck operation never returns; aborting it does. Ranks that are not "
       "aborted "
       "too go on waiting.",
       "",
       {"0: all_reduce C 8 on S\n0: comm_abort C\n0: sync_stream S\n1: all_reduce D 8 on S\n0: all_reduce D "
        "8 on S",
        "rendezvous=OK"},
       "user guide, communicators"},
      {"N79",
       "A nonblocking communicator has to be ready",
       S::kReported,
       "With config.blocking = 0 calls return ncclInProgress; until ncclCommGetAsyncError says otherwise, "
       "every "
       "other call on the communicator returns ncclInvalidArgument.",
       "comm_ready stands for the poll. Leaving it out works whenever the other ranks happen to be fast.",
       "",
       {"0: comm_init X 0 1 nonblocking\n0: all_reduce X 8 on S\n1: comm_init X 0 1 nonblocking\n1: "
        "comm_ready X\n"
        "1: all_reduce X 8 on S",
        "rendezvous=DEADLOCK+ERROR(ncclInvalidArgument)"},
       "user guide, communicators"},
      {"N87",
       "A communicator that is not there is an invalid argument",
       S::kReported,
       "Calls on a communicator before its creation, after its destruction or after its abort return "
       "ncclInvalidArgument and have no effect.",
       "The error is immediate on the rank that makes it, and a hang on all others.",
       "",
       {"0: comm_init X 0 1\n0: comm_destroy X\n0: all_reduce X 8 on S\n1: comm_init X 0 1\n1: comm_destroy "
        "X",
        "rendezvous=ERROR(ncclInvalidArgument)"},
       "NCCL source"},
  };
  return kRules;
}

}  // namespace plumbline

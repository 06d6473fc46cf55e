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
  };
  return kRules;
}

}  // namespace plumbline

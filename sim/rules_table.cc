// The table of rules, first part (the second is rules_table_order.cc). Sources are the NCCL user guide, the NCCL
// source and the public reports named.
#include "sim/rules.h"

namespace plumbline {

std::vector<NcclRule> rules_of_calls();

// Hosts, streams, groups, matching and buffers.
std::vector<NcclRule> rules_of_calls() {
  using S = RuleStatus;
  return {
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
       "one - both directions travel in one message, which each side takes for the mirror image of its own. "
       "A nonblocking communicator does the same behind its host's back and is in progress meanwhile (N79).",
       "Cold connections hang programs that warm ones would not, through third ranks as well. Two ranks that "
       "both "
       "send first on a fresh pair are cross-wired instead of connected.",
       "sim.connect",
       {"0: group on S: send C to 1 8; send C to 2 8\n1: recv C from 0 8 on S\n1: send C to 2 8 on S\n"
        "2: group on S: recv C from 0 8; recv C from 1 8",
        "rendezvous=OK rendezvous+cold=DEADLOCK"},
       "PiPPy#969; NVIDIA/nccl#2057, #1279"},
      {"N3",
       "A first collective connects as well",
       S::kMode,
       "Since 2.22 the rings and trees of a communicator are connected at its first collective: the hosts of "
       "all "
       "members meet inside the call.",
       "The first collective is as strong as a host barrier: what its peers do before it must not wait for "
       "what comes "
       "after it here.",
       "sim.connect_collectives",
       {"0: all_reduce C 8 on S\n0: send D to 1 8 on T\n1: recv D from 0 8 on T\n1: sync_stream T\n"
        "1: all_reduce C 8 on S",
        "rendezvous=OK rendezvous+cold_collectives=DEADLOCK"},
       "NCCL release notes 2.22"},
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
      {"N5",
       "A group on several streams joins them",
       S::kAlways,
       "The kernel of a group waits for all streams that its operations name, and all of them wait for it.",
       "Grouping a send on one stream with a receive on another couples what was kept apart on purpose.",
       "",
       {"0: recv D from 1 8 on T\n0: group on S: send C to 1 8 on S; recv C from 1 8 on T\n"
        "1: group on S: recv C from 0 8; send C to 0 8\n1: sync_stream S\n1: send D to 0 8 on T",
        "rendezvous=DEADLOCK"},
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
       {"0: group on S: recv C from 1 8; { send C to 1 8 }\n1: recv C from 0 8 on S\n1: send C to 0 8 on S",
        "rendezvous=OK"},
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
       "2.29.2 a batch does not reach into the second message of the same peer. The simulator takes one "
       "channel, the "
       "worst case.",
       "Large groups progress batch by batch. Nothing hangs as long as all ranks group the counterparts "
       "alike; ranks "
       "that cut their groups differently may.",
       "sim.progress",
       {"0: group on S: send C to 1 1MiB; send C to 1 1MiB; recv C from 2 1MiB\n"
        "1: group on S: recv C from 0 1MiB; recv C from 0 1MiB\n1: send C to 2 1MiB on S\n"
        "2: recv C from 1 1MiB on S\n2: send C to 0 1MiB on S",
        "rendezvous=OK rendezvous+batched=DEADLOCK"},
       "NCCL source; NVIDIA/nccl#1279"},
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
       {"0: group on S: recv C from 2 1MiB; recv C from 2 1MiB\n1: launch on S\n"
        "2: group on S: send C to 0 1MiB; send C to 0 1MiB; send C to 3 1MiB; send C to 3 1MiB; recv C from "
        "3 1MiB\n"
        "3: group on S: send C to 2 1MiB; recv C from 2 1MiB; recv C from 2 1MiB",
        "rendezvous=OK rendezvous+split_2=OK rendezvous+split_restart_2=DEADLOCK"},
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
       S::kMode,
       "Each communicator of a group gets kernels of its own. Since 2.26.2 they are launched in the same "
       "order on "
       "every rank; before, in the order of the calls. The user guide asks for equal order in any case.",
       "Naming two communicators in another order inside a group is harmless since then; in two groups it is "
       "N46.",
       "sim.group_order",
       {"0: group on S: all_reduce C 8; all_reduce D 8\n1: group on S: all_reduce D 8; all_reduce C 8",
        "rendezvous=OK rendezvous+strict=OK rendezvous+group_order_by_call=DEADLOCK"},
       "NCCL release notes 2.26"},
      {"N17",
       "One host thread drives several devices in turn",
       S::kAlways,
       "A thread that drives several devices comes to the call of the next one when that of the one before "
       "has "
       "returned. A call that waits for the other ranks' hosts - ncclCommInitRank, the first use of a "
       "connection, "
       "any launch with CUDA_LAUNCH_BLOCKING=1 - then waits for what the same thread has yet to do. In one "
       "ncclGroupStart ... ncclGroupEnd the calls of all devices are made before any of them waits.",
       "Calls of devices that one thread drives belong in one group. Without it a program works until a "
       "connection "
       "is used for the first time.",
       "",
       {"0: all_reduce C 8 on S\n0: turn C\n1: turn C\n1: all_reduce C 8 on S",
        "rendezvous=OK rendezvous+cold_collectives=DEADLOCK rendezvous+launch_blocking=DEADLOCK"},
       "user guide, managing several GPUs from one thread"},
      {"N18",
       "A graph is launched as a whole",
       S::kAlways,
       "What a CUDA graph captured starts after what is before its launch on the launching stream, orders "
       "itself as "
       "it was captured, and what is behind the launch waits for all of it. An edge that crosses is for all "
       "of it "
       "too: a wait inside for an event of outside, and one outside for an event of inside. The streams of a "
       "group "
       "are all "
       "captured "
       "by one graph, or none is: else the call is ncclInvalidUsage - or, where communicators differ, the "
       "launch, and "
       "they are of no more use.",
       "A send behind the launch waits for a receive inside it. Graphs have to be launched in one order on "
       "all "
       "ranks. A scenario marks a call on a stream that the capture does not reach with uncaptured.",
       "",
       {"0: graph_begin on S\n0: recv C from 1 8 on A\n0: graph_end\n0: send D to 1 8 on S\n"
        "1: recv D from 0 8 on S\n1: send C to 0 8 on S",
        "rendezvous=DEADLOCK"},
       "user guide, CUDA graphs"},
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
      {"N25",
       "A send to oneself needs its receive in the group",
       S::kReported,
       "A send to the own rank is a copy, and needs a receive from it in the same group; alone it is "
       "ncclInvalidUsage.",
       "A pipeline of one stage a rank never does this; a ring that was written for any number of ranks "
       "does.",
       "",
       {"0: group on S: send C to 0 8; recv C from 0 8\n0: send C to 0 8 on S",
        "rendezvous=ERROR(ncclInvalidUsage)"},
       "NCCL source"},
      {"N27",
       "A peer outside the communicator is an invalid argument",
       S::kAlways,
       "A peer or root is a rank of the communicator.",
       "Here it is refused when the Program is linked or the scenario is read, with its place.",
       "",
       {},
       "NCCL source"},
      {"N28",
       "An empty message is a message",
       S::kAlways,
       "A send or receive of no bytes has to be matched like any other.",
       "Skipping an empty tensor on one side only shifts every later message of the pair.",
       "",
       {"0: send C to 1 0 on S\n0: send C to 1 8 on S\n1: recv C from 0 8 on S", "rendezvous=DEADLOCK+BYTES"},
       "NVIDIA/nccl#345, #695"},
      {"N30",
       "All-to-all, gather and scatter are messages",
       S::kAlways,
       "ncclAlltoAll, ncclGather and ncclScatter (2.28) become sends and receives with each peer, or with "
       "the root, "
       "on the communicator's own queues.",
       "They match, and change places with, sends and receives of the same pair; they are no collectives.",
       "",
       {"0: all_to_all C 8 on S\n1: group on S: send C to 0 8; recv C from 0 8; send C to 1 8; recv C from 1 "
        "8",
        "rendezvous=OK rendezvous+cold=OK"},
       "NCCL source"},
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
      {"N36",
       "How much a send may run ahead",
       S::kMode,
       "A connection holds eight steps, whose size follows from the channels of the link. On H100 with "
       "NVSwitch a "
       "communicator of two holds eight messages of 8 MiB, or one of 64 MiB, and a larger one eight of 2 MiB "
       "or one of "
       "16 MiB; A100 half of it; PCIe 1 MiB; InfiniBand 2 MiB. sim.send eager:MACHINE follows these numbers, "
       "which are "
       "derived from NCCL's source, not measured.",
       "A program that needs buffers hangs with larger messages, with more of them, in a larger "
       "communicator, and on "
       "the network.",
       "sim.send",
       {"0: send C to 1 32MiB on S\n0: recv C from 1 32MiB on S\n1: send C to 0 32MiB on S\n"
        "1: recv C from 0 32MiB on S",
        "eager_h100=OK eager_h100_nodes_of_1=DEADLOCK eager_pcie=DEADLOCK"},
       "torchrec#4472; NVIDIA/nccl#544"},
      {"N37",
       "Registered buffers are not copied",
       S::kMode,
       "Sends from buffers that are registered with NCCL, or captured in a CUDA graph, wait for the "
       "receiver: there is "
       "nothing to complete early into.",
       "The same program may run, and hang once it is captured or its buffers are registered.",
       "sim.registered",
       {"0: send C to 1 8 on S\n0: recv C from 1 8 on S\n1: send C to 0 8 on S\n1: recv C from 0 8 on S",
        "eager_2MiB=OK eager_2MiB+registered=DEADLOCK"},
       "NCCL source"},
  };
}

}  // namespace plumbline

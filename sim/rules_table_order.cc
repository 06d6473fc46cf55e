// long-file: one table, a row a rule
// The table of rules, second part: what runs together, collectives, and the life of communicators.
#include "sim/rules.h"

namespace plumbline {

std::vector<NcclRule> rules_of_calls();  // rules_table.cc

namespace {

std::vector<NcclRule> rules_of_order() {
  using S = RuleStatus;
  return {
      {"N38",
       "A buffer is in use until its operation completes",
       S::kReported,
       "A send's buffer may be written, and a receive's read, only after the operation has completed on its "
       "stream.",
       "Whatever is not ordered after the completion by a stream, an event or a host wait is a race.",
       "",
       {},
       "user guide, streams"},
      {"N39",
       "A send that is complete may not have left",
       S::kAlways,
       "Between nodes, bytes leave when the receiver has told where they go; until then they wait in the "
       "sender's "
       "process.",
       "A process that ends after its send completed early takes the message with it. Finalize or destroy "
       "the "
       "communicator first.",
       "",
       {},
       "NCCL source"},
      {"N45",
       "Kernels need processors",
       S::kMode,
       "A kernel of a communicator holds one processor a channel until it is done, and needs all of them to "
       "make "
       "progress with its peers.",
       "Communicators times channels must not exceed what is free; what does not fit waits, and ranks whose "
       "kernels "
       "come in different orders hang.",
       "sim.sms",
       {"0: all_reduce C 8 on S\n0: all_reduce D 8 on T\n1: all_reduce D 8 on T\n1: all_reduce C 8 on S",
        "rendezvous+sms_2_by_1=OK rendezvous+sms_1_by_1=DEADLOCK"},
       "NVIDIA/nccl#689"},
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
      {"N47",
       "Launch order can be imposed",
       S::kMode,
       "With NCCL_LAUNCH_ORDER_IMPLICIT=1 (2.26, CUDA 12.3) kernels of different communicators run together, "
       "but start "
       "in the order in which the host launched them.",
       "Opposite orders no longer hang; but a kernel that cannot start yet, behind a stream, keeps back all "
       "launched "
       "after it.",
       "sim.cross",
       {"0: comm_init X 0 1\n0: recv C from 1 8 on S\n0: send D to 1 8 on S\n0: send X to 1 8 on T\n"
        "1: comm_init X 0 1\n1: recv X from 0 8 on T\n1: sync_stream T\n1: send C to 0 8 on S\n1: recv D "
        "from 0 8 on S",
        "rendezvous=OK rendezvous+launch_order=DEADLOCK"},
       "user guide, environment"},
      {"N48",
       "Streams share hardware queues",
       S::kMode,
       "A device has as many queues as CUDA_DEVICE_MAX_CONNECTIONS says, 8 by default. Streams of one queue "
       "hold each "
       "other back: what cannot start yet blocks what was enqueued behind it.",
       "Megatron sets 1 for its own reasons; an operation that waits for an event then keeps back every "
       "operation of "
       "every other stream.",
       "sim.hw_queues",
       {"0: comm_init X 0 1\n0: recv C from 1 8 on S\n0: send D to 1 8 on S\n0: send X to 1 8 on T\n"
        "1: comm_init X 0 1\n1: recv X from 0 8 on T\n1: sync_stream T\n1: send C to 0 8 on S\n1: recv D "
        "from 0 8 on S",
        "rendezvous+queues_2=OK rendezvous+queues_1=DEADLOCK"},
       "CUDA programming guide; NVIDIA/nccl#783"},
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
      {"N51",
       "A first launch may wait for the device",
       S::kMode,
       "With lazy loading, the default since CUDA 11.7, a kernel's code is loaded at its first launch, which "
       "may wait "
       "for what is running.",
       "The first step hangs where later ones do not: a receive is running, and the kernel behind which its "
       "peer waits "
       "cannot be loaded.",
       "sim.lazy_modules",
       {"0: recv C from 1 8 on S\n0: launch on T\n0: send D to 1 8 on T\n1: recv D from 0 8 on T\n1: "
        "sync_stream T\n"
        "1: send C to 0 8 on S",
        "rendezvous=OK rendezvous+lazy_modules=DEADLOCK"},
       "CUDA programming guide"},
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
      {"N53",
       "The legacy default stream waits for all, and all for it",
       S::kAlways,
       "Work on the legacy default stream starts after everything that is enqueued on the device's blocking "
       "streams, "
       "and what is enqueued later on any of them starts after it.",
       "A copy that somebody left on the default stream, between a receive and the send that its peer waits "
       "for, ties "
       "the two together. A scenario names that stream with legacy_stream.",
       "",
       {},
       "CUDA programming guide; onnxruntime#5430"},
      {"N55",
       "Nothing times out",
       S::kAlways,
       "A kernel waits for its peer by spinning, for ever; NCCL raises no error for an operation without a "
       "counterpart.",
       "The simulator reports a standstill the moment it happens; on a cluster a watchdog does, ten minutes "
       "later. ncclCommGetAsyncError stays ncclSuccess (N86).",
       "",
       {"0: recv C from 1 8 on S\n0: comm_sync C\n1: launch on S",
        "rendezvous=DEADLOCK rendezvous+nodes_of_1=DEADLOCK"},
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
      {"N58",
       "What differing ends come to",
       S::kMode,
       "Reported, and for the rest taken as equal; or emulated: collectives that differ in kind, size or "
       "root hang, "
       "those that differ in type or reduction end in garbage. A message goes on in units of 8 bytes, or of "
       "512 KiB if "
       "it is larger than 16 KiB: what is left over of a send goes to the next receive, and a receive waits "
       "for what "
       "is missing.",
       "Emulation answers the question why a run hung, or did not.",
       "sim.mismatch",
       {"0: send C to 1 24 on S\n1: recv C from 0 16 on S\n1: recv C from 0 8 on S",
        "rendezvous=DEADLOCK+BYTES rendezvous+emulate_mismatch=BYTES"},
       "pytorch/pytorch#113376, #77030; NVIDIA/nccl#1417"},
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
      {"N61",
       "A communicator of one rank copies",
       S::kAlways,
       "A collective of a communicator with one member copies, or scales, and is no kernel of NCCL.",
       "It takes no turn among the kernels of other communicators.",
       "",
       {},
       "NCCL source"},
      {"N62",
       "In place, or apart",
       S::kAlways,
       "A collective's buffers are the same memory - of a gather, each contribution at its member's place in "
       "the "
       "result; of a scatter, each result at its place in the contribution - or do not overlap.",
       "A Program's collective works on one slot, in place; its parts lie in member order, so a partial "
       "overlap cannot "
       "be written down. The double of NCCL reports one.",
       "",
       {},
       "user guide, in-place operations"},
      {"N64",
       "A root's buffer is the root's",
       S::kAlways,
       "A broadcast reads the root's buffer alone and a reduction writes the root's alone.",
       "A broadcast into a slot that holds nothing writes it; the others' slots are as they were after a "
       "reduction.",
       "",
       {},
       "user guide, collectives"},
      {"N66",
       "An all-reduce gives all ranks the same bits",
       S::kAlways,
       "Each part of the result is reduced once and copied to the others.",
       "Ranks that decide by a reduced value decide alike.",
       "",
       {},
       "NVIDIA/nccl#855"},
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
      {"N70",
       "Devices of ncclCommInitAll are different ones",
       S::kReported,
       "ncclCommInitAll makes the communicators of one process for a list of devices; a device named twice "
       "is "
       "ncclInvalidUsage. A scenario has the call in the program of each of its ranks, whose threads go on "
       "when it "
       "returns.",
       "A list of devices taken from a configuration is to be checked for repeats.",
       "",
       {"0: comm_init_all X 0 1 1\n1: comm_init_all X 0 1 1", "rendezvous=ERROR(ncclInvalidUsage)"},
       "NCCL source"},
      {"N72",
       "All ranks have one release of NCCL",
       S::kReported,
       "Ranks tell each other their release when they create a communicator; where two differ, all get "
       "ncclInvalidUsage, and none a communicator.",
       "One container that is older than the others stops the job, on every rank and at once.",
       "",
       {"0: comm_init X 0 1 release 2.28.9\n1: comm_init X 0 1 release 2.27.3",
        "rendezvous=ERROR(ncclInvalidUsage)"},
       "NCCL source"},
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
      {"N75",
       "A grow is called by the old ranks and the new",
       S::kReported,
       "ncclCommGrow (2.29) makes a larger communicator: the ranks of the parent, with nothing left to do on "
       "it, and "
       "those that join meet as in an init. No more ranks than before are ncclInvalidArgument.",
       "A rank that fails to join holds up all others, as one that leaves out an init does.",
       "",
       {"0: comm_init X 0 1\n0: comm_grow X into Y 0 1 2\n1: comm_init X 0 1\n1: comm_grow X into Y 0 1 "
        "2\n2: launch "
        "on S",
        "rendezvous=DEADLOCK"},
       "NCCL release notes 2.29"},
      {"N76",
       "A revoked communicator takes no more work",
       S::kReported,
       "ncclCommRevoke (2.28.7) ends what is enqueued on its own rank, with garbage. Operations that follow "
       "return "
       "ncclInvalidUsage, a second revoke ncclInvalidArgument; destroy, abort and shrink are still allowed.",
       "It is an abort that leaves the communicator there, to shrink it.",
       "",
       {"0: all_reduce C 8 on S\n0: comm_revoke C\n0: all_reduce C 8 on S\n0: comm_shrink C into X 0\n1: "
        "launch "
        "on S",
        "rendezvous=ERROR(ncclInvalidUsage)"},
       "NCCL source"},
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
       "other call on the communicator returns ncclInvalidArgument. That goes for operations as well that "
       "connect (N2): they are enqueued when they have, and do not hold their streams before.",
       "comm_ready stands for the poll. Leaving it out works whenever the other ranks happen to be fast.",
       "",
       {"0: comm_init X 0 1 nonblocking\n0: all_reduce X 8 on S\n1: comm_init X 0 1 nonblocking\n1: "
        "comm_ready X\n"
        "1: all_reduce X 8 on S",
        "rendezvous=DEADLOCK+ERROR(ncclInvalidArgument)"},
       "user guide, communicators"},
      {"N80",
       "A group is blocking or it is not",
       S::kReported,
       "Blocking and nonblocking communicators in one group are an invalid argument.",
       "Make all communicators of a process in the same way.",
       "",
       {"0: comm_init X 0 1 nonblocking\n0: comm_ready X\n0: group on S: all_reduce X 8; all_reduce C 8\n"
        "1: comm_init X 0 1 nonblocking\n1: comm_ready X\n1: group on S: all_reduce X 8; all_reduce C 8",
        "rendezvous=ERROR(ncclInvalidArgument)"},
       "NCCL source"},
      {"N82",
       "An asynchronous error stays",
       S::kReported,
       "The first error that a communicator has while its host is elsewhere is kept. ncclCommGetAsyncError "
       "reports "
       "it, and every call on the communicator returns it, until ncclCommAbort. What is running goes on.",
       "comm_sync stands for a host that polls its device and the communicator, as a watchdog does. It has "
       "to "
       "abort, too: only that ends the kernel.",
       "",
       {"0: recv C from 1 8 on S\n0: comm_sync C\n0: all_reduce C 8 on S\n1: exit",
        "rendezvous+nodes_of_1=DEADLOCK+ERROR(ncclRemoteError)"},
       "NCCL source"},
      {"N83",
       "Who is told that a process has ended",
       S::kMode,
       "Within a node nobody: what needs the peer goes on for ever. Between nodes everybody whose operation "
       "needs "
       "it, by an asynchronous ncclRemoteError (in truth after the network's retries; here at once, and a "
       "collective's members on other nodes). Hosts that meet it are told in any case: calls that a member "
       "has to "
       "take part in return ncclRemoteError, a first connection to it ncclSystemError, and so does an init "
       "whose "
       "first member, which holds the bootstrap's root, is gone; the others of an init wait for ever.",
       "An NVLink peer that dies is a hang, a network peer an error that somebody has to look for.",
       "sim.ranks_per_node",
       {"0: recv C from 1 8 on S\n0: comm_sync C\n0: comm_abort C\n1: exit",
        "rendezvous=DEADLOCK rendezvous+nodes_of_1=ERROR(ncclRemoteError) "
        "rendezvous+cold=ERROR(ncclSystemError)"},
       "NCCL source"},
      {"N84",
       "A fault of CUDA stays",
       S::kReported,
       "After a kernel ended in an illegal address, whatever the device still has to do is over, and every "
       "call of "
       "NCCL on it returns ncclUnhandledCudaError.",
       "The fault is reported by the next call, which is not to blame; the peers wait for ever.",
       "",
       {"0: fault on S\n0: sync_stream S\n0: all_reduce C 8 on S\n1: all_reduce C 8 on S",
        "rendezvous=DEADLOCK+ERROR(ncclUnhandledCudaError)"},
       "NCCL source"},
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
      {"N88",
       "Rings and trees round after every addition",
       S::kMode,
       "Sums are taken in the element type: f16 and bf16 are rounded after each contribution. The 8-bit "
       "types are "
       "added in f16, rounded, and never infinite: what is too large is their largest number.",
       "A bf16 sum over n ranks has n - 1 roundings, and small contributions vanish beside large ones.",
       "sim.numerics",
       {},
       "NCCL source"},
      {"N89",
       "NVSwitch sums f16 and bf16 in float",
       S::kMode,
       "Reductions in the switch, and those of symmetric memory, accumulate in float - 8-bit types in f16 - "
       "and "
       "round once; their order is not specified.",
       "The same program gives other bits with NVLS than with a ring.",
       "sim.numerics",
       {},
       "NCCL source"},
      {"N91",
       "In a ring, the place in the buffer decides the order",
       S::kMode,
       "The part of a buffer that ends at rank d begins with the contribution of d + 1, to which the next "
       "ranks' are "
       "added in ring order. Parts follow each other in chunks, in loops over channels and ranks.",
       "Two equal gradients at different places of a bucket may differ in their last bits.",
       "sim.numerics",
       {},
       "NCCL source"},
      {"N92",
       "A tree adds own, then children",
       S::kMode,
       "Ranks of a node are a chain, nodes a binary tree, of which there are two; sums go up from the "
       "leaves.",
       "Other bits than a ring, and others for another number of nodes.",
       "sim.numerics",
       {},
       "NCCL source"},
      {"N94",
       "Buckets change the bits",
       S::kMode,
       "Since the order depends on the place, cutting a buffer into buckets, or padding it, changes the "
       "results.",
       "Compare bucketed and unbucketed runs with a tolerance, or with sim.numerics = ordered, whose order "
       "does not "
       "depend on the place.",
       "sim.numerics",
       {},
       "from N91"},
      {"N95",
       "An average multiplies first",
       S::kMode,
       "Averages of floats multiply each contribution by 1/n, rounded to the type, and then add; of "
       "integers, they add "
       "and divide.",
       "In f16 and bf16 that is not the sum divided by n.",
       "sim.numerics",
       {},
       "NCCL source"},
      {"N96",
       "A sum may have a factor a rank",
       S::kMode,
       "ncclRedOpCreatePreMulSum makes an operation that multiplies each rank's contribution with the rank's "
       "own "
       "factor, both rounded to the element type, and adds the products. It holds for one communicator and "
       "one "
       "type. Programs have no such operation; the arithmetic is there (reduce_nccl.h).",
       "An average of floats is one with 1/n. A factor that is small in an 8-bit or 16-bit type is far from "
       "what "
       "was meant.",
       "sim.numerics",
       {},
       "user guide, reduction operators"},
      {"N97",
       "Max and min drop a NaN",
       S::kMode,
       "Against a number, NaN loses. A sum keeps it.",
       "An overflow check must not rely on a max to carry a NaN; a flag that is 0 or 1 is safe. The ordered "
       "default of "
       "this simulator keeps a NaN.",
       "sim.numerics",
       {},
       "NCCL source"},
      {"N98",
       "A sum overflows where an average does not",
       S::kMode,
       "f16 partial sums beyond 65504 are infinite; with contributions scaled first they stay below.",
       "Dividing gradients before the reduction, or averaging, saves a loss scale that summing would not.",
       "sim.numerics",
       {},
       "from N88 and N95"},
  };
}

}  // namespace

const std::vector<NcclRule>& nccl_rules() {
  static const std::vector<NcclRule> kRules = [] {
    std::vector<NcclRule> rules = rules_of_calls();
    const std::vector<NcclRule> more = rules_of_order();
    rules.insert(rules.end(), more.begin(), more.end());
    return rules;
  }();
  return kRules;
}

}  // namespace plumbline

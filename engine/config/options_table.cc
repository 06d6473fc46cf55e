// The rows of [parallel], [schedule], [time], [memory], [sim] and [faults]; those of a model and its training
// are in options_table_train.cc and options_table_optimizer.cc. A flag's Megatron spelling is the one of
// megatron/training/arguments.py.
#include "engine/config/option_row.h"

namespace plumbline::detail {
namespace {

using namespace option_text;  // NOLINT: the table is made of these names

using Rows = std::vector<Option>;

Rows parallel_rows() {
  return {
      row<IntegerText>("parallel", "tp", PL_FIELD(parallel.tp), {"--tensor-model-parallel-size"},
                       "tensor-parallel size; must be 1"),
      row<IntegerText>("parallel", "cp", PL_FIELD(parallel.cp), {"--context-parallel-size"},
                       "context-parallel size; must be 1"),
      row<IntegerText>("parallel", "ep", PL_FIELD(parallel.ep), {"--expert-model-parallel-size"},
                       "expert-parallel size; must be 1"),
      row<IntegerText>("parallel", "dp", PL_FIELD(parallel.dp), {"--dp", "--data-parallel-size"},
                       "data-parallel replicas; at least 1"),
      row<IntegerText>("parallel", "pp", PL_FIELD(parallel.pp), {"--pp", "--pipeline-model-parallel-size"},
                       "ranks of a pipeline; at least 1"),
      row<PlainText>("parallel", "order", PL_FIELD(parallel.order), {"--rank-order"},
                     "axes from the fastest-varying to the slowest; names tp, cp, ep, dp and pp once each"),
  };
}

// Megatron gives the three numbers as three words.
Option ramp_row() {
  Option option = row<RampText>(
      "schedule", "rampup", PL_FIELD(schedule.rampup), {"--rampup-batch-size"},
      "START,INCREMENT,SAMPLES: the global batch size grows from START by INCREMENT, evenly over "
      "the first SAMPLES samples; empty: none");
  option.words = 3;
  return option;
}

Rows schedule_rows() {
  return {
      choice<ScheduleKind>(
          "schedule", "kind", PL_FIELD(schedule.kind), {"--schedule"},
          "gpipe and 1f1b have one chunk a rank, interleaved at least two; csv reads schedule.csv"),
      row<PlainText>(
          "schedule", "generator", PL_FIELD(schedule.generator), {"--generator"},
          "name of a generator ('plumbline schedules' lists them); implies schedule.kind generator"),
      row<PlainText>("schedule", "csv", PL_FIELD(schedule.csv),
                     {"--schedule-csv", "--pipeline-parallel-schedule-csv"},
                     "file of a csv schedule in the text form of torch.distributed.pipelining"),
      row<IntegerText>("schedule", "chunks", PL_FIELD(schedule.chunks),
                       {"--vp", "--num-virtual-stages-per-pipeline-rank"},
                       "model chunks a rank (virtual pipeline size); at least 1"),
      row<IntegerText>("schedule", "microbatches", PL_FIELD(schedule.microbatches),
                       {"-m", "--microbatches", "--num-microbatches"},
                       "microbatches a step and replica; from 1 to 2^20 - 1"),
      row<IntegerText>("schedule", "global_batch_size", PL_FIELD(schedule.global_batch_size),
                       {"--global-batch-size"},
                       "sequences a step over all replicas, from which microbatches follow; a multiple of "
                       "micro_batch_size "
                       "* dp; 0: not given"),
      ramp_row(),
      row<PlainText>("schedule", "batch_steps", PL_FIELD(schedule.batch_steps),
                     {"--step-batch-size-schedule"},
                     "\"THRESHOLD:BATCH ...\": global batch size from a number of samples on, the first from "
                     "0; suffixes K, M, B, T; empty: constant"),
      row<SwitchText>("schedule", "decrease_batch_if_needed", PL_FIELD(schedule.decrease_batch_if_needed),
                      {"--decrease-batch-size-if-needed"},
                      "a global batch size that is not a multiple of micro_batch_size * dp is rounded down"),
      row<IntegerText>("schedule", "group_size", PL_FIELD(schedule.group_size),
                       {"--group-size", "--microbatch-group-size-per-virtual-pipeline-stage"},
                       "microbatches a chunk runs in a row, from pp to microbatches; 0: pp"),
      row<IntegerText>("schedule", "slices", PL_FIELD(schedule.slices), {"--slices"},
                       "parts a sequence is cut into, for the generator seq-1f1b; at least 1"),
      row<IntegerText>(
          "schedule", "activation_cap", PL_FIELD(schedule.activation_cap), {"--activation-cap"},
          "stage activations a rank may hold, each until its W or B: for generators that search (zb-auto, "
          "zbv-auto, v-auto), and check holds every schedule to it; 0: the schedule's own"),
      choice<P2pStyle>(
          "schedule", "p2p", PL_FIELD(schedule.p2p), {"--p2p"},
          "batched: one group of up to four operations a call; separate: single calls in even/odd order; "
          "overlap: separate, beside the computations of the interleaved schedule's steady state; flush: "
          "overlap, "
          "and inputs fetched one step ahead in warm-up and cool-down; deferred: receives just before what "
          "reads them "
          "(schedules by --generator)"),
      row<SwitchText>(
          "schedule", "combined", PL_FIELD(schedule.combined), {"--overlap-moe-expert-parallel-comm"},
          "with p2p overlap or flush: a forward and a backward are one step, one more forward in the "
          "warm-up"),
      row<SwitchText>(
          "schedule", "variable_lengths", PL_FIELD(schedule.variable_lengths), {"--variable-seq-lengths"},
          "tensors between stages may differ in size: before every call of Megatron's schedules their "
          "shapes are exchanged in a group of their own, for which the host waits"),
      choice<CommMap>(
          "schedule", "comm_map", PL_FIELD(schedule.comm_map), {"--comm-map"},
          "which communicator carries a message: one a pipeline, one a pair of ranks, one a direction, or "
          "Megatron's"),
      row<SwitchText>("schedule", "deallocate_outputs", PL_FIELD(schedule.deallocate_outputs),
                      {"--deallocate-pipeline-outputs"}, "free a stage's output once it is sent"),
      row<SwitchText>(
          "schedule", "cuda_graphs", PL_FIELD(schedule.cuda_graphs), {"--cuda-graphs"},
          "what a rank enqueues between two points at which its host waits is one CUDA graph: simulated by "
          "check and sim (N18), replayed by run --backend cuda on NCCL"),
  };
}

Rows time_rows() {
  return {
      row<DurationsText>("time", "forward", PL_FIELD(time.forward), {"--forward-time"},
                         "forward of one chunk; one entry, or one a stage"),
      row<DurationsText>("time", "backward", PL_FIELD(time.backward), {"--backward-time"},
                         "full backward of one chunk; one entry, or one a stage"),
      row<DurationsText>("time", "input_grad", PL_FIELD(time.input_grad), {"--input-grad-time"},
                         "input-gradient half of a split backward; one entry, or one a stage"),
      row<DurationsText>("time", "weight_grad", PL_FIELD(time.weight_grad), {"--weight-grad-time"},
                         "weight-gradient half of a split backward; one entry, or one a stage"),
      row<DurationText>("time", "optimizer", PL_FIELD(time.optimizer), {"--optimizer-time"},
                        "optimizer step of a rank"),
      row<DurationText>("time", "link_latency", PL_FIELD(time.link.latency), {"--link-latency"},
                        "latency of every link without an entry in links"),
      row<BandwidthText>("time", "link_bandwidth", PL_FIELD(time.link.bytes_per_second), {"--link-bandwidth"},
                         "bandwidth of every link without an entry in links"),
      row<LinksText>("time", "links", PL_FIELD(time.links), {"--link"},
                     "what if: RANK-RANK:BANDWIDTH[:LATENCY], for example 0-1:10GB/s:5us; two different "
                     "ranks of the world"),
      row<SlowText>("time", "slow", PL_FIELD(time.slow), {"--slow"},
                    "what if: rank=NUMBER:FACTOR, for example rank=3:1.2; the factor multiplies compute "
                    "times, above 0"),
      row<IntegerText>(
          "time", "cores", PL_FIELD(time.cores), {"--cores"},
          "cores that the ranks of a machine share in a simulated run (sim.ranks_per_node says how "
          "many ranks; 0: all); 0: each rank has a device of its own"),
      row<NumberText>(
          "time", "interference", PL_FIELD(time.interference), {"--core-interference"},
          "how much longer a kernel takes while all cores of its machine are busy: 0.2 is a fifth; "
          "0 to 100"),
  };
}

Rows memory_rows() {
  return {
      row<SizeText>("memory", "activation", PL_FIELD(memory.activation), {"--activation-bytes"},
                    "size of the tensor between two stages; 0: from the model"),
      row<SizeText>("memory", "stash", PL_FIELD(memory.stash), {"--stash-bytes"},
                    "what one chunk's forward keeps for its backward; 0: from the model"),
      row<SizeText>("memory", "limit", PL_FIELD(memory.limit), {"--memory-limit"},
                    "memory of a rank; 0: no limit"),
      choice<Recompute>(
          "memory", "recompute", PL_FIELD(memory.recompute), {"--recompute-granularity"},
          "what a backward builds again instead of keeping it: attention's scores (selective) or "
          "whole layers (full)"),
      choice<RecomputeMethod>(
          "memory", "recompute_method", PL_FIELD(memory.recompute_method), {"--recompute-method"},
          "with full: all layers of a stage in groups whose first input is kept (uniform), or the "
          "first layers of a stage one by one (block)"),
      row<IntegerText>("memory", "recompute_layers", PL_FIELD(memory.recompute_layers),
                       {"--recompute-num-layers"},
                       "with full: layers of a group, or of a stage's block; at least 1"),
  };
}

Rows sim_rows() {
  return {
      choice<NcclVersion>("sim", "nccl", PL_FIELD(sim.nccl), {"--nccl"},
                          "release of NCCL whose kernels are followed, for the options that say auto"),
      row<SendText>(
          "sim", "send", PL_FIELD(sim), {"--send"},
          "when a send completes: rendezvous, eager:SIZE (for example eager:2MiB), eager:SIZE:MESSAGES, "
          "eager:MACHINE (h100, a100, pcie, ib: the sizes of NCCL's buffers there), always-eager"),
      row<IntegerText>(
          "sim", "ranks_per_node", PL_FIELD(sim.ranks_per_node), {"--ranks-per-node"},
          "links between nodes are network links: the end of a peer's process is noticed there, and "
          "with eager:MACHINE they have the buffers of ib; 0: one node"),
      row<SwitchText>("sim", "registered", PL_FIELD(sim.registered), {"--registered"},
                      "user buffers are registered with NCCL: sends are rendezvous, whatever sim.send says"),
      choice<CrossComm>("sim", "cross", PL_FIELD(sim.cross), {"--cross"},
                        "whether operations of different communicators on a device run freely, one after "
                        "another (strict), or "
                        "start in the order of their launch (NCCL_LAUNCH_ORDER_IMPLICIT=1)"),
      row<IntegerText>(
          "sim", "hw_queues", PL_FIELD(sim.hw_queues), {"--hw-queues"},
          "hardware queues of a device (CUDA_DEVICE_MAX_CONNECTIONS): stream s is in queue s modulo "
          "this, and what cannot start holds back what is behind it; 0: as many as streams"),
      row<IntegerText>(
          "sim", "sms", PL_FIELD(sim.sms), {"--sms"},
          "processors that kernels of communicators may hold at one time on a device; 0: enough"),
      row<IntegerText>("sim", "channels", PL_FIELD(sim.channels), {"--channels"},
                       "processors that one of these kernels holds; 0: 1 to 32 by its largest message"),
      choice<Connect>("sim", "connect", PL_FIELD(sim.connect), {"--connect"},
                      "whether the first message of a link has to connect (cold)"),
      choice<CollectiveConnect>(
          "sim", "connect_collectives", PL_FIELD(sim.connect_collectives), {"--connect-collectives"},
          "whether the first collective of a communicator has to connect; auto: as connect "
          "from 2.22 on, else warm"),
      choice<GroupOrder>(
          "sim", "group_order", PL_FIELD(sim.group_order), {"--group-order"},
          "order of the communicators of a group: the same on all ranks, or that of the calls; auto: "
          "call before 2.26, else same"),
      row<ProgressText>(
          "sim", "progress", PL_FIELD(sim), {"--progress"},
          "how the messages of a group progress: documented (all at once), batched or batched-across "
          "(eight at a time, of one epoch or across), split:N or split-restart:N (kernels of N "
          "messages), joined by +; auto: by the release"),
      row<SwitchText>("sim", "launch_blocking", PL_FIELD(sim.launch_blocking), {"--launch-blocking"},
                      "the host waits for every kernel, as with CUDA_LAUNCH_BLOCKING=1"),
      row<SwitchText>("sim", "lazy_modules", PL_FIELD(sim.lazy_modules), {"--lazy-modules"},
                      "a kernel's first launch waits for the device, as loading its code may "
                      "(CUDA_MODULE_LOADING=LAZY)"),
      choice<Mismatch>(
          "sim", "mismatch", PL_FIELD(sim.mismatch), {"--mismatch"},
          "what becomes of ends that differ: report, and go on as if they matched; or emulate what NCCL "
          "does besides: bytes go on to the next receive, collectives hang"),
      choice<Numerics>(
          "sim", "numerics", PL_FIELD(sim.numerics), {"--numerics"},
          "how contributions are added: ordered by member, layout-independent; or as NCCL does, in a ring, "
          "a tree, or in NVSwitch (nvls)"),
      row<IntegerText>("sim", "ring_channels", PL_FIELD(sim.ring_channels), {"--ring-channels"},
                       "channels of a communicator, for numerics ring and tree; at least 1"),
      row<SizeText>(
          "sim", "ring_chunk", PL_FIELD(sim.ring_chunk), {"--ring-chunk"},
          "what a member adds at a time in one channel, for numerics ring and tree; at least 8 bytes"),
  };
}

Rows fault_rows() {
  return {
      row<OverflowText>("faults", "overflow", PL_FIELD(faults.overflow), {"--inject-overflow"},
                        "what if: rank=NUMBER:step=NUMBER, for example rank=2:step=5; steps count from 1; "
                        "needs a loss scale"),
  };
}

}  // namespace

std::vector<Option> make_options() {
  Rows all;
  for (Rows& part :
       std::vector<Rows>{parallel_rows(), schedule_rows(), make_model_options(), make_optimizer_options(),
                         time_rows(), memory_rows(), sim_rows(), fault_rows()}) {
    all.insert(all.end(), std::make_move_iterator(part.begin()), std::make_move_iterator(part.end()));
  }
  return all;
}

std::vector<SwitchFlag> make_switch_flags() {
  return {
      {"--fp16", "train.precision", "fp16"},
      {"--bf16", "train.precision", "bf16"},
      {"--recompute-activations", "memory.recompute", "selective"},
      {"--use-tp-pp-dp-mapping", "parallel.order", "tp-cp-ep-pp-dp"},
      // Megatron without overlap batches its calls (arguments.py sets batch_p2p_comm to the opposite of the
      // overlap).
      {"--no-overlap-p2p-communication", "schedule.p2p", "batched"},
      {"--overlap-p2p-communication-warmup-flush", "schedule.p2p", "flush"},
  };
}

}  // namespace plumbline::detail

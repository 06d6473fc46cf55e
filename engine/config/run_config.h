// RunConfig: everything a run is made from, as plain values after parsing and validation. One table
// (options.h) says for each field its TOML key, Megatron flag, type, default and rule; one validator checks
// them all. Precedence: defaults < file < environment PLUMBLINE_* < --set and flags. Nothing downstream
// re-checks a rule or re-derives a default.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/base/units.h"
#include "engine/config/rank_grid.h"

namespace plumbline {

enum class ScheduleKind : std::uint8_t {
  kGpipe,
  kOneFOneB,
  kInterleaved,
  kInterleaved2022,
  kForwardOnly,
  kCsv,
  kGenerator,  // a registered generator that Megatron has no calls for, by name
};
enum class P2pStyle : std::uint8_t {
  kBatched,   // Megatron's combined calls: one group of up to four operations (batch_p2p_comm)
  kSeparate,  // separate calls in even/odd order (overlap_p2p_comm off, batch_p2p_comm off)
  // Separate calls whose handles are kept: inputs are fetched one step ahead (overlap_p2p_comm_warmup_flush).
  // The current interleaved schedule, training or forward only.
  kFlush,
  kOverlap,  // the same in the steady state alone (overlap_p2p_comm)
  kDeferred,  // a receive goes out just before the computation that reads it (torch's defer_pp_recv); generated orders
};
enum class CommMap : std::uint8_t {
  kOne,        // one communicator a pipeline
  kPair,       // one two-rank communicator a pair of ranks (PyTorch's lazy default for separate calls)
  kDirection,  // one communicator a pipeline and direction (forward traffic, backward traffic)
  // One a pipeline; the reverse direction on the world communicator where pp = 2 and calls are separate.
  kMegatron,
};
enum class Precision : std::uint8_t { kFp32, kFp16, kBf16 };
enum class DecayStyle : std::uint8_t { kConstant, kLinear, kCosine, kInverseSquareRoot, kWsd };
enum class WsdStyle : std::uint8_t {
  kLinear,
  kCosine,
  kExponential,
  kMinusSqrt
};                                                                  // how WSD decays at the end
enum class WdStyle : std::uint8_t { kConstant, kLinear, kCosine };  // how weight decay grows
enum class OptimizerRule : std::uint8_t { kAdam, kSgd };
// Where checkpoints go that only the next restart needs: to one directory of their own, or each rank's to a disk of its
// machine. kInMemory is Megatron's word for what neither does.
enum class NonPersistent : std::uint8_t { kNone, kGlobal, kLocal, kInMemory };
enum class CheckpointFormat : std::uint8_t { kPlumbline, kTorch };  // own files, or Megatron's mp_rank_*
enum class LocalAlgorithm : std::uint8_t {
  kAtomic,
  kFullyParallel
};  // what a rank writes: all it holds, or a share
enum class ScalerRule : std::uint8_t { kMegatron, kDeepSpeed, kTorch };
enum class SendCompletion : std::uint8_t { kRendezvous, kEager, kAlwaysEager };
// Sizes of NCCL's send buffers: one limit for all links, or those of a kind of machine (sim/nccl_model.h).
enum class EagerLinks : std::uint8_t { kSame, kH100, kA100, kPcie, kIb };
enum class CrossComm : std::uint8_t {
  kFree,
  kStrict,       // one kernel after another
  kLaunchOrder,  // they start in launch order (NCCL_LAUNCH_ORDER_IMPLICIT=1)
};
enum class Connect : std::uint8_t { kWarm, kCold };
enum class CollectiveConnect : std::uint8_t { kAuto, kWarm, kCold };
enum class GroupOrder : std::uint8_t { kAuto, kSame, kCall };  // of the communicators of a group
enum class Mismatch : std::uint8_t { kReport, kEmulate };
enum class Numerics : std::uint8_t {
  kOrdered,
  kRing,
  kTree,
  kNvls
};  // of reductions (engine/runtime/reduce_nccl.h)
// Releases in which the order or number of kernels changed.
enum class NcclVersion : std::uint8_t { kNone, k2_18, k2_22, k2_26, k2_28_9, k2_29_2, k2_29_7, k2_30 };

// Activations that a backward builds again instead of keeping them (Korthikanti et al. 2022, section 5).
enum class Recompute : std::uint8_t {
  kNone,
  kSelective,  // attention's scores, softmax and dropout
  kFull,       // whole layers, from their inputs
};
enum class RecomputeMethod : std::uint8_t {
  kUniform,  // all layers of a stage, in groups whose first input is kept
  kBlock,    // the first layers of a stage, one by one
};

struct ParallelConfig {
  int tp = 1, cp = 1, ep = 1;  // accepted value: 1
  int dp = 1;
  int pp = 1;
  std::string order = "tp-cp-ep-dp-pp";
};

struct ScheduleConfig {
  ScheduleKind kind = ScheduleKind::kOneFOneB;
  std::string csv;        // file of a kCsv schedule
  std::string generator;  // name of a kGenerator schedule; the validator sets the kind when a name is given
  int chunks = 1;         // virtual pipeline size: model chunks a rank
  int microbatches = 1;   // per data-parallel replica and step
  // Sequences a step over all replicas, 0: not given. The validator turns it into microbatches, and back to
  // 0 unless a ramp-up ends at it.
  int global_batch_size = 0;
  // Three numbers - first global batch, increment, samples of the ramp - or empty (--rampup-batch-size).
  std::vector<std::int64_t> rampup;
  std::string batch_steps;  // "0:16 100K:32": global batch from a number of samples on; empty: constant
  bool decrease_batch_if_needed = false;
  int group_size = 0;      // microbatch_group_size_per_vp_stage; the validator turns 0 into pp
  int slices = 1;          // parts a sequence is cut into (generator seq-1f1b)
  int activation_cap = 0;  // stage activations a rank may hold (generators that search); 0: theirs
  P2pStyle p2p = P2pStyle::kBatched;
  // With kOverlap and kFlush: a forward and a backward are one step, so that their experts' all-to-alls hide.
  bool combined = false;
  // Megatron's calls exchange the shapes of their tensors first (variable_seq_lengths).
  bool variable_lengths = false;
  CommMap comm_map = CommMap::kMegatron;
  bool deallocate_outputs = true;
  // What a rank enqueues between two points at which its host waits is one CUDA graph (engine/program/graphs.h).
  bool cuda_graphs = false;
};

struct ModelConfig {
  std::string name = "gpt";  // a registered stage model
  int layers = 4;
  int hidden = 64;
  int heads = 4;
  int ffn_hidden = 0;  // the validator turns 0 into 4 * hidden
  int seq_length = 64;
  int vocab = 256;
  double init_std = 0.02;
  // Which stage holds which layers, unless they are dealt out evenly; one of these three ways (stage_layers.h).
  int first_layers = 0, last_layers = 0;  // of the first and the last rank of a pipeline; 0: as the others
  bool embedding_as_layer = false, loss_as_layer = false;  // counts as one when layers are dealt out
  std::string layout;                                      // "Et*3|(tt|)*29,m|L" (pipeline_layout.h)
};

struct TrainConfig {
  std::uint64_t seed = 1234;
  int iterations = 10;       // optimizer steps, skipped ones included
  std::int64_t samples = 0;  // --train-samples, 0: not given; the validator derives iterations from it
  int micro_batch_size = 1;  // sequences a microbatch
  int eval_interval = 0;     // 0: evaluate only at the end
  int eval_iterations = 4;   // forward-only steps an evaluation
  int exit_interval = 0;     // stop after an iteration that is a multiple of it; 0: run to the end
  std::string data;          // file or directory; empty: the snapshot in tests/data
  Precision precision = Precision::kFp32;
};

// What a run saves and what it goes on from (docs/checkpoints.md).
struct CheckpointConfig {
  std::string save;   // directory; empty: nothing is saved
  std::string load;   // likewise
  int interval = 0;   // iterations between checkpoints; 0: only where the run ends
  int keep_last = 0;  // checkpoints to keep; 0: all
  CheckpointFormat format = CheckpointFormat::kPlumbline;  // of what is saved
  bool async_save = false;
  bool save_optim = true, save_rng = true;
  bool load_optim = true, load_rng = true;
  bool finetune = false;         // weights alone, and everything else from the beginning
  int step = -1;                 // iteration to load; -1: what the tracker names
  bool exit_on_missing = false;  // nothing to load is an error
  // Non-persistent ones: of the newest alone, written between those of `interval`.
  NonPersistent non_persistent = NonPersistent::kNone;
  int non_persistent_interval = 0;    // 0: none are saved
  std::string non_persistent_global;  // directory; empty: "non_persistent" below save or load
  std::string non_persistent_local;   // directory on each machine
  LocalAlgorithm non_persistent_algorithm = LocalAlgorithm::kAtomic;
};

struct OptimizerConfig {
  OptimizerRule rule = OptimizerRule::kAdam;
  double lr = 1e-3;
  double min_lr = 0.0;
  double warmup_init = 0.0;  // learning rate of the very first step of a warm-up
  DecayStyle decay = DecayStyle::kConstant;
  // Lengths; at most one form each is given, 0: not given. Decay: the whole run.
  int warmup_iterations = 0;
  std::int64_t warmup_samples = 0;
  double warmup_fraction = 0.0;  // of the decay's length
  int decay_iterations = 0;
  std::int64_t decay_samples = 0;
  WsdStyle wsd_decay = WsdStyle::kExponential;
  int wsd_decay_iterations = 0;
  std::int64_t wsd_decay_samples = 0;
  double decoupled_lr = 0.0, decoupled_min_lr = 0.0;  // of embedding and output layer; 0: as all others
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double momentum = 0.9;  // SGD
  double weight_decay = 0.01;
  bool decoupled_weight_decay = true;  // AdamW; false: Adam with L2
  // Negative: weight_decay.
  double start_weight_decay = -1.0, end_weight_decay = -1.0;
  WdStyle weight_decay_incr = WdStyle::kConstant;
  double clip_grad = 1.0;  // 0: no clipping
  bool log_num_zeros = false;
  bool check_for_nan = false;  // without a loss scale: a gradient that is not finite ends the run
  // The distributed optimizer and its wrapper.
  bool distributed = false;
  bool overlap_grad_reduce = false;
  bool overlap_param_gather = false;
  // Pipeline ranks start a chunk's reduction (gather) at about the same time, rank r being r chunk passes behind.
  bool align_grad_reduce = true;
  bool align_param_gather = true;
  std::int64_t bucket_size = 0;  // elements; 0: Megatron's default
  bool pad_buckets = false;      // --ddp-pad-buckets-for-high-nccl-busbw
  // Ranks keep their shards of the parameters alone and gather a stage before it computes: generated schedules that
  // Megatron has no calls for. CSV rows say it themselves (UNSHARD).
  bool shard_parameters = false;
  bool cpu_offload = false;
  double offload_fraction = 1.0;
  // Precision-aware states (--use-precision-aware-optimizer).
  bool precision_aware = false;
  Precision main_params = Precision::kFp32;
  Precision exp_avg = Precision::kFp32;
  Precision exp_avg_sq = Precision::kFp32;
  bool post_validation = false;  // step before the agreement, roll back when it fails
  bool use_checkpoint_scheduler = false, override_scheduler = false;
};

struct LossScaleConfig {
  double constant = 0.0;  // above 0: a constant scale, also with bf16; 0: dynamic with fp16, none otherwise
  double initial = 4294967296.0;
  double minimum = 1.0;
  double growth_factor = 2.0;
  double backoff_factor = 0.5;
  int window = 1000;
  int hysteresis = 2;
  bool capped = true;  // growth stops at the last finite value
  ScalerRule rule = ScalerRule::kMegatron;
};

struct LinkConfig {
  // Negative in an override: not given; the validator puts the latency of all links there.
  Nanoseconds latency = 10'000;
  double bytes_per_second = 50e9;

  bool operator==(const LinkConfig&) const = default;
};

struct TimeConfig {
  // Cost of one chunk's kernel, in nanoseconds; one entry for all stages, or one a stage.
  std::vector<Nanoseconds> forward{1'000'000};
  std::vector<Nanoseconds> backward{2'000'000};
  std::vector<Nanoseconds> input_grad{1'000'000};
  std::vector<Nanoseconds> weight_grad{1'000'000};
  Nanoseconds optimizer = 500'000;
  LinkConfig link;                                    // every link unless overridden
  std::map<std::pair<Rank, Rank>, LinkConfig> links;  // (lower rank, higher rank) -> override
  std::map<Rank, double> slow;                        // rank -> factor on its compute times
  // Cores that the ranks of a machine (sim.ranks_per_node; 0: all are on one) share; 0: each has a device of its own.
  int cores = 0;
  double interference = 0.0;  // how much longer a kernel takes while all cores of its machine are busy
};

struct MemoryConfig {
  // Bytes of the tensor between two stages; 0: from the model (micro * seq * hidden * element).
  Bytes activation = 0;
  Bytes stash = 0;  // bytes kept by one chunk's forward for its backward; 0: from the model
  Bytes limit = 0;  // 0: no limit
  Recompute recompute = Recompute::kNone;
  RecomputeMethod recompute_method = RecomputeMethod::kUniform;
  int recompute_layers = 1;  // uniform: layers of a group; block: layers of a stage that are recomputed
};

// How the operations of a group progress. The defaults: all at once, whatever their number.
struct GroupProgress {
  int plan_items = 0;         // work items a kernel holds before the group is split; 0: no limit
  bool plan_restart = false;  // each of the kernels begins with the first round again
  int batch = 0;              // work items that run concurrently in a kernel; 0: all
  bool batch_epochs = false;  // a batch does not reach into the next epoch

  bool operator==(const GroupProgress&) const = default;
};

struct SimConfig {
  NcclVersion nccl = NcclVersion::kNone;  // decides what is left to it below
  SendCompletion send = SendCompletion::kRendezvous;
  // With kEager and kSame: bytes and number of messages (0: any) that a (communicator, sender, receiver) may hold.
  Bytes eager_bytes = 0;
  int eager_messages = 0;
  EagerLinks eager_links = EagerLinks::kSame;
  int ranks_per_node = 0;   // which links are network links; 0: none
  bool registered = false;  // user buffers are registered: sends are rendezvous
  CrossComm cross = CrossComm::kFree;
  int hw_queues = 0;  // CUDA_DEVICE_MAX_CONNECTIONS; 0: as many as streams
  int sms = 0;        // processors for the kernels of communicators; 0: enough
  int channels = 0;   // processors that one kernel takes; 0: by its size
  Connect connect = Connect::kWarm;
  CollectiveConnect connect_collectives = CollectiveConnect::kAuto;
  GroupOrder group_order = GroupOrder::kAuto;
  bool progress_auto = true;  // `progress` follows from the version
  GroupProgress progress;
  bool launch_blocking = false;
  bool lazy_modules = false;  // CUDA_MODULE_LOADING=LAZY, at its worst
  Mismatch mismatch = Mismatch::kReport;
  Numerics numerics = Numerics::kOrdered;
  int ring_channels = 1;          // kRing, kTree: channels of a communicator
  Bytes ring_chunk = 128 * 1024;  // that a member adds at a time, in one channel
};

// One non-finite gradient on one rank: found by the overflow check of that step on that rank.
struct OverflowFault {
  Rank rank = 0;
  int iteration = 1;  // counted from 1

  bool operator==(const OverflowFault&) const = default;
};

struct FaultConfig {
  std::vector<OverflowFault> overflow;
};

struct RunConfig {
  ParallelConfig parallel;
  ScheduleConfig schedule;
  ModelConfig model;
  TrainConfig train;
  CheckpointConfig checkpoint;
  OptimizerConfig optimizer;
  LossScaleConfig loss_scale;
  TimeConfig time;
  MemoryConfig memory;
  SimConfig sim;
  FaultConfig faults;
  RankGrid grid;  // made by the validator from `parallel`

  int stages() const { return parallel.pp * schedule.chunks; }
  // What passes through the pipeline in a step of a replica: microbatches, or slices of them.
  int passes() const { return schedule.microbatches * schedule.slices; }
};

}  // namespace plumbline

// The rows of [optimizer] and [loss_scale].
#include "engine/config/option_row.h"

namespace plumbline::detail {
namespace {

using namespace option_text;  // NOLINT: the table is made of these names

using Rows = std::vector<Option>;

Rows rule_rows() {
  return {
      choice<OptimizerRule>("optimizer", "rule", PL_FIELD(optimizer.rule), {"--optimizer"},
                            "adam is AdamW unless decoupled_weight_decay is off; sgd has momentum"),
      row<NumberText>("optimizer", "beta1", PL_FIELD(optimizer.beta1), {"--adam-beta1"}, "in [0, 1)"),
      row<NumberText>("optimizer", "beta2", PL_FIELD(optimizer.beta2), {"--adam-beta2"}, "in [0, 1)"),
      row<NumberText>("optimizer", "eps", PL_FIELD(optimizer.eps), {"--adam-eps"}, "above 0"),
      row<NumberText>("optimizer", "momentum", PL_FIELD(optimizer.momentum), {"--sgd-momentum"},
                      "of sgd, in [0, 1)"),
      row<NumberText>("optimizer", "clip_grad", PL_FIELD(optimizer.clip_grad), {"--clip-grad"},
                      "largest gradient norm; 0: no clipping"),
      row<SwitchText>("optimizer", "log_num_zeros", PL_FIELD(optimizer.log_num_zeros),
                      {"--log-num-zeros-in-grad"}, "count the zeros of the gradient"),
      row<SwitchText>("optimizer", "check_for_nan", PL_FIELD(optimizer.check_for_nan),
                      {"--check-for-nan-in-loss-and-grad"},
                      "without a loss scale, a gradient that is not finite ends the run"),
  };
}

Rows rate_rows() {
  return {
      row<NumberText>("optimizer", "lr", PL_FIELD(optimizer.lr), {"--lr"}, "not negative"),
      row<NumberText>("optimizer", "min_lr", PL_FIELD(optimizer.min_lr), {"--min-lr"}, "from 0 to lr"),
      row<NumberText>("optimizer", "warmup_init", PL_FIELD(optimizer.warmup_init), {"--lr-warmup-init"},
                      "learning rate where the warm-up starts, from 0 to lr"),
      row<NumberText>("optimizer", "decoupled_lr", PL_FIELD(optimizer.decoupled_lr), {"--decoupled-lr"},
                      "lr of embedding and output layer; 0: lr"),
      row<NumberText>("optimizer", "decoupled_min_lr", PL_FIELD(optimizer.decoupled_min_lr),
                      {"--decoupled-min-lr"}, "min_lr of embedding and output layer; needs decoupled_lr"),
      choice<DecayStyle>("optimizer", "decay", PL_FIELD(optimizer.decay), {"--lr-decay-style"},
                         "how lr falls to min_lr; WSD: not before the last wsd_decay steps or samples"),
      row<IntegerText>("optimizer", "decay_iterations", PL_FIELD(optimizer.decay_iterations),
                       {"--lr-decay-iters"}, "steps until lr is min_lr; 0: not given, the whole run"),
      row<LongText>("optimizer", "decay_samples", PL_FIELD(optimizer.decay_samples), {"--lr-decay-samples"},
                    "the same in samples; give one of the two"),
      row<IntegerText>("optimizer", "warmup_iterations", PL_FIELD(optimizer.warmup_iterations),
                       {"--lr-warmup-iters"}, "steps of linear warm-up; fewer than those of the decay"),
      row<LongText>("optimizer", "warmup_samples", PL_FIELD(optimizer.warmup_samples),
                    {"--lr-warmup-samples"}, "the same in samples; give one of the three"),
      row<NumberText>("optimizer", "warmup_fraction", PL_FIELD(optimizer.warmup_fraction),
                      {"--lr-warmup-fraction"}, "the same as a part of the decay, in [0, 1)"),
      choice<WsdStyle>("optimizer", "wsd_decay", PL_FIELD(optimizer.wsd_decay), {"--lr-wsd-decay-style"},
                       "how lr falls at the end of decay WSD"),
      row<IntegerText>("optimizer", "wsd_decay_iterations", PL_FIELD(optimizer.wsd_decay_iterations),
                       {"--lr-wsd-decay-iters"}, "steps in which it falls; needed by decay WSD alone"),
      row<LongText>("optimizer", "wsd_decay_samples", PL_FIELD(optimizer.wsd_decay_samples),
                    {"--lr-wsd-decay-samples"}, "the same in samples; give one of the two"),
      row<SwitchText>("optimizer", "override_scheduler", PL_FIELD(optimizer.override_scheduler),
                      {"--override-opt-param-scheduler"},
                      "when a checkpoint is loaded, rates and lengths given here win"),
      row<SwitchText>("optimizer", "use_checkpoint_scheduler", PL_FIELD(optimizer.use_checkpoint_scheduler),
                      {"--use-checkpoint-opt-param-scheduler"},
                      "when a checkpoint is loaded, its rates and lengths win; not together with the other"),
  };
}

Rows weight_decay_rows() {
  return {
      row<NumberText>("optimizer", "weight_decay", PL_FIELD(optimizer.weight_decay), {"--weight-decay"},
                      "not negative"),
      row<SwitchText>("optimizer", "decoupled_weight_decay", PL_FIELD(optimizer.decoupled_weight_decay),
                      {"--decoupled-weight-decay"},
                      "AdamW; off: Adam with L2, the decay is added to the gradient"),
      choice<WdStyle>("optimizer", "weight_decay_incr", PL_FIELD(optimizer.weight_decay_incr),
                      {"--weight-decay-incr-style"},
                      "how the weight decay goes from start to end over the run"),
      row<NumberText>("optimizer", "start_weight_decay", PL_FIELD(optimizer.start_weight_decay),
                      {"--start-weight-decay"},
                      "needed unless weight_decay_incr is constant; negative: not given"),
      row<NumberText>("optimizer", "end_weight_decay", PL_FIELD(optimizer.end_weight_decay),
                      {"--end-weight-decay"}, "at least start_weight_decay; negative: not given"),
  };
}

Rows distributed_rows() {
  return {
      row<SwitchText>("optimizer", "distributed", PL_FIELD(optimizer.distributed),
                      {"--use-distributed-optimizer"},
                      "optimizer states are sharded over the data-parallel replicas"),
      row<SwitchText>("optimizer", "overlap_grad_reduce", PL_FIELD(optimizer.overlap_grad_reduce),
                      {"--overlap-grad-reduce"},
                      "gradients of a chunk are reduced from its last backward on, bucket by bucket"),
      row<SwitchText>("optimizer", "overlap_param_gather", PL_FIELD(optimizer.overlap_param_gather),
                      {"--overlap-param-gather"},
                      "parameters are gathered in the next step, until their chunk's first forward; needs "
                      "distributed and overlap_grad_reduce"),
      row<SwitchText>("optimizer", "align_grad_reduce", PL_FIELD(optimizer.align_grad_reduce),
                      {"--align-grad-reduce"},
                      "pipeline ranks start the overlapped reduction of a chunk at about the same time"),
      row<SwitchText>(
          "optimizer", "align_param_gather", PL_FIELD(optimizer.align_param_gather), {"--align-param-gather"},
          "likewise the overlapped gathers of an interleaved schedule; off: all at the step's begin"),
      row<LongText>(
          "optimizer", "bucket_size", PL_FIELD(optimizer.bucket_size), {"--ddp-bucket-size"},
          "elements after which a bucket closes; 0: max(40M, 1M * dp) on the first rank's first chunk "
          "with overlap_grad_reduce, else no limit"),
      row<SwitchText>("optimizer", "pad_buckets", PL_FIELD(optimizer.pad_buckets),
                      {"--ddp-pad-buckets-for-high-nccl-busbw"},
                      "buckets are padded to a multiple of 2^16 elements; needs distributed"),
      row<SwitchText>(
          "optimizer", "shard_parameters", PL_FIELD(optimizer.shard_parameters), {"--shard-parameters"},
          "a rank keeps its shards of the parameters and gathers a stage before it computes (UNSHARD, "
          "RESHARD, REDUCE_GRAD); schedules by --generator; needs distributed"),
      row<SwitchText>("optimizer", "cpu_offload", PL_FIELD(optimizer.cpu_offload),
                      {"--optimizer-cpu-offload"},
                      "a part of the optimizer states is on the CPU; needs distributed"),
      row<NumberText>("optimizer", "offload_fraction", PL_FIELD(optimizer.offload_fraction),
                      {"--optimizer-offload-fraction"}, "that part, in [0, 1]"),
      row<SwitchText>("optimizer", "precision_aware", PL_FIELD(optimizer.precision_aware),
                      {"--use-precision-aware-optimizer"},
                      "main parameters and moments may be narrower than fp32; needs distributed and adam"),
      choice<Precision>("optimizer", "main_params", PL_FIELD(optimizer.main_params), {"--main-params-dtype"},
                        "fp32 or fp16; other than fp32 needs precision_aware"),
      choice<Precision>("optimizer", "exp_avg", PL_FIELD(optimizer.exp_avg), {"--exp-avg-dtype"},
                        "first moment; other than fp32 needs precision_aware"),
      choice<Precision>("optimizer", "exp_avg_sq", PL_FIELD(optimizer.exp_avg_sq), {"--exp-avg-sq-dtype"},
                        "second moment; other than fp32 needs precision_aware"),
      row<SwitchText>("optimizer", "post_validation", PL_FIELD(optimizer.post_validation),
                      {"--optimizer-post-validation"},
                      "step before overflow and norm are agreed, and roll back where the step was wrong"),
  };
}

Rows loss_scale_rows() {
  return {
      row<NumberText>("loss_scale", "constant", PL_FIELD(loss_scale.constant), {"--loss-scale"},
                      "above 0: this scale, always; 0: dynamic with fp16, none otherwise"),
      row<NumberText>("loss_scale", "initial", PL_FIELD(loss_scale.initial), {"--initial-loss-scale"},
                      "at least minimum"),
      row<NumberText>("loss_scale", "minimum", PL_FIELD(loss_scale.minimum), {"--min-loss-scale"}, "above 0"),
      row<NumberText>("loss_scale", "growth_factor", PL_FIELD(loss_scale.growth_factor),
                      {"--loss-scale-growth-factor"}, "above 1"),
      row<NumberText>("loss_scale", "backoff_factor", PL_FIELD(loss_scale.backoff_factor),
                      {"--loss-scale-backoff-factor"}, "between 0 and 1"),
      row<IntegerText>("loss_scale", "window", PL_FIELD(loss_scale.window), {"--loss-scale-window"},
                       "steps without overflow after which the scale grows; at least 1"),
      row<IntegerText>("loss_scale", "hysteresis", PL_FIELD(loss_scale.hysteresis), {"--hysteresis"},
                       "overflows before the scale falls; at least 1"),
      row<SwitchText>(
          "loss_scale", "capped", PL_FIELD(loss_scale.capped), {"--cap-loss-scale"},
          "growth stops at the last finite value; off: the scale may become infinite, as in Megatron"),
      choice<ScalerRule>("loss_scale", "rule", PL_FIELD(loss_scale.rule), {"--loss-scale-rule"},
                         "how a dynamic scale moves: Megatron's, DeepSpeed's or torch's way"),
  };
}

}  // namespace

std::vector<Option> make_optimizer_options() {
  Rows all;
  for (Rows& part : std::vector<Rows>{rule_rows(), rate_rows(), weight_decay_rows(), distributed_rows(),
                                      loss_scale_rows()}) {
    all.insert(all.end(), std::make_move_iterator(part.begin()), std::make_move_iterator(part.end()));
  }
  return all;
}

}  // namespace plumbline::detail

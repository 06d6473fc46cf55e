// Rules of [optimizer] and [loss_scale] that relate values to each other. Where Megatron asserts, the message
// gives its rule; what it accepts and we cannot do is refused here too, not ignored.
#include <fmt/format.h>

#include "engine/config/names.h"
#include "engine/config/validate_rules.h"

namespace plumbline::detail {
namespace {

void check_rates(RuleBook& book) {
  const OptimizerConfig& o = book.config.optimizer;
  const auto at_most_lr = [&](const char* option, double value) {
    if (value > o.lr) {
      book.refuse(option, fmt::format("must not exceed optimizer.lr={}", o.lr),
                  fmt::format("use {} or less", o.lr));
    }
  };
  at_most_lr("optimizer.min_lr", o.min_lr);
  at_most_lr("optimizer.warmup_init", o.warmup_init);
  if (o.decoupled_min_lr > o.decoupled_lr) {
    const bool without = o.decoupled_lr == 0.0;
    book.refuse("optimizer.decoupled_min_lr",
                without ? "needs optimizer.decoupled_lr"
                        : fmt::format("must not exceed optimizer.decoupled_lr={}", o.decoupled_lr),
                without ? "add --decoupled-lr" : fmt::format("use {} or less", o.decoupled_lr));
  }
  if (o.override_scheduler && o.use_checkpoint_scheduler) {
    book.refuse("optimizer.override_scheduler", "contradicts optimizer.use_checkpoint_scheduler",
                "give one of the two");
  }
}

// A length given in several units. Returns how many are.
struct Form {
  const char* option;
  bool given;
};
void check_one_form(RuleBook& book, std::initializer_list<Form> forms) {
  const char* first = nullptr;
  for (const Form& form : forms) {
    if (!form.given) continue;
    if (first != nullptr) {
      book.refuse(form.option, fmt::format("and {} say one length in two units", first), "give one of them");
    }
    first = form.option;
  }
}

void check_lengths(RuleBook& book) {
  const OptimizerConfig& o = book.config.optimizer;
  check_one_form(book, {{"optimizer.warmup_iterations", o.warmup_iterations > 0},
                        {"optimizer.warmup_samples", o.warmup_samples > 0},
                        {"optimizer.warmup_fraction", o.warmup_fraction > 0.0}});
  check_one_form(book, {{"optimizer.decay_iterations", o.decay_iterations > 0},
                        {"optimizer.decay_samples", o.decay_samples > 0}});
  check_one_form(book, {{"optimizer.wsd_decay_iterations", o.wsd_decay_iterations > 0},
                        {"optimizer.wsd_decay_samples", o.wsd_decay_samples > 0}});
  const bool wsd = o.decay == DecayStyle::kWsd;
  if (wsd && o.wsd_decay_iterations == 0 && o.wsd_decay_samples == 0) {
    book.refuse("optimizer.decay", "needs the length of its last part", "add --lr-wsd-decay-iters");
  }
  for (const Form& form : {Form{"optimizer.wsd_decay_iterations", o.wsd_decay_iterations > 0},
                           Form{"optimizer.wsd_decay_samples", o.wsd_decay_samples > 0}}) {
    if (form.given && !wsd)
      book.refuse(form.option, "has a meaning with optimizer.decay=WSD alone",
                  "add --lr-decay-style WSD, or leave it out");
  }
}

void check_weight_decay(RuleBook& book) {
  const OptimizerConfig& o = book.config.optimizer;
  const bool constant = o.weight_decay_incr == WdStyle::kConstant;
  for (const auto& [option, value] : {std::pair{"optimizer.start_weight_decay", o.start_weight_decay},
                                      std::pair{"optimizer.end_weight_decay", o.end_weight_decay}}) {
    if (constant && value >= 0.0) {
      book.refuse(option, "has no meaning when the weight decay is constant",
                  "use --weight-decay, or --weight-decay-incr-style linear");
    } else if (!constant && value < 0.0) {
      book.refuse(option, fmt::format("is needed by weight_decay_incr={}", name(o.weight_decay_incr)),
                  "give both ends, from 0 up");
    }
  }
  if (!constant && o.start_weight_decay >= 0.0 && o.end_weight_decay >= 0.0 &&
      o.end_weight_decay < o.start_weight_decay) {
    book.refuse(
        "optimizer.end_weight_decay",
        fmt::format("is below optimizer.start_weight_decay={}, and weight decay grows", o.start_weight_decay),
        "exchange the two");
  }
}

void check_sharding(RuleBook& book) {
  const OptimizerConfig& o = book.config.optimizer;
  const auto needs_distributed = [&](const char* option, bool on) {
    if (on && !o.distributed)
      book.refuse(option, "needs optimizer.distributed", "add --use-distributed-optimizer");
  };
  needs_distributed("optimizer.overlap_param_gather", o.overlap_param_gather);
  if (o.overlap_param_gather && !o.overlap_grad_reduce) {
    book.refuse("optimizer.overlap_param_gather", "needs optimizer.overlap_grad_reduce",
                "add --overlap-grad-reduce");
  }
  needs_distributed("optimizer.pad_buckets", o.pad_buckets);
  needs_distributed("optimizer.cpu_offload", o.cpu_offload);
  needs_distributed("optimizer.shard_parameters", o.shard_parameters);
  const ScheduleKind kind = book.config.schedule.kind;
  if (o.shard_parameters && kind != ScheduleKind::kGenerator && kind != ScheduleKind::kCsv) {
    book.refuse("optimizer.shard_parameters", "is for schedules that Megatron has no calls for",
                "name the schedule by --generator, or leave it out");
  }
  needs_distributed("optimizer.precision_aware", o.precision_aware);
  if (o.post_validation && o.cpu_offload) {
    book.refuse("optimizer.post_validation", "takes snapshots of states that cpu_offload keeps elsewhere",
                "give one of the two");
  }
}

void check_precisions(RuleBook& book) {
  const OptimizerConfig& o = book.config.optimizer;
  if (o.precision_aware && o.rule != OptimizerRule::kAdam) {
    book.refuse("optimizer.precision_aware", fmt::format("is for adam, not for {}", name(o.rule)),
                "use --optimizer adam");
  }
  for (const auto& [option, value] :
       {std::pair{"optimizer.main_params", o.main_params}, std::pair{"optimizer.exp_avg", o.exp_avg},
        std::pair{"optimizer.exp_avg_sq", o.exp_avg_sq}}) {
    if (value != Precision::kFp32 && !o.precision_aware) {
      book.refuse(option, "needs optimizer.precision_aware",
                  "add --use-precision-aware-optimizer, or use fp32");
    }
  }
  if (!o.precision_aware || o.main_params == Precision::kFp32) return;
  if (o.main_params == Precision::kBf16) {
    book.refuse("optimizer.main_params", "must be fp32 or fp16: bf16 would lose small updates", "use fp32");
  } else if (book.config.train.precision == Precision::kFp16) {
    book.refuse("optimizer.main_params", "must be fp32 when the model is fp16", "use fp32, or --bf16");
  }
}

void check_scale(RuleBook& book) {
  const LossScaleConfig& s = book.config.loss_scale;
  if (!(s.minimum > 0.0)) book.refuse("loss_scale.minimum", "must be above 0", "the usual value is 1");
  if (!(s.initial >= s.minimum)) {
    book.refuse("loss_scale.initial", fmt::format("must be at least loss_scale.minimum={}", s.minimum),
                "the usual value is 4294967296 (2^32)");
  }
  if (!(s.growth_factor > 1.0)) {
    book.refuse("loss_scale.growth_factor", "must be above 1", "the usual value is 2");
  }
  if (!(s.backoff_factor > 0.0 && s.backoff_factor < 1.0)) {
    book.refuse("loss_scale.backoff_factor", "must be between 0 and 1", "the usual value is 0.5");
  }
  const bool fp32_alone =
      book.config.train.precision == Precision::kFp32 && !book.config.optimizer.distributed;
  if (s.constant > 0.0 && fp32_alone) {
    book.refuse("loss_scale.constant", "has no effect: the optimizer of fp32 parameters has no loss scale",
                "leave it out, or add --fp16, --bf16 or --use-distributed-optimizer");
  }
  const bool dynamic = s.constant == 0.0 && book.config.train.precision == Precision::kFp16;
  if (book.config.optimizer.check_for_nan && dynamic) {
    book.config.optimizer.check_for_nan = false;
    book.warn(
        "optimizer.check_for_nan is off: with a dynamic loss scale a gradient that is not finite means a "
        "smaller scale");
  }
}

}  // namespace

void check_optimizer(RuleBook& book) {
  check_rates(book);
  check_lengths(book);
  check_weight_decay(book);
  check_sharding(book);
  check_precisions(book);
  check_scale(book);
}

}  // namespace plumbline::detail

// Rules that look at one value alone.
#include <array>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "engine/config/validate_rules.h"

namespace plumbline::detail {
namespace {

constexpr int kAny = std::numeric_limits<int>::max();
// 1000 s: 2^20 microbatches of the longest kernel, slowed a thousandfold, still fit 64-bit nanoseconds.
constexpr Nanoseconds kLongest = 1'000'000'000'000;
constexpr Bytes kLargest = Bytes{1} << 50;

struct IntegerBound {
  const char* option;
  int value;
  int low;
  int high;
};

void check_integers(RuleBook& book, const std::vector<IntegerBound>& bounds) {
  for (const IntegerBound& bound : bounds) {
    if (bound.value < bound.low) {
      book.refuse(bound.option, fmt::format("must be at least {}", bound.low),
                  fmt::format("use {}", bound.low));
    } else if (bound.value > bound.high) {
      book.refuse(bound.option, fmt::format("must be at most {}", bound.high),
                  fmt::format("use {} or less", bound.high));
    }
  }
}

void check_within(RuleBook& book, const char* option, std::int64_t value, std::int64_t high,
                  const char* limit) {
  if (value < 0) book.refuse(option, "must not be negative", "use 0 or more");
  if (value > high) book.refuse(option, fmt::format("must be at most {}", limit), "use a smaller value");
}

void check_unit_interval(RuleBook& book, const char* option, double value) {
  if (!(value >= 0.0 && value < 1.0))
    book.refuse(option, "must be in [0, 1)", "the usual values are 0.9 and 0.999");
}

void check_not_negative(RuleBook& book, const char* option, double value) {
  if (!(value >= 0.0) || !std::isfinite(value))
    book.refuse(option, "must be a number from 0 up", "use 0 or more");
}

}  // namespace

void check_sizes(RuleBook& book) {
  const RunConfig& c = book.config;
  for (const auto& [option, value] :
       {std::pair{"parallel.tp", c.parallel.tp}, std::pair{"parallel.cp", c.parallel.cp},
        std::pair{"parallel.ep", c.parallel.ep}}) {
    if (value != 1) {
      book.refuse(option, "must be 1: plumbline parallelizes over pp and dp only", "use 1",
                  ErrorCode::kUnsupported);
    }
  }
  constexpr int kMostMicrobatches = (1 << 20) - 1;  // a Program item has 20 bits for it
  check_integers(book,
                 {
                     {"parallel.dp", c.parallel.dp, 1, 1 << 20},
                     {"parallel.pp", c.parallel.pp, 1, 1 << 20},
                     {"schedule.chunks", c.schedule.chunks, 1, 1 << 10},
                     {"schedule.microbatches", c.schedule.microbatches, 1, kMostMicrobatches},
                     {"schedule.global_batch_size", c.schedule.global_batch_size, 0, kAny},
                     {"schedule.group_size", c.schedule.group_size, 0, kMostMicrobatches},
                     {"schedule.slices", c.schedule.slices, 1, 1 << 10},
                     {"schedule.activation_cap", c.schedule.activation_cap, 0, kAny},
                     {"model.layers", c.model.layers, 1, 1 << 20},
                     {"model.hidden", c.model.hidden, 1, 1 << 20},
                     {"model.heads", c.model.heads, 1, 1 << 20},
                     {"model.ffn_hidden", c.model.ffn_hidden, 0, 1 << 22},
                     {"model.seq_length", c.model.seq_length, 1, 1 << 20},
                     {"model.vocab", c.model.vocab, 1, 1 << 24},
                     {"model.first_layers", c.model.first_layers, 0, 1 << 20},
                     {"model.last_layers", c.model.last_layers, 0, 1 << 20},
                     {"memory.recompute_layers", c.memory.recompute_layers, 1, 1 << 20},
                     {"train.iterations", c.train.iterations, 1, kAny},
                     {"sim.ranks_per_node", c.sim.ranks_per_node, 0, 1 << 20},
                     {"sim.hw_queues", c.sim.hw_queues, 0, 256},
                     {"sim.sms", c.sim.sms, 0, 1 << 16},
                     {"sim.channels", c.sim.channels, 0, 64},
                     {"sim.ring_channels", c.sim.ring_channels, 1, 64},
                     {"train.micro_batch_size", c.train.micro_batch_size, 1, 1 << 20},
                     {"train.eval_interval", c.train.eval_interval, 0, kAny},
                     {"train.eval_iterations", c.train.eval_iterations, 0, kAny},
                     {"train.exit_interval", c.train.exit_interval, 0, kAny},
                     {"checkpoint.interval", c.checkpoint.interval, 0, kAny},
                     {"checkpoint.keep_last", c.checkpoint.keep_last, 0, kAny},
                     {"checkpoint.step", c.checkpoint.step, -1, kAny},
                     {"checkpoint.non_persistent_interval", c.checkpoint.non_persistent_interval, 0, kAny},
                     {"optimizer.warmup_iterations", c.optimizer.warmup_iterations, 0, kAny},
                     {"optimizer.decay_iterations", c.optimizer.decay_iterations, 0, kAny},
                     {"optimizer.wsd_decay_iterations", c.optimizer.wsd_decay_iterations, 0, kAny},
                     {"loss_scale.window", c.loss_scale.window, 1, kAny},
                     {"loss_scale.hysteresis", c.loss_scale.hysteresis, 1, kAny},
                 });
  // Both speak of layers that are recomputed whole; without those they would be taken and do nothing.
  if (c.memory.recompute != Recompute::kFull) {
    if (c.memory.recompute_layers != 1)
      book.refuse("memory.recompute_layers", "says how many layers are recomputed whole, and none are",
                  "give --recompute-granularity full, or leave it out");
    if (c.memory.recompute_method != RecomputeMethod::kUniform)
      book.refuse("memory.recompute_method", "says which layers are recomputed whole, and none are",
                  "give --recompute-granularity full, or leave it out");
  }
  constexpr std::int64_t kMostSamples = std::int64_t{1} << 50;
  for (const auto& [option, value] :
       {std::pair{"train.samples", c.train.samples},
        std::pair{"optimizer.warmup_samples", c.optimizer.warmup_samples},
        std::pair{"optimizer.decay_samples", c.optimizer.decay_samples},
        std::pair{"optimizer.wsd_decay_samples", c.optimizer.wsd_decay_samples}}) {
    check_within(book, option, value, kMostSamples, "2^50 samples");
  }
  check_within(book, "optimizer.bucket_size", c.optimizer.bucket_size, std::int64_t{1} << 40,
               "2^40 elements");
  if (c.model.name.empty()) book.refuse("model.name", "must not be empty", "use gpt");
}

void check_numbers(RuleBook& book) {
  const RunConfig& c = book.config;
  check_not_negative(book, "model.init_std", c.model.init_std);
  check_not_negative(book, "optimizer.lr", c.optimizer.lr);
  check_not_negative(book, "optimizer.min_lr", c.optimizer.min_lr);
  check_not_negative(book, "optimizer.warmup_init", c.optimizer.warmup_init);
  check_not_negative(book, "optimizer.decoupled_lr", c.optimizer.decoupled_lr);
  check_not_negative(book, "optimizer.decoupled_min_lr", c.optimizer.decoupled_min_lr);
  check_unit_interval(book, "optimizer.beta1", c.optimizer.beta1);
  check_unit_interval(book, "optimizer.beta2", c.optimizer.beta2);
  if (!(c.optimizer.eps > 0.0)) book.refuse("optimizer.eps", "must be above 0", "the usual value is 1e-08");
  check_not_negative(book, "optimizer.weight_decay", c.optimizer.weight_decay);
  check_not_negative(book, "optimizer.clip_grad", c.optimizer.clip_grad);
  check_unit_interval(book, "optimizer.momentum", c.optimizer.momentum);
  for (const auto& [option, value] :
       {std::pair{"optimizer.start_weight_decay", c.optimizer.start_weight_decay},
        std::pair{"optimizer.end_weight_decay", c.optimizer.end_weight_decay}}) {
    if (!std::isfinite(value)) book.refuse(option, "must be a number", "leave it out, or use 0 or more");
  }
  if (!(c.optimizer.warmup_fraction >= 0.0 && c.optimizer.warmup_fraction < 1.0)) {
    book.refuse("optimizer.warmup_fraction", "must be in [0, 1)", "0.1 warms up for a tenth of the decay");
  }
  if (!(c.optimizer.offload_fraction >= 0.0 && c.optimizer.offload_fraction <= 1.0)) {
    book.refuse("optimizer.offload_fraction", "must be in [0, 1]", "1 offloads all states");
  }
  check_not_negative(book, "loss_scale.constant", c.loss_scale.constant);
  const auto durations = [&](const char* option, const std::vector<Nanoseconds>& list) {
    for (const Nanoseconds value : list) check_within(book, option, value, kLongest, "1000s");
  };
  durations("time.forward", c.time.forward);
  durations("time.backward", c.time.backward);
  durations("time.input_grad", c.time.input_grad);
  durations("time.weight_grad", c.time.weight_grad);
  check_within(book, "time.optimizer", c.time.optimizer, kLongest, "1000s");
  check_not_negative(book, "time.interference", c.time.interference);
  if (c.time.interference > 100.0) book.refuse("time.interference", "must be at most 100", "0.2 is a fifth");
  check_integers(book, {{"time.cores", c.time.cores, 0, 1 << 16}});
  check_within(book, "time.link_latency", c.time.link.latency, kLongest, "1000s");
  if (!(c.time.link.bytes_per_second > 0.0)) {
    book.refuse("time.link_bandwidth", "must be above zero", "the usual value of NVLink is 300GB/s");
  }
  check_within(book, "memory.activation", c.memory.activation, kLargest, "2^50 bytes");
  check_within(book, "memory.stash", c.memory.stash, kLargest, "2^50 bytes");
  check_within(book, "memory.limit", c.memory.limit, kLargest, "2^50 bytes");
}

}  // namespace plumbline::detail

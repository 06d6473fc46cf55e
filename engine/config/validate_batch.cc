// The batch of a run: from the global batch size to microbatches, from samples to iterations, and the numbers
// of microbatches that a ramp-up or a batch schedule goes through. All of them must suit the schedule.
#include <limits>

#include <fmt/format.h>

#include "engine/config/batch_schedule.h"
#include "engine/config/validate_rules.h"

namespace plumbline::detail {
namespace {

constexpr std::int64_t kMostMicrobatches = (1 << 20) - 1;  // a Program item has 20 bits for them

std::int64_t unit_of(const RunConfig& config) {
  return std::int64_t{config.train.micro_batch_size} * config.parallel.dp;
}

void derive_microbatches(RuleBook& book) {
  ScheduleConfig& s = book.config.schedule;
  if (s.global_batch_size == 0) return;
  const std::int64_t unit = unit_of(book.config);
  if (s.global_batch_size % unit != 0 && !(s.decrease_batch_if_needed && s.global_batch_size > unit)) {
    return book.refuse("schedule.global_batch_size",
                       fmt::format("is not a multiple of train.micro_batch_size={} times parallel.dp={}",
                                   book.config.train.micro_batch_size, book.config.parallel.dp),
                       fmt::format("use {}", (s.global_batch_size / unit + 1) * unit));
  }
  const std::int64_t microbatches = s.global_batch_size / unit;
  if (book.origins.given("schedule.microbatches") && s.microbatches != microbatches) {
    return book.refuse(
        "schedule.global_batch_size",
        fmt::format("means {} microbatches, but schedule.microbatches={}", microbatches, s.microbatches),
        "give one of the two");
  }
  if (microbatches > kMostMicrobatches) {
    return book.refuse("schedule.global_batch_size",
                       fmt::format("means {} microbatches, but 2^20 - 1 is the most", microbatches),
                       "use a larger micro_batch_size");
  }
  s.microbatches = static_cast<int>(microbatches);
  // A ramp-up goes to exactly this batch; otherwise the number of microbatches says it all.
  if (s.rampup.empty()) s.global_batch_size = 0;
}

void check_forms(RuleBook& book) {
  ScheduleConfig& s = book.config.schedule;
  if (s.kind == ScheduleKind::kCsv && !(s.rampup.empty() && s.batch_steps.empty())) {
    book.refuse(s.rampup.empty() ? "schedule.batch_steps" : "schedule.rampup",
                "does not go with a csv schedule, which has one number of microbatches", "leave it out");
  }
  if (s.batch_steps.empty()) return;
  if (!s.rampup.empty())
    book.refuse("schedule.batch_steps", "and schedule.rampup both say how the batch grows",
                "give one of the two");
  if (s.global_batch_size != 0) {
    book.refuse("schedule.global_batch_size", "contradicts schedule.batch_steps, which gives all batches",
                "give one of the two");
  }
  if (s.decrease_batch_if_needed) {
    book.refuse("schedule.decrease_batch_if_needed", "does not go with schedule.batch_steps",
                "write batches that are multiples of micro_batch_size * dp");
  }
}

const char* option_of_schedule(const ScheduleConfig& s) {
  if (!s.batch_steps.empty()) return "schedule.batch_steps";
  return s.rampup.empty() ? "schedule.microbatches" : "schedule.rampup";
}

void refuse_batches(RuleBook& book, const Error& error) {
  book.refuse(option_of_schedule(book.config.schedule), "cannot be run: " + error.message,
              "change the batches, or micro_batch_size * dp");
}

void derive_iterations(RuleBook& book, const NumMicrobatches& batches) {
  TrainConfig& t = book.config.train;
  if (t.samples == 0) return;
  const Result<std::int64_t> iterations = batches.iterations_for(t.samples);
  if (!iterations) return refuse_batches(book, iterations.error());
  if (*iterations < 1)
    return book.refuse("train.samples", "is less than the batch of one step", "use more, or a smaller batch");
  if (*iterations > std::numeric_limits<int>::max())
    return book.refuse("train.samples", fmt::format("means {} steps, more than 2^31 - 1", *iterations),
                       "use fewer");
  if (book.origins.given("train.iterations") && t.iterations != *iterations) {
    return book.refuse("train.samples",
                       fmt::format("means {} steps, but train.iterations={}", *iterations, t.iterations),
                       "give one of the two");
  }
  t.iterations = static_cast<int>(*iterations);
}

// Samples of the whole decay and of the warm-up must leave something between them.
void check_lengths(RuleBook& book, const NumMicrobatches& batches) {
  const OptimizerConfig& o = book.config.optimizer;
  const auto samples = [&](std::int64_t given, std::int64_t iterations) {
    if (given > 0) return given;
    const Result<std::int64_t> made = batches.samples_for(iterations);
    return made ? *made : std::numeric_limits<std::int64_t>::max();
  };
  const bool decay_given = o.decay_iterations > 0 || o.decay_samples > 0;
  const std::int64_t run = samples(book.config.train.samples, book.config.train.iterations);
  const std::int64_t decay = decay_given ? samples(o.decay_samples, o.decay_iterations) : run;
  const std::string limit =
      o.decay_iterations > 0 ? fmt::format("optimizer.decay_iterations={}", o.decay_iterations)
      : o.decay_samples > 0  ? fmt::format("optimizer.decay_samples={}", o.decay_samples)
                             : fmt::format("train.iterations={}", book.config.train.iterations);
  if (o.warmup_iterations > 0 && samples(0, o.warmup_iterations) >= decay)
    book.refuse("optimizer.warmup_iterations", "must be fewer than " + limit, "use fewer, or train longer");
  if (o.warmup_samples >= decay) {
    book.refuse("optimizer.warmup_samples",
                fmt::format("must be fewer than the {} samples of the decay", decay),
                "use fewer, or train longer");
  }
  for (const auto& [option, given, length] :
       {std::tuple{"optimizer.wsd_decay_iterations", o.wsd_decay_iterations > 0,
                   samples(0, o.wsd_decay_iterations)},
        std::tuple{"optimizer.wsd_decay_samples", o.wsd_decay_samples > 0, o.wsd_decay_samples}}) {
    if (given && length > decay) book.refuse(option, fmt::format("must not exceed {}", limit), "use fewer");
  }
}

}  // namespace

void derive_batch(RuleBook& book) {
  ScheduleConfig& s = book.config.schedule;
  check_forms(book);
  if (!book.ok()) return;
  derive_microbatches(book);
  if (!book.ok()) return;
  const std::int64_t unit = unit_of(book.config);
  if (!s.rampup.empty() && s.global_batch_size == 0) {
    const std::int64_t global = s.microbatches * unit;
    if (global > std::numeric_limits<int>::max())
      return book.refuse("schedule.microbatches", "means a global batch above 2^31 - 1", "use fewer");
    s.global_batch_size = static_cast<int>(global);
  }
  const Result<NumMicrobatches> batches = num_microbatches_of(book.config);
  if (!batches) return refuse_batches(book, batches.error());
  derive_iterations(book, *batches);
  if (!book.ok()) return;
  const Result<NumMicrobatches::Plan> plan = batches->plan(0, book.config.train.iterations);
  if (!plan) return refuse_batches(book, plan.error());
  for (const auto& [iteration, batch] : *plan) {
    if (batch.num_microbatches > kMostMicrobatches) {
      return book.refuse(option_of_schedule(s),
                         fmt::format("means {} microbatches from step {} on, but 2^20 - 1 is the most",
                                     batch.num_microbatches, iteration + 1),
                         "use a larger micro_batch_size");
    }
    book.microbatches.emplace_back(iteration, static_cast<int>(batch.num_microbatches));
  }
  if (!s.batch_steps.empty()) {
    const int last = book.microbatches.back().second;
    if (book.origins.given("schedule.microbatches") && s.microbatches != last) {
      return book.refuse(
          "schedule.microbatches",
          fmt::format("contradicts schedule.batch_steps, which ends with {} in this run", last),
          "leave it out");
    }
    s.microbatches = last;
  }
  check_lengths(book, *batches);
}

}  // namespace plumbline::detail

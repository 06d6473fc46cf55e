#include "engine/config/num_microbatches.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "engine/base/text.h"

namespace plumbline {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

Status positive(std::string_view what, std::int64_t value) {
  if (value >= 1) return {};
  return fail(ErrorCode::kConfig, fmt::format("{} is {}; it must be at least 1", what, value));
}

Status check_shape(NumMicrobatches::Shape shape) {
  PL_TRY(positive("micro batch size", shape.micro_batch_size));
  PL_TRY(positive("data-parallel size", shape.data_parallel_size));
  if (shape.micro_batch_size > kNever / shape.data_parallel_size)
    return fail(ErrorCode::kConfig, "micro batch size times data-parallel size does not fit in 64 bits");
  return {};
}

// "2.5K" -> 2500, without a detour over binary fractions.
Result<std::int64_t> parse_threshold(std::string_view text) {
  const auto refuse = [&] {
    return fail(
        ErrorCode::kParse,
        fmt::format("\"{}\" is no threshold of a batch schedule; write a whole number of samples, with "
                    "suffix K, M, B or T if you like",
                    text));
  };
  std::string_view digits = text;
  std::size_t zeros = 0;
  if (!digits.empty()) {
    const std::size_t suffix = std::string_view("KMBT").find(static_cast<char>(digits.back() & ~0x20));
    if (suffix != std::string_view::npos) {
      zeros = 3 * (suffix + 1);
      digits.remove_suffix(1);
    }
  }
  std::string whole(digits.substr(0, digits.find('.')));
  if (whole.empty()) return refuse();
  if (whole.size() < digits.size()) {
    std::string_view fraction = digits.substr(whole.size() + 1);
    while (!fraction.empty() && fraction.back() == '0') fraction.remove_suffix(1);
    if (fraction.size() > zeros) return refuse();
    whole += fraction;
    zeros -= fraction.size();
  }
  if (whole.find_first_not_of("0123456789") != std::string::npos) return refuse();
  const Result<std::int64_t> value = parse_integer(whole + std::string(zeros, '0'));
  return value ? value : refuse();
}

Result<std::pair<std::int64_t, std::int64_t>> parse_step(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) {
    return fail(ErrorCode::kParse,
                fmt::format("\"{}\" of the batch schedule lacks its ':'; write threshold:batch", text));
  }
  const Result<std::int64_t> threshold = parse_threshold(text.substr(0, colon));
  PL_TRY(threshold);
  const Result<std::int64_t> batch = parse_integer(text.substr(colon + 1));
  if (!batch) {
    return fail(ErrorCode::kParse,
                fmt::format("\"{}\" of the batch schedule: the global batch is no number; {}", text,
                            batch.error().message));
  }
  return std::pair(*threshold, *batch);
}

}  // namespace

Result<NumMicrobatches> NumMicrobatches::constant(std::int64_t global_batch_size, Shape shape,
                                                  bool decrease_if_needed) {
  PL_TRY(positive("global batch size", global_batch_size));
  PL_TRY(check_shape(shape));
  NumMicrobatches out;
  out.target_ = global_batch_size;
  out.shape_ = shape;
  out.decrease_ = decrease_if_needed;
  PL_TRY(out.at(0));
  return out;
}

Result<NumMicrobatches> NumMicrobatches::ramp_up(std::int64_t global_batch_size, RampUp ramp, Shape shape,
                                                 bool decrease_if_needed) {
  PL_TRY(positive("global batch size", global_batch_size));
  PL_TRY(check_shape(shape));
  PL_TRY(positive("first batch of the ramp-up", ramp.start));
  PL_TRY(positive("increment of the ramp-up", ramp.increment));
  PL_TRY(positive("length of the ramp-up in samples", ramp.samples));
  if (ramp.start >= global_batch_size || (global_batch_size - ramp.start) % ramp.increment != 0) {
    return fail(ErrorCode::kConfig,
                fmt::format("the batch ramps up from {} by {} to {}; the way must be a whole number of "
                            "increments, at least one",
                            ramp.start, ramp.increment, global_batch_size));
  }
  NumMicrobatches out;
  out.kind_ = Kind::kRampUp;
  out.target_ = global_batch_size;
  out.ramp_ = ramp;
  out.shape_ = shape;
  out.decrease_ = decrease_if_needed;
  return out;
}

Result<NumMicrobatches> NumMicrobatches::steps(Steps steps, Shape shape) {
  PL_TRY(check_shape(shape));
  if (steps.empty() || steps.front().first != 0)
    return fail(ErrorCode::kConfig, "a batch schedule must begin with threshold 0, as in \"0:16 100K:32\"");
  for (std::size_t i = 0; i < steps.size(); ++i) {
    PL_TRY(positive(fmt::format("global batch from {} samples on", steps[i].first), steps[i].second));
    if (i > 0 && steps[i].first <= steps[i - 1].first) {
      return fail(ErrorCode::kConfig, fmt::format("threshold {} of the batch schedule follows {}; thresholds "
                                                  "(in samples) must grow",
                                                  steps[i].first, steps[i - 1].first));
    }
  }
  NumMicrobatches out;
  out.kind_ = Kind::kSteps;
  out.steps_ = std::move(steps);
  out.shape_ = shape;
  return out;
}

Result<NumMicrobatches::Steps> NumMicrobatches::parse_steps(std::string_view text, std::int64_t seq_length) {
  constexpr std::string_view kBetween = " \t,";
  Steps out;
  for (std::size_t at = text.find_first_not_of(kBetween); at != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(kBetween, at), text.size());
    Result<std::pair<std::int64_t, std::int64_t>> step = parse_step(text.substr(at, end - at));
    PL_TRY(step);
    if (seq_length > 0) step->first /= seq_length;
    out.push_back(*step);
    at = text.find_first_not_of(kBetween, end);
  }
  if (out.empty()) return fail(ErrorCode::kParse, "the batch schedule is empty; write \"0:16 100K:32\"");
  std::sort(out.begin(), out.end());
  return out;
}

std::int64_t NumMicrobatches::wanted(std::int64_t consumed) const {
  switch (kind_) {
    case Kind::kConstant:
      return target_;
    case Kind::kRampUp: {
      if (consumed > ramp_.samples) return target_;
      const double increments = static_cast<double>((target_ - ramp_.start) / ramp_.increment);
      const double each = static_cast<double>(ramp_.samples) / increments;
      return ramp_.start + static_cast<std::int64_t>(static_cast<double>(consumed) / each) * ramp_.increment;
    }
    case Kind::kSteps: {
      const auto after = std::upper_bound(steps_.begin(), steps_.end(), std::pair(consumed, kNever));
      return std::prev(after)->second;
    }
  }
  return target_;
}

Result<NumMicrobatches::Batch> NumMicrobatches::at(std::int64_t consumed, bool check) const {
  if (consumed < 0)
    return fail(ErrorCode::kState,
                fmt::format("{} consumed samples; the count cannot be negative", consumed));
  const std::int64_t unit = shape_.micro_batch_size * shape_.data_parallel_size;
  Batch out;
  out.current = wanted(consumed);
  out.running = decrease_ ? out.current / unit * unit : out.current;
  out.num_microbatches = out.running / unit;
  const auto refuse = [&](std::string_view rule) {
    return fail(
        ErrorCode::kConfig,
        fmt::format("the global batch of {} after {} samples {} micro batch size {} * data-parallel size "
                    "{}; change one of them",
                    out.current, consumed, rule, shape_.micro_batch_size, shape_.data_parallel_size));
  };
  if (out.num_microbatches == 0) return refuse("must be at least");
  if (check && out.running % unit != 0) return refuse("must be a multiple of");
  return out;
}

std::int64_t NumMicrobatches::next_change(std::int64_t consumed) const {
  if (kind_ == Kind::kConstant) return kNever;
  if (kind_ == Kind::kSteps) {
    const auto after = std::upper_bound(steps_.begin(), steps_.end(), std::pair(consumed, kNever));
    return after == steps_.end() ? kNever : after->first;
  }
  if (consumed > ramp_.samples) return kNever;
  // The ramp never goes down: bisect for its first sample with a larger batch. It has one, unless rounding
  // lets the ramp reach its target early.
  const std::int64_t now = wanted(consumed);
  std::int64_t low = consumed, high = std::min(ramp_.samples, kNever - 1) + 1;
  if (wanted(high) == now) return kNever;
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (wanted(middle) == now ? low : high) = middle;
  }
  return high;
}

Result<NumMicrobatches::Stretch> NumMicrobatches::stretch(std::int64_t consumed) const {
  const Result<Batch> batch = at(consumed);
  PL_TRY(batch);
  const std::int64_t change = next_change(consumed);
  const std::int64_t left = change - consumed;
  return Stretch{*batch, change == kNever ? kNever : (left - 1) / batch->running + 1};
}

Result<NumMicrobatches::Plan> NumMicrobatches::plan(std::int64_t consumed, std::int64_t iterations) const {
  Plan out;
  for (std::int64_t done = 0; done < iterations;) {
    const Result<Stretch> next = stretch(consumed);
    PL_TRY(next);
    if (out.empty() || out.back().second != next->batch) out.emplace_back(done, next->batch);
    const std::int64_t run = std::min(next->iterations, iterations - done);
    if (run > (kNever - consumed) / next->batch.running)
      return fail(ErrorCode::kConfig,
                  fmt::format("the samples of {} iterations do not fit in 64 bits", iterations));
    consumed += run * next->batch.running;
    done += run;
  }
  return out;
}

Result<std::int64_t> NumMicrobatches::samples_for(std::int64_t iterations) const {
  const Result<Plan> batches = plan(0, iterations);
  PL_TRY(batches);
  std::int64_t samples = 0;
  for (std::size_t i = 0; i < batches->size(); ++i) {
    const std::int64_t end = i + 1 < batches->size() ? (*batches)[i + 1].first : iterations;
    samples += (end - (*batches)[i].first) * (*batches)[i].second.running;
  }
  return samples;
}

Result<std::int64_t> NumMicrobatches::iterations_between(std::int64_t consumed, std::int64_t samples) const {
  std::int64_t done = 0;
  while (true) {
    const Result<Stretch> next = stretch(consumed);
    PL_TRY(next);
    const std::int64_t fit = (samples - consumed) / next->batch.running;
    if (fit < next->iterations) return done + std::max<std::int64_t>(fit, 0);
    consumed += next->iterations * next->batch.running;
    done += next->iterations;
  }
}

}  // namespace plumbline

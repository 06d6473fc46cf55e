#include "engine/runtime/tolerance.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "engine/base/text.h"

namespace plumbline {
namespace {

constexpr double kLambda = 6.0;
constexpr double kHalfUlp32 = 0x1p-24;

double half_ulp16(Precision precision) {
  return precision == Precision::kFp16 ? 0x1p-11 : precision == Precision::kBf16 ? 0x1p-8 : 0.0;
}

// What a number's longest path has; see the header.
struct Path {
  double summands = 0.0;   // n
  double roundings = 0.0;  // r
};

double tokens(const RunConfig& config) {
  return static_cast<double>(config.model.seq_length) * config.train.micro_batch_size *
         config.schedule.microbatches * config.parallel.dp;
}

Path forward_path(const RunConfig& config) {
  const ModelConfig& m = config.model;
  const double hidden = m.hidden, head = static_cast<double>(m.hidden) / std::max(m.heads, 1),
               sequence = m.seq_length, ffn = m.ffn_hidden;
  // A layer: two norms, queries and the attention's projection, scores, softmax and the values' mean, both products of
  // the feed-forward. Stored in between: norm, queries, scores, softmax, values, projection, sum; norm, feed-forward
  // twice and its activation, sum.
  const double layer = 2 * hidden + 2 * hidden + head + 2 * sequence + hidden + ffn;
  constexpr double kStored = 12.0, kStoredAtEnds = 3.0;
  return {m.layers * layer + 2 * hidden + m.vocab + tokens(config), m.layers * kStored + kStoredAtEnds};
}

Path gradient_path(const RunConfig& config) {
  const Path forward = forward_path(config);
  return {3 * forward.summands + tokens(config), 3 * forward.roundings};
}

double relative(const Path& path, const RunConfig& config) {
  return 2 * kLambda *
         (kHalfUlp32 * std::sqrt(path.summands) +
          half_ulp16(config.train.precision) * std::sqrt(path.roundings / tokens(config)));
}

// Twice the sum of what each step moves a parameter by at most.
double adam_bound(const RunConfig& config, const RunRecord& record) {
  const OptimizerConfig& o = config.optimizer;
  if (o.rule != OptimizerRule::kAdam) return 0.0;
  double moved = 0.0;
  for (const StepRow& row : record.steps)
    if (!row.evaluation && !row.skipped) moved += row.lr;
  return 2 * moved * std::max(1.0, (1.0 - o.beta1) / std::sqrt(1.0 - o.beta2));
}

}  // namespace

Tolerance derived_tolerance(const RunConfig& config, const RunRecord& record) {
  const Path loss = forward_path(config), gradient = gradient_path(config);
  Tolerance out;
  out.rule = NumbersRule::kDerived;
  out.loss = relative(loss, config);
  out.grad_norm = relative(gradient, config);
  out.parameter = adam_bound(config, record);
  out.why =
      fmt::format("derived: loss {:.2g} and gradient norm {:.2g} a step ({:.0f} and {:.0f} summands in fp32",
                  out.loss, out.grad_norm, loss.summands, gradient.summands);
  if (half_ulp16(config.train.precision) > 0.0)
    out.why += fmt::format(", {:.0f} and {:.0f} roundings to {}", loss.roundings, gradient.roundings,
                           config.train.precision == Precision::kFp16 ? "fp16" : "bf16");
  out.why += ")";
  return out;
}

Result<Tolerance> tolerance_from(const std::string& text, const RunConfig& config, const RunRecord& record) {
  if (text == "bitwise") return Tolerance{};
  if (text == "derived") return derived_tolerance(config, record);
  const Result<double> number = parse_double(text);
  if (!number || !(*number > 0.0) || !std::isfinite(*number))
    return fail(
        ErrorCode::kUsage,
        fmt::format("--tolerance '{}': known are bitwise, derived, and a relative difference above 0 such as "
                    "1e-5",
                    text));
  Tolerance out;
  out.rule = NumbersRule::kRelative;
  out.loss = out.grad_norm = *number;
  out.why = fmt::format("given: {:.2g} relative", *number);
  return out;
}

}  // namespace plumbline

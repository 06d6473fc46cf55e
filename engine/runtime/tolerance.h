// How far apart two runs of one Program may be whose arithmetic differs only in the order of sums and in the rounding
// of intermediate results: what `diff` holds records of different backends to.
//
// A sum of n terms, in any order, takes each term through at most n - 1 roundings of relative size u, half an ulp:
// 2^-24 in fp32, 2^-11 in fp16, 2^-8 in bf16. Independent roundings add up to lambda sqrt(n) u, except with
// probability 2 exp(-lambda^2 / 2) (N. J. Higham and T. Mary, SIAM J. Sci. Comput. 41(5), 2019, theorem 2.4). Lambda
// is 6 here (3e-8), and two runs are apart by twice that.
//
//   n       summands on the longest path of a number: for a layer the input widths of its products and the lengths of
//           its norms and of its softmax; for the ends of the model the last norm, the logits, the softmax over the
//           vocabulary; and the mean. All sums are fp32, whatever the precision. The gradient's path is three such
//           ways (activations, their gradients, the weights') and the sum over tokens.
//   r       with fp16 or bf16, tensors on that path that are stored in 16 bits, each rounded once. These roundings are
//           each token's own, and a mean over T tokens is sqrt(T) less off.
//
//   loss, gradient norm of step t:   2 lambda (u32 sqrt(n) + u16 sqrt(r / T)) (t + 1)
//
// What the derivation assumes: that no layer magnifies relative differences, and that a step carries those of the
// parameters on as they are. Both hold for steps of a run near its beginning, not for thousands of them. For a
// parameter Adam gives a bound without assumptions, but a wide one: a step moves it by at most lr times
// max(1, (1 - beta1) / sqrt(1 - beta2)) (Kingma and Ba, 2015, section 2.1), so that two runs are at most twice the sum
// of these apart, rounding and weight decay left out.
#pragma once

#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/config/run_config.h"
#include "engine/runtime/run_record.h"

namespace plumbline {

enum class NumbersRule : std::uint8_t {
  kBitwise,   // the same bits
  kDerived,   // as above
  kRelative,  // |a - b| / max(|a|, |b|) at most a number that was given
};

struct Tolerance {
  NumbersRule rule = NumbersRule::kBitwise;
  double loss = 0.0;       // relative, in the first step
  double grad_norm = 0.0;  // likewise
  // Parameters after the last step, absolute; 0: not known (another optimizer than Adam, another rule).
  double parameter = 0.0;
  std::string why;  // "derived: n = 24,576 summands, fp32"

  // The tolerance of the t-th training step, counted from 0.
  double at(double first, int t) const { return rule == NumbersRule::kDerived ? first * (t + 1) : first; }
};

// "bitwise", "derived" or a number above 0; `config` and `record` are those of the runs.
Result<Tolerance> tolerance_from(const std::string& text, const RunConfig& config, const RunRecord& record);

// Of a validated configuration; `record` gives the learning rates.
Tolerance derived_tolerance(const RunConfig& config, const RunRecord& record);

}  // namespace plumbline

// The toy model's proof of contributions, without LibTorch. Replica d's microbatch m is entry m * dp + d of a
// run of M * dp entries. Every stage has one parameter with one element an entry; its gradient there must be
// that entry's loss weight, exactly. Weights are odd numbers, different for every entry of a step and moving
// from step to step, so that what went wrong can be read off a wrong value.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/base/dtype.h"

namespace plumbline {

// What a step should give. `factor` is what a loss weight of 1 becomes in the backward: scale / (M * dp), in
// fp32; `inverse` is what gradients were multiplied with since (1 / scale after unscaling, else 1).
struct ToyStep {
  DType dtype = DType::kF32;
  int microbatches = 1;
  int replicas = 1;
  std::int64_t step = 0;  // steps taken before this one, skipped ones included
  float factor = 1.0f;
  float inverse = 1.0f;

  int entries() const { return microbatches * replicas; }
};

// Most entries a step may have, so that weights stay exact in the precision: 1021 for fp32 and fp16, 126 for
// bf16.
int toy_max_entries(DType dtype);

// The loss weight of an entry in a step, an odd number from 3 on.
int toy_weight(DType dtype, std::int64_t step, int entry);

// The gradient that entry must have.
float toy_expected(const ToyStep& step, int entry);

enum class ToyFault : std::uint8_t {
  kLost,     // nothing arrived
  kDoubled,  // arrived twice
  kSwapped,  // another microbatch's contribution arrived instead
  kMixed,    // another microbatch's contribution arrived as well
  kStale,    // the previous step's contribution is still there
  kScaled,   // right contribution, wrong factor
};
std::string_view toy_fault_name(ToyFault fault);

struct ToyFinding {
  ToyFault fault = ToyFault::kLost;
  int rank = 0;
  int stage = 0;
  int replica = 0;
  int microbatch = 0;
  int other = -1;  // kSwapped, kMixed: the entry that came
  std::string text;
};

// One finding for every entry of `gradient` (the entries of one stage from `first` on) that is not what it must be.
std::vector<ToyFinding> check_toy_gradient(const ToyStep& step, int rank, int stage,
                                           std::span<const float> gradient, int first = 0);

}  // namespace plumbline

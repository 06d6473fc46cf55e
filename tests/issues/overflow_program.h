// Programs of an optimizer step written by hand, and the worker that runs them: a check that writes found_inf, a
// reduction, a decision, an update. Shared by the reports about overflow decisions across ranks.
#pragma once

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "engine/program/link.h"
#include "sim/simulator.h"
#include "tests/sim/verify/builder.h"

namespace plumbline::test {

struct OverflowProgram {
  explicit OverflowProgram(int ranks) : count(ranks), b(ranks) {
    std::vector<Rank> all;
    for (Rank r = 0; r < ranks; ++r) all.push_back(r);
    b.family("pp", {all});
    found = b.slot("found_inf", 4, SlotKind::kFoundInf, false);
    norm = b.slot("norm", 4, SlotKind::kNormSums, false);
    b.program().variables.push_back({"found_inf", static_cast<std::uint16_t>(found)});
    const auto f = static_cast<std::uint16_t>(found), n = static_cast<std::uint16_t>(norm);
    check = b.kernel({}, {}, {f}, KernelKind::kUnscaleCheck);
    norms = b.kernel({}, {}, {n}, KernelKind::kNormSums);
    test = b.kernel({n}, {}, {f}, KernelKind::kOther);  // found_inf := the norm is not finite
    step = b.kernel({}, {}, {}, KernelKind::kOptimizerStep);
    skip = b.kernel({}, {}, {}, KernelKind::kSkipStep);
  }

  void read_and_decide(Rank rank) {
    b.add(rank, make_item(ItemOp::kRead, kNoMicrobatch, 0, 0, 0));
    b.add(rank, make_item(ItemOp::kDecide, kNoMicrobatch, 0, 0, 0));
  }
  void launch(Rank rank, unsigned kernel, unsigned flags = 0) {
    b.launch(rank, kernel, kNoMicrobatch, 0, flags);
  }
  void reduce_found(Rank rank, unsigned flags = kAfterCompute | kComputeWaits) {
    b.op(rank, b.endpoint(EndpointKind::kAllReduce, 0, found, -1, false, -1, ReduceOp::kMax), kNoMicrobatch,
         flags);
  }
  void reduce_norm(Rank rank, unsigned flags = 0) {
    b.op(rank, b.endpoint(EndpointKind::kAllReduce, 0, norm, -1), kNoMicrobatch,
         kAfterCompute | kComputeWaits | flags);
  }
  void free_all(Rank rank, unsigned norm_flags = 0) {
    b.add(rank, make_item(ItemOp::kSyncDevice, kNoMicrobatch, 0, 0, 0));
    b.add(rank, make_item(ItemOp::kFree, kNoMicrobatch, norm_flags, norm, 0));
    b.add(rank, make_item(ItemOp::kFree, kNoMicrobatch, 0, found, 0));
  }

  int count;
  Builder b;
  unsigned found = 0, norm = 0, check = 0, norms = 0, test = 0, step = 0, skip = 0;
};

// One for all ranks. `overflowed`: who finds an inf in its own gradients.
class OverflowWorker : public Worker {
 public:
  OverflowWorker(const OverflowProgram& program, std::set<Rank> overflowed)
      : program_(&program), overflowed_(std::move(overflowed)) {}

  Status launch(const KernelCall& call, SlotStore& slots) override {
    const auto value = [&](unsigned slot) -> float& {
      return *reinterpret_cast<float*>(slots.slot({static_cast<std::uint16_t>(slot), kNoMicrobatch}).data);
    };
    const bool inf = overflowed_.count(call.rank) > 0;
    if (call.kernel == program_->check) value(program_->found) = inf ? 1.0f : 0.0f;
    if (call.kernel == program_->norms) value(program_->norm) = inf ? INFINITY : 1.0f;
    if (call.kernel == program_->test)
      value(program_->found) = std::isfinite(value(program_->norm)) ? 0.0f : 1.0f;
    if (call.kernel == program_->step) stepped.insert(call.rank);
    if (call.kernel == program_->skip) skipped.insert(call.rank);
    return {};
  }

  std::set<Rank> stepped, skipped;

 private:
  const OverflowProgram* program_;
  std::set<Rank> overflowed_;
};

inline SimStep run(const Program& program, OverflowWorker& worker, SimOptions options = {}) {
  const auto linked = link_program(program);
  EXPECT_TRUE(linked) << linked.error().text();
  RunRecord record = record_for(program);
  Simulator simulator(*linked, options, std::vector<Worker*>(program.threads.size(), &worker));
  auto step = simulator.run_step(0, record);
  EXPECT_TRUE(step) << step.error().text();
  return std::move(*step);
}

}  // namespace plumbline::test

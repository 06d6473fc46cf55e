// TimeModel: what things cost in virtual time, in one place for simulator, checker and estimates.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "engine/base/units.h"
#include "engine/config/run_config.h"
#include "engine/program/program.h"

namespace plumbline {

class TimeModel {
 public:
  TimeModel() = default;  // everything takes no time
  explicit TimeModel(const RunConfig& config);

  // F, B, I, W by stage from [time], and the forward's share that [memory] recompute has done again; the optimizer's
  // kernels share its `optimizer` cost (kOptimizerStep and kSpeculativeStep take it, the rest take nothing). Scaled by
  // the rank's slowness.
  Nanoseconds kernel(Rank rank, const Kernel& kernel) const;
  // Of each of the kernels, where no rank is slow.
  void kernels(const std::vector<Kernel>& kernels, double* out) const;
  // From the moment both ends are active: latency + bytes / bandwidth.
  Nanoseconds message(Rank from, Rank to, Bytes bytes) const;
  // Ring estimate from the moment all members are active: 2(n-1) steps of bytes/n for all-reduce, n-1 for the
  // others; the slowest link of the ring decides.
  Nanoseconds collective(EndpointKind kind, const std::vector<Rank>& members, Bytes bytes) const;

  // What runs at one time where ranks share cores (sim/cores.h); 0: each rank has a device of its own.
  int cores() const { return time_.cores; }
  double interference() const { return time_.interference; }
  std::size_t machine(Rank rank) const {
    return ranks_a_machine_ > 0 ? static_cast<std::size_t>(rank / ranks_a_machine_) : 0;
  }

  // No rank is slow, no link is unlike the others, and no rank shares cores: a collective's time depends on the number
  // of members alone, and a kernel's on itself.
  bool is_uniform() const { return time_.slow.empty() && time_.links.empty() && time_.cores == 0; }

 private:
  const LinkConfig& link(Rank a, Rank b) const;
  std::span<const Nanoseconds> by_stage(KernelKind kind) const;
  TimeConfig time_{{0}, {0}, {0}, {0}, 0, {0, 0.0}, {}, {}, 0, 0.0};
  int ranks_a_machine_ = 0;
  std::vector<Nanoseconds> recompute_;  // by stage; empty: nothing is done again
};

}  // namespace plumbline

// TimeModel: what things cost in virtual time, in one place for simulator, checker and estimates.
#pragma once

#include "engine/base/units.h"
#include "engine/config/run_config.h"
#include "engine/program/program.h"

namespace plumbline {

class TimeModel {
 public:
  TimeModel() = default;  // everything takes no time
  explicit TimeModel(const RunConfig& config);

  // F, B, I, W by stage from [time]; the optimizer's kernels share its `optimizer` cost (kOptimizerStep and
  // kSpeculativeStep take it, the rest take nothing). Scaled by the rank's slowness.
  Nanoseconds kernel(Rank rank, const Kernel& kernel) const;
  // From the moment both ends are active: latency + bytes / bandwidth.
  Nanoseconds message(Rank from, Rank to, Bytes bytes) const;
  // Ring estimate from the moment all members are active: 2(n-1) steps of bytes/n for all-reduce, n-1 for the
  // others; the slowest link of the ring decides.
  Nanoseconds collective(EndpointKind kind, const std::vector<Rank>& members, Bytes bytes) const;

  // No rank is slow, no link is unlike the others: a collective's time depends on the number of members alone.
  bool is_uniform() const { return time_.slow.empty() && time_.links.empty(); }

 private:
  const LinkConfig& link(Rank a, Rank b) const;
  TimeConfig time_{{0}, {0}, {0}, {0}, 0, {0, 0.0}, {}, {}};
};

}  // namespace plumbline

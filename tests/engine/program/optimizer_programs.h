// Every variant of the step's end, for tests: replicated and distributed, overlapped or not, decided or validated
// afterwards.
#pragma once

#include <string>
#include <vector>

#include "engine/program/lower.h"
#include "tests/engine/program/config.h"

namespace plumbline::test {

inline std::string describe(const RunConfig& c) {
  const OptimizerConfig& o = c.optimizer;
  std::string out = "pp=" + std::to_string(c.parallel.pp) + " vp=" + std::to_string(c.schedule.chunks) +
                    " m=" + std::to_string(c.schedule.microbatches) + " dp=" + std::to_string(c.parallel.dp);
  if (c.train.precision == Precision::kFp16) out += " fp16";
  if (o.distributed) out += " distributed";
  if (o.overlap_grad_reduce) out += o.align_grad_reduce ? " reduce-aligned" : " reduce-overlap";
  if (o.overlap_param_gather) out += o.align_param_gather ? " gather-aligned" : " gather-overlap";
  if (o.post_validation) out += " post-validation";
  if (o.bucket_size > 0) out += " bucket=" + std::to_string(o.bucket_size);
  return out;
}

// Of one base configuration.
inline std::vector<RunConfig> optimizer_variants(const RunConfig& base) {
  std::vector<RunConfig> out;
  for (const Precision precision : {Precision::kFp16, Precision::kBf16}) {
    for (const bool post_validation : {false, true}) {
      // distributed, reduce overlaps, gather overlaps, aligned
      for (const auto& [distributed, reduce, gather, aligned] :
           {std::tuple{false, false, false, true}, std::tuple{false, true, false, false},
            std::tuple{false, true, false, true}, std::tuple{true, false, false, true},
            std::tuple{true, true, false, true}, std::tuple{true, true, true, true},
            std::tuple{true, true, true, false}}) {
        RunConfig config = base;
        config.train.precision = precision;
        config.optimizer.post_validation = post_validation;
        config.optimizer.distributed = distributed;
        config.optimizer.overlap_grad_reduce = reduce;
        config.optimizer.overlap_param_gather = gather;
        config.optimizer.align_grad_reduce = config.optimizer.align_param_gather = aligned;
        config.optimizer.bucket_size = reduce ? 5'000 : 0;
        out.push_back(config);
      }
    }
  }
  return out;
}

inline std::vector<RunConfig> all_optimizer_variants() {
  std::vector<RunConfig> out;
  for (const RunConfig& base :
       {config_of(ScheduleKind::kOneFOneB, 1, 1, 2, 0, 1), config_of(ScheduleKind::kOneFOneB, 1, 1, 2, 0, 3),
        config_of(ScheduleKind::kOneFOneB, 4, 1, 6, 0, 2), config_of(ScheduleKind::kGpipe, 2, 1, 2, 0, 2),
        config_of(ScheduleKind::kInterleaved, 3, 3, 6, 0, 2),
        config_of(ScheduleKind::kInterleaved, 4, 2, 8, 0, 1)}) {
    for (const RunConfig& config : optimizer_variants(base)) out.push_back(config);
  }
  return out;
}

}  // namespace plumbline::test

// Calibration: stage costs and link parameters from what a run took, so that the simulator can say beforehand what
// another layout on the same machine will take - and be told how wrong it was.
//
// Costs are the computing time of a kernel's thread where the record has it, so that a core taken away by others does
// not count; else the time that it took. A stage's forward and backward are taken as layers times a cost a layer; what
// the last stage takes beyond that is the head's, and, with three stages or more, what the first one takes is the
// embedding's. Medians over the microbatches of all steps but the first, which warms up.
//
// Ranks that share cores (RunRecord::cores) slow each other down even where each has a core: how much is the quotient
// of the same kernel's costs while the other cores were busy and while they were not. Costs are of a kernel alone.
//
// Between two kernels of a rank that waits for nothing lies the host's work; it is added to the cost of a forward or
// backward. Between the end of a receive and the kernel that waited for it lies a wake-up; it is added to the latency.
// The optimizer is all computations beside forward and backward. A transfer is what lies between the moment that both
// ends had begun and the end; its latency and bandwidth come from least squares over the sizes, and where there is one
// size only, all of it is latency.
#pragma once

#include <string>

#include "engine/base/result.h"
#include "engine/config/run_config.h"
#include "engine/runtime/run_record.h"

namespace plumbline {

struct Calibration {
  double forward_layer = 0.0, forward_head = 0.0;  // nanoseconds
  double backward_layer = 0.0, backward_head = 0.0;
  double forward_embedding = 0.0, backward_embedding = 0.0;
  double optimizer = 0.0;  // of a rank, a layer it holds
  double host = 0.0;       // beside a forward or backward
  double wake = 0.0;       // from the end of a receive to the kernel that waited for it
  LinkConfig link;         // without `wake`
  int cores = 0;           // TimeConfig::cores
  double interference = 0.0;
  double share = 1.0;  // of a core that kernels had while they ran; 1 where computing time is not known
  int layers = 0;
  std::int64_t samples = 0;    // computations measured
  std::int64_t transfers = 0;  // messages measured
  double step = 0.0;           // median of the steps' times; the first is left out where there are more

  // [time] for a run of another layout of the same model and microbatch size, on machines with as many cores.
  TimeConfig time_of(const RunConfig& config) const;
};

// `config` is the record's. The error is for a record without forwards and backwards to measure.
Result<Calibration> calibrate(const RunRecord& record, const RunConfig& config);

// The `ready` of each message - when both ends had begun - from the two ranks' own records, which know their own
// only; rows are matched by step, stage, what travels and microbatch. Returns the clocks' residual: by how much a
// message seems to have arrived before it was sent, at most.
Nanoseconds join_messages(RunRecord& record);

}  // namespace plumbline

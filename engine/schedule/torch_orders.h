// The schedule classes of torch.distributed.pipelining by torch's names: which of our generators each is, what torch
// refuses, and the idle steps that its compute-only rows hold (schedules.py, version 2.14.1).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "engine/schedule/generator.h"
#include "engine/schedule/idle_cells.h"
#include "engine/schedule/schedule.h"

namespace plumbline {

struct TorchClass {
  std::string name;       // "Interleaved1F1B"; matched without regard to case, as torch does
  std::string generator;  // "torch-interleaved"
};
const std::vector<TorchClass>& torch_classes();

// Compute-only rows as `_get_pipeline_order` or `pipeline_order` hold them. GPipe's and 1F1B's end with
// REDUCE_GRAD, as torch's do. 1F1B's are as its runtime executes them: the rows that 2.14.1 lists number the last
// rank's forwards from 1 (docs/schedules.md). Errors: unknown names, and what torch refuses, with the rule.
struct TorchRows {
  Schedule schedule;
  IdleCells idle;
};
Result<TorchRows> torch_compute_rows(std::string_view name, const GeneratorArgs& args);

// All passes of torch's lowering (torch_passes.h): rows with UNSHARD, RESHARD, REDUCE_GRAD, sends and receives,
// from rows of computations, and REDUCE_GRAD if they have it.
Result<Schedule> torch_lowered_rows(const Schedule& schedule, bool defer);

}  // namespace plumbline

// torchtitan's settings of a pipeline (torchtitan/config/job_config.py, distributed/pipeline_parallel.py), as a
// schedule: from a TOML file with [parallelism] and [training], or from the same settings as flags,
// --parallelism.pipeline_parallel_schedule=ZBVZeroBubble.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "engine/schedule/torch_orders.h"

namespace plumbline {

struct TorchtitanSettings {
  std::string schedule = "1F1B";
  std::string csv;  // pipeline_parallel_schedule_csv; empty: none
  int degree = 1;
  int microbatch_size = 1;
  int local_batch_size = 8;
  int layers_per_stage = 0;  // 0: one stage a rank for GPipe and 1F1B, two for the others
  int first_stage_less_layers = 1;
  int last_stage_less_layers = 1;

  int microbatches() const { return local_batch_size / microbatch_size; }
};

// Errors name line and column, or the flag: wrong types, values below 1, a batch that the microbatch does not divide.
// Settings of other parts are passed over.
Result<TorchtitanSettings> parse_torchtitan(std::string_view text, const std::string& name);
Result<TorchtitanSettings> parse_torchtitan_flags(const std::vector<std::string>& words);

// The rows that torchtitan would run; `layers` of the model are needed where layers_per_stage is set (0: not known).
Result<TorchRows> torchtitan_rows(const TorchtitanSettings& settings, int layers);

// torchtitan builds the stages by the named schedule's placement, whatever its CSV file says. The first stage that
// the file computes on another rank, in words; empty where they agree.
std::string torchtitan_misplacement(const TorchtitanSettings& settings, const Schedule& csv);

}  // namespace plumbline

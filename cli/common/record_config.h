// The configuration that a record carries, as a run would have loaded it.
#pragma once

#include "cli/common/options_binding.h"
#include "engine/runtime/run_record.h"

namespace plumbline::cli {

Result<ValidConfig> config_of_record(const RunRecord& record, const std::string& path, Purpose purpose);

}  // namespace plumbline::cli

#include "cli/common/record_config.h"

#include <utility>

#include "engine/config/toml_source.h"

namespace plumbline::cli {

Result<ValidConfig> config_of_record(const RunRecord& record, const std::string& path, Purpose purpose) {
  const Result<Assignments> assignments = read_toml(record.config, path + " (its configuration)");
  if (!assignments) return tl::unexpected(assignments.error());
  ValidConfig valid;
  PL_TRY(apply_assignments(*assignments, valid.loaded));
  Result<RunConfig> config = validate(valid.loaded.config, valid.loaded.origins, purpose);
  if (!config) return tl::unexpected(config.error());
  valid.config = std::move(*config);
  return valid;
}

}  // namespace plumbline::cli

#include "cli/record_diff.h"

#include "cli/common/exit_codes.h"
#include "cli/common/output.h"
#include "cli/common/record_config.h"
#include "cli/record_file.h"
#include "engine/runtime/record_diff.h"
#include "reports/record_diff_text.h"

namespace plumbline::cli {

int diff_record_files(const std::string& a, const std::string& b, const std::string& tolerance) {
  const Result<RunRecord> first = read_record({a}), second = read_record({b});
  if (!first) return report(first.error());
  if (!second) return report(second.error());
  RunConfig config;  // only a derived tolerance wants it
  if (tolerance == "derived") {
    const Result<ValidConfig> valid = config_of_record(*first, a, Purpose::kSim);
    if (!valid) return report(valid.error());
    config = valid->config;
  }
  const Result<Tolerance> within = tolerance_from(tolerance, config, *first);
  if (!within) return report(within.error());
  const RecordDiff found = diff_records(*first, *second, *within);
  print_line(record_diff_text(found, a, b));
  return found.numbers_hold() && found.same_order() ? kExitHolds : kExitMismatch;
}

}  // namespace plumbline::cli

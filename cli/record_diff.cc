#include "cli/record_diff.h"

#include "cli/common/exit_codes.h"
#include "cli/common/output.h"
#include "cli/record_file.h"
#include "engine/runtime/record_diff.h"
#include "reports/record_diff_text.h"

namespace plumbline::cli {

int diff_record_files(const std::string& a, const std::string& b) {
  const Result<RunRecord> first = read_record({a}), second = read_record({b});
  if (!first) return report(first.error());
  if (!second) return report(second.error());
  const RecordDiff found = diff_records(*first, *second);
  print_line(record_diff_text(found, a, b));
  return found.same_numbers() && found.same_order() ? kExitHolds : kExitMismatch;
}

}  // namespace plumbline::cli

#include "cli/record_file.h"

#include <fmt/format.h>

#include "cli/common/output.h"
#include "engine/base/text.h"
#include "engine/runtime/record_file.h"

namespace plumbline::cli {

bool is_record_file(const std::string& path) {
  const Result<std::string> bytes = read_file(path);
  return bytes && bytes->starts_with(record_file::kMagic);
}

Result<RunRecord> read_record(const std::vector<std::string>& paths) {
  std::vector<RunRecord> parts;
  for (const std::string& path : paths) {
    const Result<std::string> bytes = read_file(path);
    if (!bytes) return tl::unexpected(bytes.error());
    bool truncated = false;
    Result<RunRecord> record = parse_record(*bytes, path, &truncated);
    if (!record) return record;
    if (truncated) warn(fmt::format("{} was cut off; what follows its last whole step is left out", path));
    parts.push_back(std::move(*record));
  }
  if (parts.empty()) return fail(ErrorCode::kUsage, "no record given");
  if (parts.size() == 1) return std::move(parts.front());
  return merge_records(parts);
}

}  // namespace plumbline::cli

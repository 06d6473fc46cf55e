#include "cli/common/rows_shape.h"

#include <algorithm>

#include <fmt/format.h>

#include "engine/base/text.h"
#include "engine/schedule/csv.h"

namespace plumbline::cli {
namespace {

// Stages a rank; copies of a stage, as bidirectional schedules have them, are not chunks of the model.
int chunks_of(const Schedule& schedule) {
  if (schedule.stages % schedule.ranks == 0) return schedule.stages / schedule.ranks;
  std::size_t chunks = 1;
  for (int rank = 0; rank < schedule.ranks; ++rank)
    chunks = std::max(chunks, schedule.stages_of_rank(rank).size());
  return static_cast<int>(chunks);
}

}  // namespace

Status shape_from_rows(const Schedule& schedule, const std::string& name, LoadedConfig& loaded) {
  RunConfig& config = loaded.config;
  config.schedule.kind = ScheduleKind::kCsv;
  const struct {
    const char* option;
    int* value;
    int rows;
    const char* what;
  } shape[] = {
      {"parallel.pp", &config.parallel.pp, schedule.ranks, "ranks"},
      {"schedule.chunks", &config.schedule.chunks, chunks_of(schedule), "stages a rank"},
      {"schedule.microbatches", &config.schedule.microbatches, schedule.microbatches, "microbatches"}};
  for (const auto& part : shape) {
    const Origin& origin = loaded.origins.of(part.option);
    if (origin.layer != Layer::kDefault && *part.value != part.rows)
      return fail(ErrorCode::kConfig,
                  fmt::format("{}={} ({}) contradicts the schedule: {} has {} {}; leave it out", part.option,
                              *part.value, origin.text, name, part.rows, part.what));
    *part.value = part.rows;
    if (origin.layer == Layer::kDefault)
      loaded.origins.set(part.option, {Layer::kFile, "rows of " + name, {}});
  }
  return {};
}

Status shape_from_file(LoadedConfig& loaded) {
  const auto& given = loaded.config.schedule;
  if (given.kind != ScheduleKind::kCsv || given.csv.empty()) return {};  // the validator says what is missing
  const Result<std::string> text = read_file(given.csv);
  if (!text) return tl::unexpected(text.error());
  // As part of a step, too: whether all of it is there is not asked here.
  const Result<Schedule> schedule = parse_schedule_csv(*text, given.csv, {true});
  if (!schedule) return tl::unexpected(schedule.error());
  const std::string name = given.csv;
  return shape_from_rows(*schedule, name, loaded);
}

}  // namespace plumbline::cli

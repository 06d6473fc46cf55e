// What export, diff and compare take: a configuration, a schedule's CSV, a Program text, or "-" for any of them from
// standard input; as a schedule where it is one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/input.h"
#include "engine/program/program.h"
#include "engine/schedule/idle_cells.h"
#include "engine/schedule/schedule.h"

namespace plumbline::cli {

struct ScheduleInput {
  InputKind kind = InputKind::kConfig;
  std::string name;                    // the file, "-", or what the schedule is called
  std::optional<Schedule> schedule;    // of a configuration and a CSV
  std::optional<IdleCells> idle;       // of a CSV
  std::optional<Program> program;      // of a Program text
  RunConfig config;                    // valid; shape from the rows where these are a CSV
  std::vector<std::string> arguments;  // the words and flags that stand for it, to load it again
};

// `words` are flags and at most one file.
Result<ScheduleInput> load_schedule(const std::vector<std::string>& words, bool fragment = false);

}  // namespace plumbline::cli

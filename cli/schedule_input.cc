#include "cli/schedule_input.h"

#include <algorithm>

#include "engine/config/flags.h"
#include "engine/program/lower.h"
#include "engine/program/text.h"
#include "engine/schedule/csv.h"

namespace plumbline::cli {
namespace {

Status read_config(const std::vector<std::string>& words, const std::optional<std::string>& text,
                   bool fragment, ScheduleInput& out) {
  Result<ValidConfig> valid = load_arguments(words, Purpose::kCheck, text);
  if (!valid) return tl::unexpected(valid.error());
  out.config = std::move(valid->config);
  Result<Schedule> schedule = schedule_of(out.config, fragment);
  if (!schedule) return tl::unexpected(schedule.error());
  if (out.name.empty()) out.name = schedule->name;
  out.schedule = std::move(*schedule);
  return {};
}

}  // namespace

Result<ScheduleInput> load_schedule(const std::vector<std::string>& words, bool fragment) {
  const Result<ParsedFlags> flags = parse_flags(words);
  if (!flags) return tl::unexpected(flags.error());
  ScheduleInput out;
  out.arguments = words;
  if (flags->words.size() != 1) {
    PL_TRY(read_config(words, std::nullopt, fragment, out));
    return out;
  }
  out.name = flags->words.front();
  const Result<std::string> text = read_input(out.name);
  if (!text) return tl::unexpected(text.error());
  out.kind = kind_of(out.name, *text);
  if (out.kind == InputKind::kScenario)
    return fail(ErrorCode::kUnsupported,
                out.name + " holds scenarios; give a configuration, a schedule or a Program");
  if (out.kind == InputKind::kConfig) {
    PL_TRY(read_config(words, *text, fragment, out));
    return out;
  }
  std::vector<std::string> rest = words;
  rest.erase(std::find(rest.rbegin(), rest.rend(), out.name).base() - 1);
  if (out.kind == InputKind::kProgram) {
    Result<Program> program = parse_program(*text, out.name);
    if (!program) return tl::unexpected(program.error());
    out.program = std::move(*program);
    Result<ValidConfig> valid = load_arguments(rest, Purpose::kCheck);
    if (!valid) return tl::unexpected(valid.error());
    out.config = std::move(valid->config);
    return out;
  }
  IdleCells idle;
  Result<Schedule> schedule = parse_schedule_csv(*text, out.name, {fragment}, &idle);
  if (!schedule) return tl::unexpected(schedule.error());
  Result<RunConfig> config = config_for_rows(*schedule, out.name, rest, Purpose::kCheck);
  if (!config) return tl::unexpected(config.error());
  out.config = std::move(*config);
  out.schedule = std::move(*schedule);
  out.idle = std::move(idle);
  return out;
}

}  // namespace plumbline::cli

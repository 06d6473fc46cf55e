// `export`: a schedule in another program's text.
#include <algorithm>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/common/command.h"
#include "cli/common/exit_codes.h"
#include "cli/common/options_binding.h"
#include "cli/common/output.h"
#include "cli/schedule_input.h"
#include "engine/base/text.h"
#include "engine/program/lower.h"
#include "engine/program/text.h"
#include "engine/schedule/communicate.h"
#include "engine/schedule/csv.h"
#include "engine/schedule/deepspeed.h"
#include "engine/schedule/order_text.h"
#include "engine/schedule/torch_orders.h"

namespace plumbline::cli {
namespace {

// torch's own rows, idle cells included, where the generator is one of torch's classes.
Result<TorchRows> torch_rows_of(const ScheduleInput& input) {
  if (input.idle) return TorchRows{*input.schedule, *input.idle};
  for (const TorchClass& known : torch_classes()) {
    if (known.generator != input.schedule->name) continue;
    GeneratorArgs args;
    args.ranks = input.schedule->ranks;
    args.chunks = input.schedule->stages / input.schedule->ranks;
    args.microbatches = input.schedule->microbatches;
    Result<TorchRows> rows = torch_compute_rows(known.name, args);
    if (rows) return rows;
  }
  IdleCells none;
  none.before.resize(static_cast<std::size_t>(input.schedule->ranks));
  return TorchRows{*input.schedule, none};
}

// torch's lowering refuses a compute_only file with anything else in it, its own REDUCE_GRAD included.
Result<std::string> to_torch(const ScheduleInput& input) {
  const Result<TorchRows> rows = torch_rows_of(input);
  if (!rows) return tl::unexpected(rows.error());
  const Schedule& given = rows->schedule;
  Schedule computations = given;
  computations.actions.clear();
  computations.offsets.assign(1, 0);
  for (int rank = 0; rank < given.ranks; ++rank) {
    std::vector<Action> row(given.row(rank).begin(), given.row(rank).end());
    std::erase_if(row, [](const Action& action) { return !is_compute(action.kind); });
    computations.add_row(row);
  }
  const bool whole = !given.has_communication();  // then idle steps are where they were
  return print_schedule_csv(computations, true, whole ? &rows->idle : nullptr);
}

Result<std::string> to_lowered(const ScheduleInput& input, bool defer) {
  if (input.schedule->has_communication() && !defer) return print_schedule_csv(*input.schedule, true);
  const Result<Schedule> rows = torch_lowered_rows(*input.schedule, defer);
  if (!rows) return tl::unexpected(rows.error());
  return print_schedule_csv(*rows, true);
}
Result<std::string> to_comms(const ScheduleInput& input) { return to_lowered(input, false); }
Result<std::string> to_comms_deferred(const ScheduleInput& input) { return to_lowered(input, true); }
Result<std::string> to_deepspeed(const ScheduleInput& input) { return print_deepspeed(*input.schedule); }
Result<std::string> to_zero_bubble(const ScheduleInput& input) { return print_zero_bubble(*input.schedule); }
Result<std::string> to_megatron_order(const ScheduleInput& input) {
  return print_megatron_order(*input.schedule);
}
Result<std::string> to_csv(const ScheduleInput& input) { return print_schedule_csv(*input.schedule); }

Result<std::string> to_program(const ScheduleInput& input) {
  LowerOptions lowering;
  lowering.tail = input.kind == InputKind::kCsv ? StepTail::kSchedule : StepTail::kTrain;
  const Result<Program> program = lower(input.config, *input.schedule, default_sizes(input.config), lowering);
  if (!program) return tl::unexpected(program.error());
  return print_program(*program);
}

struct Format {
  std::string_view name;
  std::string_view what;
  Result<std::string> (*write)(const ScheduleInput&);
};
constexpr Format kFormats[] = {
    {"torch", "compute_only rows of torch.distributed.pipelining, lines end in CRLF as it writes them",
     to_torch},
    {"torch-comms", "compute_comms rows: sharding, reductions, sends and receives by torch's passes",
     to_comms},
    {"torch-comms-deferred", "the same with receives before their readers (defer_pp_recv)",
     to_comms_deferred},
    {"deepspeed", "instruction streams; of 1F1B and forward-only", to_deepspeed},
    {"zero-bubble", "F0 B0 W0, F0.1 of chunk 1", to_zero_bubble},
    {"megatron-order", "1,1,-1,-1", to_megatron_order},
    {"csv", "the schedule as it stands, lines end in LF", to_csv},
    {"program", "the Program it is lowered to", to_program},
};

std::string names() {
  std::string out;
  for (const Format& format : kFormats) out += fmt::format("{}{}", out.empty() ? "" : ", ", format.name);
  return out;
}

Result<const Format*> format_of(const std::vector<std::string>& words) {
  if (words.empty() || words.front().rfind("-", 0) == 0)
    return fail(
        ErrorCode::kUsage,
        fmt::format("which format? write plumbline export FORMAT [CONFIG | SCHEDULE.csv] [flags]; known: {}",
                    names()));
  std::vector<std::string> known;
  for (const Format& format : kFormats) {
    if (format.name == words.front()) return &format;
    known.emplace_back(format.name);
  }
  const std::string near = nearest(words.front(), known);
  return fail(ErrorCode::kUsage,
              fmt::format("no format is named '{}'{}; known: {}", words.front(),
                          near.empty() ? "" : fmt::format(", did you mean '{}'?", near), names()));
}

int convert(std::vector<std::string> words) {
  const Result<const Format*> format = format_of(words);
  if (!format) return report(format.error());
  words.erase(words.begin());
  const Result<ScheduleInput> input = load_schedule(words);
  if (!input) return report(input.error());
  if (!input->schedule)
    return report(Error{
        ErrorCode::kUnsupported, input->name + " is a Program; the order it came from is not in it", {}});
  const Result<std::string> text = (*format)->write(*input);
  if (!text) return report(text.error());
  print(*text);
  return kExitHolds;
}

Run build(CLI::App& app) {
  const auto arguments = add_config_arguments(app);
  return [=]() -> int { return convert(arguments->arguments()); };
}

const RegisterCommand kCommand(
    {.name = "export",
     .summary = "write a schedule as another program reads it",
     .usage = "FORMAT [CONFIG | SCHEDULE.csv | -] [flags]",
     .examples = {{"plumbline export torch --generator zb-auto --pp 4 -m 8 > zb.csv",
                   "for _load_csv and torchtitan"},
                  {"plumbline export torch-comms my.csv", "the rows that torch's runtime executes"},
                  {"plumbline export megatron-order --pp 4 --vp 2 --schedule interleaved -m 8",
                   "chunks as integers"}},
     .build = build});

}  // namespace
}  // namespace plumbline::cli

// `import`: schedules and configurations of other programs, as plumbline's own texts.
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/common/command.h"
#include "cli/common/exit_codes.h"
#include "cli/common/output.h"
#include "cli/input.h"
#include "engine/base/text.h"
#include "engine/config/megatron_args.h"
#include "engine/program/text.h"
#include "engine/schedule/csv.h"
#include "engine/schedule/deepspeed.h"
#include "engine/schedule/order_text.h"
#include "engine/schedule/torchtitan.h"

namespace plumbline::cli {
namespace {

struct Options {
  std::string placement;
  int layers = 0;
  bool fragment = false;
  std::vector<std::string> words;  // FORMAT, then a file or flags behind "--"
};

struct Source {
  std::string name;
  std::string text;                // of a file
  std::vector<std::string> flags;  // instead of a file
};

Result<Placement> placement_from(const std::string& text, Placement without) {
  if (text.empty()) return without;
  if (text == "loop") return Placement::kLoop;
  if (text == "v") return Placement::kV;
  return fail(ErrorCode::kUsage, fmt::format("--placement '{}' is not one of loop, v", text));
}

Result<std::string> rows(Result<Schedule> schedule) {
  if (!schedule) return tl::unexpected(schedule.error());
  return print_schedule_csv(*schedule);
}

Result<std::string> from_torch(const Source& source, const Options& options) {
  IdleCells idle;
  const Result<Schedule> schedule = parse_schedule_csv(source.text, source.name, {options.fragment}, &idle);
  if (!schedule) return tl::unexpected(schedule.error());
  return print_schedule_csv(*schedule, false, &idle);
}
Result<std::string> from_deepspeed(const Source& source, const Options&) {
  return rows(parse_deepspeed(source.text, source.name));
}
Result<std::string> from_zero_bubble(const Source& source, const Options& options) {
  const Result<Placement> placement = placement_from(options.placement, Placement::kV);
  if (!placement) return tl::unexpected(placement.error());
  return rows(parse_zero_bubble(source.text, source.name, *placement));
}
Result<std::string> from_megatron_order(const Source& source, const Options& options) {
  const Result<Placement> placement = placement_from(options.placement, Placement::kLoop);
  if (!placement) return tl::unexpected(placement.error());
  return rows(parse_megatron_order(source.text, source.name, *placement));
}

Result<std::string> from_megatron_args(const Source& source, const Options&) {
  const Result<LaunchScript> script =
      source.flags.empty() ? read_launch_script(source.text, source.name) : read_launch_words(source.flags);
  if (!script) return tl::unexpected(script.error());
  const Result<MegatronImport> import = import_megatron(*script, source.name);
  if (!import) return tl::unexpected(import.error());
  return megatron_import_toml(*import);
}

Result<std::string> from_torchtitan(const Source& source, const Options& options) {
  const Result<TorchtitanSettings> settings = source.flags.empty()
                                                  ? parse_torchtitan(source.text, source.name)
                                                  : parse_torchtitan_flags(source.flags);
  if (!settings) return tl::unexpected(settings.error());
  if (settings->csv.empty()) {
    const Result<TorchRows> made = torchtitan_rows(*settings, options.layers);
    if (!made) return tl::unexpected(made.error());
    return print_schedule_csv(made->schedule, false, &made->idle);
  }
  const Result<std::string> text = read_input(settings->csv);
  if (!text) return tl::unexpected(text.error());
  const Result<Schedule> schedule = parse_schedule_csv(*text, settings->csv);
  if (!schedule) return tl::unexpected(schedule.error());
  if (const std::string misplaced = torchtitan_misplacement(*settings, *schedule); !misplaced.empty())
    warn(misplaced + " (pytorch/torchtitan#774)");
  return from_torch(Source{settings->csv, *text, {}}, options);
}

Result<std::string> from_program(const Source& source, const Options&) {
  const Result<Program> program = parse_program(source.text, source.name);
  if (!program) return tl::unexpected(program.error());
  return print_program(*program);
}

struct Format {
  std::string_view name;
  std::string_view what;
  bool takes_flags;
  Result<std::string> (*read)(const Source&, const Options&);
};
constexpr Format kFormats[] = {
    {"torch", "rows of torch.distributed.pipelining, with or without communication", false, from_torch},
    {"deepspeed", "instruction streams, L0,F0;SA0;...", false, from_deepspeed},
    {"zero-bubble", "F0 B0 W0, F0.1 of chunk 1, or nodes F:1:0", false, from_zero_bubble},
    {"megatron-order", "1,1,-1,-1", false, from_megatron_order},
    {"megatron-args", "a launch script, or flags behind '--'; gives a configuration", true,
     from_megatron_args},
    {"torchtitan", "its TOML, or flags behind '--'", true, from_torchtitan},
    {"program", "Program text, checked and printed anew", false, from_program},
};

std::string names() {
  std::string out;
  for (const Format& format : kFormats) out += fmt::format("{}{}", out.empty() ? "" : ", ", format.name);
  return out;
}

Result<const Format*> format_of(const Options& options) {
  if (options.words.empty())
    return fail(ErrorCode::kUsage,
                fmt::format("which format? write plumbline import FORMAT FILE; known: {}", names()));
  std::vector<std::string> known;
  for (const Format& format : kFormats) {
    if (format.name == options.words.front()) return &format;
    known.emplace_back(format.name);
  }
  const std::string near = nearest(options.words.front(), known);
  return fail(ErrorCode::kUsage,
              fmt::format("no format is named '{}'{}; known: {}", options.words.front(),
                          near.empty() ? "" : fmt::format(", did you mean '{}'?", near), names()));
}

Result<Source> source_of(const Format& format, const Options& options) {
  Source source;
  const bool flags = options.words.size() > 1 && options.words[1].size() > 1 && options.words[1][0] == '-';
  if (flags) {
    if (!format.takes_flags)
      return fail(ErrorCode::kUsage,
                  fmt::format("{} is read from a file, not from '{}'", format.name, options.words[1]));
    source.flags.assign(options.words.begin() + 1, options.words.end());
    return source;
  }
  if (options.words.size() > 2)
    return fail(ErrorCode::kUsage, fmt::format("unexpected argument '{}'; give one file", options.words[2]));
  source.name = options.words.size() == 2 ? options.words[1] : "-";
  Result<std::string> text = read_input(source.name);
  if (!text) return tl::unexpected(text.error());
  source.text = std::move(*text);
  return source;
}

int convert(const Options& options) {
  const Result<const Format*> format = format_of(options);
  if (!format) return report(format.error());
  const Result<Source> source = source_of(**format, options);
  if (!source) return report(source.error());
  const Result<std::string> text = (*format)->read(*source, options);
  if (!text) return report(text.error());
  print(*text);
  return kExitHolds;
}

Run build(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("--placement", options->placement,
                 "where chunks lie: loop or v (zero-bubble: v; megatron-order: loop)");
  app.add_option("--layers", options->layers, "of the model, for torchtitan's layers per stage");
  app.add_flag("--fragment", options->fragment, "rows of a part of a step");
  app.allow_extras();
  app.footer([] {
    Table table{{"Formats", ""}, {}};
    for (const Format& format : kFormats)
      table.rows.push_back({fmt::format("  {}", format.name), std::string(format.what)});
    return layout(table);
  });
  CLI::App* command = &app;
  return [=]() -> int {
    options->words = command->remaining();
    // The first "--" separates our words from the other program's flags.
    const auto dashes = std::find(options->words.begin(), options->words.end(), "--");
    if (dashes != options->words.end()) options->words.erase(dashes);
    return convert(*options);
  };
}

const RegisterCommand kCommand({.name = "import",
                                .summary = "read a schedule or a launch script of another program",
                                .usage = "FORMAT [FILE | - | -- FLAGS]",
                                .examples = {{"plumbline import deepspeed streams.txt | plumbline check -",
                                              "rows with sends and receives"},
                                             {"plumbline import megatron-args pretrain.sh > run.toml",
                                              "a configuration from a launch script"},
                                             {"plumbline import torchtitan train.toml | plumbline show -",
                                              "the schedule torchtitan would run"}},
                                .build = build});

}  // namespace
}  // namespace plumbline::cli

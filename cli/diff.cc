// `diff`: which calls moved between two schedules or Programs, and what becomes of the verdict; two records go to
// cli/record_diff.h.
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/common/command.h"
#include "cli/common/exit_codes.h"
#include "cli/common/output.h"
#include "cli/record_diff.h"
#include "cli/record_file.h"
#include "cli/schedule_input.h"
#include "cli/variants.h"
#include "cli/verdicts.h"
#include "engine/base/json_writer.h"
#include "engine/program/program_diff.h"
#include "engine/schedule/call_diff.h"
#include "reports/verdict_text.h"

namespace plumbline::cli {
namespace {

struct Options {
  bool json = false;
  bool programs = false;
  int most = 20;
  std::string tolerance = "bitwise";
};

// One side: its calls, and its verdict in a line.
struct Side {
  std::string name;
  CallRows rows;
  CallRows details;  // of a Program
  std::uint64_t digest = 0;
  bool is_program = false;
  std::string headline;
  int code = kExitHolds;
};

void take_program(const Program& program, Side& side) {
  side.rows = call_rows(program);
  side.details = call_details(program);
  side.digest = program_digest(program);
}

Status judge_side(const std::vector<std::string>& words, const InputOptions& input_options, bool program,
                  Side& side) {
  const Result<Input> input = load_input(words, input_options, Purpose::kCheck);
  if (!input) return tl::unexpected(input.error());
  JudgeOptions judging;
  judging.memory_limit = input->config.memory.limit;
  const Result<std::vector<Judged>> all = judge(*input, judging);
  if (!all) return tl::unexpected(all.error());
  for (const Judged& judged : *all) {
    const int code = worse(side.code, judged.verdict.exit_code());
    if (side.headline.empty() || code != side.code) side.headline = verdict_headline(judged.verdict);
    side.code = code;
  }
  if (program && input->program) take_program(*input->program, side);
  return {};
}

Result<Side> side_of(const std::vector<std::string>& words, const InputOptions& options, bool as_program) {
  Side side;
  Result<ScheduleInput> input = load_schedule(words, options.fragment);
  if (!input) return tl::unexpected(input.error());
  side.name = input->name;
  side.is_program = as_program || input->program.has_value();
  if (!side.is_program) side.rows = call_rows(*input->schedule);
  // Standard input can be read once.
  if (input->name == "-") {
    side.headline = "not judged: standard input was read for its calls";
    if (input->program) take_program(*input->program, side);
    return side;
  }
  PL_TRY(judge_side(words, options, side.is_program, side));
  return side;
}

std::string place(int rank, int at) { return rank < 0 ? "-" : fmt::format("rank {} [{}]", rank, at); }
std::string after(const std::string& call) { return call.empty() ? "first" : "after " + call; }

std::string_view change_name(CallChange change) {
  switch (change) {
    case CallChange::kMoved:
      return "moved";
    case CallChange::kRank:
      return "other rank";
    case CallChange::kRemoved:
      return "removed";
    case CallChange::kAdded:
      return "added";
    case CallChange::kChanged:
      return "changed";
  }
  return "";
}

void print_text(const Side& a, const Side& b, const CallDiff& diff, const Options& options) {
  if (diff.equal()) {
    print_line(fmt::format("equal: {} calls on {} ranks{}", diff.before, a.rows.size(),
                           a.digest == b.digest ? "" : "; sizes or communicators differ"));
  } else {
    print_line(
        fmt::format("{} changes; {} calls before, {} after", diff.moves.size(), diff.before, diff.after));
    Table table{{"call", "change", "before", "after", ""}, {}};
    int shown = 0;
    for (const CallMove& move : diff.moves) {
      if (options.most > 0 && shown++ == options.most) break;
      std::string where = move.change == CallChange::kRemoved ? "was " + after(move.from_after)
                                                              : "now " + after(move.to_after);
      if (move.change == CallChange::kChanged) where = move.from_after + " -> " + move.to_after;
      table.rows.push_back({move.call, std::string(change_name(move.change)),
                            place(move.from_rank, move.from), place(move.to_rank, move.to), where});
    }
    print(layout(table, output_width()));
    const std::size_t left = diff.moves.size() - table.rows.size();
    if (left > 0) print_line(fmt::format("and {} more; --most 0 shows all", left));
  }
  print_line(fmt::format("before  {}: {}", a.name, a.headline));
  print_line(fmt::format("after   {}: {}", b.name, b.headline));
}

void print_json(const Side& a, const Side& b, const CallDiff& diff) {
  JsonWriter json;
  json.begin_object().field("plumbline", 1).field("equal", diff.equal());
  json.field("before", static_cast<std::int64_t>(diff.before))
      .field("after", static_cast<std::int64_t>(diff.after));
  for (const auto& [key, side] : {std::pair{"verdict_before", &a}, std::pair{"verdict_after", &b}}) {
    json.key(key).begin_object();
    json.field("name", side->name)
        .field("code", std::int64_t{side->code})
        .field("text", side->headline)
        .end_object();
  }
  json.key("changes").begin_array();
  for (const CallMove& move : diff.moves) {
    json.begin_object().field("call", move.call).field("change", change_name(move.change));
    json.key("from")
        .begin_array()
        .value(std::int64_t{move.from_rank})
        .value(std::int64_t{move.from})
        .end_array();
    json.key("to").begin_array().value(std::int64_t{move.to_rank}).value(std::int64_t{move.to}).end_array();
    json.end_object();
  }
  print_line(json.end_array().end_object().text());
}

int compare(const Options& options, const InputOptions& input_options,
            const std::vector<std::string>& words) {
  const Result<Variants> variants = split_variants(words);
  if (!variants) return report(variants.error());
  if (variants->subjects.size() != 2) {
    return report(Error{
        ErrorCode::kUsage,
        fmt::format("diff compares two things, and {} were given; write plumbline diff A B, each a file, "
                    "a generator's name or flags in quotes",
                    variants->subjects.size()),
        {}});
  }
  const auto is_record = [](const std::vector<std::string>& subject) {
    return subject.size() == 1 && is_record_file(subject.front());
  };
  if (is_record(variants->subjects[0]) && is_record(variants->subjects[1])) {
    if (options.json || options.programs)
      return report(
          Error{ErrorCode::kUsage,
                "--json and --program are for schedules and Programs; two records are compared in text",
                {}});
    return diff_record_files(variants->subjects[0].front(), variants->subjects[1].front(), options.tolerance);
  }
  if (options.tolerance != "bitwise")
    return report(Error{ErrorCode::kUsage, "--tolerance is for two records of runs", {}});
  std::vector<Side> sides;
  for (const std::vector<std::string>& subject : variants->subjects) {
    if (is_record(subject))
      return report(Error{ErrorCode::kUnsupported,
                          subject.front() + " is a record; diff compares it with another record only",
                          {}});
    Result<Side> side = side_of(variants->with_shared(subject), input_options, options.programs);
    if (!side) return report(side.error());
    sides.push_back(std::move(*side));
  }
  if (sides[0].is_program != sides[1].is_program) {
    return report(Error{ErrorCode::kUsage,
                        fmt::format("{} is a {}, {} a {}; add --program to compare what both are lowered to",
                                    sides[0].name, sides[0].is_program ? "Program" : "schedule",
                                    sides[1].name, sides[1].is_program ? "Program" : "schedule"),
                        {}});
  }
  const bool programs = sides[0].is_program;
  const CallDiff diff = programs
                            ? diff_calls(sides[0].rows, sides[1].rows, sides[0].details, sides[1].details)
                            : diff_calls(sides[0].rows, sides[1].rows);
  if (options.json) {
    print_json(sides[0], sides[1], diff);
  } else {
    print_text(sides[0], sides[1], diff, options);
  }
  return diff.equal() && sides[0].digest == sides[1].digest ? kExitHolds : kExitFailed;
}

Run build(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_flag("--json", options->json, "one JSON document");
  app.add_flag("--program", options->programs, "compare the host operations that both are lowered to");
  app.add_option("--most", options->most, "changes to show; 0: all");
  app.add_option("--tolerance", options->tolerance, kToleranceHelp);
  const auto input = add_input_options(app);
  const auto arguments = add_config_arguments(app);
  return [=]() -> int { return compare(*options, *input, arguments->arguments()); };
}

const RegisterCommand kCommand(
    {.name = "diff",
     .summary =
         "which calls moved between two schedules or Programs, and both verdicts; or how two runs differ",
     .usage = "A B [flags of both]",
     .examples = {{"plumbline diff before.csv after.csv --comm-map pair", "two files"},
                  {"plumbline diff 1f1b zb-h1 --pp 4 -m 8", "two generators"},
                  {"plumbline diff --program '--p2p batched' '--p2p separate' --pp 4 -m 8",
                   "two lowerings of one schedule"},
                  {"plumbline diff run.plmb replay.plmb", "two runs: order, numbers, times"},
                  {"plumbline diff run.plmb gpu.plmb --tolerance derived",
                   "where libraries round otherwise"}},
     .build = build});

}  // namespace
}  // namespace plumbline::cli

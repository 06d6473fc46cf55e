// `report`: turns a run's record into files - a page for the browser, a picture for a paper, a graph.
#include <memory>
#include <optional>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/common/command.h"
#include "cli/common/exit_codes.h"
#include "cli/common/output.h"
#include "cli/record_file.h"
#include "engine/base/text.h"
#include "reports/dot.h"
#include "reports/html.h"
#include "reports/svg.h"
#include "sim/verdict.h"

namespace plumbline::cli {
namespace {

struct Options {
  std::vector<std::string> runs;
  std::string html, svg, dot, title, rows, verdict;
  int step = -1;
};

Status save(const std::string& path, std::string_view content) {
  PL_TRY(write_file(path, content));
  print_line(path);
  return {};
}

// The verdict of --verdict FILE, or the one a run that did not complete carries.
Result<std::optional<Verdict>> verdict_for(const Options& options, const RunRecord& record) {
  std::string text = record.verdict_json;
  std::string name = "the record's verdict";
  if (!options.verdict.empty()) {
    Result<std::string> file = read_file(options.verdict);
    if (!file) return tl::unexpected(file.error());
    text = std::move(*file);
    name = options.verdict;
  }
  if (text.empty()) return std::optional<Verdict>();
  Result<Verdict> verdict = parse_verdict_json(text, name);
  if (!verdict) return tl::unexpected(verdict.error());
  return std::optional<Verdict>(std::move(*verdict));
}

// The wait-for graph where there is a deadlock, else what the step's operations depend on.
Result<std::string> graph(const Options& options, const RunRecord& record,
                          const std::optional<Verdict>& verdict) {
  if (verdict && options.step < 0) {
    for (const ModeVerdict& mode : verdict->modes) {
      for (const Finding& finding : mode.findings) {
        if (finding.kind == FindingKind::kDeadlock) return waits_dot(finding);
      }
    }
  }
  return step_dot(record, options.step);
}

Status write_reports(const Options& options) {
  const Result<RunRecord> record = read_record(options.runs);
  if (!record) return tl::unexpected(record.error());
  const Result<std::optional<Verdict>> verdict = verdict_for(options, *record);
  if (!verdict) return tl::unexpected(verdict.error());
  if (!options.html.empty()) {
    ReportOptions html;
    html.title = options.title;
    PL_TRY(save(options.html, report_html(*record, *verdict, html)));
  }
  if (!options.svg.empty()) {
    SvgOptions svg;
    svg.step = options.step;
    svg.title = options.title;
    if (!options.rows.empty()) PL_TRY(parse_rows(options.rows, svg));
    const Result<std::string> picture = timeline_svg(*record, svg);
    if (!picture) return tl::unexpected(picture.error());
    PL_TRY(save(options.svg, *picture));
  }
  if (options.dot.empty()) return {};
  const Result<std::string> dot = graph(options, *record, *verdict);
  if (!dot) return tl::unexpected(dot.error());
  if (!options.dot.ends_with(".svg")) return save(options.dot, *dot);
  const Result<std::string> laid_out = dot_to_svg(*dot);
  if (!laid_out) return tl::unexpected(laid_out.error());
  return save(options.dot, *laid_out);
}

int run(const Options& options) {
  if (options.html.empty() && options.svg.empty() && options.dot.empty()) {
    return report(
        Error{ErrorCode::kUsage, "say what to write: -o report.html, --svg FILE or --dot FILE", {}});
  }
  const Status written = write_reports(options);
  return written ? kExitHolds : report(written.error());
}

Run build(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("run", options->runs, "the record, or the records of a run's ranks")->required();
  app.add_option("-o,--out", options->html, "HTML page, complete in one file");
  app.add_option("--svg", options->svg, "timeline of one step as SVG");
  app.add_option("--dot", options->dot,
                 "wait-for graph of a deadlock, else dependencies of one step; as DOT, or laid out if FILE "
                 "ends in .svg");
  app.add_option("--step", options->step, "step for --svg and --dot (a typical one)");
  app.add_option("--ranks", options->rows, "ranks for --svg, as 4-7");
  app.add_option("--title", options->title, "title of page and picture");
  app.add_option("--verdict", options->verdict, "answer of 'plumbline check --json' to show on the page");
  return [=]() -> int { return run(*options); };
}

const RegisterCommand kCommand(
    {.name = "report",
     .summary = "make a page, a picture or a graph of a run's record",
     .usage = "RUN... -o report.html [--svg FILE] [--dot FILE]",
     .examples = {{"plumbline report run.plmb -o report.html", "timeline, bubbles, memory, curves"},
                  {"plumbline report run.plmb --svg timeline.svg --ranks 0-3", "for a paper"},
                  {"plumbline report hang.plmb --dot hang.svg", "who waits for whom"}},
     .build = build});

}  // namespace
}  // namespace plumbline::cli

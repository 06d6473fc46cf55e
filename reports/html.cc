#include "reports/html.h"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "reports/analysis.h"
#include "reports/html/columns.h"
#include "reports/html/embedded.h"
#include "reports/html/findings.h"
#include "reports/html/page_data.h"
#include "reports/html/timers.h"
#include "reports/markup.h"
#include "reports/wait_cycle.h"

namespace plumbline {
namespace {

using Slot = std::pair<std::string_view, std::string>;

// One pass over the template, so that nothing inside a value is taken for a slot.
template <std::size_t N>
std::string fill_template(std::string_view page, const std::array<Slot, N>& slots) {
  std::string out;
  while (true) {
    const std::size_t open = page.find("{{");
    const std::size_t close = open == std::string_view::npos ? open : page.find("}}", open);
    if (close == std::string_view::npos) return out += page;
    out += page.substr(0, open);
    const std::string_view name = page.substr(open + 2, close - open - 2);
    for (const Slot& slot : slots) {
      if (slot.first == name) out += slot.second;
    }
    page.remove_prefix(close + 2);
  }
}

std::string state_badge(const RunRecord& record, const std::optional<Verdict>& verdict) {
  const char* form = "<span class=\"badge {}\">{}</span>";
  if (verdict && !verdict->holds()) {
    const Finding* finding = leading_finding(*verdict);
    const bool hang = finding == nullptr || finding->kind == FindingKind::kDeadlock;
    return fmt::format(fmt::runtime(form), "bad", hang ? "deadlock" : "check failed");
  }
  if (verdict) return fmt::format(fmt::runtime(form), "good", verdict->certified() ? "certified" : "holds");
  if (record.events.empty() && record.steps.empty()) return "";
  const char* words = record.verdict_json.empty() ? "completed" : "did not complete";
  return fmt::format(fmt::runtime(form), record.verdict_json.empty() ? "good" : "bad", words);
}

std::string subtitle(const RunRecord& record) {
  std::string text =
      fmt::format("{} ranks · {} stages · {} microbatches", record.ranks, record.stages, record.microbatches);
  if (!record.steps.empty())
    text += fmt::format(" · {} step{}", record.steps.size(), record.steps.size() == 1 ? "" : "s");
  return text;
}

}  // namespace

std::string report_title(const RunRecord& record) {
  return fmt::format("{}: {} ranks, {} stages, {} microbatches", schedule_name(record), record.ranks,
                     record.stages, record.microbatches);
}

std::string report_html(const RunRecord& record, const std::optional<Verdict>& verdict,
                        const ReportOptions& options) {
  std::optional<Verdict> answer = verdict;
  if (!answer && !record.verdict_json.empty()) {
    // A verdict that cannot be read is no reason to withhold the rest of the report; the badge still says
    // what happened.
    const Result<Verdict> parsed = parse_verdict_json(record.verdict_json, "the record's verdict");
    if (parsed) answer = *parsed;
  }
  const std::string title = options.title.empty() ? report_title(record) : options.title;
  const Analysis analysis = analyze(record);
  const std::array<Slot, 11> slots = {{
      {"title", escape_xml(title)},
      {"heading", escape_xml(options.title.empty() ? schedule_name(record) : options.title)},
      {"subtitle", escape_xml(subtitle(record))},
      {"backend", escape_xml(record.backend)},
      {"badge", state_badge(record, answer)},
      {"findings", answer ? findings_section(record, *answer) : std::string()},
      {"timers", timers_section(record)},
      {"modes", answer ? modes_section(*answer) : std::string()},
      {"style", std::string(report_page_css())},
      {"script", std::string(report_page_js())},
      {"data", base64(page_block(record, analysis, options.most_events, title))},
  }};
  return fill_template(report_page_html(), slots);
}

}  // namespace plumbline

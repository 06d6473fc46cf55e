#include "reports/html/findings.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "reports/event_kind.h"
#include "reports/markup.h"
#include "reports/ring.h"
#include "reports/verdict_text.h"

namespace plumbline {
namespace {

constexpr std::size_t kHistory = 11;  // operations shown before the one a rank is stuck in
constexpr std::size_t kMostFindings = 50;
constexpr std::size_t kMostRanks = 64;  // rows of histories

// What each rank is stuck in. An edge to another rank says more than one inside the rank, the cycle more than
// the rest.
std::map<Rank, const WaitEdge*> stuck_ranks(const Finding& finding) {
  std::map<Rank, const WaitEdge*> stuck;
  const auto take = [&](const std::vector<WaitEdge>& edges, bool crossing) {
    for (const WaitEdge& edge : edges) {
      if ((edge.from.rank != edge.to.rank) == crossing) stuck.insert({edge.from.rank, &edge});
    }
  };
  take(finding.cycle, true);
  take(finding.waits, true);
  take(finding.cycle, false);
  take(finding.waits, false);
  return stuck;
}

std::vector<std::string> last_operations(const RunRecord& record, Rank rank) {
  std::vector<const RunEvent*> events;
  for (const RunEvent& event : record.events) {
    if (event.rank == rank && drawable(record, event)) events.push_back(&event);
  }
  std::stable_sort(events.begin(), events.end(), [](const RunEvent* a, const RunEvent* b) {
    return a->step != b->step ? a->step < b->step : a->end < b->end;
  });
  std::vector<std::string> names;
  const std::size_t first = events.size() > kHistory ? events.size() - kHistory : 0;
  for (std::size_t k = first; k < events.size(); ++k) names.push_back(action_name(record, *events[k]));
  return names;
}

std::string history_row(const RunRecord& record, Rank rank, const WaitEdge& stuck) {
  std::string row = fmt::format("<tr><th scope=\"row\">rank {}</th><td><ol class=\"ops\">", rank);
  for (const std::string& name : last_operations(record, rank))
    row += fmt::format("<li>{}</li>", escape_xml(name));
  return row + fmt::format("<li class=\"stuck\">{} <span>stuck here</span></li></ol></td></tr>\n",
                           escape_xml(stuck.from.text));
}

std::string waits_for(const WaitEdge& edge) {
  const std::string reason = edge.reason.empty() ? "" : fmt::format(" ({})", edge.reason);
  return fmt::format("waits for {}{}", of_rank(edge.to.rank, edge.to.text), reason);
}

std::string in_brackets(const std::string& reason) {
  return reason.empty() ? "" : fmt::format(" <span class=\"muted\">({})</span>", escape_xml(reason));
}

// Ranks that are stuck though the cycle does not pass through them.
std::string outside_list(const std::map<Rank, const WaitEdge*>& stuck, const std::set<Rank>& inside,
                         const std::vector<CycleHop>& hops) {
  std::string outside;
  for (const auto& [rank, edge] : stuck) {
    if (hops.empty() || inside.count(rank) != 0) continue;
    outside += fmt::format("<li><b>rank {}</b> is in <code>{}</code>, <span class=\"muted\">{}</span></li>\n",
                           rank, escape_xml(edge->from.text), escape_xml(waits_for(*edge)));
  }
  if (outside.empty()) return "";
  return "<h3>Ranks outside the cycle</h3><p class=\"muted\">They hang only because they wait for "
         "it.</p><ul>" +
         outside + "</ul>\n";
}

// The ring, and beside it every hop in words.
std::string cycle_block(const std::vector<CycleHop>& hops) {
  if (hops.empty()) return "";
  std::string out = "<div class=\"cycle\">" + ring_svg(hops) + "<ol class=\"hops\">";
  for (std::size_t k = 0; k < hops.size(); ++k) {
    const CycleHop& hop = hops[k];
    out += fmt::format("<li><b>rank {}</b> is in <code>{}</code>", hop.rank, escape_xml(hop.stuck_in));
    out += fmt::format("<br><span class=\"muted\">waits for rank {}'s</span> <code>{}</code>{}", hop.next,
                       escape_xml(hop.needs), in_brackets(hop.reason));
    if (!hop.behind.empty()) {
      out += fmt::format("<br><span class=\"muted\">which waits for its</span> <code>{}</code>{}",
                         escape_xml(hops[(k + 1) % hops.size()].stuck_in), in_brackets(hop.behind));
    }
    out += "</li>";
  }
  return out + "</ol></div>\n";
}

std::string deadlock(const RunRecord& record, const Finding& finding, const std::string& mode) {
  const std::vector<CycleHop> hops = cycle_hops(finding.cycle);
  const std::map<Rank, const WaitEdge*> stuck = stuck_ranks(finding);
  std::set<Rank> inside;
  for (const CycleHop& hop : hops) inside.insert(hop.rank);

  std::string out = "<section class=\"card alarm\" id=\"deadlock\"><h2>Deadlock</h2>\n";
  const std::string sentence = hops.empty() ? finding.why : cycle_sentence(hops);
  out += fmt::format("<p class=\"lead\">{}</p>\n",
                     escape_xml(sentence.empty() ? "No rank can go on." : sentence));
  if (!hops.empty() && !finding.why.empty())
    out += fmt::format("<p class=\"muted\">{}</p>\n", escape_xml(finding.why));
  if (!mode.empty()) out += fmt::format("<p class=\"muted\">Under {}.</p>\n", escape_xml(mode));
  out += cycle_block(hops);
  if (record.events.empty() && !hops.empty()) return out + outside_list(stuck, inside, hops) + "</section>\n";
  out += "<h3>What each rank did last</h3><div class=\"scroll\"><table class=\"history\"><tbody>\n";
  std::size_t rows = 0;
  for (const auto& [rank, edge] : stuck) {
    if ((hops.empty() || inside.count(rank) != 0) && rows++ < kMostRanks)
      out += history_row(record, rank, *edge);
  }
  out += "</tbody></table></div>\n";
  if (rows > kMostRanks) out += fmt::format("<p class=\"muted\">and {} more ranks</p>\n", rows - kMostRanks);
  return out + outside_list(stuck, inside, hops) + "</section>\n";
}

std::string plain_finding(const Finding& finding, const std::string& mode) {
  std::string out = fmt::format("<li><b>{}</b>", escape_xml(finding_words(finding.kind)));
  if (!mode.empty()) out += fmt::format(" <span class=\"muted\">under {}</span>", escape_xml(mode));
  out += fmt::format("<br>{}", escape_xml(finding.why));
  for (std::size_t k = 0; k < finding.operations.size() && k < 4; ++k) {
    const OperationRef& op = finding.operations[k];
    out +=
        fmt::format("<br><span class=\"muted\">rank {}</span> <code>{}</code>", op.rank, escape_xml(op.text));
  }
  return out + "</li>\n";
}

}  // namespace

std::string findings_section(const RunRecord& record, const Verdict& verdict) {
  std::string mode;
  const Finding* first = leading_finding(verdict, &mode);
  if (first == nullptr) return "";
  std::string out;
  const bool hang = first->kind == FindingKind::kDeadlock;
  if (hang) out += deadlock(record, *first, mode);
  std::string list;
  std::size_t count = 0;
  const auto add = [&](const Finding& finding, const std::string& name) {
    if ((hang && &finding == first) || ++count > kMostFindings) return;
    list += plain_finding(finding, name);
  };
  for (const Finding& finding : verdict.findings) add(finding, "");
  for (const ModeVerdict& m : verdict.modes) {
    for (const Finding& finding : m.findings) add(finding, m.mode);
  }
  if (list.empty()) return out;
  out += fmt::format("<section class=\"card{}\" id=\"findings\"><h2>{}</h2><ol class=\"findings\">\n{}</ol>",
                     hang ? "" : " alarm", hang ? "Other findings" : "Findings", list);
  if (count > kMostFindings) out += fmt::format("<p class=\"muted\">and {} more</p>", count - kMostFindings);
  return out + "</section>\n";
}

std::string modes_section(const Verdict& verdict) {
  if (verdict.modes.empty()) return "";
  std::string out =
      "<section class=\"card\" id=\"modes\"><h2>Checked</h2><div "
      "class=\"scroll\"><table><thead><tr><th>execution mode"
      "<th>outcome<th class=\"num\">makespan</tr></thead><tbody>\n";
  for (const ModeVerdict& mode : verdict.modes) {
    const bool good = mode.completes && mode.findings.empty();
    out += fmt::format(
        "<tr><td>{}</td><td><span class=\"badge {}\">{}</span></td><td class=\"num\">{}</td></tr>\n",
        escape_xml(mode.mode), good ? "good" : "bad",
        !mode.completes ? "hangs"
        : good          ? "completes"
                        : "findings",
        mode.completes && mode.makespan > 0 ? format_duration(mode.makespan) : "–");
  }
  return out + fmt::format("</tbody></table></div><p class=\"muted\">{}</p></section>\n",
                           escape_xml(verdict_headline(verdict)));
}

}  // namespace plumbline

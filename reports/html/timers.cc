#include "reports/html/timers.h"

#include <vector>

#include <fmt/format.h>

#include "engine/runtime/timers.h"
#include "reports/markup.h"

namespace plumbline {

std::string timers_section(const RunRecord& record) {
  const std::vector<TimerRow> rows = megatron_timers(record);
  if (record.events.empty() || rows.empty()) return "";
  std::string out =
      "<section class=\"card\" id=\"timers\"><h2>Timers</h2><div class=\"scroll\"><table><thead><tr><th>timer"
      "<th class=\"num\">ranks<th class=\"num\">least<th class=\"num\">most</tr></thead><tbody>\n";
  for (const TimerRow& row : rows) {
    out += fmt::format(
        "<tr><td>{}</td><td class=\"num\">{}</td><td class=\"num\">{}</td><td class=\"num\">{}</td></tr>\n",
        escape_xml(row.name), row.ranks, format_duration(static_cast<Nanoseconds>(row.least)),
        format_duration(static_cast<Nanoseconds>(row.most)));
  }
  return out +
         "</tbody></table></div><p class=\"muted\">A training step's, under the names of Megatron's log; the "
         "first "
         "step is left out where there are more. Communication counts from where it occupied its stream.</p>"
         "</section>\n";
}

}  // namespace plumbline

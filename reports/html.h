// The HTML report: one file that opens from disk without a network. It carries its own script, style and
// data, and a content security policy that forbids everything else. How to read it: docs/report.md. Equal
// input gives equal bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/runtime/run_record.h"
#include "sim/verdict.h"

namespace plumbline {

struct ReportOptions {
  std::string title;                     // empty: schedule and shape of the run
  std::int64_t most_events = 5'000'000;  // about 8 MB of page; the page says what was left out
};

// `verdict` is the check's answer, or the reason why the run did not complete; without one, that of the
// record is used if there is one. A deadlock is shown before everything else.
std::string report_html(const RunRecord& record, const std::optional<Verdict>& verdict,
                        const ReportOptions& options = {});

// "interleaved: 4 ranks, 8 stages, 16 microbatches"
std::string report_title(const RunRecord& record);

}  // namespace plumbline

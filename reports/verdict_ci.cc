#include "reports/verdict_ci.h"

#include <fmt/format.h>

#include "reports/wait_cycle.h"

namespace plumbline {
namespace {

// Text and attribute values alike. Control characters do not exist in XML 1.0.
std::string xml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\n':
        out += "&#10;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 && c != '\t' ? '?' : c;
    }
  }
  return out;
}

// Data of a workflow command; properties also give up ':' and ','.
std::string command(std::string_view text, bool property) {
  std::string out;
  for (const char c : text) {
    if (c == '%' || c == '\n' || c == '\r' || (property && (c == ':' || c == ','))) {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out;
}

std::string details(const Finding& finding) {
  std::string out = finding.why + "\n";
  for (const CycleHop& hop : cycle_hops(finding.cycle)) {
    out +=
        fmt::format("rank {} in {}: waits for {}{}\n", hop.rank, hop.stuck_in, of_rank(hop.next, hop.needs),
                    hop.reason.empty() ? "" : fmt::format(" ({})", hop.reason));
  }
  if (finding.cycle.empty()) {
    for (const OperationRef& operation : finding.operations)
      out += fmt::format("rank {}: {}\n", operation.rank, operation.text);
  }
  return out;
}

std::string test_case(const std::string& suite, const std::string& name, const SubjectPlace& place,
                      const std::vector<Finding>& findings, bool completes) {
  std::string out = fmt::format("    <testcase classname=\"{}\" name=\"{}\"", xml(suite), xml(name));
  if (!place.file.empty()) out += fmt::format(" file=\"{}\"", xml(place.file));
  if (place.line > 0) out += fmt::format(" line=\"{}\"", place.line);
  if (findings.empty() && completes) return out + "/>\n";
  // A test case holds one failure: the first finding gives its kind, all give its text.
  std::string text;
  for (const Finding& finding : findings)
    text += fmt::format("{}: {}", finding_kind_name(finding.kind), details(finding));
  const std::string kind(findings.empty() ? "deadlock" : finding_kind_name(findings.front().kind));
  const std::string why = findings.empty() ? "does not complete" : findings.front().why;
  return out + fmt::format(">\n      <failure type=\"{}\" message=\"{}\">{}</failure>\n    </testcase>\n",
                           kind, xml(why), xml(text));
}

}  // namespace

void JunitReport::add(const Verdict& verdict, const SubjectPlace& place) {
  const std::string name = verdict.program.empty() ? "program" : verdict.program;
  std::string cases = test_case(name, "matching, data and buffers", place, verdict.findings, true);
  int failures = verdict.findings.empty() ? 0 : 1;
  for (const ModeVerdict& mode : verdict.modes) {
    cases += test_case(name, mode.mode, place, mode.findings, mode.completes);
    failures += mode.findings.empty() && mode.completes ? 0 : 1;
  }
  const int tests = 1 + static_cast<int>(verdict.modes.size());
  suites_ += fmt::format("  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\">\n{}  </testsuite>\n",
                         xml(name), tests, failures, cases);
  tests_ += tests;
  failures_ += failures;
}

std::string JunitReport::text() const {
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"plumbline\" tests=\"{}\" "
      "failures=\"{}\">\n{}"
      "</testsuites>\n",
      tests_, failures_, suites_);
}

std::string github_annotations(const Verdict& verdict, const SubjectPlace& place) {
  std::string out;
  const auto list = [&](const std::vector<Finding>& findings, const std::string& mode) {
    for (const Finding& finding : findings) {
      std::string title = fmt::format("{}: {}", verdict.program, finding_words(finding.kind));
      if (!mode.empty()) title += fmt::format(" ({})", mode);
      out += "::error ";
      if (!place.file.empty()) out += fmt::format("file={},", command(place.file, true));
      if (place.line > 0) out += fmt::format("line={},", place.line);
      out += fmt::format("title={}::{}\n", command(title, true), command(details(finding), false));
    }
  };
  list(verdict.findings, "");
  for (const ModeVerdict& mode : verdict.modes) list(mode.findings, mode.mode);
  return out;
}

}  // namespace plumbline

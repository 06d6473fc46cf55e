#include "reports/verdict_text.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "reports/terminal_colour.h"
#include "sim/nccl_model.h"

namespace plumbline {
namespace {

std::string with_thousands(std::int64_t number) {
  std::string digits = fmt::format("{}", number);
  for (int at = static_cast<int>(digits.size()) - 3; at > (number < 0 ? 1 : 0); at -= 3) {
    digits.insert(static_cast<std::size_t>(at), ",");
  }
  return digits;
}

// The answer's tone decides the colour of the first line: all, parts of it, or nothing holds.
enum class Tone { kHolds, kHoldsByDefault, kBroken };

Tone tone_of(const Verdict& verdict) {
  if (verdict.holds()) return Tone::kHolds;
  const bool some_mode = std::any_of(verdict.modes.begin(), verdict.modes.end(), [](const ModeVerdict& mode) {
    return mode.completes && mode.findings.empty();
  });
  return verdict.findings.empty() && some_mode ? Tone::kHoldsByDefault : Tone::kBroken;
}

class VerdictText {
 public:
  VerdictText(const Verdict& verdict, const VerdictTextOptions& options)
      : verdict_(verdict), options_(options) {}

  std::string run() {
    headline();
    findings();
    modes();
    evidence();
    sensitivity();
    portability();
    memory();
    return std::move(out_);
  }

 private:
  void headline() {
    const std::string line = wrap_text(verdict_headline(verdict_), options_.width, 2);
    const Tone tone = tone_of(verdict_);
    out_ += tone == Tone::kHolds    ? paint_good(line, options_.colour)
            : tone == Tone::kBroken ? paint_bad(line, options_.colour)
                                    : paint_bold(line, options_.colour);
    out_ += '\n';
  }

  void findings() {
    struct Row {
      const Finding* finding;
      const std::string* mode;
    };
    std::vector<Row> rows;
    for (const Finding& finding : verdict_.findings) rows.push_back({&finding, nullptr});
    for (const ModeVerdict& mode : verdict_.modes) {
      for (const Finding& finding : mode.findings) rows.push_back({&finding, &mode.mode});
    }
    if (rows.empty()) return;
    for (std::size_t k = 0; k < rows.size() && k < options_.most_findings; ++k) {
      out_ += '\n';
      one_finding(k + 1, *rows[k].finding, rows[k].mode);
    }
    if (rows.size() > options_.most_findings) {
      out_ += fmt::format("\n... and {} more findings\n", rows.size() - options_.most_findings);
    }
  }

  void one_finding(std::size_t number, const Finding& finding, const std::string* mode) {
    std::string head = fmt::format("{}. {}", number, finding_words(finding.kind));
    if (mode != nullptr) head += fmt::format(", under {}", *mode);
    out_ += paint_bold(wrap_text(head, options_.width, 3), options_.colour) + "\n";
    paragraph(finding.why, 3);
    if (!finding.cycle.empty()) {
      const std::vector<CycleHop> hops = cycle_hops(finding.cycle);
      paragraph(cycle_line(hops), 5);
      for (const CycleHop& hop : hops) {
        const std::string reason = hop.reason.empty() ? "" : fmt::format(" ({})", hop.reason);
        paragraph(fmt::format("rank {} in {}: waits for {}{}", hop.rank, hop.stuck_in,
                              of_rank(hop.next, hop.needs), reason),
                  5, 7);
      }
    } else {
      for (std::size_t k = 0; k < finding.operations.size() && k < 6; ++k) {
        paragraph(fmt::format("rank {}: {}", finding.operations[k].rank, finding.operations[k].text), 5);
      }
    }
    if (!finding.hint.empty()) paragraph("A change that helps: " + finding.hint + ".", 3);
  }

  // Indented by `indent`, lines after the first by `hanging`.
  void paragraph(const std::string& text, int indent, int hanging = -1) {
    if (text.empty()) return;
    const std::string blanks(static_cast<std::size_t>(indent), ' ');
    out_ += wrap_text(blanks + text, options_.width, hanging < 0 ? indent : hanging) + '\n';
  }

  // A check answers in two modes with names of their own; a simulation may run in any.
  std::string mode_title(const std::string& mode) const {
    if (verdict_.modes.size() != 2) return mode;
    if (mode == certification_model().name()) return "certification: " + mode;
    return mode == default_model().name() ? "default: " + mode : mode;
  }

  void modes() {
    if (verdict_.modes.empty()) return;
    std::size_t name = 4;
    for (const ModeVerdict& mode : verdict_.modes) name = std::max(name, mode_title(mode.mode).size());
    out_ += '\n' +
            paint_dim(fmt::format("{:<{}}  {:<10}  {:>12}", "mode", name, "outcome", "makespan"),
                      options_.colour) +
            '\n';
    for (const ModeVerdict& mode : verdict_.modes) {
      const std::string outcome = !mode.completes         ? "hangs"
                                  : mode.findings.empty() ? "completes"
                                                          : "findings";
      const std::string padded = fmt::format("{:<10}", outcome);
      out_ += fmt::format(
          "{:<{}}  {}  {:>12}\n", mode_title(mode.mode), name,
          outcome == "completes" ? paint_good(padded, options_.colour) : paint_bad(padded, options_.colour),
          mode.completes && mode.makespan > 0 ? format_duration(mode.makespan) : "-");
    }
  }

  // What the outcome of a mode rests on. Of many modes, only where it is not a proof.
  void evidence() {
    std::string lines;
    for (const ModeVerdict& mode : verdict_.modes) {
      const bool holds = mode.completes && mode.findings.empty();
      if (!holds || (verdict_.modes.size() > 2 && mode.evidence == Evidence::kProved)) continue;
      lines += wrap_text(fmt::format("{}: {}", mode.mode, verdict_class(mode)), options_.width, 2) + '\n';
    }
    if (!lines.empty()) out_ += '\n' + lines;
  }

  void sensitivity() {
    if (verdict_.sensitivity.empty()) return;
    std::size_t knob = 4;
    for (const SensitivityRow& row : verdict_.sensitivity) knob = std::max(knob, row.knob.size());
    out_ += '\n' + paint_dim("what NCCL and its machine may do, one knob at a time", options_.colour) + '\n';
    for (const SensitivityRow& row : verdict_.sensitivity) {
      out_ += wrap_text(fmt::format("{:<{}}  {}", row.knob, knob, row.words), options_.width,
                        static_cast<int>(knob) + 2) +
              '\n';
    }
  }

  void portability() {
    if (verdict_.portability.empty()) return;
    out_ += '\n' + paint_dim("not portable: NCCL leaves it undefined, or releases differ", options_.colour) +
            '\n';
    for (std::size_t k = 0; k < verdict_.portability.size() && k < options_.most_findings; ++k) {
      const Finding& finding = verdict_.portability[k];
      paragraph(fmt::format("{}: {}", finding.rule, finding.why), 0, 2);
    }
  }

  void memory() {
    if (verdict_.memory.empty()) return;
    std::vector<std::size_t> order(verdict_.memory.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    const bool cut = order.size() > options_.most_ranks;
    if (cut) {
      std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return verdict_.memory[a].peak > verdict_.memory[b].peak;
      });
      order.resize(options_.most_ranks);
    }
    // A simulation knows only the peak; the checker also what it is made of.
    const bool details = std::any_of(verdict_.memory.begin(), verdict_.memory.end(), [](const RankMemory& m) {
      return m.peak_activations > 0 || m.live_stashes > 0 || !m.peak_text.empty();
    });
    std::string head = fmt::format("{:>4}  {:>12}", "rank", "peak");
    if (details) head += fmt::format("  {:>12}  {:>7}  {}", "activations", "stashes", "peak at");
    if (cut) head += fmt::format("  (the {} largest of {})", order.size(), verdict_.memory.size());
    out_ += '\n' + paint_dim(head, options_.colour) + '\n';
    for (const std::size_t r : order) {
      const RankMemory& m = verdict_.memory[r];
      std::string line = fmt::format("{:>4}  {:>12}", r, format_bytes(m.peak));
      if (details)
        line += fmt::format("  {:>12}  {:>7}  {}", format_bytes(m.peak_activations), m.live_stashes,
                            fit(m.peak_text));
      line.erase(line.find_last_not_of(' ') + 1);
      out_ += line + '\n';
    }
  }

  std::string fit(const std::string& text) const {
    const std::size_t room = static_cast<std::size_t>(std::max(options_.width - 43, 10));
    return text.size() <= room ? text : text.substr(0, room - 3) + "...";
  }

  const Verdict& verdict_;
  const VerdictTextOptions& options_;
  std::string out_;
};

}  // namespace

std::string wrap_text(const std::string& text, int width, int indent) {
  std::string out;
  std::size_t column = 0;
  const std::size_t limit = static_cast<std::size_t>(std::max(width, 20));
  // Blanks at the beginning are kept.
  std::size_t at = std::min(text.find_first_not_of(' '), text.size());
  out.append(at, ' ');
  column = at;
  const std::size_t lead = at;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::size_t word = end - at;
    if (column > lead && column + 1 + word > limit) {
      out += '\n' + std::string(static_cast<std::size_t>(indent), ' ');
      column = static_cast<std::size_t>(indent);
    } else if (out.size() > lead) {
      out += ' ';
      ++column;
    }
    out += text.substr(at, word);
    column += word;
    at = end + 1;
  }
  return out;
}

std::string verdict_headline(const Verdict& verdict) {
  const std::string name = verdict.program.empty() ? "the program" : verdict.program;
  const std::string operations = fmt::format("{} operations", with_thousands(verdict.operations));
  const Tone tone = tone_of(verdict);
  if (tone == Tone::kHolds) {
    return fmt::format("holds: {} completes{} with the right data ({} checked)", name,
                       verdict.modes.size() > 1 ? " in every mode" : "", operations);
  }
  std::string mode;
  const Finding* finding = leading_finding(verdict, &mode);
  if (finding == nullptr) return fmt::format("does not complete: {} ({} checked)", name, operations);
  if (tone == Tone::kHoldsByDefault) {
    return fmt::format("not certified: {} completes in some modes, but {}: {}", name,
                       mode.empty() ? "not in all" : "not under " + mode, finding_words(finding->kind));
  }
  std::string head = fmt::format("{}: {}", finding_words(finding->kind), name);
  if (!mode.empty()) head += fmt::format(", under {}", mode);
  std::size_t count = verdict.findings.size();
  for (const ModeVerdict& m : verdict.modes) count += m.findings.size();
  if (count > 1) head += fmt::format(" ({} findings)", count);
  return head;
}

std::string render_verdict(const Verdict& verdict, const VerdictTextOptions& options) {
  return VerdictText(verdict, options).run();
}

}  // namespace plumbline

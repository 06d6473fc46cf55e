// docs/nccl-rules.md.
#include <fmt/format.h>

#include "engine/base/text.h"
#include "sim/rules.h"

namespace plumbline {
namespace {

constexpr std::string_view kIntroduction =
    R"(# NCCL's rules, as the simulator keeps them

<!-- Made by `plumbline explain --docs`; change sim/rules_table.cc instead. -->

Each rule has a number that verdicts, code and tests use; `plumbline explain N6` prints one, and `plumbline explain
FILE` examines a scenario, schedule, Program or saved verdict and prints the rules behind its findings. Rules that are
*modes* are switches of the model; the others are always in force, or lead to a finding when they are broken.

The examples are complete programs: a line is a host operation of a rank (`docs/scenarios.md` has the words), and the
communicators C and D hold all ranks. What they amount to is tested; to see why, put one into a file and explain it.

)";

constexpr std::string_view kModes = R"(## The two modes of a check

- **certification**: rendezvous sends, strict launch order and cold connections, all at once. What completes under it
  completes whatever buffers, streams and connections do.
- **default**: rendezvous sends, communicators free of each other, warm connections: what a run on an idle machine does.

Every wait of the default mode is also a wait of the certification mode, so what is certified completes by default as
well (tested on random programs and exhaustively on small ones). `--modes` names others: `rendezvous`,
`eager_SIZE`, `eager_SIZE_xMESSAGES`, `eager_h100` (`a100`, `pcie`, `ib`) or `always_eager`, then as wanted
`+registered`, `+strict` or `+launch_order`, `+queues_N`, `+sms_N` or `+sms_N_by_N`, `+cold`, `+cold_collectives`,
`+group_order_by_call`, `+batched` or `+batched_across`, `+split_N` or `+split_restart_N`, `+launch_blocking`,
`+lazy_modules`, `+emulate_mismatch`. `--modes all` is the eight in which reference models are compared. The same
switches are options of [sim] in a configuration; `--nccl RELEASE` sets those that changed from release to release.

)";

std::string status_words(const NcclRule& rule) {
  switch (rule.status) {
    case RuleStatus::kAlways:
      return "";
    case RuleStatus::kMode:
      return fmt::format(" *(mode: `{}`)*", rule.option);
    case RuleStatus::kReported:
      return " *(reported)*";
  }
  return "";
}

// Lines of at most 118 columns.
std::string paragraph(std::string_view text) {
  std::string out;
  std::size_t column = 0;
  for (const std::string_view word : split(text, ' ')) {
    if (column > 0 && column + 1 + word.size() > 118) {
      out += '\n';
      column = 0;
    } else if (column > 0) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
  }
  return out + "\n";
}

}  // namespace

std::string rules_docs() {
  std::string out(kIntroduction);
  out += kModes;
  out += "## The rules\n";
  for (const NcclRule& rule : nccl_rules()) {
    out += fmt::format("\n### {} {}{}\n\n", rule.number, rule.title, status_words(rule));
    out += paragraph(rule.says) + "\n";
    out += paragraph(fmt::format("Consequence: {}", rule.consequence));
    if (!rule.example.program.empty()) {
      out += fmt::format("\n```\n{}\n", rule.example.program);
      for (const ExpectedVerdict& verdict : example_verdicts(rule))
        out += fmt::format("-> {} under {}\n", verdict.value, verdict.mode);
      out += "```\n";
    }
    out += "\n" + paragraph(fmt::format("Source: {}.", rule.source));
  }
  return out;
}

}  // namespace plumbline

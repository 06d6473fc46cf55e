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
well. That is tested on random programs and, against all interleavings of a model that shares no code with simulator
and checker, on small ones: all of two ranks with up to four messages each over two communicators, all of three ranks
with up to two, a million at random (`tests/sim/small_worlds_test.cc`). `--modes` names others: `rendezvous`,
`eager_SIZE`, `eager_SIZE_xMESSAGES`, `eager_h100` (`a100`, `pcie`, `ib`) or `always_eager`, then as wanted
`+nodes_of_N`, `+registered`, `+strict` or `+launch_order`, `+queues_N`, `+sms_N` or `+sms_N_by_N`, `+cold`,
`+cold_collectives`, `+group_order_by_call`, `+batched` or `+batched_across`, `+split_N` or `+split_restart_N`,
`+launch_blocking`, `+lazy_modules`, `+emulate_mismatch`. `--modes all` is the eight in which reference models are
compared. The same switches are options of [sim] in a configuration; `--nccl RELEASE` sets those that changed from
release to release.

)";

constexpr std::string_view kCodes = R"(## Result codes

What a call returns here is a finding with NCCL's name for it; the program goes on as if it had ignored the code.

| code | here |
| --- | --- |
| ncclSuccess | every other call, also those that hang later (N1, N55) |
| ncclUnhandledCudaError | every call of a device on which a kernel has faulted, but the abort (N84) |
| | what cross-wired connections end in on a machine; reported as cross-wiring (N2) |
| ncclSystemError | a first connection to a process that has ended; an init whose first member's process has (N83) |
| ncclInternalError | a first connection whose two ends set up different numbers of directions stops both hosts (N2) |
| ncclInvalidArgument | absent, destroyed or aborted communicators (N87); a second finalize or destroy (N77) |
| | use before a nonblocking call is through (N79); blocking beside nonblocking in one group (N80) |
| | a shrink called by a rank that it leaves out (N74); a grow to no more ranks (N75) |
| | peers and roots outside the communicator, when the input is read (N27) |
| | a second revoke (N76) |
| ncclInvalidUsage | a message to oneself without its other end in the group (N25); use after a revoke (N76) |
| | a group of streams that a graph captures and others (N18) |
| | a device twice for ncclCommInitAll (N70); ranks with different releases of NCCL (N72) |
| ncclRemoteError | an operation whose peer's process has ended, on another node; a meeting with such a process (N83) |
| | every further call on that communicator until it is aborted (N82) |
| ncclInProgress | what nonblocking calls return; `comm_ready` polls until it is over (N79) |
| ncclTimeout | never: since 2.30 barriers in a user's kernel raise it, which no scenario holds; host calls do not |

An operation that is refused inside a group keeps the whole group from being launched (N10).

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
  out += kCodes;
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

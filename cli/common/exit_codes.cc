#include "cli/common/exit_codes.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace plumbline::cli {

const std::vector<ExitCodeEntry>& exit_codes() {
  static const std::vector<ExitCodeEntry> table{
      {kExitHolds, "holds", "The command did what was asked; every check holds."},
      {kExitFailed, "failed",
       "A check failed that no other code describes, wrong labels in `check` among them."},
      {kExitUsage, "usage",
       "Wrong usage, a configuration that breaks a rule, unsupported input, or a file that cannot be used."},
      {kExitDeadlock, "deadlock", "Ranks wait for each other for ever."},
      {kExitMismatch, "mismatch",
       "Numbers or state differ from what they must be, wrong labels in `run` among them."},
      {kExitMemory, "memory", "A rank needs more memory than its limit."},
      {kExitNondeterminism, "nondeterminism", "Two runs with one seed differ."},
      {kExitMissing, "missing",
       "Needed hardware, library or executable is absent; a CI job may treat it as skipped."},
      {kExitInternal, "internal",
       "An assertion or an unexpected exception: a bug in plumbline, please report it."},
      {kExitTimeout, "timeout", "A time limit passed."},
  };
  return table;
}

int exit_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUsage:
    case ErrorCode::kConfig:
    case ErrorCode::kParse:
    case ErrorCode::kUnsupported:
    case ErrorCode::kIo:
      return kExitUsage;
    case ErrorCode::kMissing:
      return kExitMissing;
    case ErrorCode::kState:
      return kExitMismatch;
    case ErrorCode::kTimeout:
      return kExitTimeout;
  }
  return kExitInternal;
}

int worse(int a, int b) {
  constexpr std::array<int, 9> kOrder{kExitInternal, kExitDeadlock,       kExitMemory,
                                      kExitMismatch, kExitNondeterminism, kExitFailed,
                                      kExitTimeout,  kExitMissing,        kExitUsage};
  for (const int code : kOrder) {
    if (a == code || b == code) return code;
  }
  return std::max(a, b);
}

std::string exit_codes_docs() {
  std::string out =
      "# Exit codes\n\nThe same for every command, and stable: scripts may test them.\n\n| code | name | "
      "meaning |\n|---|---|---|\n";
  for (const ExitCodeEntry& entry : exit_codes()) {
    out += fmt::format("| {} | {} | {} |\n", static_cast<int>(entry.code), entry.name, entry.meaning);
  }
  out +=
      "\nWhen several findings apply, the first of 101, 3, 5, 4, 6, 1 is used. A process ended by signal n "
      "leaves 128 + n, as\n"
      "shells report it. This page is generated: `plumbline help exit-codes`.\n";
  return out;
}

}  // namespace plumbline::cli

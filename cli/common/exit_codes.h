// Exit codes: stable, documented in docs/exit-codes.md (generated from the table here), and made in one place
// from errors.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"

namespace plumbline::cli {

enum ExitCode : int {
  kExitHolds = 0,
  kExitFailed = 1,
  kExitUsage = 2,
  kExitDeadlock = 3,
  kExitMismatch = 4,
  kExitMemory = 5,
  kExitNondeterminism = 6,
  kExitMissing = 75,
  kExitInternal = 101,
  kExitTimeout = 124,
};

struct ExitCodeEntry {
  ExitCode code;
  std::string_view name;
  std::string_view meaning;
};

const std::vector<ExitCodeEntry>& exit_codes();

int exit_code(ErrorCode code);

// The code to leave with when several findings apply: 101, then 3, 5, 4, 6, 1, then whatever else is not 0.
int worse(int a, int b);

// docs/exit-codes.md.
std::string exit_codes_docs();

}  // namespace plumbline::cli

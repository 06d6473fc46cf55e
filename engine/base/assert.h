// PL_ASSERT: programmer errors only, kept in every build. A failure prints the condition, its place and the
// reproduction line set with set_reproduction(), then leaves with exit code 101 (docs/exit-codes.md).
#pragma once

#include <string>

namespace plumbline {

// The one-line command that repeats the current run; printed by a failing assertion. Thread-safe.
void set_reproduction(std::string line);
std::string reproduction();

[[noreturn]] void assertion_failed(const char* condition, const char* file, int line,
                                   const std::string& detail);

}  // namespace plumbline

#define PL_ASSERT(condition)                                                             \
  do {                                                                                   \
    if (!(condition)) ::plumbline::assertion_failed(#condition, __FILE__, __LINE__, {}); \
  } while (false)

#define PL_ASSERT_MSG(condition, detail)                                                       \
  do {                                                                                         \
    if (!(condition)) ::plumbline::assertion_failed(#condition, __FILE__, __LINE__, (detail)); \
  } while (false)

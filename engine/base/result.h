// Expected failures are values. Result<T> holds a T or an Error; Error says what went wrong, where, by which
// rule and how to mend it. Programmer errors are assertions instead (assert.h); nothing in plumbline throws
// for an expected failure.
#pragma once

#include <string>
#include <utility>

#include <tl/expected.hpp>

namespace plumbline {

// Why an operation failed, and so which exit code a command ends with (docs/exit-codes.md).
enum class ErrorCode {
  kUsage,        // wrong flag, wrong argument                                       -> exit 2
  kConfig,       // a configuration that breaks a rule                               -> exit 2
  kParse,        // text that does not follow its grammar                            -> exit 2
  kUnsupported,  // understood, but plumbline does not do it                         -> exit 2
  kIo,           // file system                                                      -> exit 2
  kMissing,      // needed hardware or library is absent                             -> exit 75
  kState,        // numbers or state that do not match                               -> exit 4
  kTimeout,      //                                                                  -> exit 124
};

// A position in something a person wrote: file, line and column count from 1; 0 means "not known".
struct Where {
  std::string file;
  int line = 0;
  int column = 0;

  // "file:line:column", without the parts that are not known; empty if nothing is known.
  std::string text() const;
};

struct Error {
  ErrorCode code = ErrorCode::kUsage;
  std::string message;  // what, the value, the rule and the fix; one line
  Where where;

  // "file:line:column: message", or the message alone.
  std::string text() const;
};

template <typename T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

// Shorthand: return fail(ErrorCode::kConfig, "..."), optionally with a place.
inline tl::unexpected<Error> fail(ErrorCode code, std::string message, Where where = {}) {
  return tl::unexpected<Error>(Error{code, std::move(message), std::move(where)});
}

}  // namespace plumbline

// Evaluates an expression that yields Result<T> and hands its error on to the caller. The only control-flow
// macro here.
#define PL_TRY(expression)                                            \
  do {                                                                \
    auto&& pl_try_result = (expression);                              \
    if (!pl_try_result) return tl::unexpected(pl_try_result.error()); \
  } while (false)

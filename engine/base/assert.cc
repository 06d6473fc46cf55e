#include "engine/base/assert.h"

#include <cstdlib>
#include <mutex>

#include <unistd.h>

namespace plumbline {
namespace {

std::mutex& reproduction_mutex() {
  static std::mutex mutex;
  return mutex;
}

std::string& reproduction_line() {
  static std::string line;
  return line;
}

}  // namespace

void set_reproduction(std::string line) {
  const std::lock_guard<std::mutex> lock(reproduction_mutex());
  reproduction_line() = std::move(line);
}

std::string reproduction() {
  const std::lock_guard<std::mutex> lock(reproduction_mutex());
  return reproduction_line();
}

void assertion_failed(const char* condition, const char* file, int line, const std::string& detail) {
  std::string text = std::string("plumbline: internal error: ") + condition + " does not hold at " + file +
                     ":" + std::to_string(line) + "\n";
  if (!detail.empty()) text += "  " + detail + "\n";
  const std::string repeat = reproduction();
  if (!repeat.empty()) text += "  reproduce: " + repeat + "\n";
  // write(2): the streams of a process whose invariants are broken are not to be trusted.
  const ssize_t written = ::write(2, text.data(), text.size());
  static_cast<void>(written);
  std::_Exit(101);
}

}  // namespace plumbline

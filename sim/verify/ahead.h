// Ahead: brings a small Program's tables into the caches while the one before it is checked. Of a Program that is met
// for the first time nothing is there, and the processor waits for some hundred lines. It fetches a few at a time at no
// cost, so they are asked for in steps, spread over the check.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "sim/verify/check.h"

namespace plumbline::verify {

class Ahead {
 public:
  Ahead() = default;  // nothing to fetch
  explicit Ahead(const Program& program) {
    if (program.items.size() > kFetchable) return;
    add(program.kernels);
    add(program.slots);
    add(program.threads);
    add(program.endpoints);
    add(program.items);
  }

  // How many steps there will be.
  void plan(std::size_t steps) { lines_a_step_ = lines_ / steps + 1; }
  void step() {
    for (std::size_t left = lines_a_step_; left > 0 && at_ < count_;) {
      Table& table = tables_[at_];
      const std::size_t lines = std::min(left, table.lines);
      for (const char* const end = table.next + lines * kLine; table.next != end; table.next += kLine)
        __builtin_prefetch(table.next);
      table.lines -= lines;
      left -= lines;
      if (table.lines == 0) ++at_;
    }
  }

 private:
  static constexpr std::size_t kFetchable = 4096, kLine = 64, kPage = 4096;
  struct Table {
    const char* next;
    std::size_t lines;
  };

  // A prefetch of a page that the processor has not got the address of is dropped; reading a byte of it is not.
  template <typename T>
  void add(const std::vector<T>& rows) {
    const auto* const begin = reinterpret_cast<const char*>(rows.data());
    const std::size_t bytes = rows.size() * sizeof(T);
    for (std::size_t at = 0; at < bytes; at += kPage) (void)*static_cast<const volatile char*>(begin + at);
    tables_[count_++] = {begin, bytes / kLine + 1};
    lines_ += bytes / kLine + 1;
  }

  std::array<Table, 5> tables_;
  std::size_t count_ = 0, at_ = 0;
  std::size_t lines_ = 0, lines_a_step_ = 0;
};

// check_program() with steps of `ahead`.
Result<Verdict> check_ahead(const LinkedProgram& linked, const CheckOptions& options, Ahead& ahead);

}  // namespace plumbline::verify

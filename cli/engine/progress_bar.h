// A bar on stderr for long work, where stderr is a terminal; nothing elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

namespace plumbline::cli {

class ProgressBar {
 public:
  ProgressBar();
  ~ProgressBar();  // takes the bar away
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  // Redrawn ten times a second at most.
  void show(std::uint64_t done, std::uint64_t total, std::string_view what);

 private:
  bool on_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point next_;
};

}  // namespace plumbline::cli

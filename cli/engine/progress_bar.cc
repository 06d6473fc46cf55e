#include "cli/engine/progress_bar.h"

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>
#include <unistd.h>

namespace plumbline::cli {

ProgressBar::ProgressBar() : on_(::isatty(STDERR_FILENO) == 1), next_(std::chrono::steady_clock::now()) {}

ProgressBar::~ProgressBar() {
  if (drawn_) fmt::print(stderr, "\r\033[K");
}

void ProgressBar::show(std::uint64_t done, std::uint64_t total, std::string_view what) {
  const auto now = std::chrono::steady_clock::now();
  if (!on_ || total == 0 || now < next_) return;
  next_ = now + std::chrono::milliseconds(100);
  drawn_ = true;
  constexpr std::uint64_t kWidth = 30;
  const std::uint64_t filled = std::min(kWidth, done * kWidth / total);
  const std::string_view tail = what.substr(what.size() - std::min<std::size_t>(what.size(), 40));
  fmt::print(stderr, "\r\033[K[{:=<{}}{:<{}}] {:>3}% {}", "", filled, "", kWidth - filled, done * 100 / total,
             tail);
  std::fflush(stderr);
}

}  // namespace plumbline::cli

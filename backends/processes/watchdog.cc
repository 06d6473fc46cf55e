#include "backends/processes/watchdog.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <thread>

#include <fmt/format.h>
#include <unistd.h>

#include "engine/base/hash.h"

namespace plumbline::processes {
namespace {

std::atomic<bool> terminated{false};
void on_terminate(int /*signal*/) { terminated.store(true); }

constexpr int kExitTimeout = 124;
constexpr std::chrono::milliseconds kLook(50);
constexpr std::chrono::seconds kLeave(20);  // after the last words, if nobody ends the process

}  // namespace

std::string position_key(Rank rank) { return fmt::format("position/{}", rank); }

struct Watchdog::Impl {
  Store& store;
  RankStatus& status;
  WatchdogOptions options;
  std::atomic<bool> over{false};
  std::thread thread;

  void write(const std::string& name, const std::string& text) const {
    if (options.directory.empty()) return;
    std::ofstream file(fmt::format("{}/{}", options.directory, name));
    file << text << '\n';
  }

  // Nothing after this: the process has no use any more.
  void last_words() {
    const std::string position = position_json(status, options.rank);
    const auto [position_file, recorder_file] = last_words_files(options.rank);
    write(position_file, position);
    write(recorder_file, flight_recorder_json(status, options.rank, options.library));
    (void)store.set(position_key(options.rank), position);
    status.give_up();
    std::this_thread::sleep_for(kLeave);
    if (!over) std::_Exit(kExitTimeout);
  }

  void run() {
    using Clock = std::chrono::steady_clock;
    std::uint64_t seen = status.progress();
    Clock::time_point moved = Clock::now();
    for (int look = 0; !over; ++look) {
      std::this_thread::sleep_for(kLook);
      const std::uint64_t now = status.progress();
      if (now != seen || !status.watched()) moved = Clock::now();
      seen = now;
      const double still = std::chrono::duration<double>(Clock::now() - moved).count();
      std::string why;
      if (terminated.load()) why = fmt::format("rank {} got SIGTERM", options.rank);
      if (options.timeout > 0.0 && still >= options.timeout)
        why = fmt::format("rank {} has made no progress for {:g} s", options.rank, options.timeout);
      if (!why.empty()) (void)store.set_once(kStopKey, why);
      if (why.empty() && look % 4 != 0) continue;
      const Result<std::optional<std::string>> stop = store.get(kStopKey);
      if (over) return;
      // Without the store whoever started the ranks is gone, and nobody hears anything.
      if (!stop) std::_Exit(kExitTimeout);
      if (*stop || !why.empty()) return last_words();
    }
  }
};

std::array<std::string, 2> last_words_files(Rank rank) {
  return {fmt::format("rank-{:05}.position.json", rank), fmt::format("flight-recorder-{:05}.json", rank)};
}

Watchdog::Watchdog(Store& store, RankStatus& status, WatchdogOptions options)
    : impl_(new Impl{store, status, std::move(options), {}, {}}) {
  std::signal(SIGTERM, on_terminate);
  impl_->thread = std::thread([this] { impl_->run(); });
}

Watchdog::~Watchdog() {
  impl_->over = true;
  impl_->thread.join();
}

}  // namespace plumbline::processes

#include "backends/gloo/supervisor.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/gloo/watchdog.h"

namespace plumbline::gloo {

std::string done_key(Rank rank) { return fmt::format("done/{}", rank); }

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLook(10);
constexpr std::chrono::seconds kOthers(60);

std::atomic<int> told_to_stop{0};
void on_stop(int signal) { told_to_stop.store(signal); }

struct Child {
  Rank rank = 0;
  pid_t pid = -1;
  int port_pipe = -1;  // the write end: the child waits for the store's port
  bool running = true;
  bool killed = false;
};

// The child's side: never returns.
[[noreturn]] void become(const SupervisorOptions& options, const RankBody& body, Rank rank, int port_pipe,
                         pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) std::_Exit(1);  // it was gone before
  std::signal(SIGTERM, SIG_DFL);
  std::signal(SIGINT, SIG_IGN);  // the terminal's; the supervisor hears it too and speaks for all
  std::int32_t port = 0;
  const bool told = ::read(port_pipe, &port, sizeof port) == static_cast<ssize_t>(sizeof port);
  ::close(port_pipe);
  if (!told) std::_Exit(2);  // there is no store, and the supervisor has said why
  StoreAddress store = options.store;
  store.port = port;
  if (options.serves_store) store.host = "127.0.0.1";
  const int code = body(rank, store);
  std::fflush(nullptr);
  std::_Exit(code);
}

class Supervision {
 public:
  Supervision(const SupervisorOptions& options, const RankBody& body) : options_(options), body_(body) {}

  ~Supervision() {
    kill_all();
    while (reap()) std::this_thread::sleep_for(kLook);
  }

  Result<RunEnd> run() {
    std::fflush(nullptr);  // or the children would write it again
    for (const Rank rank : options_.ranks) PL_TRY(start(rank));
    told_to_stop.store(0);
    std::signal(SIGTERM, on_stop);
    std::signal(SIGINT, on_stop);
    Result<std::unique_ptr<Store>> store = options_.serves_store
                                               ? Store::serve(options_.store.port)
                                               : Store::join(options_.store, options_.join_seconds);
    if (!store) {
      for (Child& child : children_) close_pipe(child);
      return tl::unexpected(store.error());
    }
    store_ = std::move(*store);
    for (Child& child : children_) {
      const auto port = static_cast<std::int32_t>(store_->port());
      (void)!::write(child.port_pipe, &port, sizeof port);
      close_pipe(child);
    }
    watch();
    return std::move(end_);
  }

 private:
  Status start(Rank rank) {
    int ends[2];
    if (::pipe(ends) != 0) return fail(ErrorCode::kIo, fmt::format("no pipe: {}", std::strerror(errno)));
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid < 0)
      return fail(ErrorCode::kIo, fmt::format("rank {} cannot be started: {}", rank, std::strerror(errno)));
    if (pid == 0) {
      ::close(ends[1]);
      for (const Child& other : children_) ::close(other.port_pipe);
      become(options_, body_, rank, ends[0], parent);
    }
    ::close(ends[0]);
    children_.push_back({rank, pid, ends[1], true, false});
    return {};
  }

  static void close_pipe(Child& child) {
    if (child.port_pipe >= 0) ::close(child.port_pipe);
    child.port_pipe = -1;
  }

  // Takes note of who has ended; false: nobody runs.
  bool reap() {
    bool any = false;
    for (Child& child : children_) {
      if (!child.running) continue;
      int status = 0;
      const pid_t got = ::waitpid(child.pid, &status, WNOHANG);
      if (got == 0) {
        any = true;
        continue;
      }
      child.running = false;
      RankEnd ended{child.rank, 0, 0, child.killed};
      if (got < 0) ended.code = 1;
      if (got > 0 && WIFEXITED(status)) ended.code = WEXITSTATUS(status);
      if (got > 0 && WIFSIGNALED(status)) ended.signal = WTERMSIG(status);
      end_.ended.push_back(ended);
    }
    return any;
  }

  void kill_all() {
    for (Child& child : children_) {
      if (!child.running) continue;
      child.killed = true;
      ::kill(child.pid, SIGKILL);
    }
  }

  void watch() {
    while (reap()) {
      if (end_.culprit() != nullptr) {
        const RankEnd& first = *end_.culprit();
        return stop(
            fmt::format("rank {} ended with {} {}", first.rank, first.signal != 0 ? "signal" : "exit code",
                        first.signal != 0 ? first.signal : first.code),
            false);
      }
      if (const int signal = told_to_stop.load(); signal != 0)
        return stop(fmt::format("the launcher got {}", signal == SIGINT ? "SIGINT" : "SIGTERM"), true);
      if (++looks_ % 10 == 0) {
        const Result<std::optional<std::string>> said = store_->get(kStopKey);
        if (said && *said) return stop(**said, true);
      }
      std::this_thread::sleep_for(kLook);
    }
    if (end_.culprit() == nullptr && options_.serves_store) wait_for_the_others();
  }

  // Ranks that others started still need the store.
  void wait_for_the_others() {
    const auto limit = Clock::now() + kOthers;
    for (Rank rank = 0; rank < options_.world; ++rank) {
      if (std::count(options_.ranks.begin(), options_.ranks.end(), rank) > 0) continue;
      while (Clock::now() < limit && told_to_stop.load() == 0) {
        const Result<std::optional<std::string>> done = store_->get(done_key(rank));
        if (!done || *done) break;
        std::this_thread::sleep_for(kLook);
      }
    }
  }

  // The ranks that still run say their last words - or end by themselves, when the one they need is gone.
  void stop(const std::string& why, bool count) {
    const Result<std::string> said = store_->set_once(kStopKey, why);
    if (count) end_.stopped = said ? *said : why;
    const auto limit = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                          std::chrono::duration<double>(options_.grace));
    while (Clock::now() < limit) {
      const bool any = reap();
      for (Rank rank = 0; rank < options_.world; ++rank) {
        if (end_.positions.count(rank) != 0) continue;
        const Result<std::optional<std::string>> words = store_->get(position_key(rank));
        if (words && *words) end_.positions.emplace(rank, **words);
      }
      const bool all = end_.positions.size() == static_cast<std::size_t>(options_.world);
      const bool ours = std::all_of(children_.begin(), children_.end(), [&](const Child& child) {
        return !child.running || end_.positions.count(child.rank) != 0;
      });
      if (all || !any || (ours && !options_.serves_store)) break;
      if (ours && options_.ranks.size() == static_cast<std::size_t>(options_.world)) break;
      std::this_thread::sleep_for(kLook);
    }
    kill_all();
    while (reap()) std::this_thread::sleep_for(kLook);
  }

  const SupervisorOptions& options_;
  const RankBody& body_;
  std::vector<Child> children_;
  std::unique_ptr<Store> store_;
  RunEnd end_;
  int looks_ = 0;
};

}  // namespace

const RankEnd* RunEnd::culprit() const {
  const auto found = std::find_if(ended.begin(), ended.end(), [](const RankEnd& end) {
    return !end.killed && (end.code != 0 || end.signal != 0);
  });
  return found == ended.end() ? nullptr : &*found;
}

Result<RunEnd> supervise(const SupervisorOptions& options, const RankBody& body) {
  return Supervision(options, body).run();
}

}  // namespace plumbline::gloo

#include "backends/processes/supervisor.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <sstream>
#include <thread>

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/processes/watchdog.h"

namespace plumbline::processes {

std::string done_key(Rank rank) { return fmt::format("done/{}", rank); }

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kExitGivenUp = 124;
constexpr std::chrono::milliseconds kLook(10);
constexpr std::chrono::seconds kOthers(60);      // ranks that end well, after the first one has
constexpr std::chrono::seconds kConclusion(60);  // of the supervisor of rank 0: it may have much to merge
// Whoever is told to stop by a launcher is killed soon: by Open MPI after one second.
constexpr std::chrono::milliseconds kHurry(500);

// Keys of the store, beside the watchdogs'.
constexpr const char* kCulpritKey = "culprit";        // "rank code signal"
constexpr const char* kConclusionKey = "conclusion";  // the run's exit code
constexpr const char* kCollectedKey = "collected";    // the last words are heard: ranks may be killed
std::string stopped_key(Rank rank) { return fmt::format("stopped/{}", rank); }  // its process runs no more
std::string heard_key(Rank rank) { return fmt::format("heard/{}", rank); }      // it has read the conclusion

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
  Supervision(const SupervisorOptions& options, const RankBody& body)
      : options_(options), body_(body), leads_(serves(0)), parent_(::getppid()) {}

  ~Supervision() {
    kill_all();
    while (reap()) std::this_thread::sleep_for(kLook);
  }

  Result<Departure> run(const Conclusion& conclude) {
    std::fflush(nullptr);  // or the children would write it again
    for (const Rank rank : options_.ranks) PL_TRY(start(rank));
    Result<std::unique_ptr<Store>> store = options_.serves_store
                                               ? Store::serve(options_.store.port, options_.store.prefix)
                                               : Store::join(options_.store, options_.join_seconds);
    if (!store) {
      for (Child& child : children_) close_pipe(child);
      return tl::unexpected(store.error());
    }
    store_ = std::move(*store);
    // Not before: waiting for a store that does not come is cut short by nothing else.
    told_to_stop.store(0);
    std::signal(SIGTERM, on_stop);
    std::signal(SIGINT, on_stop);
    for (Child& child : children_) {
      const auto port = static_cast<std::int32_t>(store_->port());
      (void)!::write(child.port_pipe, &port, sizeof port);
      close_pipe(child);
    }
    const std::optional<std::string> why = watch();
    if (why) stop(*why);
    if (!leads_) return follow();
    const int code = conclude(end_);
    if (why) announce(code);
    return Departure{code, {}};
  }

 private:
  bool serves(Rank rank) const { return std::count(options_.ranks.begin(), options_.ranks.end(), rank) > 0; }
  bool serves_all() const { return options_.ranks.size() == static_cast<std::size_t>(options_.world); }

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

  // Until all have ended; or why the run ends early.
  std::optional<std::string> watch() {
    while (true) {
      const bool any = reap();
      if (const RankEnd* first = own_culprit(); first != nullptr) {
        end_.culprit = *first;
        (void)store_->set_once(kCulpritKey, fmt::format("{} {} {}", first->rank, first->code, first->signal));
        return fmt::format("rank {} ended with {} {}", first->rank,
                           first->signal != 0 ? "signal" : "exit code",
                           first->signal != 0 ? first->signal : first->code);
      }
      if (!any && others_are_done()) return std::nullopt;
      if (const int signal = told_to_stop.load(); signal != 0)
        return fmt::format("the launcher got {}", signal == SIGINT ? "SIGINT" : "SIGTERM");
      if (options_.by_launcher && ::getppid() != parent_) return "the launcher has gone";
      if (++looks_ % 10 == 0) {
        const Result<std::optional<std::string>> said = store_->get(kStopKey);
        if (said && *said) return **said;
      }
      std::this_thread::sleep_for(kLook);
    }
  }

  // Ranks that others started still need the store, and one of them may yet fail: the supervisor of rank 0 stays.
  bool others_are_done() {
    if (!leads_ || serves_all()) return true;
    if (done_since_ == Clock::time_point()) done_since_ = Clock::now();
    if (Clock::now() - done_since_ > kOthers) return true;
    while (next_done_ < options_.world) {
      if (!serves(next_done_)) {
        const Result<std::optional<std::string>> done = store_->get(done_key(next_done_));
        if (done && !*done) return false;
      }
      ++next_done_;
    }
    return true;
  }

  // The first of this process's that ended badly by itself.
  const RankEnd* own_culprit() const {
    const auto found = std::find_if(end_.ended.begin(), end_.ended.end(), [](const RankEnd& end) {
      return !end.killed && (end.code != 0 || end.signal != 0);
    });
    return found == end_.ended.end() ? nullptr : &*found;
  }

  // What it is for the whole run. A rank that ends after the run has been stopped is none: its peers were killed.
  void look_for_culprit() {
    const Result<std::optional<std::string>> text = store_->get(kCulpritKey);
    if (!text || !*text) return;
    std::istringstream words(**text);
    RankEnd first;
    if (words >> first.rank >> first.code >> first.signal) end_.culprit = first;
  }

  // The ranks that still run say their last words - or end by themselves, when the one they need is gone.
  void stop(const std::string& why) {
    const Result<std::string> said = store_->set_once(kStopKey, why);
    end_.stopped = said ? *said : why;
    const auto begin = Clock::now();
    const auto grace =
        std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options_.grace));
    while (Clock::now() - begin < grace) {
      (void)reap();
      look_for_culprit();
      for (Rank rank = 0; rank < options_.world; ++rank) {
        if (end_.positions.count(rank) != 0) continue;
        const Result<std::optional<std::string>> words = store_->get(position_key(rank));
        if (words && *words) end_.positions.emplace(rank, **words);
      }
      const bool all = end_.positions.size() == static_cast<std::size_t>(options_.world);
      const bool ours = std::all_of(children_.begin(), children_.end(), [&](const Child& child) {
        return !child.running || end_.positions.count(child.rank) != 0;
      });
      const bool for_all = leads_ && !serves_all() && !end_.culprit;
      if (leads_ ? all || (ours && !for_all) : ours && collected()) break;
      if (options_.by_launcher && told_to_stop.load() != 0 && Clock::now() - begin > kHurry) break;
      std::this_thread::sleep_for(kLook);
    }
    if (leads_) (void)store_->set(kCollectedKey, "");
    kill_all();
    while (reap()) std::this_thread::sleep_for(kLook);
    look_for_culprit();
    if (leads_) wait_for(stopped_key);
  }

  // A rank that is killed before the others are breaks their connections, and they would complain of it. Without a
  // store nobody collects.
  bool collected() {
    const Result<std::optional<std::string>> done = store_->get(kCollectedKey);
    return !done || *done;
  }

  // The others' supervisors have set their `key`. Nobody waits for one that is not there to set it.
  void wait_for(std::string (*key)(Rank)) {
    const auto limit = Clock::now() + kHurry;
    for (Rank rank = 0; rank < options_.world; ++rank) {
      if (serves(rank) || gone_.count(rank) != 0) continue;
      while (true) {
        const Result<std::optional<std::string>> set = store_->get(key(rank));
        if (set && *set) break;
        if (Clock::now() >= limit) {
          gone_.insert(rank);
          break;
        }
        std::this_thread::sleep_for(kLook);
      }
    }
  }

  // All others leave with this code; then the store may go.
  void announce(int code) {
    (void)store_->set(kConclusionKey, std::to_string(code));
    wait_for(heard_key);
  }

  // What a supervisor without rank 0 leaves with.
  Departure follow() {
    if (!end_.stopped) return {};
    Departure alone;
    alone.code = kExitGivenUp;
    if (end_.culprit)
      alone.code = end_.culprit->signal != 0 ? 128 + end_.culprit->signal : end_.culprit->code;
    alone.alone = *end_.stopped;
    for (const Rank rank : options_.ranks) (void)store_->set(stopped_key(rank), "");
    const auto limit = Clock::now() + kConclusion;
    while (Clock::now() < limit) {
      const Result<std::optional<std::string>> code = store_->get(kConclusionKey);
      if (!code) return alone;  // whoever served the store is gone
      if (*code) {
        for (const Rank rank : options_.ranks) (void)store_->set(heard_key(rank), "");
        return {static_cast<int>(std::strtol((*code)->c_str(), nullptr, 10)), {}};
      }
      if (options_.by_launcher && ::getppid() != parent_) return alone;
      std::this_thread::sleep_for(kLook);
    }
    return alone;
  }

  const SupervisorOptions& options_;
  const RankBody& body_;
  bool leads_;  // rank 0 is of this process
  pid_t parent_;
  std::vector<Child> children_;
  std::unique_ptr<Store> store_;
  RunEnd end_;
  std::set<Rank> gone_;  // their supervisors do not answer
  int looks_ = 0;
  Rank next_done_ = 0;
  Clock::time_point done_since_;
};

}  // namespace

Result<Departure> supervise(const SupervisorOptions& options, const RankBody& body,
                            const Conclusion& conclude) {
  return Supervision(options, body).run(conclude);
}

}  // namespace plumbline::processes

#include "backends/cuda/double/remote.h"

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <deque>

#include <fmt/format.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backends/cuda/double/arena.h"
#include "backends/cuda/double/caller.h"
#include "backends/cuda/double/socket.h"

namespace plumbline::cuda {
namespace {

// What this process has found out: one of both, once.
struct Choice {
  std::mutex mutex;
  std::atomic<Remote*> server{nullptr};
  std::atomic<bool> here{false};
  Choice* of_parent = nullptr;
};

std::atomic<Choice*>& choice() {
  static std::atomic<Choice*> current{new Choice};
  return current;
}

// A child finds out anew. Its parent's connection is closed here and nowhere else: the server would take a copy for the
// parent. Locks may be held by threads that the child does not have, so nothing of the parent's is touched.
void begin_child() {
  auto* const fresh = new Choice;
  fresh->of_parent = choice().load();
  if (Remote* const of_parent = fresh->of_parent->server.load(); of_parent != nullptr) of_parent->forget();
  choice().store(fresh);
}

std::uint32_t thread_number() {
  static std::atomic<std::uint32_t> next{0};
  thread_local const std::uint32_t own = next.fetch_add(1);
  return own;
}

}  // namespace

Remote* remote() {
  Choice& known = *choice().load(std::memory_order_acquire);
  if (Remote* const server = known.server.load(std::memory_order_acquire); server != nullptr) return server;
  if (known.here.load(std::memory_order_acquire)) return nullptr;
  const std::lock_guard lock(known.mutex);
  if (known.server.load() != nullptr || known.here.load()) return known.server.load();
  static const int registered = ::pthread_atfork(nullptr, nullptr, &begin_child);
  static_cast<void>(registered);
  const char* const path = std::getenv("PLUMBLINE_DOUBLE_SERVER");
  if (path == nullptr || *path == '\0') {
    known.here.store(true, std::memory_order_release);
    return nullptr;
  }
  known.server.store(new Remote(path), std::memory_order_release);
  return known.server.load();
}

void play_here() { choice().load()->here.store(true, std::memory_order_release); }

Remote::Remote(const std::string& path) {
  if (const Status status = connect(path); !status) failure_ = status.error().message;
}

Status Remote::connect(const std::string& path) {
  const Result<sockaddr_un> address = socket_address(path);
  if (!address) return tl::unexpected(address.error());
  socket_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const auto* at = reinterpret_cast<const sockaddr*>(&*address);
  if (socket_ < 0 || ::connect(socket_, at, sizeof *address) != 0)
    return fail(ErrorCode::kIo, fmt::format("no server of the doubles at PLUMBLINE_DOUBLE_SERVER={}: {}",
                                            path, std::strerror(errno)));
  Hello hello;
  const int file = receive_hello(socket_, hello);
  if (file < 0)
    return fail(ErrorCode::kIo,
                fmt::format("what listens at PLUMBLINE_DOUBLE_SERVER={} is not the server of this build "
                            "of the doubles",
                            path));
  const Status mapped = map_arena(file, hello.arena_address, hello.arena_bytes);
  ::close(file);
  return mapped;
}

void Remote::forget() {
  if (socket_ >= 0) ::close(socket_);
}

const char* Remote::failure() {
  const std::lock_guard lock(mutex_);
  return failure_.c_str();
}

Writer Remote::begin(Function function) {
  Writer request;
  request.put(function);
  request.put(thread_number());
  return request;
}

std::optional<std::vector<std::byte>> Remote::exchange(Writer& request) {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) return std::nullopt;
  std::optional<std::vector<std::byte>> answer;
  if (send_frame(socket_, request.bytes)) answer = receive_frame(socket_);
  if (!answer) failure_ = "the server of the doubles has gone";
  return answer;
}

void Remote::take_due(Reader& in) {
  thread_local std::deque<DueFunction> due;
  thread_local bool running = false;
  const auto count = in.get<std::uint32_t>();
  for (std::uint32_t i = 0; i < count && !in.broken(); ++i) due.push_back(in.get<DueFunction>());
  // A function that itself calls, which CUDA forbids, comes by here too: the others wait for its end.
  if (running) return;
  running = true;
  while (!due.empty()) {
    const DueFunction next = due.front();
    due.pop_front();
    next.function(next.argument);
    call(Function::kHostFunctionDone, &host_function_done, 0, next.node);
  }
  running = false;
}

}  // namespace plumbline::cuda

#include "backends/cuda/double/server.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <dlfcn.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/cuda/double/machine.h"
#include "backends/cuda/double/remote.h"
#include "backends/cuda/double/socket.h"

extern char** environ;

namespace plumbline::cuda {
namespace {

// Of a frame that has begun: a process that was stopped in the middle of one must not stop the others.
constexpr timeval kPatience{10, 0};

tl::unexpected<Error> failed(const char* what) {
  return fail(ErrorCode::kIo, fmt::format("the server of the doubles: {}: {}", what, std::strerror(errno)));
}

class File {
 public:
  explicit File(int number = -1) : number_(number) {}
  File(File&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  File& operator=(File&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~File() {
    if (number_ >= 0) ::close(number_);
  }
  int get() const { return number_; }

 private:
  int number_;
};

// Signals come as something to be read, in place of breaking in.
class Signals {
 public:
  Signals() {
    sigset_t caught;
    sigemptyset(&caught);
    for (const int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP}) sigaddset(&caught, signal);
    ::pthread_sigmask(SIG_BLOCK, &caught, &before_);
    file_ = File(::signalfd(-1, &caught, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  ~Signals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  int file() const { return file_.get(); }
  const sigset_t& before() const { return before_; }
  // 0: none is left.
  int next() const {
    signalfd_siginfo info{};
    return ::read(file_.get(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
  }

 private:
  sigset_t before_{};
  File file_;
};

std::vector<std::string> environment_of(const std::string& socket) {
  std::vector<std::string> out;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    if (!text.starts_with("PLUMBLINE_DOUBLE_SERVER=")) out.push_back(text);
  }
  out.push_back("PLUMBLINE_DOUBLE_SERVER=" + socket);
  Dl_info own{};
  if (::dladdr(reinterpret_cast<const void*>(&kArenaBytes), &own) == 0) return out;
  for (const char* name : {"CUDART_LIBRARY", "CUDA_DRIVER_LIBRARY", "NCCL_LIBRARY", "NVTX_LIBRARY"}) {
    if (std::getenv(name) == nullptr) out.push_back(fmt::format("{}={}", name, own.dli_fname));
  }
  return out;
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (const std::string& text : texts) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

Result<pid_t> start(const std::vector<std::string>& command, const std::string& socket,
                    const sigset_t& mask) {
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  posix_spawnattr_setsigmask(&attributes, &mask);
  const std::vector<std::string> environment = environment_of(socket);
  pid_t child = 0;
  const int error = ::posix_spawnp(&child, command.front().c_str(), nullptr, &attributes,
                                   pointers(command).data(), pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  if (error != 0)
    return fail(ErrorCode::kIo,
                fmt::format("'{}' cannot be started: {}", command.front(), std::strerror(error)));
  return child;
}

class Server {
 public:
  Server(Machine& machine, const Arena& arena) : machine_(machine), arena_(arena), own_(machine.caller) {}
  ~Server() {
    for (const Client& client : clients_) machine_.leave(*client.process);
    while (machine_.step()) {
    }
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // The name appears when it can be connected to.
  Status listen(const std::string& path) {
    const std::string first = path + ".";
    const Result<sockaddr_un> address = socket_address(first);
    if (!address) return tl::unexpected(address.error());
    listener_ = File(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const auto* at = reinterpret_cast<const sockaddr*>(&*address);
    ::unlink(first.c_str());
    if (listener_.get() < 0 || ::bind(listener_.get(), at, sizeof *address) != 0 ||
        ::listen(listener_.get(), 64) != 0 || ::rename(first.c_str(), path.c_str()) != 0)
      return failed(path.c_str());
    path_ = path;
    return {};
  }

  Result<int> run(const std::vector<std::string>& command) {
    const Signals signals;
    pid_t child = -1;
    if (!command.empty()) {
      const Result<pid_t> started = start(command, path_, signals.before());
      if (!started) return tl::unexpected(started.error());
      child = *started;
    }
    while (child >= 0 || !come_ || !clients_.empty()) {
      const Status waited = wait(signals.file());
      if (!waited) return tl::unexpected(waited.error());
      for (int signal = signals.next(); signal != 0; signal = signals.next()) {
        if (signal != SIGCHLD && child < 0) return 0;
        if (signal == SIGTERM || signal == SIGHUP) ::kill(child, signal);  // the terminal's reaches it anyway
      }
      int status = 0;
      if (child >= 0 && ::waitpid(child, &status, WNOHANG) == child)
        return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
    return 0;
  }

 private:
  struct Client {
    File socket;
    Process* process = nullptr;
  };

  // Answers everybody who asks something, once.
  Status wait(int signals) {
    std::vector<pollfd> files{{signals, POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    for (const Client& client : clients_) files.push_back({client.socket.get(), POLLIN, 0});
    if (::poll(files.data(), files.size(), -1) < 0 && errno != EINTR) return failed("poll");
    // Who has gone by now is gone for all that is asked by now.
    std::vector<std::pair<Client, bool>> asked;
    for (std::size_t i = 0; i < clients_.size(); ++i) {
      const short events = files[i + 2].revents;
      if ((events & POLLHUP) != 0) {
        machine_.leave(*clients_[i].process);
      } else {
        asked.emplace_back(std::move(clients_[i]), events != 0);
      }
    }
    clients_.clear();
    for (auto& [client, asks] : asked) {
      if (!asks || answer(client)) {
        clients_.push_back(std::move(client));
      } else {
        machine_.leave(*client.process);
      }
    }
    if (files[1].revents != 0) accept();
    return {};
  }

  void accept() {
    Client client{File(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC))};
    if (client.socket.get() < 0) return;
    for (const int option : {SO_RCVTIMEO, SO_SNDTIMEO})
      ::setsockopt(client.socket.get(), SOL_SOCKET, option, &kPatience, sizeof kPatience);
    Hello hello;
    hello.arena_address = kArenaAddress;
    hello.arena_bytes = kArenaBytes;
    if (!send_hello(client.socket.get(), hello, arena_.file())) return;
    come_ = true;
    client.process = &machine_.join();
    clients_.push_back(std::move(client));
  }

  // False: the process has gone.
  bool answer(const Client& client) {
    const std::optional<std::vector<std::byte>> frame = receive_frame(client.socket.get());
    if (!frame) return false;
    Reader in(*frame);
    const auto function = in.get<Function>();
    Caller& caller = client.process->thread(in.get<std::uint32_t>());
    Writer out;
    machine_.caller = &caller;
    const bool known = dispatch(function, in, out);
    machine_.caller = own_;
    if (!known) return false;
    out.put(static_cast<std::uint32_t>(caller.due.size()));
    for (const DueFunction& due : std::exchange(caller.due, {})) out.put(due);
    return send_frame(client.socket.get(), out.bytes);
  }

  Machine& machine_;
  const Arena& arena_;
  Caller* own_;
  File listener_;
  std::string path_;
  std::vector<Client> clients_;
  bool come_ = false;
};

}  // namespace

Result<int> serve(const std::string& socket, const std::vector<std::string>& command, const Arena& arena) {
  Server server(machine(), arena);
  PL_TRY(server.listen(socket));
  return server.run(command);
}

}  // namespace plumbline::cuda

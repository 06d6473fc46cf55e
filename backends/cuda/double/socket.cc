#include "backends/cuda/double/socket.h"

#include <array>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

namespace plumbline::cuda {
namespace {

constexpr std::uint32_t kLongest = std::uint32_t{1} << 28;

bool send_all(int socket, const std::byte* data, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t sent = ::send(socket, data, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    data += sent;
    bytes -= static_cast<std::size_t>(sent);
  }
  return true;
}

bool receive_all(int socket, std::byte* data, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t got = ::recv(socket, data, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    data += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

// One file handed over beside the bytes.
union Ancillary {
  cmsghdr header;
  std::array<char, CMSG_SPACE(sizeof(int))> room;
};

}  // namespace

Result<sockaddr_un> socket_address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path)
    return fail(ErrorCode::kUsage, fmt::format("'{}' is no path of a socket: 1 to {} characters", path,
                                               sizeof address.sun_path - 1));
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

bool send_frame(int socket, const std::vector<std::byte>& bytes) {
  const auto length = static_cast<std::uint32_t>(bytes.size());
  std::vector<std::byte> frame(sizeof length);
  std::memcpy(frame.data(), &length, sizeof length);
  frame.insert(frame.end(), bytes.begin(), bytes.end());
  return send_all(socket, frame.data(), frame.size());
}

std::optional<std::vector<std::byte>> receive_frame(int socket) {
  std::uint32_t length = 0;
  if (!receive_all(socket, reinterpret_cast<std::byte*>(&length), sizeof length) || length > kLongest)
    return std::nullopt;
  std::vector<std::byte> bytes(length);
  if (!receive_all(socket, bytes.data(), length)) return std::nullopt;
  return bytes;
}

bool send_hello(int socket, const Hello& hello, int file) {
  Ancillary ancillary{};
  Hello sent = hello;
  iovec part{&sent, sizeof sent};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = &ancillary;
  message.msg_controllen = sizeof ancillary.room;
  cmsghdr* const control = CMSG_FIRSTHDR(&message);
  control->cmsg_level = SOL_SOCKET;
  control->cmsg_type = SCM_RIGHTS;
  control->cmsg_len = CMSG_LEN(sizeof file);
  std::memcpy(CMSG_DATA(control), &file, sizeof file);
  return ::sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof sent);
}

int receive_hello(int socket, Hello& hello) {
  Ancillary ancillary{};
  Hello got{};
  iovec part{&got, sizeof got};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = &ancillary;
  message.msg_controllen = sizeof ancillary.room;
  ssize_t bytes = 0;
  do {
    bytes = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_WAITALL);
  } while (bytes < 0 && errno == EINTR);
  const cmsghdr* const control = CMSG_FIRSTHDR(&message);
  int file = -1;
  if (control != nullptr && control->cmsg_level == SOL_SOCKET && control->cmsg_type == SCM_RIGHTS)
    std::memcpy(&file, CMSG_DATA(control), sizeof file);
  const Hello own;
  if (bytes == static_cast<ssize_t>(sizeof got) && got.magic == own.magic && got.functions == own.functions) {
    hello = got;
    return file;
  }
  if (file >= 0) ::close(file);
  return -1;
}

}  // namespace plumbline::cuda

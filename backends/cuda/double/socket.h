// Frames on a Unix socket: a length of four bytes and so many bytes.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <sys/un.h>

#include "backends/cuda/double/wire.h"
#include "engine/base/result.h"

namespace plumbline::cuda {

Result<sockaddr_un> socket_address(const std::string& path);

// False and nothing: the other end is gone, or does not go on for as long as the socket's timeouts say.
bool send_frame(int socket, const std::vector<std::byte>& bytes);
std::optional<std::vector<std::byte>> receive_frame(int socket);

bool send_hello(int socket, const Hello& hello, int file);
// The file is the caller's to close; -1: what came is no Hello.
int receive_hello(int socket, Hello& hello);

}  // namespace plumbline::cuda

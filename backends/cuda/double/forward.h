// The first line of a function that a process elsewhere may call: where a server plays the devices, it has the call
// (remote.h). `kLost` is what the function returns when the server cannot be reached.
#pragma once

#include "backends/cuda/double/remote.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

#define FORWARD(name, ...)                                \
  if (Remote* const server = remote(); server != nullptr) \
  return server->call(Function::k_##name, &::name, kLost __VA_OPT__(, ) __VA_ARGS__)

namespace plumbline::cuda {

constexpr int kCudaLost = 999;  // cudaErrorUnknown

}  // namespace plumbline::cuda

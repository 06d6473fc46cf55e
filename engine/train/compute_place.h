// ComputePlace: where a worker's stages compute, if not in host memory. Its parameters, main gradients and the other
// slots of the optimizer then lie in memory that host and device reach at one address: stages see it as tensors of the
// device, the optimizer - which computes on the host whatever the place - as tensors of the CPU, and no copy goes
// between. Activations and their gradients are the device's alone.
#pragma once

#include <functional>
#include <memory>

#include <ATen/core/Tensor.h>

#include "engine/base/result.h"
#include "engine/base/units.h"

namespace plumbline {

struct ComputePlace {
  at::Device device{at::kCPU};
  // Memory that host and device reach; lives as long as the pointer.
  std::function<Result<std::shared_ptr<std::byte>>(Bytes)> shared_memory;
};

// The same memory as a tensor of `device`; whoever owns the memory keeps it alive.
at::Tensor memory_view(std::byte* memory, at::IntArrayRef shape, at::ScalarType type, at::Device device);

// `tensor`, of the CPU and dense, as one of `device`.
inline at::Tensor seen_from(at::Device device, const at::Tensor& tensor) {
  return memory_view(static_cast<std::byte*>(tensor.data_ptr()), tensor.sizes(), tensor.scalar_type(),
                     device);
}

// A tensor of the CPU in shared memory of the place, uninitialised.
Result<at::Tensor> shared_tensor(const ComputePlace& place, at::IntArrayRef shape, at::ScalarType type);

}  // namespace plumbline

#include "engine/train/compute_place.h"

#include <utility>

#include <ATen/ATen.h>

namespace plumbline {

at::Tensor memory_view(std::byte* memory, at::IntArrayRef shape, at::ScalarType type, at::Device device) {
  const at::TensorOptions options = at::TensorOptions().dtype(type).device(device);
  return at::for_blob(memory, shape).options(options).target_device(device).make_tensor();
}

Result<at::Tensor> shared_tensor(const ComputePlace& place, at::IntArrayRef shape, at::ScalarType type) {
  Bytes bytes = static_cast<Bytes>(c10::elementSize(type));
  for (const std::int64_t size : shape) bytes *= size;
  Result<std::shared_ptr<std::byte>> memory = place.shared_memory(bytes);
  if (!memory) return tl::unexpected(memory.error());
  std::byte* const data = memory->get();
  return at::from_blob(
      data, shape, [kept = std::move(*memory)](void*) mutable { kept.reset(); },
      at::TensorOptions().dtype(type));
}

}  // namespace plumbline

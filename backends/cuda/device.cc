#include "backends/cuda/device.h"

#include <algorithm>

#include <fmt/format.h>

namespace plumbline::cuda {

Result<Stream> Stream::create(const Device& device) {
  PL_TRY(device.use());
  Stream stream;
  stream.libraries_ = device.libraries;
  PL_CUDA(*device.libraries, cudaStreamCreateWithFlags, &stream.handle_, kStreamNonBlocking);
  return stream;
}

Stream::~Stream() {
  if (handle_ != nullptr) libraries_->cuda.cudaStreamDestroy(handle_);
}

EventPool::~EventPool() {
  for (EventHandle event : events_) device_.libraries->cuda.cudaEventDestroy(event);
}

Result<EventHandle> EventPool::take() {
  if (next_ == events_.size()) {
    PL_TRY(device_.use());
    EventHandle event = nullptr;
    PL_CUDA(*device_.libraries, cudaEventCreateWithFlags, &event,
            timing_ ? kEventDefault : kEventDisableTiming);
    events_.push_back(event);
  }
  return events_[next_++];
}

Result<Memory> Memory::allocate(const Device& device, MemoryKind kind, Bytes bytes) {
  PL_TRY(device.use());
  Memory memory;
  memory.libraries_ = device.libraries;
  memory.kind_ = kind;
  void* data = nullptr;
  const auto size = static_cast<std::size_t>(std::max<Bytes>(bytes, 1));
  const Status status =
      kind == MemoryKind::kDevice
          ? cuda_status(*device.libraries, device.libraries->cuda.cudaMalloc(&data, size), "cudaMalloc")
          : cuda_status(
                *device.libraries,
                device.libraries->cuda.cudaHostAlloc(&data, size, kHostAllocPortable | kHostAllocMapped),
                "cudaHostAlloc");
  if (!status) {
    return fail(status.error().code, fmt::format("{} on device {}: {}", format_bytes(bytes), device.ordinal,
                                                 status.error().message));
  }
  memory.data_ = static_cast<std::byte*>(data);
  return memory;
}

Memory::~Memory() {
  if (data_ == nullptr) return;
  if (kind_ == MemoryKind::kDevice) {
    libraries_->cuda.cudaFree(data_);
  } else {
    libraries_->cuda.cudaFreeHost(data_);
  }
}

}  // namespace plumbline::cuda

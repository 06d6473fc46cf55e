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

namespace {

Result<bool> lets_the_host_in(const Device& device) {
  int concurrent = 0;
  PL_CUDA(*device.libraries, cudaDeviceGetAttribute, &concurrent, kConcurrentManagedAccess, device.ordinal);
  return concurrent != 0;
}

Status allocate_block(const Device& device, MemoryKind kind, void** data, std::size_t size) {
  const CudaApi& cuda = device.libraries->cuda;
  switch (kind) {
    case MemoryKind::kDevice:
      return cuda_status(*device.libraries, cuda.cudaMalloc(data, size), "cudaMalloc");
    case MemoryKind::kManaged:
      return cuda_status(*device.libraries, cuda.cudaMallocManaged(data, size, kMemAttachGlobal),
                         "cudaMallocManaged");
    case MemoryKind::kHost:
      break;
  }
  return cuda_status(*device.libraries, cuda.cudaHostAlloc(data, size, kHostAllocPortable | kHostAllocMapped),
                     "cudaHostAlloc");
}

}  // namespace

Result<Memory> Memory::allocate(const Device& device, MemoryKind kind, Bytes bytes) {
  PL_TRY(device.use());
  if (kind == MemoryKind::kManaged) {
    const Result<bool> managed = lets_the_host_in(device);
    if (!managed) return tl::unexpected(managed.error());
    if (!*managed) kind = MemoryKind::kHost;
  }
  Memory memory;
  memory.libraries_ = device.libraries;
  memory.kind_ = kind;
  void* data = nullptr;
  const auto size = static_cast<std::size_t>(std::max<Bytes>(bytes, 1));
  if (const Status status = allocate_block(device, kind, &data, size); !status) {
    return fail(status.error().code, fmt::format("{} on device {}: {}", format_bytes(bytes), device.ordinal,
                                                 status.error().message));
  }
  memory.data_ = static_cast<std::byte*>(data);
  return memory;
}

Memory::~Memory() {
  if (data_ == nullptr) return;
  if (kind_ != MemoryKind::kHost) {
    libraries_->cuda.cudaFree(data_);
  } else {
    libraries_->cuda.cudaFreeHost(data_);
  }
}

}  // namespace plumbline::cuda

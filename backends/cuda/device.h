// Streams, events and memory of one device, each owned by an object and given back when that goes.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "backends/cuda/error.h"
#include "backends/cuda/library.h"
#include "engine/base/result.h"
#include "engine/base/units.h"

namespace plumbline::cuda {

// The device of a rank. Calls that enqueue or create something need their device to be the thread's current one.
struct Device {
  std::shared_ptr<const Libraries> libraries;
  int ordinal = 0;

  Status use() const {
    return cuda_status(*libraries, libraries->cuda.cudaSetDevice(ordinal), "cudaSetDevice");
  }
};

class Stream {
 public:
  // Does not synchronize with the legacy default stream (N53).
  static Result<Stream> create(const Device& device);
  Stream() = default;
  Stream(Stream&& other) noexcept
      : libraries_(std::move(other.libraries_)), handle_(std::exchange(other.handle_, nullptr)) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(libraries_, other.libraries_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Stream();
  StreamHandle get() const { return handle_; }

 private:
  std::shared_ptr<const Libraries> libraries_;
  StreamHandle handle_ = nullptr;
};

// Events that are made once and lent again and again: creation is what costs.
class EventPool {
 public:
  EventPool(Device device, bool timing) : device_(std::move(device)), timing_(timing) {}
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;
  EventPool(EventPool&&) noexcept = default;
  EventPool& operator=(EventPool&&) = delete;
  ~EventPool();
  Result<EventHandle> take();
  // Everything lent is back, and nothing waits for it any more.
  void reset() { next_ = 0; }

 private:
  Device device_;
  bool timing_;
  std::vector<EventHandle> events_;
  std::size_t next_ = 0;
};

enum class MemoryKind : std::uint8_t {
  kDevice,
  kHost,  // page-locked, which the device reads and writes as well
  // Of both, at one address: managed memory, which moves to whoever touches it. Where a device does not let the host
  // at it while its kernels run (Windows, some virtual devices), page-locked memory instead.
  kManaged,
};

class Memory {
 public:
  static Result<Memory> allocate(const Device& device, MemoryKind kind, Bytes bytes);
  Memory() = default;
  Memory(Memory&& other) noexcept
      : libraries_(std::move(other.libraries_)),
        kind_(other.kind_),
        data_(std::exchange(other.data_, nullptr)) {}
  Memory& operator=(Memory&& other) noexcept {
    std::swap(libraries_, other.libraries_);
    std::swap(kind_, other.kind_);
    std::swap(data_, other.data_);
    return *this;
  }
  ~Memory();
  std::byte* get() const { return data_; }

 private:
  std::shared_ptr<const Libraries> libraries_;
  MemoryKind kind_ = MemoryKind::kDevice;
  std::byte* data_ = nullptr;
};

}  // namespace plumbline::cuda

// The functions of the CUDA runtime and driver that the driver layer uses, on the Machine of this process or of a
// server's.
#include <array>
#include <cstring>

#include "backends/cuda/cuda_api.h"
#include "backends/cuda/double/capture.h"
#include "backends/cuda/double/forward.h"
#include "backends/cuda/double/machine.h"

namespace plumbline::cuda {
namespace {

constexpr int kLost = kCudaLost;
constexpr int kUnavailable = 46;  // cudaErrorDevicesUnavailable

Machine& called() {
  ++machine().api_calls;
  return machine();
}

// A stream takes work only while its device is the current one, and while its capture, if any, is in order.
int refuses_work(const Machine& at, const StreamHandle stream) {
  if (!at.valid(stream) || stream->device != at.caller->device) return kCudaErrorInvalidHandle;
  return at.captures->refuses(stream);
}

// Memory that is made or given back, and what else may wait for a device.
int make(void** block, std::size_t bytes, int device) {
  Machine& at = called();
  if (const int code = at.refuses_unsafe(); code != kCudaSuccess) return code;
  *block = at.allocate(bytes, device);
  return *block == nullptr ? kCudaErrorMemoryAllocation : kCudaSuccess;
}
int give_back(void* block) {
  Machine& at = called();
  if (const int code = at.refuses_unsafe(); code != kCudaSuccess) return code;
  return block == nullptr || at.release(block) ? kCudaSuccess : kCudaErrorInvalidValue;
}

}  // namespace
}  // namespace plumbline::cuda

using namespace plumbline::cuda;  // NOLINT: the functions below are C's

EXPORTED int cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return kCudaSuccess;
}
EXPORTED int cudaDriverGetVersion(int* version) {
  *version = 13000;
  return kCudaSuccess;
}
EXPORTED int cudaGetDeviceCount(int* count) {
  FORWARD(cudaGetDeviceCount, count);
  *count = called().devices();
  return kCudaSuccess;
}
EXPORTED int cudaSetDevice(int device) {
  FORWARD(cudaSetDevice, device);
  Machine& at = called();
  if (device < 0 || device >= at.devices()) return kCudaErrorInvalidDevice;
  const Process& process = *at.caller->process;
  if (process.elsewhere && at.ended(device) && !process.devices.contains(device)) return kUnavailable;
  at.caller->device = device;
  return kCudaSuccess;
}
EXPORTED int cudaGetDevice(int* device) {
  FORWARD(cudaGetDevice, device);
  *device = called().caller->device;
  return kCudaSuccess;
}
EXPORTED int cudaDeviceGetAttribute(int* value, int attribute, int /*device*/) {
  *value = attribute == kComputeMajor ? 9 : attribute == kConcurrentManagedAccess ? 1 : 0;
  return kCudaSuccess;
}
EXPORTED int cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *total = std::size_t{1} << 34;
  *free = *total;
  return kCudaSuccess;
}
EXPORTED int cudaGetLastError() { return kCudaSuccess; }
EXPORTED const char* cudaGetErrorName(int code) {
  switch (code) {
    case kCudaSuccess:
      return "cudaSuccess";
    case kCudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case kCudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case kCudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case kCudaErrorInvalidHandle:
      return "cudaErrorInvalidResourceHandle";
    case kCudaErrorNotReady:
      return "cudaErrorNotReady";
    case kUnavailable:
      return "cudaErrorDevicesUnavailable";
    case kLost:
      return "cudaErrorUnknown";
    case kCudaErrorCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    case kCudaErrorCaptureInvalidated:
      return "cudaErrorStreamCaptureInvalidated";
    case kCudaErrorCaptureMerge:
      return "cudaErrorStreamCaptureMerge";
    case kCudaErrorCaptureUnmatched:
      return "cudaErrorStreamCaptureUnmatched";
    case kCudaErrorCaptureUnjoined:
      return "cudaErrorStreamCaptureUnjoined";
    case kCudaErrorCaptureIsolation:
      return "cudaErrorStreamCaptureIsolation";
    case kCudaErrorCapturedEvent:
      return "cudaErrorCapturedEvent";
    default:
      return "cudaErrorNotSupported";
  }
}
EXPORTED const char* cudaGetErrorString(int code) {
  if (code == kLost && remote() != nullptr) return remote()->failure();
  if (code == kUnavailable)
    return "the process of this device's rank has ended without ending its communicators, and no other can "
           "take its "
           "place: start a new server of the doubles";
  return "said by the double of CUDA";
}

EXPORTED int cudaMalloc(void** block, std::size_t bytes) {
  FORWARD(cudaMalloc, block, bytes);
  return make(block, bytes, machine().caller->device);
}
EXPORTED int cudaHostAlloc(void** block, std::size_t bytes, unsigned flags) {
  FORWARD(cudaHostAlloc, block, bytes, flags);
  return make(block, bytes, -1);
}
EXPORTED int cudaMallocManaged(void** block, std::size_t bytes, unsigned flags) {
  FORWARD(cudaMallocManaged, block, bytes, flags);
  if (flags != kMemAttachGlobal) return kCudaErrorInvalidValue;
  return make(block, bytes, -1);  // as far as anybody can tell: reached from everywhere
}
// The real calls wait for all work of the device; here that is refused, since it can hang a schedule (N50).
EXPORTED int cudaFree(void* block) {
  FORWARD(cudaFree, block);
  return give_back(block);
}
EXPORTED int cudaFreeHost(void* block) {
  FORWARD(cudaFreeHost, block);
  return give_back(block);
}

EXPORTED int cudaStreamCreateWithFlags(StreamHandle* stream, unsigned flags) {
  FORWARD(cudaStreamCreateWithFlags, stream, flags);
  *stream = called().create_stream();
  return *stream == nullptr ? kCudaErrorMemoryAllocation : kCudaSuccess;
}
EXPORTED int cudaStreamDestroy(StreamHandle stream) {
  FORWARD(cudaStreamDestroy, stream);
  if (!called().valid(stream)) return kCudaErrorInvalidHandle;
  stream->destroyed = true;
  return kCudaSuccess;
}
EXPORTED int cudaStreamQuery(StreamHandle stream) {
  FORWARD(cudaStreamQuery, stream);
  if (!called().valid(stream)) return kCudaErrorInvalidHandle;
  if (const int code = machine().captures->refuses_query(stream); code != kCudaSuccess) return code;
  return machine().idle(stream) ? kCudaSuccess : kCudaErrorNotReady;
}
EXPORTED int cudaStreamWaitEvent(StreamHandle stream, EventHandle event, unsigned flags) {
  FORWARD(cudaStreamWaitEvent, stream, event, flags);
  if (!called().valid(stream) || !machine().valid(event)) return kCudaErrorInvalidHandle;
  if (flags != 0) return kCudaErrorInvalidValue;
  if (machine().captures->concerns(stream, event)) return machine().captures->wait(stream, event);
  machine().wait(stream, event);
  return kCudaSuccess;
}
EXPORTED int cudaEventCreateWithFlags(EventHandle* event, unsigned flags) {
  FORWARD(cudaEventCreateWithFlags, event, flags);
  *event = called().create_event((flags & kEventDisableTiming) == 0);
  return kCudaSuccess;
}
EXPORTED int cudaEventDestroy(EventHandle event) {
  FORWARD(cudaEventDestroy, event);
  return called().valid(event) ? kCudaSuccess : kCudaErrorInvalidHandle;
}
EXPORTED int cudaEventRecord(EventHandle event, StreamHandle stream) {
  FORWARD(cudaEventRecord, event, stream);
  if (const int code = refuses_work(called(), stream); code != kCudaSuccess) return code;
  if (!machine().valid(event)) return kCudaErrorInvalidHandle;
  machine().record(event, stream);
  return kCudaSuccess;
}
EXPORTED int cudaEventQuery(EventHandle event) {
  FORWARD(cudaEventQuery, event);
  if (!called().valid(event)) return kCudaErrorInvalidHandle;
  if (event->capture != 0) return kCudaErrorCapturedEvent;
  if (const int code = machine().refuses_unsafe(); code != kCudaSuccess) return code;
  return machine().done(event) ? kCudaSuccess : kCudaErrorNotReady;
}
EXPORTED int cudaEventElapsedTime(float* milliseconds, EventHandle start, EventHandle end) {
  FORWARD(cudaEventElapsedTime, milliseconds, start, end);
  Machine& at = called();
  if (!at.valid(start) || !at.valid(end) || !start->timing || !end->timing || !start->recorded ||
      !end->recorded || start->capture != 0 || end->capture != 0)
    return kCudaErrorInvalidHandle;
  if (!at.done(start) || !at.done(end)) return kCudaErrorNotReady;
  *milliseconds = static_cast<float>(static_cast<double>(at.time_of(end) - at.time_of(start)) / 1e6);
  return kCudaSuccess;
}
EXPORTED int cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, int kind, StreamHandle stream) {
  FORWARD(cudaMemcpyAsync, to, from, bytes, kind, stream);
  if (const int code = refuses_work(called(), stream); code != kCudaSuccess) return code;
  const auto size = static_cast<plumbline::Bytes>(bytes);
  if (kind != kMemcpyDefault || !machine().holds(to, size) || !machine().holds(from, size))
    return kCudaErrorInvalidValue;
  machine().kernel(stream, 1, [=] { std::memcpy(to, from, bytes); });
  return kCudaSuccess;
}
EXPORTED int cudaMemsetAsync(void* to, int value, std::size_t bytes, StreamHandle stream) {
  FORWARD(cudaMemsetAsync, to, value, bytes, stream);
  if (const int code = refuses_work(called(), stream); code != kCudaSuccess) return code;
  if (!machine().holds(to, static_cast<plumbline::Bytes>(bytes))) return kCudaErrorInvalidValue;
  machine().kernel(stream, 2, [=] { std::memset(to, value, bytes); });
  return kCudaSuccess;
}
EXPORTED int cudaLaunchHostFunc(StreamHandle stream, HostFunction function, void* argument) {
  FORWARD(cudaLaunchHostFunc, stream, function, argument);
  if (const int code = refuses_work(called(), stream); code != kCudaSuccess) return code;
  if (function == nullptr) return kCudaErrorInvalidValue;
  machine().host_function(stream, function, argument);
  return kCudaSuccess;
}

EXPORTED int cuStreamWriteValue32_v2(StreamHandle stream, DeviceAddress address, std::uint32_t value,
                                     unsigned flags) {
  FORWARD(cuStreamWriteValue32_v2, stream, address, value, flags);
  auto* word = reinterpret_cast<std::uint32_t*>(static_cast<std::uintptr_t>(address));
  if (const int code = refuses_work(called(), stream); code != kCudaSuccess) return code;
  if (stream->capture != 0) return kCudaErrorNotSupported;  // a replay would count as the capture did
  if (flags != kWriteValueDefault || address % 4 != 0 || !machine().holds(word, 4))
    return kCudaErrorInvalidValue;
  machine().write_value(stream, word, value);
  return kCudaSuccess;
}
EXPORTED int cuStreamWaitValue32_v2(StreamHandle stream, DeviceAddress address, std::uint32_t value,
                                    unsigned flags) {
  FORWARD(cuStreamWaitValue32_v2, stream, address, value, flags);
  auto* word = reinterpret_cast<std::uint32_t*>(static_cast<std::uintptr_t>(address));
  if (const int code = refuses_work(called(), stream); code != kCudaSuccess) return code;
  if (stream->capture != 0) return kCudaErrorNotSupported;  // a replay would count as the capture did
  if (flags != kWaitValueGeq || address % 4 != 0 || !machine().holds(word, 4)) return kCudaErrorInvalidValue;
  machine().wait_value(stream, word, value);
  return kCudaSuccess;
}

// Ranges are taken and dropped.
EXPORTED int nvtxRangePushA(const char* /*name*/) { return 0; }
EXPORTED int nvtxRangePop() { return 0; }

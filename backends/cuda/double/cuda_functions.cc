// The functions of the CUDA runtime and driver that the driver layer uses, on the Machine.
#include <array>
#include <cstring>

#include "backends/cuda/cuda_api.h"
#include "backends/cuda/double/machine.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace plumbline::cuda {
namespace {

Machine& called() {
  ++machine().api_calls;
  return machine();
}

// A stream takes work only while its device is the current one.
bool takes_work(const Machine& at, const StreamHandle stream) {
  return at.valid(stream) && stream->device == at.current;
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
  *count = called().devices();
  return kCudaSuccess;
}
EXPORTED int cudaSetDevice(int device) {
  Machine& at = called();
  if (device < 0 || device >= at.devices()) return kCudaErrorInvalidDevice;
  at.current = device;
  return kCudaSuccess;
}
EXPORTED int cudaGetDevice(int* device) {
  *device = called().current;
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
    default:
      return "cudaErrorNotSupported";
  }
}
EXPORTED const char* cudaGetErrorString(int /*code*/) { return "said by the double of CUDA"; }

EXPORTED int cudaMalloc(void** block, std::size_t bytes) {
  *block = called().allocate(bytes, machine().current);
  return kCudaSuccess;
}
EXPORTED int cudaHostAlloc(void** block, std::size_t bytes, unsigned /*flags*/) {
  *block = called().allocate(bytes, -1);
  return kCudaSuccess;
}
EXPORTED int cudaMallocManaged(void** block, std::size_t bytes, unsigned flags) {
  if (flags != kMemAttachGlobal) return kCudaErrorInvalidValue;
  *block = called().allocate(bytes, -1);  // as far as anybody can tell: reached from everywhere
  return kCudaSuccess;
}
// The real calls wait for all work of the device; here that is refused, since it can hang a schedule (N50).
EXPORTED int cudaFree(void* block) {
  return block == nullptr || called().release(block, true) ? kCudaSuccess : kCudaErrorInvalidValue;
}
EXPORTED int cudaFreeHost(void* block) {
  return block == nullptr || called().release(block, true) ? kCudaSuccess : kCudaErrorInvalidValue;
}

EXPORTED int cudaStreamCreateWithFlags(StreamHandle* stream, unsigned /*flags*/) {
  *stream = called().create_stream();
  return *stream == nullptr ? kCudaErrorMemoryAllocation : kCudaSuccess;
}
EXPORTED int cudaStreamDestroy(StreamHandle stream) {
  if (!called().valid(stream)) return kCudaErrorInvalidHandle;
  stream->destroyed = true;
  return kCudaSuccess;
}
EXPORTED int cudaStreamQuery(StreamHandle stream) {
  if (!called().valid(stream)) return kCudaErrorInvalidHandle;
  return machine().idle(stream) ? kCudaSuccess : kCudaErrorNotReady;
}
EXPORTED int cudaStreamWaitEvent(StreamHandle stream, EventHandle event, unsigned flags) {
  if (!called().valid(stream) || !machine().valid(event)) return kCudaErrorInvalidHandle;
  if (flags != 0) return kCudaErrorInvalidValue;
  machine().wait(stream, event);
  return kCudaSuccess;
}
EXPORTED int cudaEventCreateWithFlags(EventHandle* event, unsigned flags) {
  *event = called().create_event((flags & kEventDisableTiming) == 0);
  return kCudaSuccess;
}
EXPORTED int cudaEventDestroy(EventHandle event) {
  return called().valid(event) ? kCudaSuccess : kCudaErrorInvalidHandle;
}
EXPORTED int cudaEventRecord(EventHandle event, StreamHandle stream) {
  if (!takes_work(called(), stream) || !machine().valid(event)) return kCudaErrorInvalidHandle;
  machine().record(event, stream);
  return kCudaSuccess;
}
EXPORTED int cudaEventQuery(EventHandle event) {
  if (!called().valid(event)) return kCudaErrorInvalidHandle;
  return machine().done(event) ? kCudaSuccess : kCudaErrorNotReady;
}
EXPORTED int cudaEventElapsedTime(float* milliseconds, EventHandle start, EventHandle end) {
  Machine& at = called();
  if (!at.valid(start) || !at.valid(end) || !start->timing || !end->timing || !start->recorded ||
      !end->recorded)
    return kCudaErrorInvalidHandle;
  if (!at.done(start) || !at.done(end)) return kCudaErrorNotReady;
  *milliseconds = static_cast<float>(static_cast<double>(at.time_of(end) - at.time_of(start)) / 1e6);
  return kCudaSuccess;
}
EXPORTED int cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, int kind, StreamHandle stream) {
  if (!takes_work(called(), stream)) return kCudaErrorInvalidHandle;
  const auto size = static_cast<plumbline::Bytes>(bytes);
  if (kind != kMemcpyDefault || !machine().holds(to, size) || !machine().holds(from, size))
    return kCudaErrorInvalidValue;
  machine().kernel(stream, 1, [=] { std::memcpy(to, from, bytes); });
  return kCudaSuccess;
}
EXPORTED int cudaMemsetAsync(void* to, int value, std::size_t bytes, StreamHandle stream) {
  if (!takes_work(called(), stream)) return kCudaErrorInvalidHandle;
  if (!machine().holds(to, static_cast<plumbline::Bytes>(bytes))) return kCudaErrorInvalidValue;
  machine().kernel(stream, 2, [=] { std::memset(to, value, bytes); });
  return kCudaSuccess;
}
EXPORTED int cudaLaunchHostFunc(StreamHandle stream, HostFunction function, void* argument) {
  if (!takes_work(called(), stream)) return kCudaErrorInvalidHandle;
  if (function == nullptr) return kCudaErrorInvalidValue;
  machine().kernel(stream, 0, [=] { function(argument); });
  return kCudaSuccess;
}

EXPORTED int cudaStreamBeginCapture(StreamHandle /*stream*/, int /*mode*/) { return kCudaErrorNotSupported; }
EXPORTED int cudaStreamEndCapture(StreamHandle /*stream*/, GraphHandle* /*graph*/) {
  return kCudaErrorNotSupported;
}
EXPORTED int cudaGraphInstantiateWithFlags(GraphExecHandle* /*made*/, GraphHandle /*graph*/,
                                           unsigned long long /*flags*/) {
  return kCudaErrorNotSupported;
}
EXPORTED int cudaGraphLaunch(GraphExecHandle /*graph*/, StreamHandle /*stream*/) {
  return kCudaErrorNotSupported;
}
EXPORTED int cudaGraphDestroy(GraphHandle /*graph*/) { return kCudaErrorNotSupported; }
EXPORTED int cudaGraphExecDestroy(GraphExecHandle /*graph*/) { return kCudaErrorNotSupported; }

EXPORTED int cuStreamWriteValue32_v2(StreamHandle stream, DeviceAddress address, std::uint32_t value,
                                     unsigned flags) {
  auto* word = reinterpret_cast<std::uint32_t*>(static_cast<std::uintptr_t>(address));
  if (!takes_work(called(), stream)) return kCudaErrorInvalidHandle;
  if (flags != kWriteValueDefault || address % 4 != 0 || !machine().holds(word, 4))
    return kCudaErrorInvalidValue;
  machine().write_value(stream, word, value);
  return kCudaSuccess;
}
EXPORTED int cuStreamWaitValue32_v2(StreamHandle stream, DeviceAddress address, std::uint32_t value,
                                    unsigned flags) {
  auto* word = reinterpret_cast<std::uint32_t*>(static_cast<std::uintptr_t>(address));
  if (!takes_work(called(), stream)) return kCudaErrorInvalidHandle;
  if (flags != kWaitValueGeq || address % 4 != 0 || !machine().holds(word, 4)) return kCudaErrorInvalidValue;
  machine().wait_value(stream, word, value);
  return kCudaSuccess;
}

// Ranges are taken and dropped.
EXPORTED int nvtxRangePushA(const char* /*name*/) { return 0; }
EXPORTED int nvtxRangePop() { return 0; }

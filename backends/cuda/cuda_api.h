// What the driver layer needs of the CUDA runtime and driver, declared by ourselves and found at run time, so that
// one binary runs on a laptop, on a cluster and on the doubles of backends/cuda/double. Names, argument order and
// values are those of NVIDIA's headers (11.8 to 13.x); tests/backends/cuda/headers_test.cc compares each signature
// and constant with the real headers where these are found. Error codes stay plain ints up to error.h.
#pragma once

#include <cstddef>
#include <cstdint>

// The real headers' handle types.
struct CUstream_st;
struct CUevent_st;
struct CUgraph_st;
struct CUgraphExec_st;

namespace plumbline::cuda {

using StreamHandle = CUstream_st*;
using EventHandle = CUevent_st*;
using GraphHandle = CUgraph_st*;
using GraphExecHandle = CUgraphExec_st*;
using HostFunction = void (*)(void* argument);
using DeviceAddress = unsigned long long;  // CUdeviceptr

constexpr int kCudaSuccess = 0;
constexpr int kCudaErrorInvalidValue = 1;
constexpr int kCudaErrorMemoryAllocation = 2;
constexpr int kCudaErrorInsufficientDriver = 35;
constexpr int kCudaErrorNoDevice = 100;
constexpr int kCudaErrorInvalidDevice = 101;
constexpr int kCudaErrorInvalidHandle = 400;  // cudaErrorInvalidResourceHandle
constexpr int kCudaErrorNotReady = 600;
constexpr int kCudaErrorNotSupported = 801;
constexpr int kCudaErrorCaptureUnsupported = 900;  // cudaErrorStreamCaptureUnsupported
constexpr int kCudaErrorCaptureInvalidated = 901;  // cudaErrorStreamCaptureInvalidated
constexpr int kCudaErrorCaptureMerge = 902;        // cudaErrorStreamCaptureMerge
constexpr int kCudaErrorCaptureUnmatched = 903;    // cudaErrorStreamCaptureUnmatched
constexpr int kCudaErrorCaptureUnjoined = 904;     // cudaErrorStreamCaptureUnjoined
constexpr int kCudaErrorCaptureIsolation = 905;    // cudaErrorStreamCaptureIsolation
constexpr int kCudaErrorCapturedEvent = 907;       // cudaErrorCapturedEvent

constexpr unsigned kStreamNonBlocking = 1;    // cudaStreamNonBlocking
constexpr unsigned kEventDefault = 0;         // with timing
constexpr unsigned kEventDisableTiming = 2;   // cudaEventDisableTiming
constexpr unsigned kHostAllocPortable = 1;    // cudaHostAllocPortable
constexpr unsigned kHostAllocMapped = 2;      // cudaHostAllocMapped
constexpr int kMemcpyDefault = 4;             // cudaMemcpyDefault: the direction follows from the pointers
constexpr int kCaptureModeThreadLocal = 1;    // cudaStreamCaptureModeThreadLocal
constexpr int kCaptureModeRelaxed = 2;        // cudaStreamCaptureModeRelaxed
constexpr unsigned kEventRecordExternal = 1;  // cudaEventRecordExternal
constexpr int kComputeMajor = 75;             // cudaDevAttrComputeCapabilityMajor
constexpr int kComputeMinor = 76;             // cudaDevAttrComputeCapabilityMinor
constexpr int kMultiprocessors = 16;          // cudaDevAttrMultiProcessorCount
constexpr int kConcurrentManagedAccess = 89;  // cudaDevAttrConcurrentManagedAccess
constexpr unsigned kMemAttachGlobal = 1;      // cudaMemAttachGlobal
constexpr unsigned kWaitValueGeq = 0;         // CU_STREAM_WAIT_VALUE_GEQ: (int32)(*address - value) >= 0
constexpr unsigned kWriteValueDefault = 0;    // CU_STREAM_WRITE_VALUE_DEFAULT

// X(name, (parameters)): functions of libcudart that return cudaError_t.
#define PLUMBLINE_CUDA_RUNTIME(X)                                                                      \
  X(cudaRuntimeGetVersion, (int*))                                                                     \
  X(cudaDriverGetVersion, (int*))                                                                      \
  X(cudaGetDeviceCount, (int*))                                                                        \
  X(cudaSetDevice, (int))                                                                              \
  X(cudaGetDevice, (int*))                                                                             \
  X(cudaDeviceGetAttribute, (int*, int, int))                                                          \
  X(cudaMemGetInfo, (std::size_t*, std::size_t*))                                                      \
  X(cudaGetLastError, ())                                                                              \
  X(cudaMalloc, (void**, std::size_t))                                                                 \
  X(cudaFree, (void*))                                                                                 \
  X(cudaHostAlloc, (void**, std::size_t, unsigned))                                                    \
  X(cudaMallocManaged, (void**, std::size_t, unsigned))                                                \
  X(cudaFreeHost, (void*))                                                                             \
  X(cudaStreamCreateWithFlags, (plumbline::cuda::StreamHandle*, unsigned))                             \
  X(cudaStreamDestroy, (plumbline::cuda::StreamHandle))                                                \
  X(cudaStreamQuery, (plumbline::cuda::StreamHandle))                                                  \
  X(cudaStreamWaitEvent, (plumbline::cuda::StreamHandle, plumbline::cuda::EventHandle, unsigned))      \
  X(cudaEventCreateWithFlags, (plumbline::cuda::EventHandle*, unsigned))                               \
  X(cudaEventDestroy, (plumbline::cuda::EventHandle))                                                  \
  X(cudaEventRecord, (plumbline::cuda::EventHandle, plumbline::cuda::StreamHandle))                    \
  X(cudaEventRecordWithFlags, (plumbline::cuda::EventHandle, plumbline::cuda::StreamHandle, unsigned)) \
  X(cudaEventQuery, (plumbline::cuda::EventHandle))                                                    \
  X(cudaEventElapsedTime, (float*, plumbline::cuda::EventHandle, plumbline::cuda::EventHandle))        \
  X(cudaMemcpyAsync, (void*, const void*, std::size_t, int, plumbline::cuda::StreamHandle))            \
  X(cudaMemsetAsync, (void*, int, std::size_t, plumbline::cuda::StreamHandle))                         \
  X(cudaLaunchHostFunc, (plumbline::cuda::StreamHandle, plumbline::cuda::HostFunction, void*))         \
  X(cudaStreamBeginCapture, (plumbline::cuda::StreamHandle, int))                                      \
  X(cudaStreamEndCapture, (plumbline::cuda::StreamHandle, plumbline::cuda::GraphHandle*))              \
  X(cudaGraphInstantiateWithFlags,                                                                     \
    (plumbline::cuda::GraphExecHandle*, plumbline::cuda::GraphHandle, unsigned long long))             \
  X(cudaGraphLaunch, (plumbline::cuda::GraphExecHandle, plumbline::cuda::StreamHandle))                \
  X(cudaGraphDestroy, (plumbline::cuda::GraphHandle))                                                  \
  X(cudaGraphExecDestroy, (plumbline::cuda::GraphExecHandle))

// X(name, symbol, (parameters)): functions of libcuda that return CUresult. The symbol carries the version that
// the header's macro of the same name stands for.
#define PLUMBLINE_CUDA_DRIVER(X)                                                              \
  X(stream_write_value32, "cuStreamWriteValue32_v2",                                          \
    (plumbline::cuda::StreamHandle, plumbline::cuda::DeviceAddress, std::uint32_t, unsigned)) \
  X(stream_wait_value32, "cuStreamWaitValue32_v2",                                            \
    (plumbline::cuda::StreamHandle, plumbline::cuda::DeviceAddress, std::uint32_t, unsigned))

struct CudaApi {
#define X(name, parameters) int(*name) parameters = nullptr;
  PLUMBLINE_CUDA_RUNTIME(X)
#undef X
  const char* (*cudaGetErrorName)(int) = nullptr;
  const char* (*cudaGetErrorString)(int) = nullptr;
// Stream memory operations; null where there is no driver library, which only loopback needs.
#define X(name, symbol, parameters) int(*name) parameters = nullptr;
  PLUMBLINE_CUDA_DRIVER(X)
#undef X
};

// NVTX ranges for profilers; null where no library is found.
struct NvtxApi {
  int (*nvtxRangePushA)(const char*) = nullptr;
  int (*nvtxRangePop)() = nullptr;
};

}  // namespace plumbline::cuda

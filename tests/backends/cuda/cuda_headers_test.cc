// Our declarations against NVIDIA's headers, where the build found them: the comparison happens at compile time.
#include <gtest/gtest.h>

#include "backends/cuda/cuda_api.h"
#include "tests/backends/cuda/abi.h"

#ifdef PLUMBLINE_HAVE_CUDA_HEADERS
#include <cuda.h>
#include <cuda_runtime_api.h>

namespace plumbline::cuda {
namespace {

#define X(name, parameters) static_assert(SameAbi<decltype(CudaApi::name), decltype(&::name)>::value, #name);
PLUMBLINE_CUDA_RUNTIME(X)
#undef X
static_assert(SameAbi<decltype(CudaApi::stream_write_value32), decltype(&::cuStreamWriteValue32)>::value);
static_assert(SameAbi<decltype(CudaApi::stream_wait_value32), decltype(&::cuStreamWaitValue32)>::value);
static_assert(SameAbi<decltype(CudaApi::cudaGetErrorName), decltype(&::cudaGetErrorName)>::value);
static_assert(SameAbi<decltype(CudaApi::cudaGetErrorString), decltype(&::cudaGetErrorString)>::value);
static_assert(std::is_same_v<StreamHandle, cudaStream_t> && std::is_same_v<StreamHandle, CUstream>);
static_assert(std::is_same_v<EventHandle, cudaEvent_t>);
static_assert(std::is_same_v<GraphHandle, cudaGraph_t> && std::is_same_v<GraphExecHandle, cudaGraphExec_t>);
static_assert(std::is_same_v<HostFunction, cudaHostFn_t>);
static_assert(std::is_same_v<DeviceAddress, CUdeviceptr>);

static_assert(kCudaSuccess == cudaSuccess && kCudaErrorInvalidValue == cudaErrorInvalidValue);
static_assert(kCudaErrorMemoryAllocation == cudaErrorMemoryAllocation);
static_assert(kCudaErrorInsufficientDriver == cudaErrorInsufficientDriver);
static_assert(kCudaErrorNoDevice == cudaErrorNoDevice && kCudaErrorInvalidDevice == cudaErrorInvalidDevice);
static_assert(kCudaErrorInvalidHandle == cudaErrorInvalidResourceHandle);
static_assert(kCudaErrorNotReady == cudaErrorNotReady && kCudaErrorNotSupported == cudaErrorNotSupported);
static_assert(kCudaErrorCaptureUnsupported == cudaErrorStreamCaptureUnsupported);
static_assert(kCudaErrorCaptureInvalidated == cudaErrorStreamCaptureInvalidated);
static_assert(kCudaErrorCaptureMerge == cudaErrorStreamCaptureMerge);
static_assert(kCudaErrorCaptureUnmatched == cudaErrorStreamCaptureUnmatched);
static_assert(kCudaErrorCaptureUnjoined == cudaErrorStreamCaptureUnjoined);
static_assert(kCudaErrorCaptureIsolation == cudaErrorStreamCaptureIsolation);
static_assert(kCudaErrorCapturedEvent == cudaErrorCapturedEvent);
static_assert(kStreamNonBlocking == cudaStreamNonBlocking && kEventDefault == cudaEventDefault);
static_assert(kEventDisableTiming == cudaEventDisableTiming && kMemcpyDefault == cudaMemcpyDefault);
static_assert(kConcurrentManagedAccess == cudaDevAttrConcurrentManagedAccess &&
              kMemAttachGlobal == cudaMemAttachGlobal);
static_assert(kHostAllocPortable == cudaHostAllocPortable && kHostAllocMapped == cudaHostAllocMapped);
static_assert(kCaptureModeThreadLocal == cudaStreamCaptureModeThreadLocal);
static_assert(kCaptureModeRelaxed == cudaStreamCaptureModeRelaxed);
static_assert(kEventRecordExternal == cudaEventRecordExternal);
static_assert(kComputeMajor == cudaDevAttrComputeCapabilityMajor);
static_assert(kComputeMinor == cudaDevAttrComputeCapabilityMinor);
static_assert(kMultiprocessors == cudaDevAttrMultiProcessorCount);
static_assert(kWaitValueGeq == CU_STREAM_WAIT_VALUE_GEQ);
static_assert(kWriteValueDefault == CU_STREAM_WRITE_VALUE_DEFAULT);

// The header's macro stands for the symbol that is looked up.
#define TEXT_OF(x) #x
#define EXPANDED(x) TEXT_OF(x)
TEST(CudaHeaders, OfThisBuildAgreeWithOurDeclarations) {
  EXPECT_STREQ(EXPANDED(cuStreamWriteValue32), "cuStreamWriteValue32_v2");
  EXPECT_STREQ(EXPANDED(cuStreamWaitValue32), "cuStreamWaitValue32_v2");
  RecordProperty("cuda_header_version", CUDART_VERSION);
}

}  // namespace
}  // namespace plumbline::cuda
#else
TEST(CudaHeaders, OfThisBuildAgreeWithOurDeclarations) {
  GTEST_SKIP() << "no CUDA headers were found when this was built";
}
#endif

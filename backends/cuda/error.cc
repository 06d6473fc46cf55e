#include "backends/cuda/error.h"

#include <array>

#include <fmt/format.h>

namespace plumbline::cuda {
namespace {

// What a code means beyond its text, where that is known.
std::string_view nccl_advice(int code) {
  switch (code) {
    case kNcclUnhandledCudaError:
      return "; an earlier CUDA call failed, and the error stays";
    case kNcclSystemError:
      return "; sockets or shared memory: look at NCCL_DEBUG=INFO and NCCL_SOCKET_IFNAME";
    case kNcclInternalError:
      return "; two ranks that set up a connection with calls that are not each other's mirror image end so, "
             "too";
    case kNcclInvalidUsage:
      return "; two ranks of one communicator on one device end so: use loopback there, or NCCL 2.30 with "
             "NCCL_MULTI_RANK_GPU_ENABLE=1";
    case kNcclRemoteError:
      return "; a peer's process has ended";
    default:
      return "";
  }
}

ErrorCode cuda_code(int code) {
  switch (code) {
    case kCudaErrorInsufficientDriver:
    case kCudaErrorNoDevice:
    case kCudaErrorInvalidDevice:
      return ErrorCode::kMissing;
    case kCudaErrorNotSupported:
      return ErrorCode::kUnsupported;
    default:
      return ErrorCode::kState;
  }
}

}  // namespace

std::string_view nccl_code_name(int code) {
  const auto index = static_cast<std::size_t>(code);
  return code >= 0 && index < kNcclNames.size() ? kNcclNames[index]
                                                : std::string_view("an unknown ncclResult_t");
}

Status cuda_status(const Libraries& libraries, int code, std::string_view call) {
  if (code == kCudaSuccess) return {};
  // Takes the error away from the thread, so that it is not reported again by an unrelated call.
  libraries.cuda.cudaGetLastError();
  return fail(cuda_code(code),
              fmt::format("{} returns {} ({}): {}", call, libraries.cuda.cudaGetErrorName(code), code,
                          libraries.cuda.cudaGetErrorString(code)));
}

Status nccl_status(const Libraries& libraries, int code, std::string_view call) {
  if (code == kNcclSuccess || code == kNcclInProgress) return {};
  std::string detail = libraries.nccl.ncclGetErrorString(code);
  if (libraries.nccl.ncclGetLastError != nullptr) {
    if (const char* last = libraries.nccl.ncclGetLastError(nullptr); last != nullptr && *last != '\0')
      detail += fmt::format("; {}", last);
  }
  return fail(ErrorCode::kState, fmt::format("{} returns {} ({}): {}{}", call, nccl_code_name(code), code,
                                             detail, nccl_advice(code)));
}

}  // namespace plumbline::cuda

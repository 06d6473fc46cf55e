// What the driver layer needs of NCCL, declared by ourselves and found at run time (cuda_api.h). Values and layouts
// are those of nccl.h from 2.18 on, compared with the real header where it is found. The configuration is the one
// of 2.17: newer libraries read the size and version in it, and fill in defaults for what it does not have.
#pragma once

#include <array>
#include <climits>
#include <cstddef>
#include <string_view>

#include "backends/cuda/cuda_api.h"
#include "engine/base/dtype.h"
#include "engine/program/program.h"

struct ncclComm;

namespace plumbline::cuda {

using CommHandle = ncclComm*;

constexpr int kNcclSuccess = 0;
constexpr int kNcclUnhandledCudaError = 1;
constexpr int kNcclSystemError = 2;
constexpr int kNcclInternalError = 3;
constexpr int kNcclInvalidArgument = 4;
constexpr int kNcclInvalidUsage = 5;
constexpr int kNcclRemoteError = 6;
constexpr int kNcclInProgress = 7;
// By code; the last since 2.30.
inline constexpr std::array<std::string_view, 9> kNcclNames = {
    "ncclSuccess",       "ncclUnhandledCudaError", "ncclSystemError",
    "ncclInternalError", "ncclInvalidArgument",    "ncclInvalidUsage",
    "ncclRemoteError",   "ncclInProgress",         "ncclTimeout"};

constexpr int kOldestNccl = 21800;   // 2.18: the split of communicators, as nonblocking call
constexpr int kShrinkSince = 22700;  // ncclCommShrink
constexpr int kSplitNoColor = -1;    // NCCL_SPLIT_NOCOLOR
constexpr int kShrinkDefault = 0;    // NCCL_SHRINK_DEFAULT
constexpr int kShrinkAbort = 1;      // NCCL_SHRINK_ABORT

struct UniqueId {  // ncclUniqueId
  char internal[128];
};

struct CommConfig {  // ncclConfig_t as of 2.17
  std::size_t size = sizeof(CommConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = INT_MIN;
  int cgaClusterSize = INT_MIN;
  int minCTAs = INT_MIN;
  int maxCTAs = INT_MIN;
  const char* netName = nullptr;
  int splitShare = INT_MIN;
};

// X(name, (parameters)): functions that return ncclResult_t and exist in every supported version.
#define PLUMBLINE_NCCL(X)                                                                                    \
  X(ncclGetVersion, (int*))                                                                                  \
  X(ncclGetUniqueId, (plumbline::cuda::UniqueId*))                                                           \
  X(ncclCommInitRankConfig,                                                                                  \
    (plumbline::cuda::CommHandle*, int, plumbline::cuda::UniqueId, int, plumbline::cuda::CommConfig*))       \
  X(ncclCommSplit,                                                                                           \
    (plumbline::cuda::CommHandle, int, int, plumbline::cuda::CommHandle*, plumbline::cuda::CommConfig*))     \
  X(ncclCommFinalize, (plumbline::cuda::CommHandle))                                                         \
  X(ncclCommDestroy, (plumbline::cuda::CommHandle))                                                          \
  X(ncclCommAbort, (plumbline::cuda::CommHandle))                                                            \
  X(ncclCommGetAsyncError, (plumbline::cuda::CommHandle, int*))                                              \
  X(ncclGroupStart, ())                                                                                      \
  X(ncclGroupEnd, ())                                                                                        \
  X(ncclSend,                                                                                                \
    (const void*, std::size_t, int, int, plumbline::cuda::CommHandle, plumbline::cuda::StreamHandle))        \
  X(ncclRecv, (void*, std::size_t, int, int, plumbline::cuda::CommHandle, plumbline::cuda::StreamHandle))    \
  X(ncclAllReduce,                                                                                           \
    (const void*, void*, std::size_t, int, int, plumbline::cuda::CommHandle, plumbline::cuda::StreamHandle)) \
  X(ncclReduce, (const void*, void*, std::size_t, int, int, int, plumbline::cuda::CommHandle,                \
                 plumbline::cuda::StreamHandle))                                                             \
  X(ncclBroadcast,                                                                                           \
    (const void*, void*, std::size_t, int, int, plumbline::cuda::CommHandle, plumbline::cuda::StreamHandle)) \
  X(ncclAllGather,                                                                                           \
    (const void*, void*, std::size_t, int, plumbline::cuda::CommHandle, plumbline::cuda::StreamHandle))      \
  X(ncclReduceScatter,                                                                                       \
    (const void*, void*, std::size_t, int, int, plumbline::cuda::CommHandle, plumbline::cuda::StreamHandle))

// Newer ones; null in an older library.
#define PLUMBLINE_NCCL_NEWER(X)                                                            \
  X(ncclCommShrink, (plumbline::cuda::CommHandle, int*, int, plumbline::cuda::CommHandle*, \
                     plumbline::cuda::CommConfig*, int))

struct NcclApi {
#define X(name, parameters) int(*name) parameters = nullptr;
  PLUMBLINE_NCCL(X)
  PLUMBLINE_NCCL_NEWER(X)
#undef X
  const char* (*ncclGetErrorString)(int) = nullptr;
  const char* (*ncclGetLastError)(CommHandle) = nullptr;
};

// ncclDataType_t and ncclRedOp_t.
constexpr int nccl_dtype(DType type) {
  switch (type) {
    case DType::kU8:
      return 1;
    case DType::kI32:
      return 2;
    case DType::kI64:
      return 4;
    case DType::kF16:
      return 6;
    case DType::kBF16:
      return 9;
    case DType::kF32:
      return 7;
    case DType::kF64:
      return 8;
    case DType::kF8E4M3:
      return 10;
    case DType::kF8E5M2:
      return 11;
  }
  return -1;
}
constexpr int nccl_reduction(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return 0;
    case ReduceOp::kProd:
      return 1;
    case ReduceOp::kMax:
      return 2;
    case ReduceOp::kMin:
      return 3;
    case ReduceOp::kAvg:
      return 4;
  }
  return -1;
}

}  // namespace plumbline::cuda

// Our declarations against nccl.h, where the build found it: the comparison happens at compile time. Apart from
// the CUDA headers' test, since nccl.h overloads their functions.
#include <gtest/gtest.h>

#include "backends/cuda/nccl_api.h"
#include "tests/backends/cuda/abi.h"

#ifdef PLUMBLINE_HAVE_NCCL_HEADER
#include <nccl.h>

namespace plumbline::cuda {
namespace {

#define X(name, parameters) static_assert(SameAbi<decltype(NcclApi::name), decltype(&::name)>::value, #name);
PLUMBLINE_NCCL(X)
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
PLUMBLINE_NCCL_NEWER(X)
static_assert(kShrinkDefault == NCCL_SHRINK_DEFAULT && kShrinkAbort == NCCL_SHRINK_ABORT);
#endif
#undef X
static_assert(SameAbi<decltype(NcclApi::ncclGetErrorString), decltype(&::ncclGetErrorString)>::value);
static_assert(SameAbi<decltype(NcclApi::ncclGetLastError), decltype(&::ncclGetLastError)>::value);
static_assert(std::is_same_v<CommHandle, ncclComm_t>);

static_assert(kNcclSuccess == ncclSuccess && kNcclUnhandledCudaError == ncclUnhandledCudaError);
static_assert(kNcclSystemError == ncclSystemError && kNcclInternalError == ncclInternalError);
static_assert(kNcclInvalidArgument == ncclInvalidArgument && kNcclInvalidUsage == ncclInvalidUsage);
static_assert(kNcclRemoteError == ncclRemoteError && kNcclInProgress == ncclInProgress);
static_assert(kSplitNoColor == NCCL_SPLIT_NOCOLOR);

static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));
#define SAME_PLACE(field) static_assert(offsetof(CommConfig, field) == offsetof(ncclConfig_t, field), #field)
SAME_PLACE(size);
SAME_PLACE(magic);
SAME_PLACE(version);
SAME_PLACE(blocking);
SAME_PLACE(cgaClusterSize);
SAME_PLACE(minCTAs);
SAME_PLACE(maxCTAs);
SAME_PLACE(netName);
SAME_PLACE(splitShare);

static_assert(nccl_dtype(DType::kU8) == ncclUint8 && nccl_dtype(DType::kI32) == ncclInt32);
static_assert(nccl_dtype(DType::kI64) == ncclInt64 && nccl_dtype(DType::kF16) == ncclFloat16);
static_assert(nccl_dtype(DType::kBF16) == ncclBfloat16 && nccl_dtype(DType::kF32) == ncclFloat32);
static_assert(nccl_dtype(DType::kF64) == ncclFloat64);
static_assert(nccl_reduction(ReduceOp::kSum) == ncclSum && nccl_reduction(ReduceOp::kMax) == ncclMax);
static_assert(nccl_reduction(ReduceOp::kMin) == ncclMin && nccl_reduction(ReduceOp::kProd) == ncclProd);
static_assert(nccl_reduction(ReduceOp::kAvg) == ncclAvg);

TEST(NcclHeader, OfThisBuildAgreesWithOurDeclarations) {
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  const CommConfig ours;
  EXPECT_EQ(ours.magic, theirs.magic);
  EXPECT_EQ(ours.blocking, theirs.blocking);
  EXPECT_EQ(ours.splitShare, theirs.splitShare);
  EXPECT_LE(ours.size, theirs.size);
  EXPECT_LE(ours.version, theirs.version);
}

}  // namespace
}  // namespace plumbline::cuda
#else
TEST(NcclHeader, OfThisBuildAgreesWithOurDeclarations) {
  GTEST_SKIP() << "no nccl.h was found when this was built";
}
#endif

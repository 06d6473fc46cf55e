// Codes of CUDA and NCCL, translated once. A failing call becomes an Error that names the function, the code's own
// name and text, and the rule behind it where the code is known to mean one thing.
#pragma once

#include <string_view>

#include "backends/cuda/library.h"
#include "engine/base/result.h"

namespace plumbline::cuda {

// "ncclInvalidUsage"; the table of nccl.h.
std::string_view nccl_code_name(int code);

// Success, or kState (kMissing for "no device" and "driver too old", kUnsupported for what the device cannot do).
Status cuda_status(const Libraries& libraries, int code, std::string_view call);
// kNcclInProgress counts as success: nonblocking communicators return it, and the caller polls.
Status nccl_status(const Libraries& libraries, int code, std::string_view call);

}  // namespace plumbline::cuda

// Calls `function` of a table and hands a failure on.
#define PL_CUDA(libraries, function, ...) \
  PL_TRY(::plumbline::cuda::cuda_status((libraries), (libraries).cuda.function(__VA_ARGS__), #function))
#define PL_NCCL(libraries, function, ...) \
  PL_TRY(::plumbline::cuda::nccl_status((libraries), (libraries).nccl.function(__VA_ARGS__), #function))

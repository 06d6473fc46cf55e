// Libraries: the function tables of CUDA, NCCL and NVTX, loaded when a run asks for them.
//
// Where they are looked for, first found wins: a name given by the caller; then the environment - CUDART_LIBRARY,
// CUDA_DRIVER_LIBRARY, NCCL_LIBRARY (a file); then the loader's own search by the names that NVIDIA's packages
// install; then, for the runtime and NCCL, CUDA_HOME/lib64. Libraries stay loaded as long as the process.
#pragma once

#include <memory>
#include <string>

#include "backends/cuda/cuda_api.h"
#include "backends/cuda/nccl_api.h"
#include "engine/base/result.h"

namespace plumbline::cuda {

struct LibraryPaths {
  std::string cudart, driver, nccl, nvtx;  // files; empty: look for them
};

struct Libraries {
  CudaApi cuda;
  NcclApi nccl;  // all null, where it was not asked for
  NvtxApi nvtx;
  int runtime_version = 0;  // 13000
  int driver_version = 0;   // the newest runtime the driver serves; 0: there is no driver
  int nccl_version = 0;     // 22809; 0: not loaded
  std::string cudart_file, driver_file, nccl_file;

  bool doubles = false;  // the runtime is this project's double (backends/cuda/double)

  bool has_memory_operations() const { return cuda.stream_wait_value32 != nullptr; }
};

struct Wanted {
  bool nccl = true;                // an error when it is missing or older than kOldestNccl
  bool memory_operations = false;  // likewise
};

// kMissing with every name that was tried, or kUnsupported with the version found and the one needed. Whether there
// is a device is not asked.
Result<std::shared_ptr<const Libraries>> load_libraries(const Wanted& wanted, const LibraryPaths& paths = {});

// "NCCL 2.28.9"
std::string nccl_version_text(int version);

}  // namespace plumbline::cuda

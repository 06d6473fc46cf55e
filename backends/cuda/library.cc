#include "backends/cuda/library.h"

#include <cstdlib>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace plumbline::cuda {
namespace {

std::string from_environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

struct Search {
  const char* what;
  std::string given;
  const char* variable;
  std::vector<std::string> names;
  bool in_toolkit = false;
};

struct Opened {
  void* handle = nullptr;
  std::string file;
};

// A file that somebody named is the only candidate: another one in its place would be a surprise.
std::vector<std::string> candidates(const Search& search) {
  if (!search.given.empty()) return {search.given};
  if (std::string file = from_environment(search.variable); !file.empty()) return {std::move(file)};
  std::vector<std::string> all = search.names;
  const std::string toolkit = from_environment("CUDA_HOME");
  for (const std::string& name : search.names) {
    if (search.in_toolkit && !toolkit.empty()) all.push_back(toolkit + "/lib64/" + name);
  }
  return all;
}

Result<Opened> open_first(const Search& search) {
  std::vector<std::string> reasons;
  for (const std::string& name : candidates(search)) {
    // Local: a process that also holds LibTorch has NCCL and the runtime from its wheels, maybe of another version.
    if (void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL); handle != nullptr)
      return Opened{handle, name};
    reasons.emplace_back(dlerror());
  }
  return fail(ErrorCode::kMissing, fmt::format("{} cannot be loaded ({}); install it, or name its file in {}",
                                               search.what, fmt::join(reasons, "; "), search.variable));
}

template <typename Function>
bool find(const Opened& library, const char* symbol, Function& out) {
  out = reinterpret_cast<Function>(dlsym(library.handle, symbol));
  return out != nullptr;
}

tl::unexpected<Error> lacks(const Opened& library, const char* symbol) {
  return fail(ErrorCode::kUnsupported, fmt::format("{} has no function {}: it is too old, or not what its "
                                                   "name says",
                                                   library.file, symbol));
}

Status load_runtime(const LibraryPaths& paths, Libraries& out) {
  const Result<Opened> library = open_first({"the CUDA runtime",
                                             paths.cudart,
                                             "CUDART_LIBRARY",
                                             {"libcudart.so.13", "libcudart.so.12", "libcudart.so"},
                                             true});
  if (!library) return tl::unexpected(library.error());
#define X(name, parameters) \
  if (!find(*library, #name, out.cuda.name)) return lacks(*library, #name);
  PLUMBLINE_CUDA_RUNTIME(X)
#undef X
  if (!find(*library, "cudaGetErrorName", out.cuda.cudaGetErrorName))
    return lacks(*library, "cudaGetErrorName");
  if (!find(*library, "cudaGetErrorString", out.cuda.cudaGetErrorString))
    return lacks(*library, "cudaGetErrorString");
  out.cudart_file = library->file;
  int (*step_of_a_double)() = nullptr;
  out.doubles = find(*library, "plumbline_double_step", step_of_a_double);
  out.cuda.cudaRuntimeGetVersion(&out.runtime_version);
  out.cuda.cudaDriverGetVersion(&out.driver_version);
  if (out.runtime_version < 11080) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{} is CUDA {}.{}; 11.8 or newer is needed", library->file,
                            out.runtime_version / 1000, out.runtime_version % 1000 / 10));
  }
  return {};
}

Status load_driver(const LibraryPaths& paths, bool wanted, Libraries& out) {
  const Result<Opened> library =
      open_first({"the CUDA driver", paths.driver, "CUDA_DRIVER_LIBRARY", {"libcuda.so.1"}, false});
  if (!library) return wanted ? Status(tl::unexpected(library.error())) : Status();
  bool all = true;
#define X(name, symbol, parameters) all = find(*library, symbol, out.cuda.name) && all;
  PLUMBLINE_CUDA_DRIVER(X)
#undef X
  if (!all && wanted) return lacks(*library, "cuStreamWaitValue32_v2");
  if (!all) out.cuda.stream_wait_value32 = nullptr;
  out.driver_file = library->file;
  return {};
}

Status load_nccl(const LibraryPaths& paths, Libraries& out) {
  const Result<Opened> library =
      open_first({"NCCL", paths.nccl, "NCCL_LIBRARY", {"libnccl.so.2", "libnccl.so"}, true});
  if (!library) return tl::unexpected(library.error());
  out.nccl_file = library->file;
  // The version first: an old library then is called old, not incomplete.
  if (!find(*library, "ncclGetVersion", out.nccl.ncclGetVersion)) return lacks(*library, "ncclGetVersion");
  if (const int code = out.nccl.ncclGetVersion(&out.nccl_version); code != kNcclSuccess)
    return fail(ErrorCode::kMissing, fmt::format("{}: ncclGetVersion returns {}", library->file, code));
  if (out.nccl_version < kOldestNccl || out.nccl_version >= 30000) {
    return fail(ErrorCode::kUnsupported, fmt::format("{} is {}; 2.18 or a newer 2.x is needed", library->file,
                                                     nccl_version_text(out.nccl_version)));
  }
#define X(name, parameters) \
  if (!find(*library, #name, out.nccl.name)) return lacks(*library, #name);
  PLUMBLINE_NCCL(X)
#undef X
#define X(name, parameters) find(*library, #name, out.nccl.name);
  PLUMBLINE_NCCL_NEWER(X)
#undef X
  if (!find(*library, "ncclGetErrorString", out.nccl.ncclGetErrorString))
    return lacks(*library, "ncclGetErrorString");
  find(*library, "ncclGetLastError", out.nccl.ncclGetLastError);
  return {};
}

void load_nvtx(const LibraryPaths& paths, Libraries& out) {
  const Result<Opened> library =
      open_first({"NVTX", paths.nvtx, "NVTX_LIBRARY", {"libnvToolsExt.so.1"}, true});
  if (!library) return;
  if (!find(*library, "nvtxRangePushA", out.nvtx.nvtxRangePushA) ||
      !find(*library, "nvtxRangePop", out.nvtx.nvtxRangePop))
    out.nvtx = {};
}

}  // namespace

Result<std::shared_ptr<const Libraries>> load_libraries(const Wanted& wanted, const LibraryPaths& paths) {
  auto out = std::make_shared<Libraries>();
  PL_TRY(load_runtime(paths, *out));
  PL_TRY(load_driver(paths, wanted.memory_operations, *out));
  if (wanted.nccl) PL_TRY(load_nccl(paths, *out));
  load_nvtx(paths, *out);
  return std::shared_ptr<const Libraries>(std::move(out));
}

std::string nccl_version_text(int version) {
  return fmt::format("NCCL {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace plumbline::cuda

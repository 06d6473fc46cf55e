#include "engine/train/libtorch.h"

#include <cstdio>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <torch/version.h>

namespace plumbline {

void set_up_libtorch() {
  static const bool once = [] {
    at::set_num_threads(1);
    at::set_num_interop_threads(1);
    // OpenBLAS has read its environment already; a process of ours uses one thread whatever that said.
    using SetThreads = void (*)(int);
    if (void* symbol = ::dlsym(RTLD_DEFAULT, "openblas_set_num_threads"))
      reinterpret_cast<SetThreads>(symbol)(1);
    at::globalContext().setDeterministicAlgorithms(true, false);
    return true;
  }();
  static_cast<void>(once);
}

std::string libtorch_version() { return TORCH_VERSION; }

std::string blas_name() {
  // What the process has mapped says which library answers for libblas.so.3 here.
  std::string best = "reference or built in";
  if (std::FILE* maps = std::fopen("/proc/self/maps", "r")) {
    char line[1024];
    while (std::fgets(line, sizeof(line), maps) != nullptr) {
      const std::string text = line;
      if (text.find("openblas") != std::string::npos) best = "OpenBLAS";
      if (text.find("libmkl") != std::string::npos) best = "MKL";
    }
    std::fclose(maps);
  }
  return best;
}

}  // namespace plumbline

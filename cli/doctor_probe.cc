#include "cli/doctor_probe.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <initializer_list>
#include <string_view>

#include <dlfcn.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "cli/capture.h"
#include "cli/common/version.h"
#include "cli/exec_engine.h"
#include "engine/base/text.h"
#include "engine/base/workers.h"

namespace plumbline::cli {
namespace {

// An open shared library; stays open, because unloading a driver is not always safe.
class Library {
 public:
  explicit Library(std::initializer_list<const char*> names) {
    for (const char* name : names) {
      handle_ = ::dlopen(name, RTLD_LAZY | RTLD_LOCAL);
      if (handle_ != nullptr) {
        name_ = name;
        return;
      }
    }
  }
  explicit operator bool() const { return handle_ != nullptr; }
  const std::string& name() const { return name_; }

  // Calls `int symbol(int*)`, the shape of every version query here; -1 when it cannot.
  int query(const char* symbol) const {
    using Query = int (*)(int*);
    const auto call = reinterpret_cast<Query>(::dlsym(handle_, symbol));
    int value = -1;
    return call != nullptr && call(&value) == 0 ? value : -1;
  }
  bool initialize(const char* symbol) const {
    using Initialize = int (*)(unsigned);
    const auto call = reinterpret_cast<Initialize>(::dlsym(handle_, symbol));
    return call != nullptr && call(0) == 0;
  }

 private:
  void* handle_ = nullptr;
  std::string name_;
};

std::string cuda_version(int number) {
  return number < 0 ? "version unknown" : fmt::format("{}.{}", number / 1000, number % 1000 / 10);
}

std::string nccl_version(int number) {
  if (number < 0) return "version unknown";
  // 2.8 and older packed the number with factors of 1000.
  const int major = number >= 10000 ? number / 10000 : number / 1000;
  return fmt::format("{}.{}.{}", major, number >= 10000 ? number % 10000 / 100 : number % 1000 / 100,
                     number % 100);
}

Finding probe_engine(std::string* libtorch) {
  const Result<std::string> engine = find_engine();
  if (!engine)
    return {"engine", false, "run, replay and checkpoints need it; built where CMake finds LibTorch"};
  const Result<std::string> text = capture({*engine, "version", "--json"});
  const nlohmann::json facts = text ? nlohmann::json::parse(*text, nullptr, false) : nlohmann::json();
  if (!facts.is_object())
    return {"engine", false, fmt::format("{} does not answer 'version --json'", *engine)};
  const auto fact = [&](const char* name) {
    return facts.contains(name) && facts[name].is_string() ? facts[name].get<std::string>() : std::string();
  };
  *libtorch = fact("libtorch");
  return {"engine", true, fmt::format("{}+{} at {}", fact("version"), fact("revision"), *engine)};
}

Finding probe_program(std::string name, const char* program, const char* why) {
  const char* path = std::getenv("PATH");
  for (const std::string_view folder : split(path == nullptr ? "" : path, ':')) {
    const std::string full = std::string(folder) + "/" + program;
    if (!folder.empty() && ::access(full.c_str(), X_OK) == 0) return {std::move(name), true, full};
  }
  return {std::move(name), false, why};
}

Finding probe_library(std::string name, const Library& library, const std::string& version, const char* why) {
  if (!library) return {std::move(name), false, why};
  return {std::move(name), true, version.empty() ? library.name() : version + ", " + library.name()};
}

void probe_gpu(std::vector<Finding>& out) {
  const Library driver{"libcuda.so.1"};
  const Library runtime{"libcudart.so.13", "libcudart.so.12", "libcudart.so"};
  const Library nccl{"libnccl.so.2", "libnccl.so"};
  const auto version = [](const Library& library, const char* symbol, std::string (*text)(int)) {
    return library ? text(library.query(symbol)) : std::string();
  };
  out.push_back(probe_library("cuda driver", driver, version(driver, "cuDriverGetVersion", cuda_version),
                              "needed to run on GPUs; comes with the NVIDIA driver"));
  out.push_back(probe_library("cuda runtime", runtime,
                              version(runtime, "cudaRuntimeGetVersion", cuda_version),
                              "needed to run on GPUs; CUDA 12 or 13"));
  out.push_back(probe_library("nccl", nccl, version(nccl, "ncclGetVersion", nccl_version),
                              "needed to run on GPUs; NCCL 2.18 or newer"));
  const int gpus = driver && driver.initialize("cuInit") ? driver.query("cuDeviceGetCount") : 0;
  out.push_back({"gpus", gpus > 0, gpus > 0 ? fmt::format("{}", gpus) : "none; the simulator needs none"});
}

}  // namespace

std::vector<Finding> probe() {
  std::vector<Finding> out;
  for (const auto& [name, value] : version_facts()) out.push_back({name, true, value});
  std::string libtorch;
  out.push_back(probe_engine(&libtorch));
  out.push_back(
      {"libtorch", !libtorch.empty(), libtorch.empty() ? "known to plumbline-engine only" : libtorch});
  out.push_back(probe_program("graphviz dot", "dot", "draws .dot files; Debian: graphviz"));
  out.push_back(probe_library("libgvc", Library{"libgvc.so.6", "libgvc.so.7", "libgvc.so"}, "",
                              "lays out graphs in reports; Debian: libgvc6"));
  probe_gpu(out);
  out.push_back({"cores", true, fmt::format("{}", usable_cores())});
  return out;
}

std::vector<std::string> relevant_environment() {
  constexpr std::array<std::string_view, 15> kPrefixes{"PLUMBLINE_",
                                                       "NCCL_",
                                                       "CUDA_",
                                                       "TORCH_",
                                                       "OMP_NUM_THREADS=",
                                                       "OPENBLAS_NUM_THREADS=",
                                                       "MKL_NUM_THREADS=",
                                                       "RANK=",
                                                       "LOCAL_RANK=",
                                                       "WORLD_SIZE=",
                                                       "MASTER_ADDR=",
                                                       "MASTER_PORT=",
                                                       "NO_COLOR=",
                                                       "CLICOLOR_FORCE=",
                                                       "RC_PARAMS="};
  std::vector<std::string> out;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const bool wanted = std::any_of(kPrefixes.begin(), kPrefixes.end(), [&](std::string_view prefix) {
      return text.substr(0, prefix.size()) == prefix;
    });
    if (wanted) out.emplace_back(text);
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace plumbline::cli

// The doubles, loaded as a run loads the real libraries, and their control functions.
#pragma once

#include <memory>
#include <string>

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "backends/cuda/double/control.h"
#include "backends/cuda/library.h"
#include "engine/base/assert.h"
#include "sim/verdict.h"

namespace plumbline::cuda {

struct Doubles {
  std::shared_ptr<const Libraries> libraries;
  decltype(&plumbline_double_reset) reset = nullptr;
  decltype(&plumbline_double_error) error = nullptr;
  decltype(&plumbline_double_step) step = nullptr;
  decltype(&plumbline_double_polls_step) polls_step = nullptr;
  decltype(&plumbline_double_now) now = nullptr;
  decltype(&plumbline_double_next_takes) next_takes = nullptr;
  decltype(&plumbline_double_end_process) end_process = nullptr;
  decltype(&plumbline_double_incomplete) incomplete = nullptr;
  decltype(&plumbline_double_verdict) verdict_text = nullptr;
  decltype(&plumbline_double_calls) calls = nullptr;
  decltype(&plumbline_double_peak) peak = nullptr;

  Verdict verdict(bool with_deadlock = true) const {
    const Result<Verdict> parsed =
        parse_verdict_json(verdict_text(with_deadlock ? 1 : 0), "the doubles' verdict");
    PL_ASSERT_MSG(parsed.has_value(), parsed ? std::string() : parsed.error().text());
    return *parsed;
  }
  std::vector<Finding> findings(bool with_deadlock = true) const {
    return verdict(with_deadlock).modes.at(0).findings;
  }
  // Until nothing happens any more.
  void run() const {
    while (step() != 0) {
    }
  }
};

// Loaded once a process.
inline const Doubles& loaded_doubles() {
  static const Doubles loaded = [] {
    const std::string file = PLUMBLINE_DOUBLES;
    Doubles out;
    const LibraryPaths paths{.cudart = file, .driver = file, .nccl = file, .nvtx = file};
    Result<std::shared_ptr<const Libraries>> libraries =
        load_libraries({.nccl = true, .memory_operations = true}, paths);
    PL_ASSERT_MSG(libraries.has_value(), libraries ? std::string() : libraries.error().text());
    out.libraries = *libraries;
    void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(handle, name));
      PL_ASSERT_MSG(function != nullptr, name);
    };
    find(out.reset, "plumbline_double_reset");
    find(out.error, "plumbline_double_error");
    find(out.step, "plumbline_double_step");
    find(out.polls_step, "plumbline_double_polls_step");
    find(out.now, "plumbline_double_now");
    find(out.next_takes, "plumbline_double_next_takes");
    find(out.end_process, "plumbline_double_end_process");
    find(out.incomplete, "plumbline_double_incomplete");
    find(out.verdict_text, "plumbline_double_verdict");
    find(out.calls, "plumbline_double_calls");
    find(out.peak, "plumbline_double_peak");
    return out;
  }();
  return loaded;
}

// `devices` of them, all new.
inline const Doubles& doubles(int devices, const std::string& config = "") {
  const Doubles& loaded = loaded_doubles();
  const int failed = loaded.reset(devices, config.c_str());
  PL_ASSERT_MSG(failed == 0, loaded.error());
  return loaded;
}

}  // namespace plumbline::cuda

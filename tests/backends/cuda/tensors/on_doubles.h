// A trainer's driver on the doubles of CUDA and NCCL.
#pragma once

#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "backends/cuda/tensors/step_driver.h"
#include "tests/backends/cuda/doubles.h"

namespace plumbline::cuda {

// The doubles' time, which moves when the driver has nothing to do.
class SteppingClock final : public HostClock {
 public:
  explicit SteppingClock(const Doubles& on) : on_(on) {}
  Nanoseconds now() override { return on_.now() + waited_; }
  void idle() override {
    if (on_.step() == 0) waited_ += 1000000000;
  }

 private:
  const Doubles& on_;
  Nanoseconds waited_ = 0;
};

// New doubles with a device a rank (loopback, self-send: with one), which stay until the next call.
inline CudaRunOptions run_on_doubles(const RunConfig& config, Level level) {
  const Doubles& on = doubles(on_one_device(level) ? 1 : config.parallel.pp * config.parallel.dp);
  const std::string file = PLUMBLINE_DOUBLES;
  CudaRunOptions run;
  run.level = level;
  run.libraries = {.cudart = file, .driver = file, .nccl = file, .nvtx = file};
  run.timeout = 1000000000;
  run.make_clock = [&on](const Libraries&) { return std::make_unique<SteppingClock>(on); };
  return run;
}

inline DriverFactory driver_of(const CudaRunOptions& run) {
  Result<DriverFactory> factory = driver(run);
  EXPECT_TRUE(factory) << factory.error().text();
  return factory ? std::move(*factory) : simulated();
}

inline DriverFactory driver_on_doubles(const RunConfig& config, Level level) {
  return driver_of(run_on_doubles(config, level));
}

}  // namespace plumbline::cuda

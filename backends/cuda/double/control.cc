#include "backends/cuda/double/control.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>

#include "backends/cuda/double/machine.h"
#include "engine/config/loader.h"
#include "engine/config/toml_source.h"

namespace plumbline::cuda {
namespace {

std::unique_ptr<Machine>& current_machine() {
  static std::unique_ptr<Machine> machine;
  return machine;
}

}  // namespace

Machine& machine() {
  if (current_machine() == nullptr) {
    // A program that knows nothing of doubles: the environment says how many devices there are, and time moves whenever
    // it asks for something.
    const char* devices = std::getenv("PLUMBLINE_DOUBLE_DEVICES");
    current_machine() =
        std::make_unique<Machine>(devices == nullptr ? 8 : std::max(0, std::atoi(devices)), RunConfig{});
    current_machine()->polls_step = devices != nullptr;
  }
  return *current_machine();
}

std::string& control_error() {
  static std::string error;
  return error;
}

}  // namespace plumbline::cuda

using plumbline::cuda::machine;

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED int plumbline_double_reset(int devices, const char* config) {
  using namespace plumbline;
  LoadedConfig loaded;
  if (config != nullptr && *config != '\0') {
    const Result<Assignments> assignments = read_toml(config, "the doubles' configuration");
    Status status =
        assignments ? apply_assignments(*assignments, loaded) : Status(tl::unexpected(assignments.error()));
    if (!status) {
      cuda::control_error() = status.error().text();
      return 2;
    }
  }
  cuda::current_machine() = std::make_unique<cuda::Machine>(devices, loaded.config);
  return 0;
}
EXPORTED const char* plumbline_double_error() { return plumbline::cuda::control_error().c_str(); }
EXPORTED int plumbline_double_step() { return machine().step() ? 1 : 0; }
EXPORTED void plumbline_double_polls_step(int on) { machine().polls_step = on != 0; }
EXPORTED long long plumbline_double_now() { return machine().now(); }
EXPORTED void plumbline_double_next_takes(long long nanoseconds) { machine().next_takes = nanoseconds; }
EXPORTED int plumbline_double_end_process(int device) {
  if (device < 0 || device >= machine().devices()) return -1;
  machine().end_process(device);
  return 0;
}
EXPORTED int plumbline_double_incomplete() { return machine().incomplete(); }
EXPORTED const char* plumbline_double_verdict(int with_deadlock) {
  static std::string text;
  text = machine().verdict(with_deadlock != 0);
  return text.c_str();
}
EXPORTED long long plumbline_double_calls() { return machine().api_calls; }
EXPORTED long long plumbline_double_peak(int device) { return machine().peak(device); }

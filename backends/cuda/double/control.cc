#include "backends/cuda/double/control.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/cuda/double/machine.h"
#include "backends/cuda/double/remote.h"
#include "backends/cuda/double/server.h"
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

void set_machine(std::unique_ptr<Machine> machine) { current_machine() = std::move(machine); }

std::string& control_error() {
  static std::string error;
  return error;
}

}  // namespace plumbline::cuda

#define EXPORTED extern "C" __attribute__((visibility("default")))
#define FORWARD(function, control, lost, ...)             \
  if (Remote* const server = remote(); server != nullptr) \
  return server->call(Function::function, &control, lost __VA_OPT__(, ) __VA_ARGS__)

namespace plumbline::cuda {
namespace {

// What failed is in control_error().
bool make_machine(int devices, const char* config, std::shared_ptr<Arena> arena) {
  LoadedConfig loaded;
  if (config != nullptr && *config != '\0') {
    const Result<Assignments> assignments = read_toml(config, "the doubles' configuration");
    const Status status =
        assignments ? apply_assignments(*assignments, loaded) : Status(tl::unexpected(assignments.error()));
    if (!status) {
      control_error() = status.error().text();
      return false;
    }
  }
  set_machine(std::make_unique<Machine>(devices, loaded.config, std::move(arena)));
  return true;
}

}  // namespace

int host_function_done(std::uint64_t node) { return machine().host_function_done(node) ? 1 : 0; }
int control_step() {
  FORWARD(kStep, control_step, 0);
  return machine().step() ? 1 : 0;
}
int control_polls_step(int on) {
  FORWARD(kPollsStep, control_polls_step, 0, on);
  machine().polls_step = on != 0;
  return 0;
}
long long control_now() {
  FORWARD(kNow, control_now, 0);
  return machine().now();
}
int control_next_takes(long long nanoseconds) {
  FORWARD(kNextTakes, control_next_takes, 0, nanoseconds);
  machine().caller->next_takes = nanoseconds;
  return 0;
}
int control_end_process(int device) {
  FORWARD(kEndProcess, control_end_process, -1, device);
  if (device < 0 || device >= machine().devices()) return -1;
  machine().end_process(device);
  return 0;
}
int control_incomplete() {
  FORWARD(kIncomplete, control_incomplete, 0);
  return machine().incomplete();
}
std::string control_verdict(int with_deadlock) {
  FORWARD(kVerdict, control_verdict, "", with_deadlock);
  return machine().verdict(with_deadlock != 0);
}
long long control_calls() {
  FORWARD(kCalls, control_calls, 0);
  return machine().api_calls;
}
long long control_peak(int device) {
  FORWARD(kPeak, control_peak, -1, device);
  return device >= 0 && device < machine().devices() ? machine().peak(device) : -1;
}

}  // namespace plumbline::cuda

using namespace plumbline::cuda;  // NOLINT: the functions below are C's

EXPORTED int plumbline_double_reset(int devices, const char* config) {
  if (remote() != nullptr) {
    control_error() =
        "the devices are a server's (PLUMBLINE_DOUBLE_SERVER), and other processes have work on them";
    return 2;
  }
  return make_machine(devices, config, nullptr) ? 0 : 2;
}
EXPORTED int plumbline_double_serve(int devices, const char* config, const char* socket,
                                    const char* const* command, int* code) {
  play_here();
  auto arena = Arena::create();
  if (!arena) {
    control_error() = arena.error().text();
    return 1;
  }
  const std::shared_ptr<Arena> shared = std::move(*arena);
  if (!make_machine(devices, config, shared)) return 2;
  machine().polls_step = true;
  std::vector<std::string> words;
  for (; command != nullptr && *command != nullptr; ++command) words.emplace_back(*command);
  const plumbline::Result<int> ended = serve(socket, words, *shared);
  if (!ended) {
    control_error() = ended.error().text();
    return 1;
  }
  *code = *ended;
  return 0;
}
EXPORTED const char* plumbline_double_error() { return control_error().c_str(); }
EXPORTED int plumbline_double_step() { return control_step(); }
EXPORTED void plumbline_double_polls_step(int on) { control_polls_step(on); }
EXPORTED long long plumbline_double_now() { return control_now(); }
EXPORTED void plumbline_double_next_takes(long long nanoseconds) { control_next_takes(nanoseconds); }
EXPORTED int plumbline_double_end_process(int device) { return control_end_process(device); }
EXPORTED int plumbline_double_incomplete() { return control_incomplete(); }
EXPORTED const char* plumbline_double_verdict(int with_deadlock) {
  static std::string text;
  text = control_verdict(with_deadlock);
  return text.c_str();
}
EXPORTED long long plumbline_double_calls() { return control_calls(); }
EXPORTED long long plumbline_double_peak(int device) { return control_peak(device); }

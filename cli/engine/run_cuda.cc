// `plumbline run --backend cuda`: all ranks of the run in this process, on CUDA streams.
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "backends/cuda/tensors/step_driver.h"
#include "cli/common/output.h"
#include "cli/engine/run_session.h"

namespace plumbline::cli {
namespace {

Result<std::optional<cuda::Level>> wish_of(const std::string& text) {
  if (text == "auto") return std::optional<cuda::Level>();
  if (text == "nccl") return std::optional(cuda::Level::kNccl);
  if (text == "loopback") return std::optional(cuda::Level::kLoopback);
  if (text == "self-send") return std::optional(cuda::Level::kSelfSend);
  return fail(ErrorCode::kUsage,
              fmt::format("--cuda-level '{}' is not known; known are auto, nccl, loopback, self-send", text));
}

}  // namespace

int run_on_cuda(const ValidConfig& valid, const std::string& line, const RunOptions& options) {
  if (options.nproc > 0 || options.rank || options.world)
    return report(
        {ErrorCode::kUsage,
         "--backend cuda runs all ranks in one process; --nproc, --rank and --world-size are gloo's",
         {}});
  const Result<std::optional<cuda::Level>> wish = wish_of(options.cuda_level);
  if (!wish) return report(wish.error());
  const Result<cuda::Placement> place = cuda::level_for(valid.config.grid.world(), *wish);
  if (!place) return report(place.error());
  if (options.device < 0 || options.device >= place->devices)
    return report(
        {ErrorCode::kUsage,
         fmt::format("--device {}: this machine's devices are 0 to {}", options.device, place->devices - 1),
         {}});
  cuda::CudaRunOptions run;
  run.level = place->level;
  run.devices = place->devices;
  run.device = options.device;
  constexpr double kNever = 1e9;  // seconds
  run.timeout = static_cast<Nanoseconds>((options.timeout > 0.0 ? options.timeout : kNever) * 1e9);
  Result<DriverFactory> driver = cuda::driver(std::move(run));
  if (!driver) return report(driver.error());
  if (!options.quiet)
    print_line(fmt::format("backend {}; stages compute on the host", cuda::backend_name(place->level)));
  const RankSession session{std::move(*driver)};
  return run_session(valid, line, options, &session);
}

}  // namespace plumbline::cli

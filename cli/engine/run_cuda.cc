// `plumbline run --backend cuda`: all ranks of the run in this process, on CUDA streams; or one of them
// (run_cuda_rank.cc).
#include "cli/engine/run_cuda.h"

#include <optional>
#include <utility>

#include <fmt/format.h>

#include "cli/common/output.h"
#include "engine/model/arithmetic.h"
#include "engine/model/stage.h"
#include "engine/runtime/launch_env.h"
#ifdef PLUMBLINE_HAVE_CUDA_TENSORS
#include "backends/cuda/tensors/device/tensor_device.h"
#endif

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

// A run of one process a rank, by flags or by a launcher that has started several of us.
Result<bool> one_of_many(const RunOptions& options) {
  if (options.nproc > 0 || options.rank || options.world) return true;
  LaunchFlags anywhere;  // where rank 0 is does not matter for this
  anywhere.host = "127.0.0.1";
  const Result<std::optional<LaunchPlace>> place = launch_place(anywhere, launcher_environment());
  if (!place) return tl::unexpected(place.error());
  return *place && (*place)->copies > 1;
}

}  // namespace

Result<bool> choose_compute(const ValidConfig& valid, const RunOptions& options, cuda::CudaRunOptions& run,
                            RankSession& session) {
  const std::string& wish = options.compute;
  if (wish != "auto" && wish != "host" && wish != "device")
    return fail(ErrorCode::kUsage,
                fmt::format("--compute '{}' is not known; known are auto, host, device", wish));
  const Result<const ModelFamily*> family = find_model(valid.config.model.name);
  if (!family) return tl::unexpected(family.error());
  cuda::TensorDeviceMaker maker;
#ifdef PLUMBLINE_HAVE_CUDA_TENSORS
  maker = cuda::tensor_device;
#endif
  if (wish == "host" || (wish == "auto" && (!maker || !(*family)->on_device))) return false;
  if (!(*family)->on_device)
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("the stages of model {} compute on the host alone: --compute host", (*family)->name));
#ifdef PLUMBLINE_HAVE_CUDA_TENSORS
  cuda::set_up_device_tensors();
#endif
  auto place = cuda::compute_on_device(run, maker);
  if (!place) return tl::unexpected(place.error());
  session.place = std::move(*place);
  use_libtorch_arithmetic(true);  // the doubles' devices are the CPU
  return true;
}

int run_on_cuda(const ValidConfig& valid, const std::string& line, const RunOptions& options) {
  const Result<std::optional<cuda::Level>> wish = wish_of(options.cuda_level);
  if (!wish) return report(wish.error());
  const Result<bool> many = one_of_many(options);
  if (!many) return report(many.error());
  if (*many) {
    if (*wish && cuda::on_one_device(**wish))
      return report(
          {ErrorCode::kUsage,
           fmt::format("--cuda-level {} moves messages inside one process, and here each rank has its own: "
                       "leave out --cuda-level, or --nproc, --rank and the launcher",
                       options.cuda_level),
           {}});
    return run_cuda_in_processes(valid, line, options);
  }
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
  RankSession session;
  const Result<bool> on_device = choose_compute(valid, options, run, session);
  if (!on_device) return report(on_device.error());
  Result<DriverFactory> driver = cuda::driver(std::move(run));
  if (!driver) return report(driver.error());
  if (!options.quiet)
    print_line(fmt::format("backend {}; stages compute on the {}", cuda::backend_name(place->level),
                           *on_device ? "device" : "host"));
  session.driver = std::move(*driver);
  return run_session(valid, line, options, &session);
}

}  // namespace plumbline::cli

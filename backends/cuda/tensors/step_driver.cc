#include "backends/cuda/tensors/step_driver.h"

#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "backends/cuda/loopback_transport.h"
#include "backends/cuda/nccl_transport.h"
#include "engine/base/assert.h"
#include "sim/nccl_model.h"

namespace plumbline::cuda {
namespace {

int device_of(const CudaRunOptions& options, Rank rank) {
  switch (options.level) {
    case Level::kNccl:
      return rank;
    case Level::kShared:
      return rank % options.devices;
    default:
      return options.device;
  }
}

class Ranks final : public StepDriver {
 public:
  Ranks(std::shared_ptr<const Libraries> libraries, const CudaRunOptions& options,
        const LinkedProgram& linked, const std::vector<Worker*>& workers)
      : name_(backend_name(options.level)),
        clock_(options.make_clock ? options.make_clock(*libraries) : steady_clock()) {
    std::vector<LocalRank> local;
    std::vector<ServedRank> served;
    for (std::uint32_t thread = 0; thread < workers.size(); ++thread) {
      const Rank rank = linked.program->threads[thread].rank;
      const int device = device_of(options, rank);
      kernels_.push_back(options.make_kernels ? options.make_kernels(*libraries, rank, *workers[thread])
                                              : std::make_unique<HostKernels>(*libraries, *workers[thread]));
      local.push_back({thread, {libraries, device}});
      served.push_back({local.back(), kernels_.back().get()});
    }
    if (on_one_device(options.level)) {
      transport_ = std::make_unique<LoopbackTransport>(
          local, options.level == Level::kSelfSend ? Mover::kSelfSend : Mover::kCopy);
    } else {
      transport_ = std::make_unique<NcclTransport>(local, ids_);
    }
    backend_ = std::make_unique<CudaBackend>(std::move(served), *transport_, CudaOptions{});
    const NcclModel model = default_model();
    mode_ = model.name();
    driver_ = std::make_unique<CudaDriver>(*backend_, *clock_, DriverOptions{options.timeout, model});

    set_program(linked);
  }

  std::string name() const override { return name_; }
  std::string mode() const override { return mode_ + ", " + transport_->level(); }
  void set_program(const LinkedProgram& linked) override { program_ = driver_->set_program(linked); }
  Result<SimStep> run_step(int step, RunRecord& record) override {
    if (!program_) return tl::unexpected(program_.error());
    return driver_->run_step(step, record);
  }

 private:
  std::string name_;
  std::unique_ptr<HostClock> clock_;
  std::vector<std::unique_ptr<StageKernels>> kernels_;
  LocalIds ids_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<CudaBackend> backend_;
  std::unique_ptr<CudaDriver> driver_;
  std::string mode_;
  Status program_;
};

}  // namespace

std::string backend_name(Level level) {
  switch (level) {
    case Level::kNccl:
      return "cuda-nccl";
    case Level::kShared:
      return "cuda-nccl-shared";
    case Level::kLoopback:
      return "cuda-loopback";
    case Level::kSelfSend:
      return "cuda-self-send";
  }
  return {};
}

namespace {

// Whether NCCL lets several ranks share a device; the error says what is missing for it.
Status can_share(int devices, int ranks, const LibraryPaths& paths) {
  constexpr const char* kSwitch = "NCCL_MULTI_RANK_GPU_ENABLE";
  constexpr int kFirst = 23000;
  const auto libraries = load_libraries({.nccl = true, .memory_operations = false}, paths);
  if (!libraries) return tl::unexpected(libraries.error());
  const char* set = std::getenv(kSwitch);
  const bool on = set != nullptr && std::string_view(set) == "1";
  if (on && (*libraries)->nccl_version >= kFirst) return {};
  return fail(
      ErrorCode::kUnsupported,
      fmt::format("NCCL wants a device a rank, and there are {} for {} ranks; --cuda-level loopback runs all "
                  "ranks on one device, and so does NCCL 2.30 or newer with {}=1 (this is {}, {})",
                  devices, ranks, kSwitch, nccl_version_text((*libraries)->nccl_version),
                  on ? "and it is set" : "and it is not set"));
}

}  // namespace

Result<Placement> level_for(int ranks, std::optional<Level> wished, const LibraryPaths& paths) {
  const Status raised = raise_connections();  // for loopback; CUDA's first call is too late
  const auto libraries = load_libraries({.nccl = false, .memory_operations = false}, paths);
  if (!libraries) return tl::unexpected(libraries.error());
  Placement out;
  const int code = (*libraries)->cuda.cudaGetDeviceCount(&out.devices);
  if (code != kCudaSuccess || out.devices == 0)
    return fail(
        ErrorCode::kMissing,
        fmt::format("CUDA finds no device here ({}); --backend gloo and --backend sim need none",
                    code == kCudaSuccess ? "0 devices" : (*libraries)->cuda.cudaGetErrorString(code)));
  out.level = wished.value_or(out.devices >= ranks ? Level::kNccl : Level::kLoopback);
  if (out.level == Level::kNccl && out.devices < ranks) {
    PL_TRY(can_share(out.devices, ranks, paths));
    out.level = Level::kShared;
  }
  if (on_one_device(out.level) && !raised) return tl::unexpected(raised.error());
  return out;
}

namespace {

Result<std::shared_ptr<const Libraries>> libraries_for(const CudaRunOptions& options) {
  if (on_one_device(options.level)) PL_TRY(raise_connections());
  Wanted wanted;
  wanted.nccl = options.level != Level::kLoopback;
  wanted.memory_operations = on_one_device(options.level);
  return load_libraries(wanted, options.libraries);
}

}  // namespace

Result<std::function<std::optional<ComputePlace>(Rank)>> compute_on_device(CudaRunOptions& options,
                                                                           const TensorDeviceMaker& maker) {
  const Result<std::shared_ptr<const Libraries>> libraries = libraries_for(options);
  if (!libraries) return tl::unexpected(libraries.error());
  const bool doubles = (*libraries)->doubles;
  if (!doubles && !maker) {
    return fail(ErrorCode::kUnsupported,
                "stages cannot compute on the device: this build's LibTorch has no CUDA (docs/cuda.md); "
                "--compute host has them compute on the host");
  }
  options.make_kernels = [options, doubles, maker](const Libraries& loaded, Rank rank, Worker& worker) {
    auto* const stages = dynamic_cast<StageWorker*>(&worker);
    PL_ASSERT_MSG(stages != nullptr, "only LibTorch's workers compute on a device");
    return std::make_unique<DeviceKernels>(loaded, *stages,
                                           doubles ? nullptr : maker(device_of(options, rank)));
  };
  return std::function<std::optional<ComputePlace>(Rank)>(
      [options, doubles, on = *libraries](Rank rank) -> std::optional<ComputePlace> {
        const int device = device_of(options, rank);
        const at::Device tensors =
            doubles ? at::Device(at::kCPU) : at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device));
        return place_on({on, device}, tensors);
      });
}

Result<DriverFactory> driver(CudaRunOptions options) {
  Result<std::shared_ptr<const Libraries>> libraries = libraries_for(options);
  if (!libraries) return tl::unexpected(libraries.error());
  return DriverFactory([loaded = std::move(*libraries), options = std::move(options)](
                           const RunConfig& /*config*/, const LinkedProgram& linked,
                           std::vector<Worker*> workers) -> std::unique_ptr<StepDriver> {
    return std::make_unique<Ranks>(loaded, options, linked, workers);
  });
}

}  // namespace plumbline::cuda

#include "backends/cuda/tensors/step_driver.h"

#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "backends/cuda/loopback_transport.h"
#include "engine/base/assert.h"
#include "sim/nccl_model.h"

namespace plumbline::cuda {
namespace {

int device_of(const CudaRunOptions& options, Rank rank) {
  if (options.one) return options.one->device;
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
        clock_(clock_of(options, *libraries)),
        one_(options.one),
        activity_(options.one ? options.one->epoch : 0) {
    PL_ASSERT_MSG(!one_ || (workers.size() == 1 && !on_one_device(options.level)), "one process is one rank");
    std::vector<LocalRank> local;
    std::vector<ServedRank> served;
    for (std::size_t i = 0; i < workers.size(); ++i) {
      const auto thread = static_cast<std::uint32_t>(one_ ? static_cast<std::size_t>(one_->rank) : i);
      const Rank rank = linked.program->threads[thread].rank;
      const int device = device_of(options, rank);
      kernels_.push_back(options.make_kernels ? options.make_kernels(*libraries, rank, *workers[i])
                                              : std::make_unique<HostKernels>(*libraries, *workers[i]));
      local.push_back({thread, {libraries, device}});
      served.push_back({local.back(), kernels_.back().get()});
    }
    if (on_one_device(options.level)) {
      transport_ = std::make_unique<LoopbackTransport>(
          local, options.level == Level::kSelfSend ? Mover::kSelfSend : Mover::kCopy);
    } else {
      transport_ = std::make_unique<NcclTransport>(local, one_ ? *one_->ids : ids_);
    }
    CudaOptions keeps;
    if (one_) keeps.activity = &activity_;
    backend_ = std::make_unique<CudaBackend>(std::move(served), *transport_, keeps);
    const NcclModel model = default_model();
    mode_ = model.name();
    RankStatus* const status = one_ ? one_->status : nullptr;
    if (status != nullptr) status->attach(activity_, one_->epoch);
    driver_ = std::make_unique<CudaDriver>(*backend_, *clock_, DriverOptions{options.timeout, model, status});
    set_program(linked);
  }
  ~Ranks() override {
    if (one_) one_->status->detach();
  }

  std::string name() const override { return name_; }
  std::string mode() const override { return mode_ + ", " + transport_->level(); }
  void set_program(const LinkedProgram& linked) override { program_ = driver_->set_program(linked); }
  Result<SimStep> run_step(int step, RunRecord& record) override {
    if (!program_) {
      before_error();
      return tl::unexpected(program_.error());
    }
    Result<SimStep> done = driver_->run_step(step, record);
    if (!done) before_error();
    return done;
  }

 private:
  static std::unique_ptr<HostClock> clock_of(const CudaRunOptions& options, const Libraries& libraries) {
    if (options.make_clock) return options.make_clock(libraries);
    return options.one ? steady_clock(options.one->epoch) : steady_clock();
  }

  // A kernel's error is this rank's own.
  void before_error() const {
    if (one_ && one_->before_error && !backend_->kernel_error()) one_->before_error();
  }

  std::string name_;
  std::unique_ptr<HostClock> clock_;
  std::vector<std::unique_ptr<StageKernels>> kernels_;
  LocalIds ids_;
  std::optional<OneRank> one_;
  StepActivity activity_;
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

namespace {

Result<int> devices_here(const LibraryPaths& paths) {
  const auto libraries = load_libraries({.nccl = false, .memory_operations = false}, paths);
  if (!libraries) return tl::unexpected(libraries.error());
  int devices = 0;
  const int code = (*libraries)->cuda.cudaGetDeviceCount(&devices);
  if (code == kCudaSuccess && devices > 0) return devices;
  return fail(ErrorCode::kMissing,
              fmt::format("CUDA finds no device here ({}); --backend gloo and --backend sim need none",
                          code == kCudaSuccess ? "0 devices" : (*libraries)->cuda.cudaGetErrorString(code)));
}

}  // namespace

Result<Placement> level_for(int ranks, std::optional<Level> wished, const LibraryPaths& paths) {
  const Status raised = raise_connections();  // for loopback; CUDA's first call is too late
  const Result<int> devices = devices_here(paths);
  if (!devices) return tl::unexpected(devices.error());
  Placement out;
  out.devices = *devices;
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

Result<RankDevice> device_of_rank(int local, int here, bool bound, const LibraryPaths& paths) {
  const Result<int> devices = devices_here(paths);
  if (!devices) return tl::unexpected(devices.error());
  if (bound && *devices == 1) return RankDevice{Level::kNccl, 0};
  if (*devices < here) {
    PL_TRY(can_share(*devices, here, paths));
    return RankDevice{Level::kShared, local % *devices};
  }
  if (local >= *devices)
    return fail(ErrorCode::kUsage,
                fmt::format("local rank {} has no device: there are {}, and {} rank{} on this machine - give "
                            "--local-rank, counted from 0 on each machine",
                            local, *devices, here, here == 1 ? "" : "s"));
  return RankDevice{Level::kNccl, local};
}

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

#include "backends/cuda/tensors/step_driver.h"

#include <optional>
#include <utility>
#include <vector>

#include "backends/cuda/loopback_transport.h"
#include "backends/cuda/nccl_transport.h"
#include "sim/nccl_model.h"

namespace plumbline::cuda {
namespace {

class Ranks final : public StepDriver {
 public:
  Ranks(std::shared_ptr<const Libraries> libraries, const CudaRunOptions& options,
        const LinkedProgram& linked, const std::vector<Worker*>& workers)
      : clock_(options.make_clock ? options.make_clock(*libraries) : steady_clock()) {
    std::vector<LocalRank> local;
    std::vector<ServedRank> served;
    for (std::uint32_t thread = 0; thread < workers.size(); ++thread) {
      const Rank rank = linked.program->threads[thread].rank;
      const int device = options.level == Level::kNccl ? rank : options.device;
      kernels_.push_back(options.make_kernels ? options.make_kernels(*libraries, rank, *workers[thread])
                                              : std::make_unique<HostKernels>(*libraries, *workers[thread]));
      local.push_back({thread, {libraries, device}});
      served.push_back({local.back(), kernels_.back().get()});
    }
    if (options.level == Level::kNccl) {
      transport_ = std::make_unique<NcclTransport>(local, ids_);
    } else {
      transport_ = std::make_unique<LoopbackTransport>(local);
    }
    backend_ = std::make_unique<CudaBackend>(std::move(served), *transport_, CudaOptions{});
    const NcclModel model = default_model();
    mode_ = model.name();
    driver_ = std::make_unique<CudaDriver>(*backend_, *clock_, DriverOptions{options.timeout, model});

    set_program(linked);
  }

  std::string name() const override { return "cuda"; }
  std::string mode() const override { return mode_ + ", " + transport_->level(); }
  void set_program(const LinkedProgram& linked) override { program_ = driver_->set_program(linked); }
  Result<SimStep> run_step(int step, RunRecord& record) override {
    if (!program_) return tl::unexpected(program_.error());
    return driver_->run_step(step, record);
  }

 private:
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

Result<DriverFactory> driver(CudaRunOptions options) {
  if (options.level == Level::kLoopback) PL_TRY(raise_connections());
  Wanted wanted;
  wanted.nccl = options.level == Level::kNccl;
  wanted.memory_operations = options.level == Level::kLoopback;
  Result<std::shared_ptr<const Libraries>> libraries = load_libraries(wanted, options.libraries);
  if (!libraries) return tl::unexpected(libraries.error());
  return DriverFactory([loaded = std::move(*libraries), options = std::move(options)](
                           const RunConfig& /*config*/, const LinkedProgram& linked,
                           std::vector<Worker*> workers) -> std::unique_ptr<StepDriver> {
    return std::make_unique<Ranks>(loaded, options, linked, workers);
  });
}

}  // namespace plumbline::cuda

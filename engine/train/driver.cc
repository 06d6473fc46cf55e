#include "engine/train/driver.h"

#include <algorithm>
#include <utility>

#include "engine/runtime/time_model.h"
#include "sim/nccl_model.h"

namespace plumbline {
namespace {

class SimDriver : public StepDriver {
 public:
  SimDriver(SimOptions options, const LinkedProgram& linked, std::vector<Worker*> workers)
      : mode_(options.model.name()), simulator_(linked, std::move(options), std::move(workers)) {}

  std::string name() const override { return "sim"; }
  std::string mode() const override { return mode_; }
  void set_program(const LinkedProgram& linked) override { simulator_.set_program(linked); }
  Result<SimStep> run_step(int step, RunRecord& record) override { return simulator_.run_step(step, record); }

 private:
  std::string mode_;
  Simulator simulator_;
};

}  // namespace

int exit_code_of(const SimStep& step) {
  const auto deadlocked = [](const Finding& finding) {
    return finding.kind == FindingKind::kDeadlock || finding.kind == FindingKind::kCrossWired;
  };
  if (std::any_of(step.findings.begin(), step.findings.end(), deadlocked)) return 3;
  return step.completed && step.findings.empty() ? 0 : 4;
}

DriverFactory simulated() {
  return [](const RunConfig& config, const LinkedProgram& linked,
            std::vector<Worker*> workers) -> std::unique_ptr<StepDriver> {
    SimOptions options;
    options.model = model_of(config.sim);
    options.numerics = numerics_of(config.sim);
    options.time = TimeModel(config);
    return std::make_unique<SimDriver>(std::move(options), linked, std::move(workers));
  };
}

}  // namespace plumbline

#include "backends/gloo/driver.h"

#include <utility>

#include "engine/base/assert.h"
#include "engine/runtime/interpreter.h"
#include "sim/nccl_model.h"

namespace plumbline::gloo {

class GlooDriver final : public StepDriver {
 public:
  GlooDriver(Transport& transport, RankStatus& status, Worker& worker, GlooOptions options,
             const LinkedProgram& linked)
      : status_(status), strict_(options.strict_host_order), backend_(transport, worker, options) {
    set_program(linked);
    status_.attach(backend_, options.epoch);
  }
  ~GlooDriver() override { status_.detach(); }

  std::string name() const override { return "gloo"; }
  std::string mode() const override { return strict_ ? "rendezvous+strict+warm" : "rendezvous+free+warm"; }
  void set_program(const LinkedProgram& linked) override { linked_ = &linked; }

  Result<SimStep> run_step(int step, RunRecord& record) override {
    backend_.set_step(step);
    PL_TRY(backend_.begin_step(*linked_));
    SimStep outcome;
    outcome.begin = backend_.now();
    Interpreter host(backend_, *linked_, static_cast<std::uint32_t>(backend_.thread()));
    status_.begin_step(step, *linked_, linked_->program->threads[backend_.thread()].begin);
    while (true) {
      const Advance at = host.advance();
      if (at.state == AdvanceState::kFailed) return tl::unexpected(at.error);
      status_.show(at.item_index, at.state == AdvanceState::kBlocked, host.arm());
      const Result<bool> ran = backend_.run_kernel();
      if (!ran) return tl::unexpected(ran.error());
      if (*ran) continue;
      if (at.state == AdvanceState::kFinished && backend_.idle()) break;
      PL_TRY(backend_.wait(at.state == AdvanceState::kBlocked ? at.waiting_for : 0));
    }
    status_.end_step();
    outcome.end = backend_.now();
    outcome.findings = backend_.end_step(host.arm(), record);
    outcome.decisions.assign(linked_->program->threads.size(), {});
    outcome.decisions[backend_.thread()] = host.decisions();
    return outcome;
  }

 private:
  RankStatus& status_;
  bool strict_;
  GlooBackend backend_;
  const LinkedProgram* linked_ = nullptr;
};

DriverFactory driver(Transport& transport, RankStatus& status, Nanoseconds epoch) {
  return [&transport, &status, epoch](const RunConfig& config, const LinkedProgram& linked,
                                      std::vector<Worker*> workers) -> std::unique_ptr<StepDriver> {
    PL_ASSERT_MSG(workers.size() == 1, "one process is one rank");
    const NcclModel model = model_of(config.sim);
    GlooOptions options;
    options.strict_host_order = model.cross == CrossComm::kStrict;
    options.launch_blocking = model.launch_blocking;
    options.epoch = epoch;
    return std::make_unique<GlooDriver>(transport, status, *workers.front(), options, linked);
  };
}

}  // namespace plumbline::gloo

#include "backends/gloo/driver.h"

#include <map>
#include <utility>

#include "engine/base/assert.h"
#include "engine/runtime/interpreter.h"
#include "sim/nccl_model.h"

namespace plumbline::gloo {

RankStatus::Position RankStatus::position() const {
  const std::lock_guard lock(mutex_);
  Position out = position_;
  if (out.in_step && backend_ != nullptr) out.kernel_item = backend_->running_item();
  return out;
}

std::uint64_t RankStatus::progress() const {
  const std::lock_guard lock(mutex_);
  return moves_.load(std::memory_order_relaxed) + (backend_ == nullptr ? 0 : backend_->progress());
}

std::vector<Operation> RankStatus::operations() const {
  const std::lock_guard lock(mutex_);
  return backend_ == nullptr || !position_.in_step ? std::vector<Operation>() : backend_->operations();
}

const LinkedProgram* RankStatus::program() const {
  const std::lock_guard lock(mutex_);
  return position_.in_step ? linked_ : nullptr;
}

bool RankStatus::watched() const {
  const std::lock_guard lock(mutex_);
  return position_.in_step || exchanging_.load();
}

class GlooDriver final : public StepDriver {
 public:
  GlooDriver(Transport& transport, RankStatus& status, Worker& worker, GlooOptions options,
             const LinkedProgram& linked)
      : status_(status), strict_(options.strict_host_order), backend_(transport, worker, options) {
    set_program(linked);
    const std::lock_guard lock(status_.mutex_);
    status_.backend_ = &backend_;
    status_.epoch_ = options.epoch;
  }
  ~GlooDriver() override {
    const std::lock_guard lock(status_.mutex_);
    status_.backend_ = nullptr;
    status_.position_.in_step = false;
  }

  std::string name() const override { return "gloo"; }
  std::string mode() const override { return strict_ ? "rendezvous+strict+warm" : "rendezvous+free+warm"; }
  void set_program(const LinkedProgram& linked) override {
    linked_ = &linked;
    numbers_.try_emplace(&linked, static_cast<int>(numbers_.size()));
  }

  Result<SimStep> run_step(int step, RunRecord& record) override {
    backend_.set_step(step);
    PL_TRY(backend_.begin_step(*linked_));
    SimStep outcome;
    outcome.begin = backend_.now();
    Interpreter host(backend_, *linked_, static_cast<std::uint32_t>(backend_.thread()));
    begin(step);
    while (true) {
      const Advance at = host.advance();
      if (at.state == AdvanceState::kFailed) return tl::unexpected(at.error);
      show(at, host.arm());
      const Result<bool> ran = backend_.run_kernel();
      if (!ran) return tl::unexpected(ran.error());
      if (*ran) continue;
      if (at.state == AdvanceState::kFinished && backend_.idle()) break;
      PL_TRY(backend_.wait(at.state == AdvanceState::kBlocked ? at.waiting_for : 0));
    }
    end();
    outcome.end = backend_.now();
    outcome.findings = backend_.end_step(host.arm(), record);
    outcome.decisions.assign(linked_->program->threads.size(), {});
    outcome.decisions[backend_.thread()] = host.decisions();
    return outcome;
  }

 private:
  void begin(int step) {
    const std::lock_guard lock(status_.mutex_);
    status_.position_ = {};
    status_.position_.program = numbers_.at(linked_);
    status_.position_.step = step;
    status_.position_.in_step = true;
    status_.position_.item = linked_->program->threads[backend_.thread()].begin;
    status_.linked_ = linked_;
    status_.moves_.fetch_add(1, std::memory_order_relaxed);
  }
  void show(const Advance& at, int arm) {
    const std::lock_guard lock(status_.mutex_);
    if (status_.position_.item != at.item_index) status_.moves_.fetch_add(1, std::memory_order_relaxed);
    status_.position_.item = at.item_index;
    status_.position_.blocked = at.state == AdvanceState::kBlocked;
    status_.position_.arm = arm;
  }
  void end() {
    const std::lock_guard lock(status_.mutex_);
    status_.position_.in_step = false;
    status_.moves_.fetch_add(1, std::memory_order_relaxed);
  }

  RankStatus& status_;
  bool strict_;
  GlooBackend backend_;
  const LinkedProgram* linked_ = nullptr;
  std::map<const LinkedProgram*, int> numbers_;  // in the order of first use
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

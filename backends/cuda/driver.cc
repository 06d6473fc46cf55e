#include "backends/cuda/driver.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "engine/base/assert.h"
#include "engine/runtime/interpreter.h"
#include "sim/examine.h"
#include "sim/positions.h"
#include "sim/verify/check.h"
#include "sim/verify/matching.h"

namespace plumbline::cuda {
namespace {

class SteadyClock final : public HostClock {
 public:
  explicit SteadyClock(std::chrono::steady_clock::time_point start) : start_(start) {}
  Nanoseconds now() override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start_)
        .count();
  }
  void idle() override { std::this_thread::sleep_for(std::chrono::microseconds(20)); }

 private:
  std::chrono::steady_clock::time_point start_;
};

tl::unexpected<Error> gave_up() { return fail(ErrorCode::kTimeout, "the run was given up"); }

}  // namespace

std::unique_ptr<HostClock> steady_clock() {
  return std::make_unique<SteadyClock>(std::chrono::steady_clock::now());
}

std::unique_ptr<HostClock> steady_clock(Nanoseconds epoch) {
  return std::make_unique<SteadyClock>(
      std::chrono::steady_clock::time_point(std::chrono::nanoseconds(epoch)));
}

// The hosts of the served ranks.
struct CudaDriver::Hosts {
  Hosts(CudaBackend& backend, const LinkedProgram& linked) : threads(backend.threads()) {
    for (const std::uint32_t thread : threads) interpreters.emplace_back(backend, linked, thread);
    last.resize(threads.size());
    positions.resize(threads.size(), 0);
  }

  // Every host goes on as far as it can; whether any moved.
  Result<bool> advance() {
    bool moved = false;
    for (std::size_t i = 0; i < interpreters.size(); ++i) {
      if (started && last[i].state == AdvanceState::kFinished) continue;
      const Advance before = last[i];
      last[i] = interpreters[i].advance();
      if (last[i].state == AdvanceState::kFailed) return tl::unexpected(last[i].error);
      moved = moved || !started || before.state != last[i].state || before.item_index != last[i].item_index ||
              before.waiting_for != last[i].waiting_for;
    }
    started = true;
    return moved;
  }
  bool finished() const {
    return std::all_of(last.begin(), last.end(),
                       [](const Advance& at) { return at.state == AdvanceState::kFinished; });
  }

  std::vector<std::uint32_t> threads;
  std::vector<Interpreter> interpreters;
  std::vector<Advance> last;
  std::vector<std::uint32_t> positions;
  bool started = false;
};

CudaDriver::CudaDriver(CudaBackend& backend, HostClock& clock, DriverOptions options)
    : backend_(&backend), clock_(&clock), options_(options) {
  PL_ASSERT(options.status == nullptr || backend.threads().size() == 1);
}

// A graph's sends wait for their receivers and its launch is one thing, so that a Program may stand still as graphs and
// in no other way.
Status CudaDriver::judge_graphs(const LinkedProgram& linked) const {
  const Result<ModeVerdict> verdict = examine_mode(linked, options_.graphs, TimeModel{});
  if (!verdict) return tl::unexpected(verdict.error());
  if (verdict->completes && verdict->findings.empty()) return {};
  const Finding* finding = verdict->findings.empty() ? nullptr : &verdict->findings.front();
  for (const Finding& other : verdict->findings)
    if (other.kind == FindingKind::kDeadlock && finding->kind != FindingKind::kDeadlock) finding = &other;
  std::string why = finding == nullptr ? "it does not complete" : finding->why;
  if (why.ends_with('.')) why.pop_back();
  return fail(
      ErrorCode::kState,
      fmt::format("nothing is captured: launched as CUDA graphs (N18, N37), {} does not hold under {}: {}; "
                  "'plumbline check' shows all of it, and without --cuda-graphs it may run",
                  linked.program->name, options_.graphs.name(), why));
}

Status CudaDriver::set_program(const LinkedProgram& linked) {
  if (given_up()) return gave_up();
  linked_ = &linked;
  if (linked.program->extras.graphs) PL_TRY(judge_graphs(linked));
  PL_TRY(backend_->set_program(linked));
  crossed_ = is_provable(linked) ? verify::crossed_labels(verify::make_world(linked))
                                 : std::array<std::vector<Finding>, 2>{};
  const Status there = wait_for_communicators();
  if (options_.status != nullptr) options_.status->await("");
  return there;
}

Status CudaDriver::wait_for_communicators() {
  const Nanoseconds begin = clock_->now();
  while (true) {
    const Poll poll = backend_->transport().ready();
    if (poll.state == PollState::kDone) return {};
    if (poll.state == PollState::kFailed) return fail(ErrorCode::kState, poll.reason);
    if (options_.status != nullptr) options_.status->await("makes communicators: " + poll.reason);
    if (given_up()) {
      backend_->transport().abort();
      return gave_up();
    }
    if (options_.status == nullptr && clock_->now() - begin >= options_.timeout) {
      backend_->transport().abort();
      return fail(ErrorCode::kTimeout,
                  fmt::format("after {}: {}; every rank must have started, and all make the "
                              "same communicators in the same order",
                              format_duration(options_.timeout), poll.reason));
    }
    clock_->idle();
  }
}

void CudaDriver::show(const Hosts& hosts) const {
  if (options_.status == nullptr) return;
  const Advance& at = hosts.last.front();
  options_.status->show(at.item_index, at.state == AdvanceState::kBlocked, hosts.interpreters.front().arm());
}

// Until all hosts have finished and everything is complete; false: they stand still.
Result<bool> CudaDriver::run_hosts(Hosts& hosts) {
  Nanoseconds quiet_since = clock_->now();
  std::size_t completed = 0;
  while (true) {
    Result<bool> moved = hosts.advance();
    if (std::optional<Error> error = backend_->kernel_error(); error && moved)
      moved = tl::unexpected(std::move(*error));
    if (!moved) return moved;
    show(hosts);
    if (hosts.finished() && backend_->all_complete()) return true;
    const std::size_t now_completed = *moved ? completed : backend_->completed();
    if (*moved || now_completed != completed) {
      quiet_since = clock_->now();
      completed = now_completed;
      if (*moved) continue;
    }
    clock_->idle();
    if (given_up()) return gave_up();
    if (options_.status == nullptr && clock_->now() - quiet_since >= options_.timeout) return false;
  }
}

Result<SimStep> CudaDriver::run_step(int step, RunRecord& record) {
  if (ended_) return fail(ErrorCode::kState, "a step before this one did not end well, so nothing more runs");
  PL_TRY(backend_->begin_step(*linked_));
  SimStep outcome;
  outcome.begin = clock_->now();
  Hosts hosts(*backend_, *linked_);
  if (options_.status != nullptr)
    options_.status->begin_step(step, *linked_, linked_->program->threads[hosts.threads.front()].begin);
  const Result<bool> ran = run_hosts(hosts);
  if (!ran) {
    ended_ = true;
    static_cast<void>(abort_and_drain());
    return tl::unexpected(ran.error());  // the status keeps where it was
  }
  if (options_.status != nullptr) options_.status->end_step();
  outcome.completed = *ran;
  outcome.end = clock_->now();
  std::vector<Finding> standstill;
  if (!outcome.completed) {
    ended_ = true;
    Result<Finding> finding = explain(hosts);
    PL_TRY(abort_and_drain());
    if (!finding) return tl::unexpected(finding.error());
    standstill.push_back(std::move(*finding));
  }
  Result<std::vector<Finding>> findings = backend_->end_step(step, outcome.completed, outcome.begin, record);
  if (!findings) return tl::unexpected(findings.error());
  outcome.findings = std::move(standstill);
  outcome.findings.insert(outcome.findings.end(), std::make_move_iterator(findings->begin()),
                          std::make_move_iterator(findings->end()));
  if (outcome.completed) add_crossed(hosts, outcome.findings);
  outcome.decisions.resize(linked_->program->threads.size());
  for (std::size_t i = 0; i < hosts.threads.size(); ++i)
    outcome.decisions[hosts.threads[i]] = hosts.interpreters[i].decisions();
  return outcome;
}

// Bytes arrived, whatever they were sent as; every process has the whole Program, so the receiver's says what was
// wrong.
void CudaDriver::add_crossed(const Hosts& hosts, std::vector<Finding>& findings) const {
  for (std::size_t i = 0; i < hosts.threads.size(); ++i) {
    const Rank rank = linked_->program->threads[hosts.threads[i]].rank;
    for (const Finding& finding : crossed_[hosts.interpreters[i].arm() == 0 ? 0 : 1])
      if (finding.operations.front().rank == rank) findings.push_back(finding);
  }
}

Result<Finding> CudaDriver::explain(const Hosts& hosts) const {
  std::vector<HostPosition> positions(linked_->program->threads.size());
  double taken = 0.0;
  for (std::size_t i = 0; i < hosts.threads.size(); ++i) {
    const Advance& last = hosts.last[i];
    HostPosition& position = positions[hosts.threads[i]];
    position.state = last.state == AdvanceState::kFinished ? HostPosition::State::kFinished
                                                           : HostPosition::State::kBlocked;
    position.item = last.item_index;
    if (hosts.interpreters[i].arm() == 1) taken = 1.0;
  }
  Result<Stall> stall = explain_positions(*linked_, options_.model, positions, taken);
  if (!stall) return tl::unexpected(stall.error());
  if (stall->deadlock) return std::move(*stall->deadlock);
  Finding finding;
  finding.kind = FindingKind::kDeadlock;
  finding.cause = "late";
  finding.operations = std::move(stall->late);
  finding.why = fmt::format(
      "Nothing has moved for {}, and by NCCL's rules nothing holds {}.", format_duration(options_.timeout),
      finding.operations.empty()
          ? std::string("anybody")
          : fmt::format("rank {} at {}", finding.operations.front().rank, finding.operations.front().text));
  return finding;
}

// Ends everything that is enqueued. An aborted transport lets streams run dry; one that does not is a device in
// trouble.
Status CudaDriver::abort_and_drain() {
  const Nanoseconds begin = clock_->now();
  do {
    backend_->transport().abort();
    if (backend_->drained()) return {};
    clock_->idle();
  } while (clock_->now() - begin < options_.timeout);
  return fail(ErrorCode::kTimeout, "after the abort, work is still left on the device");
}

}  // namespace plumbline::cuda

#include "sim/verify/check.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "engine/base/hash.h"
#include "sim/nccl_model.h"
#include "sim/simulator.h"
#include "sim/verify/agreement.h"
#include "sim/verify/ahead.h"
#include "sim/verify/cold.h"
#include "sim/verify/coverage.h"
#include "sim/verify/gradient_sync.h"
#include "sim/verify/host_pass.h"
#include "sim/verify/matching.h"
#include "sim/verify/progress.h"
#include "sim/verify/reduced.h"
#include "sim/verify/timing.h"
#include "sim/verify/witness.h"
#include "sim/verify/world.h"

namespace plumbline {
namespace verify {
namespace {

bool same(const Finding& a, const Finding& b) {
  return a.kind == b.kind && a.why == b.why && a.operations.size() == b.operations.size() &&
         std::equal(a.operations.begin(), a.operations.end(), b.operations.begin(),
                    [](const OperationRef& x, const OperationRef& y) {
                      return x.rank == y.rank && x.item == y.item;
                    });
}

void merge(std::vector<Finding>& into, std::vector<Finding> more) {
  for (Finding& finding : more) {
    const auto is = [&](const Finding& f) { return same(f, finding); };
    if (std::none_of(into.begin(), into.end(), is)) into.push_back(std::move(finding));
  }
}

class Check {
 public:
  // `reduced`: null, or what the Program stands for. `ahead`: null, or the Program that comes next.
  Check(const LinkedProgram& linked, const CheckOptions& options, Reduced* reduced = nullptr,
        Ahead* ahead = nullptr)
      : linked_(linked),
        program_(*linked.program),
        options_(options),
        reduced_(reduced),
        ahead_(ahead),
        world_(make_world(linked)) {}

  Result<Verdict> run() {
    verdict_.program = program_.name;
    if (options_.makespan && !shares_cores())
      set_durations(world_, options_.time, reduced_ == nullptr ? nullptr : &reduced_->members);
    if (ahead_ != nullptr) ahead_->plan(world_.ranges + 5);
    fetch_ahead();
    hosts();
    merge(verdict_.findings, check_coverage(world_, facts_of_));
    fetch_ahead();
    merge(verdict_.findings, check_agreement(world_, facts_of_));
    const SyncReplicas replicas =
        reduced_ == nullptr ? SyncReplicas{} : SyncReplicas{reduced_->replicas, &reduced_->members};
    merge(verdict_.findings, check_gradient_sync(world_, facts_of_, replicas));
    memory_limit();
    fetch_ahead();
    static const std::string kCertification = certification_model().name(), kDefault = default_model().name();
    certification_.mode = kCertification;
    default_.mode = kDefault;
    PL_TRY(modes());
    verdict_.modes.reserve(2);
    verdict_.modes.push_back(std::move(certification_));
    verdict_.modes.push_back(std::move(default_));
    return std::move(verdict_);
  }

 private:
  void fetch_ahead() {
    if (ahead_ != nullptr) ahead_->step();
  }

  // One host pass a distinct range of items; ranks that share it share its facts.
  void hosts() {
    HostPass pass(world_);
    facts_.reserve(world_.ranges);
    facts_of_.reserve(world_.threads());
    verdict_.memory.reserve(world_.threads());
    for (std::size_t t = 0; t < world_.threads(); ++t) {
      if (world_.range_of[t] != facts_.size()) continue;
      pass.run(t, facts_.emplace_back());
      fetch_ahead();
    }
    ScratchVector<std::uint64_t> trace;  // of every thread its rank and the hash of its items
    trace.reserve(world_.threads() * 2);
    for (std::size_t t = 0; t < world_.threads(); ++t) {
      RangeFacts& facts = facts_[world_.range_of[t]];
      facts_of_.push_back(&facts);
      verdict_.operations += facts.operations;
      // Words are copied where ranks share them only.
      if (world_.ranges == world_.threads()) {
        verdict_.memory.push_back(std::move(facts.memory));
      } else {
        verdict_.memory.push_back(facts.memory);
      }
      trace.push_back(static_cast<std::uint64_t>(program_.threads[t].rank));
      trace.push_back(facts.hash);
      if (reduced_ != nullptr) reduced_->hashes.push_back(facts.hash);
    }
    verdict_.trace_hash = hash64(trace);
    for (RangeFacts& facts : facts_) {
      streams_ = std::max(streams_, facts.streams);
      two_arms_ = two_arms_ || !facts.decisions.empty();
      arms_connect_ = arms_connect_ || !same_uses(facts);
      verdict_.findings.insert(verdict_.findings.end(), std::make_move_iterator(facts.findings.begin()),
                               std::make_move_iterator(facts.findings.end()));
    }
  }

  static bool same_uses(const RangeFacts& facts) {
    const auto& [yes, no] = facts.first_uses;
    return std::equal(yes.begin(), yes.end(), no.begin(), no.end(), [](const FirstUse& a, const FirstUse& b) {
      return a.item == b.item && a.need == b.need;
    });
  }

  void memory_limit() {
    if (options_.memory_limit <= 0) return;
    for (std::size_t t = 0; t < verdict_.memory.size(); ++t) {
      const RankMemory& memory = verdict_.memory[t];
      if (memory.peak <= options_.memory_limit) continue;
      Finding finding;
      finding.kind = FindingKind::kMemoryLimit;
      finding.operations.push_back(
          world_.operation(t, memory.peak_item < 0 ? kNone32 : static_cast<std::uint32_t>(memory.peak_item)));
      finding.why = fmt::format("rank {} needs {} at its peak, the limit is {}", t, format_bytes(memory.peak),
                                format_bytes(options_.memory_limit));
      verdict_.findings.push_back(std::move(finding));
    }
  }

  Progress fresh_progress() const {
    std::optional<Timing> timing;
    if (options_.makespan && !shares_cores()) timing.emplace(world_, options_.time, streams_);
    return Progress(world_, facts_of_, std::move(timing));
  }

  // Arm yes first, so that what is left in `certification_` and `default_` at the end are the times of arm
  // no: the one without overflow, which simulate() takes too.
  Status modes() {
    if (!two_arms_) return walk(Arm::kNo, fresh_progress(), started(Arm::kNo));
    if (arms_connect_) {
      PL_TRY(walk(Arm::kYes, fresh_progress(), started(Arm::kYes)));
      return walk(Arm::kNo, fresh_progress(), started(Arm::kNo));
    }
    Progress progress = fresh_progress();
    ColdConnect cold = started(Arm::kNo);
    progress.run(Arm::kNone, cold);
    PL_TRY(walk(Arm::kYes, progress, cold));
    return walk(Arm::kNo, std::move(progress), std::move(cold));
  }

  ColdConnect started(Arm arm) {
    ColdConnect cold(world_, facts_of_, arm);
    fetch_ahead();
    cold.start();
    return cold;
  }

  Status walk(Arm arm, Progress progress, ColdConnect cold) {
    progress.run(arm, cold);
    fetch_ahead();
    const bool completed = progress.completed();
    if (!completed || progress.mismatched()) merge(verdict_.findings, explain_matching(world_, arm));
    merge(certification_.findings, cold.findings());
    if (!completed) {
      certification_.completes = false;
      merge(certification_.findings, {witness(world_, progress, cold, arm)});
      return simulate_default(arm);
    }
    if (options_.makespan && shares_cores()) return simulated_makespans(arm);
    const Lanes makespan = progress.makespan();
    if (!makespan.exact()) return simulated_makespans(arm);
    certification_.makespan = makespan.nanoseconds(0);
    default_.makespan = makespan.nanoseconds(1);
    if (options_.makespan && cold.overtakes()) return certification_makespan(arm);
    return {};
  }

  Result<SimStep> simulated(const NcclModel& model, Arm arm) const {
    SimOptions options;
    options.model = model;
    options.time = options_.time;
    options.record_events = false;
    options.record_memory = false;
    options.read_value = arm == Arm::kYes ? 1.0 : 0.0;
    RunRecord record;
    return Simulator(linked_, options).run_step(0, record);
  }

  Status simulate_default(Arm arm) {
    Result<SimStep> step = simulated(default_model(), arm);
    if (!step) return tl::unexpected(step.error());
    if (step->completed) {
      default_.makespan = step->end - step->begin;
      return {};
    }
    default_.completes = false;
    for (Finding& finding : step->findings) {
      if (finding.kind == FindingKind::kDeadlock) merge(default_.findings, {std::move(finding)});
    }
    return {};
  }

  bool shares_cores() const { return options_.time.cores() > 0; }

  // Where ranks share cores, how long a kernel takes depends on all that run beside it, and the one traversal does not
  // meet them in the order of time.
  Status simulated_makespans(Arm arm) {
    PL_TRY(certification_makespan(arm));
    const Result<SimStep> step = simulated(default_model(), arm);
    if (!step) return tl::unexpected(step.error());
    default_.makespan = step->end - step->begin;
    return {};
  }

  // Where a host connects before its device has come as far, one cursor a rank does not tell when.
  Status certification_makespan(Arm arm) {
    if (reduced_ != nullptr)
      return fail(ErrorCode::kUnsupported, "the simulator has no members that are not there");
    const Result<SimStep> step = simulated(certification_model(), arm);
    if (!step) return tl::unexpected(step.error());
    certification_.makespan = step->end - step->begin;
    return {};
  }

  const LinkedProgram& linked_;
  const Program& program_;
  const CheckOptions& options_;
  Reduced* reduced_;
  Ahead* ahead_;
  CheckWorld world_;
  ScratchVector<RangeFacts> facts_;
  ScratchVector<const RangeFacts*> facts_of_;
  int streams_ = 1;
  bool two_arms_ = false;
  bool arms_connect_ = false;
  Verdict verdict_;
  ModeVerdict certification_, default_;
};

}  // namespace

Result<Verdict> check_reduced(const LinkedProgram& linked, const CheckOptions& options, Reduced& reduced) {
  const ScratchScope scope;
  return Check(linked, options, &reduced).run();
}

Result<Verdict> check_ahead(const LinkedProgram& linked, const CheckOptions& options, Ahead& ahead) {
  if (!is_provable(linked)) return check_program(linked, options);
  const ScratchScope scope;
  return Check(linked, options, nullptr, &ahead).run();
}

}  // namespace verify

namespace {

// Each group of the thread sends to itself as often as it receives from itself, by communicator.
bool pairs_own_messages(const LinkedProgram& linked, std::size_t thread) {
  const Program& program = *linked.program;
  std::map<std::int32_t, int> surplus;
  for (const Item item : program.thread_items(thread)) {
    if (item_op(item) != ItemOp::kOp) continue;
    const LinkedEndpoint& row = linked.at(thread, item_ref(item));
    const EndpointKind kind = program.endpoints[item_ref(item)].kind;
    if (is_p2p(kind) && row.peer_position == row.position)
      surplus[row.communicator] += kind == EndpointKind::kSend ? 1 : -1;
    if ((item_flags(item) & kMore) != 0) continue;
    for (const auto& [communicator, count] : surplus) {
      if (count != 0) return false;
    }
    surplus.clear();
  }
  return true;
}

}  // namespace

bool is_provable(const LinkedProgram& linked) {
  const Program& program = *linked.program;
  if (!is_plain(program)) return false;
  if (!linked.own_messages) return true;
  for (std::size_t t = 0; t < linked.windows.size(); ++t) {
    const LinkedProgram::Window& window = linked.windows[t];
    for (std::uint32_t i = 0; i < window.count; ++i) {
      const LinkedEndpoint& row = linked.endpoints[window.base + i];
      if (row.communicator < 0 || row.peer_position != row.position ||
          !is_p2p(program.endpoints[window.first + i].kind))
        continue;
      if (!pairs_own_messages(linked, t)) return false;
      break;
    }
  }
  return true;
}

Result<Verdict> check_program(const LinkedProgram& linked, const CheckOptions& options) {
  if (!is_provable(linked)) {
    return fail(ErrorCode::kUnsupported,
                "the proof takes one host thread a rank, no calls on communicators, no extras, and messages "
                "to oneself only "
                "beside their receives; examine this by simulation");
  }
  const verify::ScratchScope scope;
  return verify::Check(linked, options).run();
}

}  // namespace plumbline

// What must hold between the modes, for any program of one host thread a rank: the weaker mode completes, and is free
// of findings, whenever the stronger one is. And what must hold of the simulator itself: the same run twice, time that
// only grows with latency.
//
// A longer campaign: RC_PARAMS="max_success=100000" test_sim --gtest_filter='SimProperties.*'
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "sim/scenario/examine.h"
#include "tests/sim/random_program.h"

namespace plumbline::test {
namespace {

NcclModel with(NcclModel model, Bytes eager_bytes) {
  model.send = SendCompletion::kEager;
  model.eager_bytes = eager_bytes;
  return model;
}
NcclModel with(NcclModel model, CrossComm cross) { return model.cross = cross, model; }
NcclModel with(NcclModel model, Connect connect) { return model.connect = connect, model; }

TimeModel time_with(Nanoseconds latency) {
  RunConfig config;
  config.time.forward = {50};
  config.time.link = {latency, 1e9};
  return TimeModel(config);
}

bool is_ok(const ModeVerdict& verdict) { return verdict.completes && reference_value(verdict) == "OK"; }
// The weaker mode does what the stronger one does.
void implies(const ModeVerdict& stronger, const ModeVerdict& weaker) {
  RC_ASSERT(weaker.completes || !stronger.completes);
  RC_ASSERT(is_ok(weaker) || !is_ok(stronger));
}

RC_GTEST_PROP(SimProperties, RendezvousCompletesThenEagerDoesAtAnyLimit, ()) {
  const Program program = random_program();
  ModeVerdict before = run_tiny(program, default_model());
  for (const Bytes limit : {0, 8, 63, 64, 128, 100000}) {
    ModeVerdict now = run_tiny(program, with(default_model(), limit));
    implies(before, now);  // a larger limit only helps
    before = std::move(now);
  }
  NcclModel always;
  always.send = SendCompletion::kAlwaysEager;
  implies(before, run_tiny(program, always));
}

RC_GTEST_PROP(SimProperties, StrictCompletesThenFreeDoes, ()) {
  const Program program = random_program();
  implies(run_tiny(program, with(default_model(), CrossComm::kStrict)), run_tiny(program, default_model()));
}

RC_GTEST_PROP(SimProperties, ColdCompletesThenWarmDoes, ()) {
  const Program program = random_program();
  implies(run_tiny(program, with(default_model(), Connect::kCold)), run_tiny(program, default_model()));
}

RC_GTEST_PROP(SimProperties, CertifiedCompletesThenEveryModeDoes, ()) {
  const Program program = random_program();
  const ModeVerdict certified = run_tiny(program, certification_model());
  if (!certified.completes) return;
  for (const CrossComm cross : {CrossComm::kFree, CrossComm::kStrict, CrossComm::kLaunchOrder}) {
    for (const Connect connect : {Connect::kWarm, Connect::kCold}) {
      const NcclModel model = with(with(default_model(), cross), connect);
      implies(certified, run_tiny(program, model));
      implies(certified, run_tiny(program, with(model, 64)));
    }
  }
}

RC_GTEST_PROP(SimProperties, StrictAndLaunchBlockingAgree, ()) {
  const Program program = random_program();
  NcclModel blocking;
  blocking.launch_blocking = true;
  const ModeVerdict held = run_tiny(program, blocking);
  const ModeVerdict strict = run_tiny(program, with(default_model(), CrossComm::kStrict));
  implies(held, strict);
  implies(strict, held);
}

// Strict does not imply cold: the two halves of a certification are both needed.
TEST(SimProperties, StrictMayCompleteWhereColdDoesNot) {
  TinyProgram tiny(3);
  const int c = tiny.comm("c", {0, 1, 2});
  const int s = tiny.stream("s");
  tiny.group(0, s, {send(c, 1), send(c, 2)});
  tiny.group(1, s, {recv(c, 0)}).group(1, s, {send(c, 2)});
  tiny.group(2, s, {recv(c, 0), recv(c, 1)});
  const Program& program = tiny.finish();
  EXPECT_TRUE(run_tiny(program, with(default_model(), CrossComm::kStrict)).completes);
  EXPECT_FALSE(run_tiny(program, with(default_model(), Connect::kCold)).completes);
}

RC_GTEST_PROP(SimProperties, MoreLatencyIsNeverFaster, ()) {
  const Program program = random_program();
  Nanoseconds before = 0;
  for (const Nanoseconds latency : {0, 10, 1000}) {
    const ModeVerdict verdict = run_tiny(program, default_model(), time_with(latency));
    if (!verdict.completes) return;
    RC_ASSERT(verdict.makespan >= before);
    before = verdict.makespan;
  }
}

RC_GTEST_PROP(SimProperties, EagerIsNeverSlower, ()) {
  const Program program = random_program();
  const ModeVerdict rendezvous = run_tiny(program, default_model(), time_with(100));
  if (!rendezvous.completes) return;
  RC_ASSERT(run_tiny(program, with(default_model(), 100000), time_with(100)).makespan <= rendezvous.makespan);
}

RC_GTEST_PROP(SimProperties, TwoRunsAreOne, ()) {
  const Program program = random_program();
  const LinkedProgram linked = link_program(program).value();
  std::vector<std::uint64_t> digests;
  for (int run = 0; run < 2; ++run) {
    SimOptions options;
    options.time = time_with(100);
    Simulator simulator(linked, options);
    RunRecord record = record_for(program);
    const bool completed = simulator.run_step(0, record).value().completed;
    if (completed) RC_ASSERT(simulator.run_step(1, record).value().completed);
    digests.push_back(record.digest());
  }
  RC_ASSERT(digests[0] == digests[1]);
}

RC_GTEST_PROP(SimProperties, ADeadlockIsExplained, ()) {
  const Program program = random_program();
  const ModeVerdict verdict = run_tiny(program, certification_model());
  if (verdict.completes) return;
  RC_ASSERT(has(verdict, FindingKind::kDeadlock));
  for (const Finding& finding : verdict.findings) {
    if (finding.kind != FindingKind::kDeadlock) continue;
    RC_ASSERT(!finding.operations.empty());
    // Either a circle, or something that never comes; or two hosts that failed in a connection.
    bool never = has(verdict, FindingKind::kCrossWired);
    for (const WaitEdge& wait : finding.waits)
      never = never || wait.to.text.find("never posts") != std::string::npos;
    RC_ASSERT(never || !finding.cycle.empty());
    for (std::size_t i = 0; i < finding.cycle.size(); ++i) {
      const WaitEdge& after = finding.cycle[(i + 1) % finding.cycle.size()];
      RC_ASSERT(finding.cycle[i].to.rank == after.from.rank && finding.cycle[i].to.text == after.from.text);
    }
  }
}

}  // namespace
}  // namespace plumbline::test

// What must hold between the modes, for any program of one host thread a rank: the weaker mode completes
// whenever the stronger one does. And what must hold of the simulator itself: the same run twice, time that
// only grows with latency.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "tests/sim/tiny_program.h"

namespace plumbline::test {
namespace {

// Programs that are mostly right: matched operations are dealt to both ends in one global order, then cut
// into groups and slightly damaged.
Program random_program() {
  const int ranks = *rc::gen::inRange(2, 5);
  TinyProgram tiny(ranks);
  const int comms = *rc::gen::inRange(1, 4);
  std::vector<Rank> all;
  for (Rank r = 0; r < ranks; ++r) all.push_back(r);
  for (int c = 0; c < comms; ++c) tiny.comm("c" + std::to_string(c), all);
  const int streams = *rc::gen::inRange(1, 4);
  for (int s = 0; s < streams; ++s) tiny.stream("s" + std::to_string(s));

  std::vector<std::vector<TinyOp>> pending(static_cast<std::size_t>(ranks));
  const auto flush = [&](Rank rank) {
    auto& ops = pending[static_cast<std::size_t>(rank)];
    if (ops.empty()) return;
    const unsigned flags = *rc::gen::element(0u, 0u, unsigned{kAfterCompute}, unsigned{kComputeWaits},
                                             unsigned{kHostWaits}, unsigned{kAfterCompute | kComputeWaits});
    tiny.group(rank, *rc::gen::inRange(0, streams + 1), ops, flags);
    ops.clear();
  };
  const auto give = [&](Rank rank, TinyOp op) {
    auto& ops = pending[static_cast<std::size_t>(rank)];
    if (!ops.empty() && (ops.front().comm != op.comm || *rc::gen::inRange(0, 3) == 0)) flush(rank);
    ops.push_back(op);
  };
  const int messages = *rc::gen::inRange(1, 14);
  for (int i = 0; i < messages; ++i) {
    const int comm = *rc::gen::inRange(0, comms);
    const int what = *rc::gen::inRange(0, 10);
    if (what == 0) {
      for (Rank r = 0; r < ranks; ++r) give(r, all_reduce(comm, 64));
    } else if (what == 1) {
      const Rank rank = *rc::gen::inRange(0, ranks);
      flush(rank);
      tiny.launch(rank, *rc::gen::inRange(0, streams + 1));
      if (*rc::gen::inRange(0, 3) == 0) tiny.sync_device(rank);
    } else {
      const Rank from = *rc::gen::inRange(0, ranks);
      const Rank to = (from + *rc::gen::inRange(1, ranks)) % ranks;
      const Bytes bytes = *rc::gen::element<Bytes>(0, 8, 64, 100);
      // One end in twelve is dropped.
      const int drop = *rc::gen::inRange(0, 24);
      if (drop != 0) give(from, send(comm, to, bytes, i));
      if (drop != 1) give(to, recv(comm, from, bytes, i));
    }
  }
  for (Rank r = 0; r < ranks; ++r) flush(r);
  return tiny.finish();
}

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

RC_GTEST_PROP(SimProperties, RendezvousCompletesThenEagerDoesAtAnyLimit, ()) {
  const Program program = random_program();
  const bool rendezvous = run_tiny(program, default_model()).completes;
  bool before = rendezvous;
  for (const Bytes limit : {0, 8, 63, 64, 128, 100000}) {
    const bool now = run_tiny(program, with(default_model(), limit)).completes;
    RC_ASSERT(now || !before);  // a larger limit only helps
    before = now;
  }
  NcclModel always;
  always.send = SendCompletion::kAlwaysEager;
  RC_ASSERT(run_tiny(program, always).completes || !before);
}

RC_GTEST_PROP(SimProperties, StrictCompletesThenFreeDoes, ()) {
  const Program program = random_program();
  const bool strict = run_tiny(program, with(default_model(), CrossComm::kStrict)).completes;
  RC_ASSERT(!strict || run_tiny(program, default_model()).completes);
}

RC_GTEST_PROP(SimProperties, ColdCompletesThenWarmDoes, ()) {
  const Program program = random_program();
  const bool cold = run_tiny(program, with(default_model(), Connect::kCold)).completes;
  RC_ASSERT(!cold || run_tiny(program, default_model()).completes);
}

RC_GTEST_PROP(SimProperties, CertifiedCompletesThenEveryModeDoes, ()) {
  const Program program = random_program();
  if (!run_tiny(program, certification_model()).completes) return;
  for (const CrossComm cross : {CrossComm::kFree, CrossComm::kStrict}) {
    for (const Connect connect : {Connect::kWarm, Connect::kCold}) {
      const NcclModel model = with(with(default_model(), cross), connect);
      RC_ASSERT(run_tiny(program, model).completes);
      RC_ASSERT(run_tiny(program, with(model, 64)).completes);
    }
  }
}

RC_GTEST_PROP(SimProperties, StrictAndLaunchBlockingAgree, ()) {
  const Program program = random_program();
  NcclModel blocking;
  blocking.launch_blocking = true;
  RC_ASSERT(run_tiny(program, blocking).completes ==
            run_tiny(program, with(default_model(), CrossComm::kStrict)).completes);
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

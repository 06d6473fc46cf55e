// A deadlock as the simulator reports it: ranks 0 and 1 both send before they receive, ranks 2 and 3 wait for
// them.
#pragma once

#include <string>

#include "sim/verdict.h"

namespace plumbline::sample {

inline OperationRef op(Rank rank, std::int64_t item, std::int32_t microbatch, std::string text) {
  return {rank, item, microbatch, std::move(text)};
}

inline Verdict deadlock_verdict() {
  const OperationRef send0 = op(0, 12, 1, "0SEND_F1 to rank 1"), recv0 = op(0, 13, 0, "0RECV_B0 from rank 1");
  const OperationRef send1 = op(1, 40, 0, "1SEND_B0 to rank 0"), recv1 = op(1, 41, 1, "1RECV_F1 from rank 0");
  const OperationRef recv2 = op(2, 70, 1, "2RECV_F1 from rank 1"),
                     send1f = op(1, 43, 1, "1SEND_F1 to rank 2");
  const OperationRef recv3 = op(3, 90, 1, "3RECV_F1 from rank 2"),
                     send2f = op(2, 73, 1, "2SEND_F1 to rank 3");
  Finding finding;
  finding.kind = FindingKind::kDeadlock;
  finding.operations = {send0, send1};
  finding.why =
      "Both ranks post their send before their receive, and a rendezvous send ends only when its receive "
      "runs.";
  finding.cycle = {{send0, recv1, "needs its receive"},
                   {recv1, send1, "is behind it in communicator pp[0]"},
                   {send1, recv0, "needs its receive"},
                   {recv0, send0, "is behind it in communicator pp[0]"}};
  finding.waits = finding.cycle;
  finding.waits.push_back({recv2, send1f, "needs its send"});
  finding.waits.push_back({send1f, recv1, "is behind it in communicator pp[0]"});
  finding.waits.push_back({recv3, send2f, "needs its send"});
  finding.waits.push_back({send2f, recv2, "host has not got to it yet"});
  Verdict verdict;
  verdict.program = "1f1b, 4 ranks, 8 microbatches, separate p2p";
  verdict.operations = 272;
  ModeVerdict strict;
  strict.mode = "rendezvous+strict+cold";
  strict.completes = false;
  strict.findings = {finding};
  ModeVerdict eager;
  eager.mode = "eager(64 KiB)+free+warm";
  eager.makespan = 33'000'000;
  verdict.modes = {strict, eager};
  for (int r = 0; r < 4; ++r) {
    RankMemory memory;
    memory.peak = (640LL + 96 * (4 - r)) << 20;
    memory.peak_activations = (96LL * (4 - r)) << 20;
    memory.peak_item = 30;
    memory.peak_text = std::to_string(r) + "F" + std::to_string(3 - r);
    memory.live_stashes = 4 - r;
    verdict.memory.push_back(memory);
  }
  return verdict;
}

inline Verdict holding_verdict() {
  Verdict verdict = deadlock_verdict();
  verdict.program = "1f1b, 4 ranks, 8 microbatches";
  verdict.modes[0] = {"rendezvous+strict+cold", true, {}, 33'000'000};
  verdict.modes[1] = {"rendezvous", true, {}, 33'000'000};
  return verdict;
}

}  // namespace plumbline::sample

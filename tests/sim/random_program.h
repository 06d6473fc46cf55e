// Random Programs that communicate, for properties: drawn with RapidCheck, one host thread a rank.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <rapidcheck.h>

#include "tests/sim/tiny_program.h"

namespace plumbline::test {

// Programs that are mostly right: matched operations are dealt to both ends in one global order, then cut
// into groups and slightly damaged.
inline std::vector<Rank> random_members(int ranks, int comm) {
  std::vector<Rank> members;
  for (Rank r = 0; r < ranks; ++r) {
    if (comm == 0 || *rc::gen::inRange(0, 4) > 0) members.push_back(r);
  }
  if (members.size() < 2) members = {0, ranks - 1};
  if (*rc::gen::inRange(0, 3) == 0) std::reverse(members.begin(), members.end());
  return members;
}

// A kernel, or something that streams or the host wait for.
inline void host_operation(TinyProgram& tiny, Rank rank, int stream) {
  const auto event = static_cast<unsigned>(tiny.event(rank, "e"));
  const auto on = static_cast<unsigned>(stream);
  switch (*rc::gen::inRange(0, 8)) {
    case 0:
    case 1:
      tiny.add(rank, ItemOp::kRecord, kNoMicrobatch, 0, event, on);
      return;
    case 2:
      tiny.add(rank, ItemOp::kWaitEvent, kNoMicrobatch, 0, event, on);
      return;
    case 3:
      tiny.add(rank, ItemOp::kSyncEvent, kNoMicrobatch, 0, event, 0);
      return;
    case 4:
      tiny.sync_stream(rank, stream);
      return;
    case 5:
      tiny.sync_device(rank);
      return;
    default:
      tiny.launch(rank, stream);
      return;
  }
}

inline Program random_program() {
  const int ranks = *rc::gen::inRange(2, 5);
  TinyProgram tiny(ranks);
  const int comms = *rc::gen::inRange(1, 4);
  std::vector<std::vector<Rank>> members;
  for (int c = 0; c < comms; ++c) members.push_back(random_members(ranks, c));
  for (int c = 0; c < comms; ++c) tiny.comm("c" + std::to_string(c), members[static_cast<std::size_t>(c)]);
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
    const std::vector<Rank>& in = members[static_cast<std::size_t>(comm)];
    const int what = *rc::gen::inRange(0, 12);
    if (what == 0) {
      TinyOp call = all_reduce(comm, *rc::gen::element<Bytes>(0, 64));
      call.kind = *rc::gen::element(EndpointKind::kAllReduce, EndpointKind::kReduce, EndpointKind::kBroadcast,
                                    EndpointKind::kAllGather, EndpointKind::kReduceScatter);
      if (call.kind == EndpointKind::kReduce || call.kind == EndpointKind::kBroadcast)
        call.peer = *rc::gen::elementOf(in);
      for (const Rank r : in) give(r, call);
    } else if (what <= 2) {
      const Rank rank = *rc::gen::inRange(0, ranks);
      flush(rank);
      host_operation(tiny, rank, *rc::gen::inRange(0, streams + 1));
    } else {
      const Rank from = *rc::gen::elementOf(in);
      const Rank to = *rc::gen::elementOf(in);
      if (from == to) continue;
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

}  // namespace plumbline::test

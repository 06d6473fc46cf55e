// TinyProgram: writes small Programs by hand, one call a host operation. All messages come from one slot
// class; what the tests call a label is its microbatch. The Program is a fragment: nobody needs to write what
// is sent.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/program/link.h"
#include "engine/program/program.h"
#include "sim/simulator.h"

namespace plumbline::test {

struct TinyOp {
  EndpointKind kind = EndpointKind::kSend;
  int comm = 0;
  Rank peer = -1;  // or root
  Bytes bytes = 8;
  int label = 0;
  ReduceOp reduce = ReduceOp::kSum;
};

inline TinyOp send(int comm, Rank peer, Bytes bytes = 8, int label = 0) {
  return {EndpointKind::kSend, comm, peer, bytes, label};
}
inline TinyOp recv(int comm, Rank peer, Bytes bytes = 8, int label = 0) {
  return {EndpointKind::kRecv, comm, peer, bytes, label};
}
inline TinyOp all_reduce(int comm, Bytes bytes = 8) { return {EndpointKind::kAllReduce, comm, -1, bytes, 0}; }

class TinyProgram {
 public:
  explicit TinyProgram(int ranks) : items_(static_cast<std::size_t>(ranks)) {
    RankGrid::Sizes sizes;
    sizes.pp = ranks;
    program_.name = "tiny";
    program_.grid = RankGrid::create(sizes).value();
    program_.fragment = true;
    program_.stages = 2;
    program_.rank_of_stage = {0, 0};
    program_.slots.push_back({"data", SlotKind::kActivation, DType::kU8, 1, true, false, 0});
    program_.kernels.push_back({"work", KernelKind::kForward, 0, {}, {}, {}});
  }

  int comm(const std::string& name, std::vector<Rank> members) {
    program_.families.push_back({name, false, {std::move(members)}});
    return static_cast<int>(program_.families.size() - 1);
  }
  int stream(const std::string& name) {
    const auto found = streams_.find(name);
    if (found != streams_.end()) return found->second;
    program_.streams.push_back(name);
    return streams_[name] = static_cast<int>(program_.streams.size() - 1);
  }
  int event(Rank rank, const std::string& name) {
    const auto [at, fresh] = events_.try_emplace({rank, name}, static_cast<int>(program_.events.size()));
    if (fresh) program_.events.push_back(std::to_string(rank) + "." + name);
    return at->second;
  }

  TinyProgram& group(Rank rank, int stream, const std::vector<TinyOp>& ops, unsigned flags = 0) {
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const unsigned more = i + 1 < ops.size() ? static_cast<unsigned>(kMore) : flags;
      label_count_ = std::max(label_count_, ops[i].label + 1);
      add(rank, ItemOp::kOp, ops[i].label, more, endpoint(ops[i]), static_cast<unsigned>(stream));
    }
    return *this;
  }
  TinyProgram& launch(Rank rank, int stream = kComputeStream) {
    return add(rank, ItemOp::kLaunch, kNoMicrobatch, 0, 0, static_cast<unsigned>(stream));
  }
  TinyProgram& add(Rank rank, ItemOp op, int microbatch, unsigned flags, unsigned ref, unsigned aux) {
    items_[static_cast<std::size_t>(rank)].push_back(make_item(op, microbatch, flags, ref, aux));
    return *this;
  }
  TinyProgram& sync_stream(Rank rank, int stream) {
    return add(rank, ItemOp::kSyncStream, kNoMicrobatch, 0, 0, static_cast<unsigned>(stream));
  }
  TinyProgram& sync_device(Rank rank) { return add(rank, ItemOp::kSyncDevice, kNoMicrobatch, 0, 0, 0); }

  Program& program() { return program_; }

  // The finished Program; call once.
  const Program& finish() {
    program_.microbatches = std::max(1, label_count_);
    for (std::size_t rank = 0; rank < items_.size(); ++rank) {
      const auto begin = static_cast<std::uint32_t>(program_.items.size());
      program_.items.insert(program_.items.end(), items_[rank].begin(), items_[rank].end());
      program_.threads.push_back(
          {static_cast<Rank>(rank), begin, static_cast<std::uint32_t>(program_.items.size())});
    }
    const Status valid = validate_program(program_);
    EXPECT_TRUE(valid) << valid.error().text();
    return program_;
  }

 private:
  unsigned endpoint(const TinyOp& op) {
    const auto key = std::tuple(op.kind, op.comm, op.peer, op.bytes, op.reduce);
    const auto [at, fresh] = endpoints_.try_emplace(key, static_cast<unsigned>(program_.endpoints.size()));
    if (!fresh) return at->second;
    Endpoint row;
    row.name = "e" + std::to_string(program_.endpoints.size());
    row.kind = op.kind;
    row.dtype = DType::kU8;
    row.reduce = op.reduce;
    row.form = op.peer >= 0 ? PeerForm::kRank : PeerForm::kNone;
    row.peer = op.peer >= 0 ? op.peer : 0;
    row.family = static_cast<std::uint16_t>(op.comm);
    row.bytes = op.bytes;
    program_.slots[0].bytes = std::max(program_.slots[0].bytes, op.bytes);
    program_.endpoints.push_back(row);
    return at->second;
  }

  Program program_;
  std::vector<std::vector<Item>> items_;
  std::map<std::tuple<EndpointKind, int, Rank, Bytes, ReduceOp>, unsigned> endpoints_;
  std::map<std::string, int> streams_;
  std::map<std::pair<Rank, std::string>, int> events_;
  int label_count_ = 0;
};

// Runs one step; a failure of the simulator itself fails the test.
inline ModeVerdict run_tiny(const Program& program, const NcclModel& model, const TimeModel& time = {}) {
  const Result<LinkedProgram> linked = link_program(program);
  EXPECT_TRUE(linked) << linked.error().text();
  if (!linked) return {};
  Result<ModeVerdict> verdict = simulate(*linked, model, time);
  EXPECT_TRUE(verdict) << verdict.error().text();
  return verdict ? *verdict : ModeVerdict{};
}

inline bool has(const ModeVerdict& verdict, FindingKind kind) {
  for (const Finding& finding : verdict.findings) {
    if (finding.kind == kind) return true;
  }
  return false;
}

}  // namespace plumbline::test

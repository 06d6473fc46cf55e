// Programs made by hand, a line an item. Families have a stream each; kernels and endpoints are rows made on
// demand.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine/program/program.h"
#include "sim/verify/check.h"

namespace plumbline::test {

class Builder {
 public:
  explicit Builder(int ranks, int microbatches = 4) : rows_(static_cast<std::size_t>(ranks)) {
    program_.name = "made by hand";
    program_.grid = *RankGrid::create({1, 1, 1, 1, ranks});
    program_.stages = ranks;
    program_.microbatches = microbatches;
    for (int r = 0; r < ranks; ++r) program_.rank_of_stage.push_back(static_cast<std::uint16_t>(r));
  }

  Program& program() { return program_; }

  unsigned slot(const std::string& name, Bytes bytes = 64, SlotKind kind = SlotKind::kActivation,
                bool per_microbatch = true, bool persistent = false) {
    program_.slots.push_back({name, kind, DType::kF32, 0, per_microbatch, persistent, bytes});
    return static_cast<unsigned>(program_.slots.size() - 1);
  }
  unsigned family(const std::string& name, std::vector<std::vector<Rank>> instances, bool pairs = false) {
    program_.families.push_back({name, pairs, std::move(instances)});
    program_.streams.push_back(name);
    return static_cast<unsigned>(program_.families.size() - 1);
  }
  unsigned kernel(RowList reads, RowList frees, RowList writes, KernelKind kind = KernelKind::kOther) {
    program_.kernels.push_back({fmt::format("k{}", program_.kernels.size()), kind, 0, std::move(reads),
                                std::move(frees), std::move(writes)});
    return static_cast<unsigned>(program_.kernels.size() - 1);
  }
  unsigned endpoint(EndpointKind kind, unsigned family, unsigned slot, Rank peer, bool free_after = false,
                    Bytes bytes = -1, ReduceOp reduce = ReduceOp::kSum) {
    Endpoint row;
    row.kind = kind;
    row.family = static_cast<std::uint16_t>(family);
    row.slot = static_cast<std::uint16_t>(slot);
    row.form = peer < 0 ? PeerForm::kNone : PeerForm::kRank;
    row.peer = std::max(peer, 0);
    row.free_after = free_after;
    row.dtype = program_.slots[slot].dtype;
    row.reduce = reduce;
    row.bytes = bytes < 0 ? program_.slots[slot].bytes : bytes;
    for (std::size_t i = 0; i < program_.endpoints.size(); ++i) {
      const Endpoint& e = program_.endpoints[i];
      if (e.kind == row.kind && e.family == row.family && e.slot == row.slot && e.form == row.form &&
          e.peer == row.peer && e.free_after == row.free_after && e.bytes == row.bytes &&
          e.reduce == row.reduce) {
        return static_cast<unsigned>(i);
      }
    }
    row.name = fmt::format("e{}", program_.endpoints.size());
    program_.endpoints.push_back(row);
    return static_cast<unsigned>(program_.endpoints.size() - 1);
  }

  void add(Rank rank, Item item) { rows_[static_cast<std::size_t>(rank)].push_back(item); }
  void launch(Rank rank, unsigned kernel, int microbatch = 0, int stream = 0, unsigned flags = 0) {
    add(rank, make_item(ItemOp::kLaunch, microbatch, flags, kernel, static_cast<unsigned>(stream)));
  }
  void op(Rank rank, unsigned endpoint, int microbatch = 0, unsigned flags = kAfterCompute | kComputeWaits,
          unsigned queue = 0) {
    const unsigned stream = 1u + program_.endpoints[endpoint].family;
    add(rank, make_item(ItemOp::kOp, microbatch, flags, endpoint, stream | queue << 8));
  }
  void send(Rank rank, Rank to, unsigned slot, int microbatch = 0,
            unsigned flags = kAfterCompute | kComputeWaits, unsigned family = 0) {
    op(rank, endpoint(EndpointKind::kSend, family, slot, to), microbatch, flags);
  }
  void recv(Rank rank, Rank from, unsigned slot, int microbatch = 0,
            unsigned flags = kAfterCompute | kComputeWaits, unsigned family = 0) {
    op(rank, endpoint(EndpointKind::kRecv, family, slot, from), microbatch, flags);
  }
  void all_reduce(Rank rank, unsigned slot, unsigned family = 0,
                  unsigned flags = kAfterCompute | kComputeWaits) {
    op(rank, endpoint(EndpointKind::kAllReduce, family, slot, -1), kNoMicrobatch, flags);
  }
  void free(Rank rank, unsigned slot, int microbatch = 0) {
    add(rank, make_item(ItemOp::kFree, microbatch, 0, slot, 0));
  }

  Program build() {
    program_.items.clear();
    program_.threads.clear();
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      const auto begin = static_cast<std::uint32_t>(program_.items.size());
      program_.items.insert(program_.items.end(), rows_[r].begin(), rows_[r].end());
      program_.threads.push_back(
          {static_cast<Rank>(r), begin, static_cast<std::uint32_t>(program_.items.size())});
    }
    const Status status = validate_program(program_);
    EXPECT_TRUE(status.has_value()) << status.error().text();
    return program_;
  }

 private:
  Program program_;
  std::vector<std::vector<Item>> rows_;
};

inline Verdict check(const Program& program, const CheckOptions& options = {}) {
  const auto linked = link_program(program);
  EXPECT_TRUE(linked.has_value()) << linked.error().text();
  auto verdict = check_program(*linked, options);
  EXPECT_TRUE(verdict.has_value()) << verdict.error().text();
  return std::move(*verdict);
}

inline int count(const std::vector<Finding>& findings, FindingKind kind) {
  return static_cast<int>(
      std::count_if(findings.begin(), findings.end(), [&](const Finding& f) { return f.kind == kind; }));
}

// All findings in words, for messages of failing tests.
inline std::string words(const Verdict& verdict) {
  std::string out;
  const auto list = [&](const std::vector<Finding>& findings) {
    for (const Finding& f : findings) out += fmt::format("{}: {}\n", finding_kind_name(f.kind), f.why);
  };
  list(verdict.findings);
  for (const ModeVerdict& mode : verdict.modes) {
    out += fmt::format("[{}] {}\n", mode.mode, mode.completes ? "completes" : "stuck");
    list(mode.findings);
  }
  return out;
}

}  // namespace plumbline::test

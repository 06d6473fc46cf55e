// Programs with tables written out and kernels that do something; for what only communicates, see tiny_program.h.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/program/link.h"
#include "engine/runtime/worker.h"
#include "sim/simulator.h"

namespace plumbline::test {

// Kernels by name: what they do with the slots, all of them int32.
class Calls : public Worker {
 public:
  using Body =
      std::function<Status(Rank, int microbatch, const std::function<std::int32_t*(std::uint16_t)>&)>;
  std::map<std::string, Body> bodies;

  Status launch(const KernelCall& call, SlotStore& slots) override {
    const auto body = bodies.find(call.program->kernels[call.kernel].name);
    if (body == bodies.end()) return {};
    return body->second(call.rank, call.microbatch, [&](std::uint16_t slot_class) {
      const bool many = call.program->slots[slot_class].per_microbatch;
      return reinterpret_cast<std::int32_t*>(
          slots.slot({slot_class, many ? call.microbatch : kNoMicrobatch}).data);
    });
  }
};

// A Program whose tables are written out; see TinyProgram for one that only communicates.
struct Written {
  explicit Written(int ranks, int microbatches = 1) {
    RankGrid::Sizes sizes;
    sizes.pp = ranks;
    program.grid = RankGrid::create(sizes).value();
    program.microbatches = microbatches;
    program.rank_of_stage.assign(1, 0);
    program.streams.push_back("c");
    std::vector<Rank> all;
    for (Rank r = 0; r < ranks; ++r) all.push_back(r);
    program.families.push_back({"c", false, {all}});
    items.resize(static_cast<std::size_t>(ranks));
  }
  std::uint16_t slot(const std::string& name, bool per_microbatch, Bytes bytes, bool persistent = false) {
    program.slots.push_back({name, SlotKind::kOther, DType::kI32, 0, per_microbatch, persistent, bytes});
    return static_cast<std::uint16_t>(program.slots.size() - 1);
  }
  unsigned kernel(const std::string& name, RowList reads, RowList frees, RowList writes) {
    program.kernels.push_back(
        {name, KernelKind::kOther, 0, std::move(reads), std::move(frees), std::move(writes)});
    return static_cast<unsigned>(program.kernels.size() - 1);
  }
  unsigned endpoint(EndpointKind kind, std::uint16_t slot_class, Rank peer = -1, bool free_after = false) {
    Endpoint row;
    row.name = "e" + std::to_string(program.endpoints.size());
    row.kind = kind;
    row.dtype = program.slots[slot_class].dtype;
    row.form = peer >= 0 ? PeerForm::kRank : PeerForm::kNone;
    row.peer = peer >= 0 ? peer : 0;
    row.slot = slot_class;
    row.free_after = free_after;
    row.bytes = program.slots[slot_class].bytes;
    program.endpoints.push_back(row);
    return static_cast<unsigned>(program.endpoints.size() - 1);
  }
  void launch(Rank rank, unsigned kernel_row, int microbatch = kNoMicrobatch) {
    item(rank, make_item(ItemOp::kLaunch, microbatch, 0, kernel_row, 0));
  }
  void op(Rank rank, unsigned endpoint_row, int microbatch = kNoMicrobatch,
          unsigned flags = kAfterCompute | kComputeWaits) {
    item(rank, make_item(ItemOp::kOp, microbatch, flags, endpoint_row, 1));
  }
  void item(Rank rank, Item code) { items[static_cast<std::size_t>(rank)].push_back(code); }
  void finish() {
    for (std::size_t rank = 0; rank < items.size(); ++rank) {
      const auto begin = static_cast<std::uint32_t>(program.items.size());
      program.items.insert(program.items.end(), items[rank].begin(), items[rank].end());
      program.threads.push_back(
          {static_cast<Rank>(rank), begin, static_cast<std::uint32_t>(program.items.size())});
    }
    const Status valid = validate_program(program);
    ASSERT_TRUE(valid) << valid.error().text();
    linked = link_program(program).value();
  }
  SimStep run(Worker* worker, SimOptions options = {}) {
    record = record_for(program);
    std::vector<Worker*> workers(worker == nullptr ? 0 : items.size(), worker);
    Simulator simulator(linked, options, workers);
    return simulator.run_step(0, record).value();
  }

  Program program;
  LinkedProgram linked;
  RunRecord record;
  std::vector<std::vector<Item>> items;
};

}  // namespace plumbline::test

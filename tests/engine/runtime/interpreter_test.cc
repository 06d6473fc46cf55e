// The interpreter on a backend that writes down what it is told and completes tokens on demand.
#include "engine/runtime/interpreter.h"

#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace plumbline {
namespace {

class Notebook : public Backend {
 public:
  std::vector<std::string> calls;
  std::set<Token> open;  // pending tokens
  Token next = 1;
  bool block_groups = false;  // groups have a host token
  double variable = 0;
  bool broken = false;

  Token token(const std::string& text) {
    calls.push_back(text + "=" + std::to_string(next));
    open.insert(next);
    return next++;
  }
  Status begin_step(const LinkedProgram&) override { return {}; }
  Result<Issued> launch(std::uint32_t, std::uint32_t index, Item) override {
    return Issued{0, token("launch " + std::to_string(index))};
  }
  Result<Issued> group(const GroupCall& call) override {
    const Token host = block_groups ? token("host") : 0;
    return Issued{
        host, token("group " + std::to_string(call.first_item) + "+" + std::to_string(call.entries.size()) +
                    " on " + std::to_string(call.stream) + (call.after_compute ? " after" : ""))};
  }
  Status stream_wait(std::uint32_t, int stream, Token t) override {
    calls.push_back("wait " + std::to_string(stream) + " for " + std::to_string(t));
    return {};
  }
  Result<Token> marker(std::uint32_t, int stream) override {
    return token("marker " + std::to_string(stream));
  }
  Status free(std::uint32_t, std::uint32_t, SlotRef slot) override {
    calls.push_back("free " + std::to_string(slot.slot_class) + "." + std::to_string(slot.microbatch));
    return {};
  }
  Result<Token> read(std::uint32_t, std::uint32_t, unsigned v) override {
    return token("read " + std::to_string(v));
  }
  Result<double> value(std::uint32_t, unsigned) override { return variable; }
  Poll poll(std::uint32_t, Token t) override {
    if (broken) return {PollState::kFailed, "the link is down"};
    return {open.count(t) != 0 ? PollState::kPending : PollState::kDone, {}};
  }
};

struct Bench {
  Program program;
  LinkedProgram linked;
  Notebook backend;

  Bench() {
    program.slots.push_back({"data", SlotKind::kOther, DType::kU8, 0, true, false, 8});
    program.microbatches = 4;
    for (const EndpointKind kind : {EndpointKind::kSend, EndpointKind::kRecv}) {
      Endpoint endpoint;
      endpoint.kind = kind;
      program.endpoints.push_back(endpoint);
    }
    program.kernels.emplace_back();
    program.variables.push_back({"v", 0});
    program.events = {"e", "f"};
    program.marks = {"m"};
    program.streams = {"compute", "c"};
  }
  void add(ItemOp op, int microbatch, unsigned flags, unsigned ref, unsigned aux) {
    program.items.push_back(make_item(op, microbatch, flags, ref, aux));
  }
  Interpreter start() {
    program.threads = {{0, 0, static_cast<std::uint32_t>(program.items.size())}};
    linked.program = &program;
    return Interpreter(backend, linked, 0);
  }
};

using Calls = std::vector<std::string>;

TEST(Interpreter, GroupsAndTheirEdges) {
  Bench b;
  b.add(ItemOp::kOp, 0, kMore | kComputeWaits, 0, 1);  // edges of an entry that is not the last do not count
  b.add(ItemOp::kOp, 1, kAfterCompute | kComputeWaits, 1, 1);
  b.add(ItemOp::kOp, 2, kHostWaits, 0, 1);
  b.add(ItemOp::kMark, kNoMicrobatch, 0, 0, 0);
  b.add(ItemOp::kFree, 2, 0, 0, 0);
  Interpreter host = b.start();
  const Advance at = host.advance();
  EXPECT_EQ(at.state, AdvanceState::kBlocked);
  EXPECT_EQ(at.waiting_for, 2U);
  EXPECT_EQ(at.item_index, 2U);
  EXPECT_EQ(b.backend.calls, (Calls{"group 0+2 on 1 after=1", "wait 0 for 1", "group 2+1 on 1=2"}));
  b.backend.open.clear();
  EXPECT_EQ(host.advance().state, AdvanceState::kFinished);
  EXPECT_EQ(b.backend.calls.back(), "free 0.2");
  EXPECT_EQ(host.advance().state, AdvanceState::kFinished);
}

TEST(Interpreter, EdgesComeAfterTheHostToken) {
  Bench b;
  b.backend.block_groups = true;
  b.add(ItemOp::kOp, 0, kComputeWaits, 0, 1);
  Interpreter host = b.start();
  EXPECT_EQ(host.advance().waiting_for, 1U);
  EXPECT_EQ(b.backend.calls, (Calls{"host=1", "group 0+1 on 1=2"}));
  b.backend.open.erase(1);
  EXPECT_EQ(host.advance().state, AdvanceState::kFinished);
  EXPECT_EQ(b.backend.calls.back(), "wait 0 for 2");
}

TEST(Interpreter, HandlesAreWaitedForOldestFirst) {
  Bench b;
  for (int i = 0; i < 3; ++i) b.add(ItemOp::kOp, i, kHandle, 0, 3u << 8 | 1u);
  b.add(ItemOp::kWait, kNoMicrobatch, 0, 3, 2);
  b.add(ItemOp::kWait, kNoMicrobatch, kHostWaits, 3, 1);
  b.add(ItemOp::kWait, kNoMicrobatch, 0, 3, 1);
  Interpreter host = b.start();
  EXPECT_EQ(host.advance().waiting_for, 3U);
  EXPECT_EQ(Calls(b.backend.calls.begin() + 3, b.backend.calls.end()),
            (Calls{"wait 0 for 1", "wait 0 for 2"}));
  b.backend.open.clear();
  const Advance end = host.advance();
  EXPECT_EQ(end.state, AdvanceState::kFailed);
  EXPECT_NE(end.error.message.find("queue 3 keeps 0"), std::string::npos) << end.error.message;
  EXPECT_EQ(host.advance().state, AdvanceState::kFailed);
}

TEST(Interpreter, HandlesOfSlotsAreFoundByWhatTheyFill) {
  Bench b;
  b.add(ItemOp::kOp, 1, kMore, 0, 1);  // a send fills nothing
  b.add(ItemOp::kOp, 2, kHandle, 1, unsigned{kSlotQueue} << 8 | 1u);
  b.add(ItemOp::kOp, 3, kHandle, 1, unsigned{kSlotQueue} << 8 | 1u);
  b.add(ItemOp::kWaitSlot, 3, 0, 0, 0);
  b.add(ItemOp::kWaitSlot, 2, 0, 0, 0);
  b.add(ItemOp::kWaitSlot, 1, 0, 0, 0);
  Interpreter host = b.start();
  EXPECT_EQ(host.advance().state, AdvanceState::kFailed);
  EXPECT_EQ(Calls(b.backend.calls.begin() + 2, b.backend.calls.end()),
            (Calls{"wait 0 for 2", "wait 0 for 1"}));
}

TEST(Interpreter, EventsMeanTheirLatestRecord) {
  Bench b;
  b.add(ItemOp::kWaitEvent, kNoMicrobatch, 0, 0, 1);  // never recorded: no effect
  b.add(ItemOp::kSyncEvent, kNoMicrobatch, 0, 0, 0);
  b.add(ItemOp::kRecord, kNoMicrobatch, 0, 0, 1);
  b.add(ItemOp::kRecord, kNoMicrobatch, 0, 0, 0);
  b.add(ItemOp::kWaitEvent, kNoMicrobatch, 0, 0, 1);
  b.add(ItemOp::kSyncEvent, kNoMicrobatch, 0, 0, 0);
  b.add(ItemOp::kSyncStream, kNoMicrobatch, 0, 0, 1);
  b.add(ItemOp::kSyncDevice, kNoMicrobatch, 0, 0, 0);
  Interpreter host = b.start();
  EXPECT_EQ(host.advance().waiting_for, 2U);
  EXPECT_EQ(b.backend.calls, (Calls{"marker 1=1", "marker 0=2", "wait 1 for 2"}));
  b.backend.open.clear();
  EXPECT_EQ(host.advance().waiting_for, 3U);
  b.backend.open.clear();
  EXPECT_EQ(host.advance().waiting_for, 4U);
  EXPECT_EQ(b.backend.calls.back(), "marker -1=4");
}

TEST(Interpreter, ArmsOfADecision) {
  for (const double value : {0.0, 2.0}) {
    Bench b;
    b.backend.variable = value;
    b.add(ItemOp::kRead, kNoMicrobatch, 0, 0, 0);
    b.add(ItemOp::kDecide, kNoMicrobatch, 0, 0, 0);
    b.add(ItemOp::kFree, 1, kArmYes, 0, 0);
    b.add(ItemOp::kFree, 0, kArmNo, 0, 0);
    b.add(ItemOp::kOp, 0, kMore | kArmYes, 0, 1);
    b.add(ItemOp::kOp, 0, kArmYes, 0, 1);
    b.add(ItemOp::kFree, 3, 0, 0, 0);
    Interpreter host = b.start();
    EXPECT_EQ(host.advance().waiting_for, 1U);
    b.backend.open.clear();
    EXPECT_EQ(host.advance().state, AdvanceState::kFinished);
    const bool yes = value != 0;
    EXPECT_EQ(host.decisions(), std::vector<std::uint8_t>{static_cast<std::uint8_t>(yes)});
    EXPECT_EQ(b.backend.calls, yes ? (Calls{"read 0=1", "free 0.1", "group 4+2 on 1=2", "free 0.3"})
                                   : (Calls{"read 0=1", "free 0.0", "free 0.3"}));
  }
}

TEST(Interpreter, AFailedTokenFailsTheThread) {
  Bench b;
  b.add(ItemOp::kSyncDevice, kNoMicrobatch, 0, 0, 0);
  Interpreter host = b.start();
  EXPECT_EQ(host.advance().state, AdvanceState::kBlocked);
  b.backend.broken = true;
  const Advance end = host.advance();
  EXPECT_EQ(end.state, AdvanceState::kFailed);
  EXPECT_EQ(end.error.message, "the link is down");
  EXPECT_EQ(end.item_index, 0U);
}

}  // namespace
}  // namespace plumbline

// Bytes and slots: what kernels, messages and collectives do to memory, and what is found when slots are used
// wrongly.
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "tests/sim/tiny_program.h"
#include "tests/sim/written_program.h"

namespace plumbline::test {
namespace {

std::vector<FindingKind> kinds(const SimStep& step) {
  std::vector<FindingKind> out;
  for (const Finding& finding : step.findings) out.push_back(finding.kind);
  return out;
}

// Rank 0 makes microbatch m's message m + 10; rank 1 gets it in every model, whether it was there early or
// late.
TEST(SimData, MessagesArriveInEveryModel) {
  for (const int model_number : {0, 1, 2, 3}) {
    Written w(2, 3);
    const auto data = w.slot("data", true, 4);
    const unsigned make = w.kernel("make", {}, {}, {data});
    const unsigned take = w.kernel("take", {}, {data}, {});
    const unsigned out = w.endpoint(EndpointKind::kSend, data, 1, true);
    const unsigned in = w.endpoint(EndpointKind::kRecv, data, 0);
    for (int m = 0; m < 3; ++m) {
      w.launch(0, make, m);
      w.op(0, out, m, kAfterCompute);
      w.op(1, in, m, kComputeWaits);
      w.launch(1, take, m);
    }
    w.finish();
    std::vector<int> got;
    Calls calls;
    calls.bodies["make"] = [&](Rank, int m, const auto& slot) { return *slot(data) = m + 10, Status(); };
    calls.bodies["take"] = [&](Rank, int, const auto& slot) { return got.push_back(*slot(data)), Status(); };
    SimOptions options;
    if (model_number == 1) options.model = certification_model();
    if (model_number == 2) options.model.send = SendCompletion::kAlwaysEager;
    if (model_number == 3) options.model.launch_blocking = true;
    const SimStep step = w.run(&calls, options);
    EXPECT_TRUE(step.completed);
    EXPECT_TRUE(step.findings.empty());
    EXPECT_EQ(got, (std::vector<int>{10, 11, 12})) << options.model.name();
  }
}

TEST(SimData, CollectivesInMemberOrder) {
  struct Case {
    EndpointKind kind;
    Rank root;
    std::vector<std::vector<int>> result;  // by rank
  };
  // Rank r holds {r+1, 10(r+1), 100(r+1)}; members are 2, 0, 1.
  const std::vector<Case> cases = {
      {EndpointKind::kAllReduce, -1, {{6, 60, 600}, {6, 60, 600}, {6, 60, 600}}},
      {EndpointKind::kReduce, 0, {{6, 60, 600}, {2, 20, 200}, {3, 30, 300}}},
      {EndpointKind::kBroadcast, 1, {{2, 20, 200}, {2, 20, 200}, {2, 20, 200}}},
      {EndpointKind::kAllGather, -1, {{3, 10, 200}, {3, 10, 200}, {3, 10, 200}}},
      {EndpointKind::kReduceScatter, -1, {{1, 60, 100}, {2, 20, 600}, {6, 30, 300}}},
  };
  for (const Case& c : cases) {
    Written w(3);
    w.program.families[0].instances[0] = {2, 0, 1};
    const auto data = w.slot("data", false, 12);
    const unsigned make = w.kernel("make", {}, {}, {data});
    const unsigned take = w.kernel("take", {}, {data}, {});
    const unsigned op = w.endpoint(c.kind, data, c.root);
    for (Rank r = 0; r < 3; ++r) {
      w.launch(r, make);
      w.op(r, op);
      w.launch(r, take);
    }
    w.finish();
    std::vector<std::vector<int>> got(3);
    Calls calls;
    calls.bodies["make"] = [&](Rank r, int, const auto& slot) {
      for (int i = 0, f = 1; i < 3; ++i, f *= 10) slot(data)[i] = f * (r + 1);
      return Status();
    };
    calls.bodies["take"] = [&](Rank r, int, const auto& slot) {
      got[static_cast<std::size_t>(r)].assign(slot(data), slot(data) + 3);
      return Status();
    };
    const SimStep step = w.run(&calls);
    EXPECT_TRUE(step.completed);
    EXPECT_TRUE(step.findings.empty());
    EXPECT_EQ(got, c.result) << endpoint_kind_name(c.kind);
  }
}

// The way contributions are added is the simulation's to choose (docs/nccl-rules.md, N88-N95); all ranks get the same.
TEST(SimData, CollectivesAddAsTheyAreTold) {
  const auto reduced = [](Numerics kind, ReduceOp op) {
    Written w(3);
    const auto data = w.slot("data", false, 12);
    w.program.slots[data].dtype = DType::kF32;
    const unsigned make = w.kernel("make", {}, {}, {data});
    const unsigned take = w.kernel("take", {}, {data}, {});
    const unsigned row = w.endpoint(EndpointKind::kAllReduce, data);
    w.program.endpoints[row].reduce = op;
    for (Rank r = 0; r < 3; ++r) {
      w.launch(r, make);
      w.op(r, row);
      w.launch(r, take);
    }
    w.finish();
    std::vector<std::vector<float>> got(3);
    Calls calls;
    calls.bodies["make"] = [&](Rank r, int, const auto& slot) {
      for (int i = 0; i < 3; ++i)
        reinterpret_cast<float*>(slot(data))[i] = r == 0 ? 1e8F : r == 1 ? -1e8F : 1.0F;
      return Status();
    };
    calls.bodies["take"] = [&](Rank r, int, const auto& slot) {
      const auto* values = reinterpret_cast<const float*>(slot(data));
      got[static_cast<std::size_t>(r)].assign(values, values + 3);
      return Status();
    };
    SimOptions options;
    options.numerics.kind = kind;
    EXPECT_TRUE(w.run(&calls, options).completed);
    EXPECT_EQ(got[1], got[0]);
    EXPECT_EQ(got[2], got[0]);
    return got[0];
  };
  EXPECT_EQ(reduced(Numerics::kOrdered, ReduceOp::kSum), (std::vector<float>{1, 1, 1}));
  EXPECT_EQ(reduced(Numerics::kRing, ReduceOp::kSum), (std::vector<float>{0, 0, 1}));
  EXPECT_EQ(reduced(Numerics::kNvls, ReduceOp::kSum), (std::vector<float>{1, 1, 1}));
  EXPECT_EQ(reduced(Numerics::kRing, ReduceOp::kMin), (std::vector<float>{-1e8F, -1e8F, -1e8F}));
}

TEST(SimData, PersistentSlotsAndTimeGoOnFromStepToStep) {
  Written w(1);
  const auto sum = w.slot("sum", false, 4, true);
  const unsigned add = w.kernel("add", {sum}, {}, {sum});
  w.launch(0, add);
  w.finish();
  int last = 0;
  Calls calls;
  calls.bodies["add"] = [&](Rank, int, const auto& slot) { return last = ++*slot(sum), Status(); };
  std::vector<Worker*> workers{&calls};
  Simulator simulator(w.linked, {}, workers);
  RunRecord record = record_for(w.program);
  for (int step = 0; step < 3; ++step) EXPECT_TRUE(simulator.run_step(step, record).value().findings.empty());
  EXPECT_EQ(last, 3);
}

TEST(SimData, ADecisionFollowsTheVariable) {
  for (const int value : {0, 7}) {
    Written w(1);
    const auto flag = w.slot("flag", false, 4);
    const unsigned make = w.kernel("make", {}, {}, {flag});
    const unsigned yes = w.kernel("yes", {}, {flag}, {});
    const unsigned no = w.kernel("no", {}, {flag}, {});
    w.program.variables.push_back({"v", flag});
    w.launch(0, make);
    w.item(0, make_item(ItemOp::kRead, kNoMicrobatch, 0, 0, 0));
    w.item(0, make_item(ItemOp::kDecide, kNoMicrobatch, 0, 0, 0));
    w.item(0, make_item(ItemOp::kLaunch, kNoMicrobatch, kArmYes, yes, 0));
    w.item(0, make_item(ItemOp::kLaunch, kNoMicrobatch, kArmNo, no, 0));
    w.finish();
    std::string ran;
    Calls calls;
    calls.bodies["make"] = [&](Rank, int, const auto& slot) { return *slot(flag) = value, Status(); };
    calls.bodies["yes"] = [&](Rank, int, const auto&) { return ran += "yes", Status(); };
    calls.bodies["no"] = [&](Rank, int, const auto&) { return ran += "no", Status(); };
    const SimStep step = w.run(&calls);
    EXPECT_EQ(ran, value != 0 ? "yes" : "no");
    EXPECT_EQ(step.decisions,
              (std::vector<std::vector<std::uint8_t>>{{static_cast<std::uint8_t>(value != 0)}}));
    SimOptions timing;
    timing.read_value = value;
    EXPECT_EQ(w.run(nullptr, timing).decisions, step.decisions);
  }
}

TEST(SimData, AFailingWorkerIsAnError) {
  Written w(1);
  w.launch(0, w.kernel("bad", {}, {}, {}));
  w.finish();
  Calls calls;
  calls.bodies["bad"] = [](Rank, int, const auto&) -> Status {
    return fail(ErrorCode::kState, "on purpose");
  };
  Simulator simulator(w.linked, {}, {&calls});
  RunRecord record = record_for(w.program);
  const Result<SimStep> step = simulator.run_step(0, record);
  ASSERT_FALSE(step);
  EXPECT_EQ(step.error().message, "on purpose");
}

// Random messages between three ranks, partly received in each other's place: whatever the mode, if the
// program completes, every rank ends with the same data.
RC_GTEST_PROP(SimData, CompletingModesAgreeOnTheData, ()) {
  const int messages = *rc::gen::inRange(1, 10);
  Written w(3, messages);
  const auto out = w.slot("out", true, 4);
  const auto in = w.slot("in", true, 4);
  const unsigned make = w.kernel("make", {}, {}, {out});
  const unsigned take = w.kernel("take", {}, {in}, {});
  std::vector<std::vector<int>> received(3);
  std::vector<unsigned> sends, receives;
  for (Rank peer = 0; peer < 3; ++peer) {
    sends.push_back(w.endpoint(EndpointKind::kSend, out, peer, true));
    receives.push_back(w.endpoint(EndpointKind::kRecv, in, peer));
  }
  for (int m = 0; m < messages; ++m) {
    const Rank from = *rc::gen::inRange(0, 3);
    const Rank to = (from + *rc::gen::inRange(1, 3)) % 3;
    w.launch(from, make, m);
    w.op(from, sends[static_cast<std::size_t>(to)], m, kAfterCompute);
    const auto position = static_cast<std::size_t>(*rc::gen::inRange(0, 2));
    auto& row = w.items[static_cast<std::size_t>(to)];
    const Item receive =
        make_item(ItemOp::kOp, m, kComputeWaits, receives[static_cast<std::size_t>(from)], 1);
    row.insert(row.end() - static_cast<std::ptrdiff_t>(std::min(position, row.size())), receive);
    received[static_cast<std::size_t>(to)].push_back(m);
  }
  for (Rank rank = 0; rank < 3; ++rank) {
    for (const int m : received[static_cast<std::size_t>(rank)]) w.launch(rank, take, m);
  }
  w.finish();
  using Seen = std::map<std::pair<Rank, int>, int>;
  const auto run = [&](const NcclModel& model, Seen& seen) {
    Calls calls;
    calls.bodies["make"] = [&](Rank r, int m, const auto& slot) {
      return *slot(out) = 100 * (r + 1) + m, Status();
    };
    calls.bodies["take"] = [&](Rank r, int m, const auto& slot) {
      return seen[{r, m}] = *slot(in), Status();
    };
    SimOptions options;
    options.model = model;
    return w.run(&calls, options).completed;
  };
  std::vector<NcclModel> models{default_model(), certification_model(), default_model(), default_model(),
                                default_model()};
  models[2].launch_blocking = true;
  models[3].send = SendCompletion::kAlwaysEager;
  models[4].send = SendCompletion::kEager;
  models[4].eager_bytes = 4;
  Seen reference;
  const bool always = run(models[3], reference);
  for (const NcclModel& model : models) {
    Seen seen;
    if (!run(model, seen)) continue;
    RC_ASSERT(always);
    RC_ASSERT(seen == reference);
  }
}

TEST(SimSlots, WrongUsesAreFound) {
  struct Case {
    FindingKind kind;
    std::vector<int> kernels;  // launched in this order: 0 write, 1 read, 2 read and free
  };
  const std::vector<Case> cases = {{FindingKind::kReadUnwritten, {1, 0, 2}},
                                   {FindingKind::kReadFreed, {0, 2, 1}},
                                   {FindingKind::kReadFreed, {0, 2, 2}},
                                   {FindingKind::kDoubleWrite, {0, 0, 2}},
                                   {FindingKind::kLeak, {0, 1}}};
  for (const Case& c : cases) {
    for (const bool with_memory : {false, true}) {
      Written w(1);
      const auto data = w.slot("data", true, 4);
      w.kernel("write", {}, {}, {data});
      w.kernel("read", {data}, {}, {});
      w.kernel("free", {}, {data}, {});
      for (const int kernel : c.kernels) w.launch(0, static_cast<unsigned>(kernel), 0);
      w.finish();
      Calls calls;
      EXPECT_EQ(kinds(w.run(with_memory ? &calls : nullptr)), std::vector<FindingKind>{c.kind});
    }
  }
}

TEST(SimSlots, AMissingWaitIsFound) {
  Written w(2);
  const auto data = w.slot("data", false, 4);
  const unsigned make = w.kernel("make", {}, {}, {data});
  const unsigned take = w.kernel("take", {}, {data}, {});
  w.launch(0, make);
  w.op(0, w.endpoint(EndpointKind::kSend, data, 1, true), kNoMicrobatch, kAfterCompute);
  w.op(1, w.endpoint(EndpointKind::kRecv, data, 0), kNoMicrobatch, 0);  // no kComputeWaits
  w.launch(1, take);
  w.finish();
  EXPECT_EQ(kinds(w.run(nullptr)), std::vector<FindingKind>{FindingKind::kReadUnwritten});
}

TEST(SimSlots, MemoryIsCountedInHostOrder) {
  Written w(1);
  const auto a = w.slot("a", false, 10);
  const auto b = w.slot("b", false, 100);
  const auto always = w.slot("always", false, 1000, true);
  const unsigned first = w.kernel("first", {}, {}, {a});
  const unsigned second = w.kernel("second", {always}, {a}, {b});
  w.launch(0, first);
  w.launch(0, second);
  w.item(0, make_item(ItemOp::kFree, kNoMicrobatch, 0, b, 0));
  w.finish();
  const SimStep step = w.run(nullptr);
  EXPECT_TRUE(step.findings.empty());
  std::vector<Bytes> live;
  for (const MemoryPoint& point : w.record.memory) live.push_back(point.live);
  EXPECT_EQ(live, (std::vector<Bytes>{1000, 1010, 1110, 1100, 1000}));
}

}  // namespace
}  // namespace plumbline::test

#include "engine/program/lower.h"

#include <map>
#include <set>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "engine/base/text.h"
#include "engine/program/link.h"
#include "engine/schedule/csv.h"
#include "tests/engine/program/config.h"

namespace plumbline {
namespace {

Program lowered(const RunConfig& config, LowerOptions options = {}) {
  auto program = program_of(config, default_sizes(config), options);
  EXPECT_TRUE(program.has_value()) << program.error().text();
  return program ? std::move(*program) : Program{};
}

Result<Program> lower_csv(const std::string& text, int pp, bool fragment, CommMap map = CommMap::kPair,
                          int dp = 1) {
  RunConfig config = test::config_of(ScheduleKind::kCsv, pp, 1, 1, 0, dp);
  config.schedule.comm_map = map;
  const auto schedule = parse_schedule_csv(text, "rows.csv", {fragment});
  if (!schedule) return tl::unexpected(schedule.error());
  config.schedule.microbatches = schedule->microbatches;
  config.schedule.chunks = schedule->stages / pp;
  ModelSizes sizes;
  sizes.stash.assign(static_cast<std::size_t>(schedule->stages), 1);
  sizes.grads.assign(static_cast<std::size_t>(schedule->stages), 4);
  return lower(config, *schedule, sizes, {StepTail::kSchedule, false, fragment});
}

// Sends of each rank, by kind of tensor: megatron.md A.6, checked over all recorded lines of the oracle as well.
RC_GTEST_PROP(Lower, SendsPerRankFollowTheFormula, ()) {
  const int pp = *rc::gen::inRange(2, 7);
  const int chunks = *rc::gen::inRange(1, 4);
  const int microbatches = pp * *rc::gen::inRange(1, 4);
  const ScheduleKind kind = chunks > 1 ? ScheduleKind::kInterleaved : ScheduleKind::kOneFOneB;
  const RunConfig config = test::config_of(kind, pp, chunks, microbatches);
  const Program program = lowered(config, {StepTail::kSchedule});
  const int total = microbatches * chunks;
  for (int rank = 0; rank < pp; ++rank) {
    std::map<SlotKind, int> sends;
    for (const Item item : program.thread_items(static_cast<std::size_t>(rank))) {
      if (item_op(item) != ItemOp::kOp) continue;
      const Endpoint& endpoint = program.endpoints[item_ref(item)];
      if (endpoint.kind == EndpointKind::kSend) ++sends[program.slots[endpoint.slot].kind];
    }
    RC_ASSERT(sends[SlotKind::kActivation] == (rank == pp - 1 ? total - microbatches : total));
    RC_ASSERT(sends[SlotKind::kGradient] == (rank == 0 ? total - microbatches : total));
  }
}

TEST(Lower, ReplicasShareItems) {
  const Program one = lowered(test::config_of(ScheduleKind::kOneFOneB, 4, 1, 8));
  const Program eight = lowered(test::config_of(ScheduleKind::kOneFOneB, 4, 1, 8, 0, 8));
  EXPECT_EQ(eight.threads.size(), 32U);
  // One more item a coordinate: the all-reduce over data parallel.
  EXPECT_EQ(eight.items.size(), one.items.size() + 4);
}

TEST(Lower, CommunicatorMaps) {
  RunConfig config = test::config_of(ScheduleKind::kOneFOneB, 4, 1, 8, 0, 2);
  const auto communicators = [&](CommMap map, P2pStyle style) {
    config.schedule.comm_map = map;
    config.schedule.p2p = style;
    const Program program = lowered(config, {StepTail::kSchedule});
    const auto linked = link_program(program);
    EXPECT_TRUE(linked.has_value());
    return linked ? linked->communicators.size() : 0;
  };
  EXPECT_EQ(communicators(CommMap::kOne, P2pStyle::kBatched), 2U);        // one a pipeline
  EXPECT_EQ(communicators(CommMap::kDirection, P2pStyle::kBatched), 4U);  // two a pipeline
  EXPECT_EQ(communicators(CommMap::kPair, P2pStyle::kSeparate), 6U);      // three edges a pipeline
  EXPECT_EQ(communicators(CommMap::kMegatron, P2pStyle::kSeparate), 2U);
}

TEST(Lower, ABatchOverSeveralCommunicatorsIsSplit) {
  RunConfig config = test::config_of(ScheduleKind::kOneFOneB, 4, 1, 8);
  config.schedule.comm_map = CommMap::kPair;
  const Program program = lowered(config, {StepTail::kSchedule});
  for (std::size_t t = 0; t < program.threads.size(); ++t) {
    int stream = -1;
    for (const Item item : program.thread_items(t)) {
      if (item_op(item) != ItemOp::kOp) continue;
      EXPECT_TRUE(stream < 0 || item_stream(item) == stream);
      stream = (item_flags(item) & kMore) != 0 ? item_stream(item) : -1;
    }
  }
}

TEST(Lower, FragmentOfActions) {
  const auto program = lower_csv("0SEND_F1,2RECV_F0\n1SEND_F0,1RECV_F1\n", 2, true);
  ASSERT_TRUE(program.has_value()) << program.error().text();
  EXPECT_EQ(describe_item(*program, 0, program->items[0]), "0SEND_F1 to rank 1");
  EXPECT_EQ(describe_item(*program, 0, program->items[1]), "2RECV_F0 from rank 1");
  EXPECT_TRUE(program->fragment);
}

TEST(Lower, ComputationsWaitForWhatTheyRead) {
  const auto program = lower_csv("0F0\n1F0\n", 2, false);
  ASSERT_TRUE(program.has_value()) << program.error().text();
  std::vector<std::string> rank1;
  for (const Item item : program->thread_items(1)) rank1.push_back(describe_item(*program, 1, item));
  EXPECT_EQ(rank1,
            (std::vector<std::string>{"1RECV_F0 from rank 0", "wait for activation.1, microbatch 0", "1F0"}));
}

// A schedule of one's own on a placement of its own is evaluated on that placement.
TEST(Lower, AListedScheduleEvaluatesOnItsOwnPlacement) {
  RunConfig config = test::config_of(ScheduleKind::kCsv, 2, 2, 1);
  config.schedule.csv = testing::TempDir() + "v.csv";
  ASSERT_TRUE(write_file(config.schedule.csv, "0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n"));
  const auto forward = evaluation_schedule_of(config);
  ASSERT_TRUE(forward.has_value()) << forward.error().text();
  EXPECT_EQ(forward->rank_of_stage, (std::vector<std::int32_t>{0, 1, 1, 0}));
  EXPECT_EQ(print_schedule_csv(*forward), "0F0,3F0\n1F0,2F0\n");
  const auto program = lower(config, *forward, default_sizes(config), {StepTail::kSchedule});
  ASSERT_TRUE(program.has_value()) << program.error().text();
  EXPECT_EQ(program_size(*program).sends, 2);
}

TEST(Lower, AGeneratorByNameGetsItsCommunicationByTorchsRule) {
  RunConfig config = test::config_of(ScheduleKind::kGenerator, 4, 2, 8);
  config.schedule.generator = "interleaved";
  const Program program = lowered(config, {StepTail::kSchedule});
  EXPECT_EQ(program_size(program).computations, 2 * 8 * 8);
  EXPECT_EQ(program_size(program).sends, 2 * 7 * 8);
}

TEST(Lower, RefusalsNameRuleAndFix) {
  const auto refused = [](const Result<Program>& program, const std::string& part) {
    ASSERT_FALSE(program.has_value()) << part;
    EXPECT_NE(program.error().text().find(part), std::string::npos) << program.error().text();
  };
  refused(lower_csv("0SEND_B0\n1F0\n", 2, true), "has no partner");
  refused(lower_csv("0F0,1SEND_F0\n\n", 2, true), "has no partner");
  refused(lower_csv("0F0\n1F0\n", 3, true), "set it to 2");
}

// With every map, style and kind each rank's kernels, sends and receives are those of the schedule.
RC_GTEST_PROP(Lower, EveryComputationOnce, ()) {
  const auto kind = *rc::gen::element(ScheduleKind::kGpipe, ScheduleKind::kOneFOneB,
                                      ScheduleKind::kInterleaved, ScheduleKind::kInterleaved2022);
  const bool chunked = kind == ScheduleKind::kInterleaved || kind == ScheduleKind::kInterleaved2022;
  const int pp = *rc::gen::inRange(2, 6);
  const int chunks = chunked ? *rc::gen::inRange(2, 4) : 1;
  const int microbatches = chunked ? pp * *rc::gen::inRange(1, 4) : *rc::gen::inRange(1, 12);
  RunConfig config = test::config_of(kind, pp, chunks, microbatches);
  config.schedule.comm_map =
      *rc::gen::element(CommMap::kOne, CommMap::kPair, CommMap::kDirection, CommMap::kMegatron);
  config.schedule.p2p = *rc::gen::element(P2pStyle::kBatched, P2pStyle::kSeparate);
  const Program program = lowered(config);
  std::set<std::tuple<KernelKind, int, int>> seen;
  for (std::size_t t = 0; t < program.threads.size(); ++t) {
    for (const Item item : program.thread_items(t)) {
      if (item_op(item) != ItemOp::kLaunch || item_microbatch(item) == kNoMicrobatch) continue;
      const Kernel& kernel = program.kernels[item_ref(item)];
      RC_ASSERT(program.rank_of_stage[kernel.stage] == t);
      RC_ASSERT(seen.emplace(kernel.kind, kernel.stage, item_microbatch(item)).second);
    }
  }
  RC_ASSERT(static_cast<int>(seen.size()) == 2 * pp * chunks * microbatches);
}

}  // namespace
}  // namespace plumbline

// Schedules that run several pipelines over the same ranks: each rank's messages follow the pipeline of their
// microbatch, and the gradients of a stage's copies are added up over the ranks that hold it before anything else.
#include <algorithm>
#include <map>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "engine/base/text.h"
#include "engine/program/lower.h"
#include "engine/program/text.h"
#include "tests/engine/program/config.h"

namespace plumbline {
namespace {

RunConfig config_of(const std::string& generator, int pp, int m, int dp = 1) {
  RunConfig config = test::config_of(ScheduleKind::kGenerator, pp, 1, m, 0, dp);
  config.schedule.generator = generator;
  return config;
}

Program lowered(const RunConfig& config) {
  auto program = program_of(config, default_sizes(config));
  EXPECT_TRUE(program) << program.error().text();
  return program ? std::move(*program) : Program{};
}

const CommFamily* family_named(const Program& program, const std::string& name) {
  for (const CommFamily& family : program.families) {
    if (family.name == name) return &family;
  }
  return nullptr;
}

TEST(Copies, AreAddedOverTheRanksThatHoldThem) {
  const Program dualpipe = lowered(config_of("dualpipe", 4, 8, 2));
  EXPECT_EQ(dualpipe.pipelines(), 2);
  ASSERT_NE(family_named(dualpipe, "copies"), nullptr);
  // Two replicas of four ranks; data parallelism is the fast axis.
  EXPECT_EQ(family_named(dualpipe, "copies")->instances,
            (std::vector<std::vector<Rank>>{{0, 6}, {2, 4}, {1, 7}, {3, 5}}));
  const Program chimera = lowered(config_of("chimera-2-pairs", 4, 4));
  EXPECT_EQ(chimera.pipelines(), 4);
  EXPECT_EQ(family_named(chimera, "copies")->instances, (std::vector<std::vector<Rank>>{{0, 1, 2, 3}}));
  const Program half = lowered(config_of("chimera-2-pairs", 8, 4));
  EXPECT_EQ(half.pipelines(), 2);
  EXPECT_EQ(family_named(half, "copies")->instances,
            (std::vector<std::vector<Rank>>{{0, 7}, {1, 6}, {2, 5}, {3, 4}}));
  // One pipeline after all: nothing to add.
  EXPECT_EQ(family_named(lowered(config_of("chimera", 4, 2)), "copies"), nullptr);
}

// On every rank, once a stage, after the last backward and before the reduction over replicas.
TEST(Copies, ComeBeforeEveryOtherReduction) {
  const Program program = lowered(config_of("dualpipe", 4, 8, 2));
  for (std::size_t t = 0; t < program.threads.size(); ++t) {
    std::set<int> added;
    bool reduced = false;
    for (const Item item : program.thread_items(t)) {
      if (item_op(item) == ItemOp::kLaunch) {
        const KernelKind kind = program.kernels[item_ref(item)].kind;
        EXPECT_FALSE(kind <= KernelKind::kWeightGrad && !added.empty()) << "computation after a reduction";
      }
      if (item_op(item) != ItemOp::kOp) continue;
      const Endpoint& endpoint = program.endpoints[item_ref(item)];
      const SlotClass& slot = program.slots[endpoint.slot];
      if (slot.kind != SlotKind::kMainGrads) continue;
      if (program.families[endpoint.family].name == "copies") {
        EXPECT_FALSE(reduced);
        EXPECT_EQ(endpoint.bytes, slot.bytes);
        EXPECT_TRUE(added.insert(slot.stage).second);
      } else {
        reduced = true;
      }
    }
    EXPECT_EQ(added.size(), 2u);
    EXPECT_TRUE(reduced);
  }
}

// A microbatch's messages stay in its pipeline.
TEST(Copies, MessagesFollowTheirMicrobatch) {
  const RunConfig config = config_of("chimera", 4, 8);
  const Schedule schedule = schedule_of(config).value();
  const Program program = lowered(config);
  int messages = 0;
  for (std::size_t t = 0; t < program.threads.size(); ++t) {
    for (const Item item : program.thread_items(t)) {
      if (item_op(item) != ItemOp::kOp || !is_p2p(program.endpoints[item_ref(item)].kind)) continue;
      const Endpoint& endpoint = program.endpoints[item_ref(item)];
      const SlotClass& slot = program.slots[endpoint.slot];
      const bool send = endpoint.kind == EndpointKind::kSend;
      const bool activation = slot.kind == SlotKind::kActivation;
      // Activation s enters stage s from s - 1, its gradient goes the other way.
      const int sender = activation ? slot.stage - 1 : slot.stage;
      const int receiver = activation ? slot.stage : slot.stage - 1;
      EXPECT_EQ(schedule.rank_of(send ? sender : receiver, item_microbatch(item)), static_cast<int>(t));
      EXPECT_EQ(schedule.rank_of(send ? receiver : sender, item_microbatch(item)), endpoint.peer);
      ++messages;
    }
  }
  EXPECT_EQ(messages, 2 * 2 * 3 * 8);  // both ends, both ways, three hops
}

// A rank with both ends of the model merges their gradients itself.
TEST(Copies, TheTiedEmbeddingMeetsOnItsRanks) {
  const Program dualpipe = lowered(config_of("dualpipe", 4, 8));
  EXPECT_EQ(family_named(dualpipe, "embedding"), nullptr);
}

Schedule rows_of(const std::vector<std::string>& rows, int stages, int microbatches,
                 std::vector<std::int32_t> placement) {
  Schedule out;
  out.name = "rows";
  out.ranks = static_cast<int>(rows.size());
  out.stages = stages;
  out.microbatches = microbatches;
  out.rank_of_stage = std::move(placement);
  for (int m = 0; m < microbatches; ++m) out.pipeline_of.push_back(static_cast<std::uint8_t>(m % 2));
  for (const std::string& row : rows) {
    std::vector<Action> actions;
    for (const std::string_view word : split(row, ' ')) actions.push_back(parse_cell(word).value().front());
    out.add_row(actions);
  }
  return out;
}

// Two pipelines the same way round a ring, the second one half of it ahead: each has its own two ends.
TEST(Copies, TheTiedEmbeddingTravelsInsideAPipeline) {
  const Schedule ring = rows_of({"0F0 2F1 2B1 0B0", "1F0 3F1 3B1 1B0", "0F1 2F0 2B0 0B1", "1F1 3F0 3B0 1B1"},
                                4, 2, {0, 1, 2, 3, 2, 3, 0, 1});
  const RunConfig config = config_of("chimera", 4, 2);
  const auto program = lower(config, ring, default_sizes(config));
  ASSERT_TRUE(program) << program.error().text();
  ASSERT_NE(family_named(*program, "embedding"), nullptr);
  EXPECT_EQ(family_named(*program, "embedding")->instances, (std::vector<std::vector<Rank>>{{0, 3}, {2, 1}}));
  EXPECT_EQ(family_named(*program, "copies")->instances, (std::vector<std::vector<Rank>>{{0, 2}, {1, 3}}));
}

// With --overlap-grad-reduce a stage's copies are added up as soon as they can be: behind its last backward, before
// the stage's reduction over replicas, and on all holders in one order. Where these meet, some begin before the rank's
// last computation; Chimera's two pairs do not.
TEST(Copies, OverlapWithWhatIsLeftOfThePipeline) {
  for (const char* generator : {"dualpipe", "chimera", "chimera-2-pairs"}) {
    SCOPED_TRACE(generator);
    RunConfig config = config_of(generator, 4, 8, 2);
    config.optimizer.overlap_grad_reduce = true;
    const Program program = lowered(config);
    std::map<int, std::vector<int>> orders;  // by coordinate
    bool beside = false;
    for (std::size_t t = 0; t < program.threads.size(); ++t) {
      std::vector<int>& order = orders[program.grid.coordinate(program.threads[t].rank, Axis::kPp)];
      order.clear();
      std::set<int> reduced;
      for (const Item item : program.thread_items(t)) {
        if (item_op(item) == ItemOp::kLaunch) {
          const Kernel& kernel = program.kernels[item_ref(item)];
          if (kernel.kind > KernelKind::kWeightGrad) continue;
          beside = beside || !order.empty();
          const bool adds = kernel.kind == KernelKind::kBackward || kernel.kind == KernelKind::kWeightGrad;
          EXPECT_FALSE(adds && std::find(order.begin(), order.end(), kernel.stage) != order.end());
        }
        if (item_op(item) != ItemOp::kOp) continue;
        const Endpoint& endpoint = program.endpoints[item_ref(item)];
        if (program.slots[endpoint.slot].kind != SlotKind::kMainGrads) continue;
        const int stage = program.slots[endpoint.slot].stage;
        if (program.families[endpoint.family].name == "copies") {
          order.push_back(stage);
        } else {
          EXPECT_NE(std::find(order.begin(), order.end(), stage), order.end())
              << "reduced before it is added up";
          reduced.insert(stage);
        }
      }
      EXPECT_EQ(order.size(), reduced.size());
    }
    EXPECT_EQ(beside, std::string(generator) != "chimera-2-pairs");
    const CommFamily& copies = *family_named(program, "copies");
    for (const std::vector<Rank>& holders : copies.instances) {
      const auto order = [&](Rank rank) { return orders[program.grid.coordinate(rank, Axis::kPp)]; };
      for (const Rank holder : holders) EXPECT_EQ(order(holder), order(holders.front()));
    }
  }
}

TEST(Copies, RefuseWhatTheyCannotAdd) {
  // Rank 0 shares stage 0 with rank 1 and stage 1 with rank 2.
  const Schedule uneven =
      rows_of({"0F0 1F0 1B0 0B0", "0F1 0B1", "2F0 2B0 1F1 2F1 2B1 1B1"}, 3, 2, {0, 0, 2, 1, 2, 2});
  RunConfig config = config_of("chimera", 3, 2);
  const auto unequal = lower(config, uneven, default_sizes(config));
  ASSERT_FALSE(unequal);
  EXPECT_NE(unequal.error().message.find("equal sets of stages"), std::string::npos)
      << unequal.error().message;
}

TEST(Copies, GoThroughTheTextForm) {
  const Program program = lowered(config_of("dualpipe", 4, 8));
  const Result<Program> back = parse_program(print_program(program), "dualpipe");
  ASSERT_TRUE(back) << back.error().text();
  EXPECT_EQ(back->pipelines(), 2);
  EXPECT_EQ(program_digest(*back), program_digest(program));
}

}  // namespace
}  // namespace plumbline

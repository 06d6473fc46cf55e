// UNSHARD, RESHARD and REDUCE_GRAD with several replicas: gathers, releases and reductions where the rows say, memory
// of one shard a stage between them, and nothing at all with one replica or replicated parameters.
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "engine/program/lower.h"
#include "engine/program/text.h"
#include "tests/engine/program/config.h"

namespace plumbline {
namespace {

RunConfig config_of(const std::string& generator, int pp, int vp, int m, int dp, bool distributed = true) {
  RunConfig config = test::config_of(ScheduleKind::kGenerator, pp, vp, m, 0, dp);
  config.schedule.generator = generator;
  config.optimizer.distributed = distributed;
  config.optimizer.shard_parameters = true;
  return config;
}

Program lowered(const RunConfig& config) {
  auto program = program_of(config, default_sizes(config));
  EXPECT_TRUE(program) << program.error().text();
  return program ? std::move(*program) : Program{};
}

// "gather.3", "reduce.3", "compute.3", ... in the order of the rank's items.
std::vector<std::string> events_of(const Program& program, std::size_t thread) {
  std::vector<std::string> events;
  for (const Item item : program.thread_items(thread)) {
    if (item_op(item) == ItemOp::kLaunch) {
      const Kernel& kernel = program.kernels[item_ref(item)];
      const char* word = kernel.kind <= KernelKind::kWeightGrad ? "compute"
                         : kernel.kind == KernelKind::kUnshard  ? "unshard"
                         : kernel.kind == KernelKind::kReshard  ? "reshard"
                                                                : "tail";
      events.push_back(word + (kernel.kind <= KernelKind::kWeightGrad || kernel.kind >= KernelKind::kUnshard
                                   ? "." + std::to_string(kernel.stage)
                                   : std::string()));
    } else if (item_op(item) == ItemOp::kOp) {
      const Endpoint& endpoint = program.endpoints[item_ref(item)];
      const int stage = program.slots[endpoint.slot].stage;
      if (endpoint.kind == EndpointKind::kAllGather) events.push_back("gather." + std::to_string(stage));
      if (endpoint.kind == EndpointKind::kReduceScatter) events.push_back("reduce." + std::to_string(stage));
      if (endpoint.kind == EndpointKind::kAllReduce &&
          program.slots[endpoint.slot].kind == SlotKind::kMainGrads)
        events.push_back("all-reduce." + std::to_string(stage));
    }
  }
  // Buckets of a stage follow each other.
  std::vector<std::string> once;
  for (const std::string& event : events) {
    const bool bucket = event[0] == 'g' || event.find("reduce") != std::string::npos;
    if (!bucket || once.empty() || once.back() != event) once.push_back(event);
  }
  return once;
}

TEST(Sharding, FollowsTheRows) {
  const RunConfig config = config_of("zb-v", 2, 2, 4, 2);
  const Schedule schedule = schedule_of(config).value();
  const Program program = lowered(config);
  for (int rank = 0; rank < 2; ++rank) {
    std::vector<std::string> expected{"tail"};  // zeroes the gradients
    for (const Action& action : schedule.row(rank)) {
      const std::string stage = "." + std::to_string(action.stage);
      if (is_compute(action.kind)) expected.push_back("compute" + stage);
      if (action.kind == ActionKind::kUnshard) {
        expected.push_back("unshard" + stage);
        expected.push_back("gather" + stage);
      }
      if (action.kind == ActionKind::kReshard) expected.push_back("reshard" + stage);
      if (action.kind == ActionKind::kReduceGrad) expected.push_back("reduce" + stage);
    }
    std::vector<std::string> events = events_of(program, static_cast<std::size_t>(rank) * 2);
    ASSERT_GT(events.size(), expected.size());
    for (std::size_t i = expected.size(); i < events.size(); ++i) EXPECT_EQ(events[i], "tail");
    events.resize(expected.size());
    EXPECT_EQ(events, expected) << "rank " << rank;
  }
}

TEST(Sharding, KeepsOneShardAStage) {
  const Program program = lowered(config_of("breadth-first", 2, 2, 4, 4));
  std::map<int, Bytes> whole, shard;
  for (const SlotClass& slot : program.slots) {
    if (slot.kind == SlotKind::kParameters) {
      EXPECT_FALSE(slot.persistent);
      whole[slot.stage] = slot.bytes;
    }
    if (slot.kind == SlotKind::kParameterShard) {
      EXPECT_TRUE(slot.persistent);
      shard[slot.stage] = slot.bytes;
    }
  }
  ASSERT_EQ(whole.size(), 4u);
  for (const auto& [stage, bytes] : whole) EXPECT_EQ(bytes, 4 * shard.at(stage));
}

// Replicated parameters are there: only the reduction is left. One replica has nobody to gather from.
TEST(Sharding, IsNothingWhereParametersAreReplicated) {
  for (const std::string& event : events_of(lowered(config_of("zb-v", 2, 2, 4, 2, false)), 0)) {
    EXPECT_EQ(event.find("shard"), std::string::npos) << event;
    EXPECT_EQ(event.find("gather"), std::string::npos) << event;
  }
  const std::vector<std::string> replicated = events_of(lowered(config_of("zb-v", 2, 2, 4, 2, false)), 0);
  EXPECT_EQ(std::count(replicated.begin(), replicated.end(), "all-reduce.0"), 1);
  for (const std::string& event : events_of(lowered(config_of("zb-v", 2, 2, 4, 1)), 0)) {
    EXPECT_TRUE(event == "tail" || event.rfind("compute", 0) == 0) << event;
  }
}

TEST(Sharding, RefusesASecondWayToGather) {
  RunConfig config = config_of("zb-v", 2, 2, 4, 2);
  config.optimizer.overlap_grad_reduce = config.optimizer.overlap_param_gather = true;
  const auto refused = program_of(config, default_sizes(config));
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("leave out --overlap-param-gather"), std::string::npos);
}

TEST(Sharding, EvaluationGathersToo) {
  const RunConfig config = config_of("zb-v", 2, 2, 4, 2);
  const Schedule forward = evaluation_schedule_of(config).value();
  const auto program = lower(config, forward, default_sizes(config), {StepTail::kEvaluate});
  ASSERT_TRUE(program) << program.error().text();
  const std::vector<std::string> events = events_of(*program, 0);
  EXPECT_EQ(std::count(events.begin(), events.end(), "gather.0"), 1);
  EXPECT_EQ(std::count(events.begin(), events.end(), "reshard.3"), 1);
}

TEST(Sharding, GoesThroughTheTextForm) {
  const Program program = lowered(config_of("zb-v", 2, 2, 4, 2));
  const Result<Program> back = parse_program(print_program(program), "sharded");
  ASSERT_TRUE(back) << back.error().text();
  EXPECT_EQ(program_digest(*back), program_digest(program));
}

}  // namespace
}  // namespace plumbline

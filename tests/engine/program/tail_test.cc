// The end of the training step: which operations, in which order, on which data.
#include "engine/program/tail.h"

#include <map>
#include <numeric>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine/base/exact_sum.h"
#include "engine/program/link.h"
#include "engine/program/text.h"
#include "tests/engine/program/optimizer_programs.h"

namespace plumbline {
namespace {

Program lowered(const RunConfig& config, LowerOptions options = {}) {
  auto program = program_of(config, default_sizes(config), options);
  EXPECT_TRUE(program.has_value()) << (program ? "" : program.error().text());
  return program ? std::move(*program) : Program{};
}

std::string in_words(const Program& program, std::size_t thread, Item item) {
  const unsigned flags = item_flags(item);
  std::string out = describe_item(program, static_cast<Rank>(thread), item);
  if (item_op(item) == ItemOp::kOp && (flags & kHandle) != 0) out += " (kept)";
  if ((flags & kArmYes) != 0) out += " (yes)";
  if ((flags & kArmNo) != 0) out += " (no)";
  return out;
}

// Items of a thread without the pipeline's own: what stands before the first pass and after the last, and
// collectives between.
std::vector<std::string> outline(const Program& program, std::size_t thread) {
  std::vector<std::string> out;
  for (const Item item : program.thread_items(thread)) {
    const bool pass = item_op(item) == ItemOp::kLaunch && item_microbatch(item) != kNoMicrobatch;
    const bool message = item_op(item) == ItemOp::kOp && is_p2p(program.endpoints[item_ref(item)].kind);
    if (message || item_op(item) == ItemOp::kFree) continue;
    if (pass) {
      if (out.empty() || out.back() != "...") out.emplace_back("...");
      continue;
    }
    out.push_back(in_words(program, thread, item));
  }
  return out;
}

RunConfig small(bool distributed, bool overlap) {
  RunConfig config = test::config_of(ScheduleKind::kOneFOneB, 2, 1, 2, 0, 2);
  config.train.precision = Precision::kFp16;
  config.model.hidden = 8;
  config.model.heads = 2;
  config.model.seq_length = 4;
  config.model.vocab = 16;
  config.optimizer.distributed = distributed;
  config.optimizer.overlap_grad_reduce = config.optimizer.overlap_param_gather = overlap;
  return config;
}

TEST(Tail, ReplicatedWithoutOverlap) {
  EXPECT_EQ(outline(lowered(small(false, false)), 0),
            (std::vector<std::string>{"zero_grad.0", "...", "all-reduce of main_grads.0", "collect_tied.0",
                                      "all-reduce of tied_grad", "merge_tied.0", "unscale_check.0",
                                      "all-reduce of found_inf", "read of found_inf", "decision on found_inf",
                                      "norm_sums.0 (no)", "all-reduce of norm_sums (no)",
                                      "optimizer_step.0 (no)", "skip_step.0 (yes)"}));
}

TEST(Tail, DistributedReducesAndGathersBuckets) {
  const Program program = lowered(small(true, false));
  // A layer and the positions in one bucket of 1408 elements (each tensor begins at a multiple of 64, the bucket
  // ends at one of 128); the embedding's 128 in their own.
  EXPECT_EQ(
      outline(program, 0),
      (std::vector<std::string>{"zero_grad.0", "...", "reduce-scatter of main_grads.0, bytes 0 to 5632",
                                "reduce-scatter of main_grads.0, bytes 5632 to 6144", "collect_tied.0",
                                "all-reduce of tied_grad", "merge_tied.0", "unscale_check.0",
                                "all-reduce of found_inf", "read of found_inf", "decision on found_inf",
                                "norm_sums.0 (no)", "all-reduce of norm_sums (no)", "optimizer_step.0 (no)",
                                "all-gather of params.0, bytes 0 to 2816 (no)",
                                "all-gather of params.0, bytes 2816 to 3072 (no)", "skip_step.0 (yes)"}));
  const auto linked = link_program(program);
  ASSERT_TRUE(linked.has_value());
  // The tied embedding: one shard. The norm: exact words over everybody.
  for (const Endpoint& endpoint : program.endpoints) {
    if (program.slots[endpoint.slot].kind == SlotKind::kTiedGrad) EXPECT_EQ(endpoint.bytes, 128 / 2 * 4);
    if (program.slots[endpoint.slot].kind != SlotKind::kNormSums) continue;
    EXPECT_EQ(endpoint.dtype, DType::kI64);
    EXPECT_EQ(endpoint.bytes, 8 * ExactSum::kWords);
    EXPECT_EQ(program.families[endpoint.family].instances, (std::vector<std::vector<Rank>>{{0, 1, 2, 3}}));
  }
}

TEST(Tail, OverlapMovesReductionsAndGathersIntoThePipelinesWork) {
  EXPECT_EQ(
      outline(lowered(small(true, true)), 0),
      (std::vector<std::string>{
          "zero_grad.0", "all-gather of params.0, bytes 0 to 2816 (kept)",
          "all-gather of params.0, bytes 2816 to 3072 (kept)", "wait for 2 operations of queue 4", "...",
          "reduce-scatter of main_grads.0, bytes 0 to 5632 (kept)",
          "reduce-scatter of main_grads.0, bytes 5632 to 6144 (kept)", "wait for 2 operations of queue 3",
          "collect_tied.0", "all-reduce of tied_grad", "merge_tied.0", "unscale_check.0",
          "all-reduce of found_inf", "read of found_inf", "decision on found_inf", "norm_sums.0 (no)",
          "all-reduce of norm_sums (no)", "optimizer_step.0 (no)", "skip_step.0 (yes)"}));
}

TEST(Tail, PostValidationReadsNothing) {
  RunConfig config = small(true, false);
  config.optimizer.post_validation = true;
  const Program program = lowered(config);
  EXPECT_TRUE(program.variables.empty());
  EXPECT_EQ(outline(program, 2),
            (std::vector<std::string>{
                "zero_grad.1", "...", "reduce-scatter of main_grads.1, bytes 0 to 512",
                "reduce-scatter of main_grads.1, bytes 512 to 6144", "collect_tied.1",
                "all-reduce of tied_grad", "merge_tied.1", "unscale_check.1", "norm_sums.1",
                "all-reduce of found_inf (kept)", "all-reduce of norm_sums (kept)", "speculative_step.1",
                "wait for 2 operations of queue 5", "validate_step.1",
                "all-gather of params.1, bytes 0 to 256", "all-gather of params.1, bytes 256 to 3072"}));
  for (const SlotClass& slot : program.slots) {
    // Main parameter and both moments, fp32, of the own shards.
    if (slot.kind == SlotKind::kSnapshot) EXPECT_EQ(slot.bytes, (1408 + 128) / 2 * 12) << slot.name;
  }
}

TEST(Tail, WithoutALossScaleNobodyAsksForOverflow) {
  RunConfig config = small(false, false);
  config.train.precision = Precision::kBf16;
  EXPECT_EQ(outline(lowered(config), 3),
            (std::vector<std::string>{"zero_grad.1", "...", "all-reduce of main_grads.1", "collect_tied.1",
                                      "all-reduce of tied_grad", "merge_tied.1", "norm_sums.1",
                                      "all-reduce of norm_sums", "optimizer_step.1"}));
}

TEST(Tail, AnEmbeddingTiedWithinARankIsMergedThere) {
  RunConfig config = test::config_of(ScheduleKind::kOneFOneB, 1, 1, 1);
  EXPECT_EQ(outline(lowered(config), 0), (std::vector<std::string>{"zero_grad.0", "...", "merge_tied.0",
                                                                   "norm_sums.0", "optimizer_step.0"}));
}

TEST(Tail, CountedZerosTravelWithTheNorm) {
  RunConfig config = small(false, false);
  config.optimizer.log_num_zeros = true;
  for (const SlotClass& slot : lowered(config).slots) {
    if (slot.kind == SlotKind::kNormSums) EXPECT_EQ(slot.bytes, 8 * (ExactSum::kWords + 1));
  }
}

TEST(Tail, ALayoutNeedsEveryTensor) {
  const RunConfig config = small(true, false);
  ModelSizes sizes = default_sizes(config);
  sizes.tensors[1].pop_back();
  const auto program = program_of(config, sizes);
  ASSERT_FALSE(program.has_value());
  EXPECT_NE(program.error().text().find("must list every tensor"), std::string::npos)
      << program.error().text();
}

// Replicas of a coordinate run the same items, so on a "dp" communicator all members agree by construction; over
// the others every member calls the same collectives in the same order.
TEST(OptimizerPrograms, MembersCallTheSameCollectivesInTheSameOrder) {
  for (const RunConfig& config : test::all_optimizer_variants()) {
    SCOPED_TRACE(test::describe(config));
    const Program program = lowered(config);
    const auto linked = link_program(program);
    ASSERT_TRUE(linked.has_value()) << linked.error().text();
    for (const unsigned skipped : {static_cast<unsigned>(kArmYes), static_cast<unsigned>(kArmNo)}) {
      std::map<std::pair<std::int32_t, Rank>, std::vector<std::string>> calls;
      for (std::size_t t = 0; t < program.threads.size(); ++t) {
        for (const Item item : program.thread_items(t)) {
          if (item_op(item) != ItemOp::kOp || (item_flags(item) & skipped) != 0) continue;
          const Endpoint& endpoint = program.endpoints[item_ref(item)];
          if (is_p2p(endpoint.kind)) continue;
          const LinkedEndpoint& at =
              linked->endpoints[linked->windows[t].base + (item_ref(item) - linked->windows[t].first)];
          calls[{at.communicator, static_cast<Rank>(t)}].push_back(fmt::format(
              "{} {} {} {} {}", endpoint_kind_name(endpoint.kind), program.slots[endpoint.slot].name,
              endpoint.offset, endpoint.bytes, dtype_name(endpoint.dtype)));
        }
      }
      for (std::size_t c = 0; c < linked->communicators.size(); ++c) {
        const std::vector<Rank>& members = linked->communicators[c].members;
        for (const Rank member : members) {
          EXPECT_EQ((calls[{static_cast<std::int32_t>(c), member}]),
                    (calls[{static_cast<std::int32_t>(c), members.front()}]))
              << linked->communicators[c].name;
        }
      }
    }
  }
}

// Buckets cover the buffers without gaps, shares are equal and keep whole elements.
TEST(OptimizerPrograms, BucketsCoverTheBuffers) {
  for (const RunConfig& config : test::all_optimizer_variants()) {
    SCOPED_TRACE(test::describe(config));
    if (config.parallel.dp == 1) continue;
    const Program program = lowered(config);
    std::map<std::pair<EndpointKind, std::uint16_t>, Bytes> end;
    for (const Endpoint& endpoint : program.endpoints) {
      const SlotKind kind = program.slots[endpoint.slot].kind;
      if (kind != SlotKind::kMainGrads && kind != SlotKind::kParameters) continue;
      Bytes& next = end[{endpoint.kind, endpoint.slot}];
      EXPECT_EQ(endpoint.offset, next) << endpoint.name;
      next += endpoint.bytes;
      if (config.optimizer.distributed)
        EXPECT_EQ(endpoint.bytes % (config.parallel.dp * dtype_bytes(endpoint.dtype)), 0) << endpoint.name;
    }
    const std::size_t stages = static_cast<std::size_t>(config.stages());
    EXPECT_EQ(end.size(), config.optimizer.distributed ? 2 * stages : stages);
    for (const auto& [key, bytes] : end) EXPECT_EQ(bytes, program.slots[key.second].bytes);
  }
}

// Every chunk is reduced once, after its last backward; gathered once, before its first forward.
TEST(OptimizerPrograms, ReductionsAndGathersStandWhereTheyMust) {
  for (const RunConfig& config : test::all_optimizer_variants()) {
    SCOPED_TRACE(test::describe(config));
    const Program program = lowered(config);
    for (std::size_t t = 0; t < program.threads.size(); ++t) {
      std::map<int, std::vector<std::string>> of_stage;  // "F", "B", "reduce", "gather", repetitions as one
      for (const Item item : program.thread_items(t)) {
        std::string what;
        int stage = 0;
        if (item_op(item) == ItemOp::kLaunch && item_microbatch(item) != kNoMicrobatch) {
          const Kernel& kernel = program.kernels[item_ref(item)];
          what = kernel.kind == KernelKind::kForward ? "F" : "B";
          stage = kernel.stage;
        } else if (item_op(item) == ItemOp::kOp) {
          const SlotClass& slot = program.slots[program.endpoints[item_ref(item)].slot];
          if (slot.kind == SlotKind::kMainGrads) what = "reduce";
          if (slot.kind == SlotKind::kParameters) what = "gather";
          stage = slot.stage;
        }
        if (what.empty()) continue;
        std::vector<std::string>& list = of_stage[stage];
        if (list.empty() || list.back() != what) list.push_back(what);
      }
      for (const auto& [stage, list] : of_stage) {
        std::vector<std::string> passes = list;
        const bool communicates = config.parallel.dp > 1;
        if (communicates && config.optimizer.overlap_param_gather) {
          EXPECT_EQ(passes.front(), "gather") << "stage " << stage;
          passes.erase(passes.begin());
        } else if (communicates && config.optimizer.distributed) {
          EXPECT_EQ(passes.back(), "gather") << "stage " << stage;
          passes.pop_back();
        }
        if (communicates) {
          EXPECT_EQ(passes.back(), "reduce") << "stage " << stage;
          passes.pop_back();
        }
        for (const std::string& pass : passes) EXPECT_TRUE(pass == "F" || pass == "B") << "stage " << stage;
      }
    }
  }
}

TEST(OptimizerPrograms, TextComesBack) {
  for (const RunConfig& config : test::all_optimizer_variants()) {
    SCOPED_TRACE(test::describe(config));
    const Program program = lowered(config);
    const std::string text = print_program(program);
    const auto again = parse_program(text, "printed");
    ASSERT_TRUE(again.has_value()) << again.error().text();
    EXPECT_EQ(program_digest(*again), program_digest(program));
    EXPECT_EQ(print_program(*again), text);
  }
}

// What --overlap-param-gather leaves open at the end of a run, and before an evaluation.
TEST(OptimizerPrograms, OpenGathersAreDoneByEvaluationAndParamSync) {
  RunConfig config = small(true, true);
  const auto forward = evaluation_schedule_of(config);
  ASSERT_TRUE(forward.has_value());
  const auto evaluation = lower(config, *forward, default_sizes(config), {StepTail::kEvaluate});
  ASSERT_TRUE(evaluation.has_value()) << evaluation.error().text();
  const std::vector<std::string> gathered{"all-gather of params.0, bytes 0 to 2816 (kept)",
                                          "all-gather of params.0, bytes 2816 to 3072 (kept)",
                                          "wait for 2 operations of queue 4", "..."};
  EXPECT_EQ(outline(*evaluation, 0), gathered);
  const auto sync = lower_param_sync(config, *schedule_of(config), default_sizes(config));
  ASSERT_TRUE(sync.has_value()) << sync.error().text();
  EXPECT_EQ(outline(*sync, 0), (std::vector<std::string>{"all-gather of params.0, bytes 0 to 2816",
                                                         "all-gather of params.0, bytes 2816 to 3072"}));
  EXPECT_EQ(print_program(*parse_program(print_program(*sync), "sync")), print_program(*sync));

  config.optimizer.overlap_param_gather = false;
  EXPECT_EQ(outline(*lower(config, *forward, default_sizes(config), {StepTail::kEvaluate}), 0),
            (std::vector<std::string>{"..."}));
  EXPECT_TRUE(lower_param_sync(config, *schedule_of(config), default_sizes(config))->items.empty());
}

}  // namespace
}  // namespace plumbline

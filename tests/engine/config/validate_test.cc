#include "engine/config/validate.h"

#include <cmath>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "engine/config/explain.h"
#include "engine/config/options.h"
#include "tests/engine/config/config_support.h"

namespace plumbline {
namespace {

TEST(Validate, DefaultsAreValidForEveryPurpose) {
  for (const Purpose purpose : {Purpose::kCheck, Purpose::kSim, Purpose::kRun}) {
    const Validation result = check({}, purpose);
    EXPECT_TRUE(result.ok()) << result.errors.front().text();
    EXPECT_TRUE(result.warnings.empty());
  }
}

TEST(Validate, OnlyPipelinesAndReplicasAreParallel) {
  refuses({{{"--tensor-model-parallel-size", "2"}, "parallel.tp=2 (--tensor-model-parallel-size) must be 1"},
           {{"--context-parallel-size", "2"}, "parallel.cp=2"},
           {{"--expert-model-parallel-size", "0"}, "parallel.ep=0"}});
  EXPECT_EQ(check({"--tensor-model-parallel-size", "2"}).errors[0].code, ErrorCode::kUnsupported);
}

TEST(Validate, WholeNumbersHaveBounds) {
  for (const char* name :
       {"parallel.dp", "parallel.pp", "schedule.chunks", "schedule.microbatches", "model.layers",
        "model.hidden", "model.heads", "model.seq_length", "model.vocab", "train.iterations",
        "train.micro_batch_size", "loss_scale.window", "loss_scale.hysteresis"}) {
    refuses({{{"--set", std::string(name) + "=0"},
              std::string(name) + "=0 (--set " + name + ") must be at least 1"}});
  }
  for (const char* name : {"schedule.global_batch_size", "schedule.group_size", "model.ffn_hidden",
                           "train.eval_interval", "train.eval_iterations", "optimizer.warmup_iterations"}) {
    refuses({{{"--set", std::string(name) + "=-1"}, "must be at least 0"}});
  }
  refuses({{{"-m", "1048576"}, "must be at most 1048575"},
           {{"--model="}, "model.name='' (--model) must not be empty"}});
  EXPECT_TRUE(check({"-m", "1048575"}).ok());
}

TEST(Validate, NumbersHaveBounds) {
  refuses({{{"--lr", "-1"}, "optimizer.lr=-1"},
           {{"--min-lr", "-1"}, "optimizer.min_lr=-1"},
           {{"--init-method-std", "-1"}, "model.init_std"},
           {{"--weight-decay", "-0.1"}, "optimizer.weight_decay"},
           {{"--clip-grad", "-1"}, "optimizer.clip_grad"},
           {{"--adam-eps", "0"}, "optimizer.eps=0"},
           {{"--adam-beta1", "1"}, "optimizer.beta1=1 (--adam-beta1) must be in [0, 1)"},
           {{"--adam-beta2", "-0.1"}, "optimizer.beta2"},
           {{"--loss-scale", "-1"}, "loss_scale.constant"},
           {{"--min-loss-scale", "0"}, "loss_scale.minimum=0"},
           {{"--initial-loss-scale", "0.5"}, "must be at least loss_scale.minimum=1"},
           {{"--loss-scale-growth-factor", "1"}, "must be above 1"},
           {{"--loss-scale-backoff-factor", "1"}, "must be between 0 and 1"},
           {{"--loss-scale-backoff-factor", "0"}, "must be between 0 and 1"},
           {{"--forward-time", "1ms,2000s"}, "time.forward=1ms,2000s (--forward-time) must be at most 1000s"},
           {{"--optimizer-time", "2000s"}, "time.optimizer"},
           {{"--link-latency", "2000s"}, "time.link_latency"},
           {{"--memory-limit", "2097152GiB"}, "memory.limit"}});
}

TEST(Validate, NotANumberIsRefusedEvenWithoutAParser) {
  RunConfig config;
  config.optimizer.lr = std::nan("");
  config.optimizer.beta1 = std::nan("");
  config.loss_scale.growth_factor = std::nan("");
  EXPECT_EQ(validate_all(config).errors.size(), 2u) << "relations are looked at once the bounds hold";
}

TEST(Validate, TheGridIsDerived) {
  const Validation result = check({"--pp", "2", "--dp", "3", "--use-tp-pp-dp-mapping"});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result.config.grid.world(), 6);
  EXPECT_EQ(result.config.grid.order(), "tp-cp-ep-pp-dp");
  refuses({{{"--rank-order", "tp-pp"}, "parallel.order=tp-pp"},
           {{"--pp", "1024", "--dp", "1025"}, "more than 2^20 ranks"}});
}

TEST(Validate, PlainSchedulesHaveOneChunk) {
  refuses({{{"--vp", "2"}, "schedule.chunks=2 (--vp) must be 1 in 1f1b — use --schedule interleaved"},
           {{"--schedule", "gpipe", "--vp", "2"}, "must be 1 in gpipe"}},
          Purpose::kCheck);
}

TEST(Validate, InterleavedNeedsChunksAndRanks) {
  refuses({{{"--schedule", "interleaved", "--pp", "2", "-m", "2"},
            "schedule.chunks=1 (default) is too few for interleaved"},
           {{"--schedule", "interleaved", "--vp", "2", "-m", "2"},
            "parallel.pp=1 (default) is too few for interleaved"},
           {{"--schedule", "interleaved-2022", "--pp", "2", "-m", "2"}, "schedule.chunks=1"},
           {{"--schedule", "forward-only", "--vp", "2", "-m", "2"}, "parallel.pp=1"}},
          Purpose::kCheck);
}

TEST(Validate, GroupSizesFollowMegatron) {
  const Flags base{"--schedule", "interleaved", "--pp", "4", "--vp", "2"};
  const auto with = [&](Flags more) {
    more.insert(more.begin(), base.begin(), base.end());
    return more;
  };
  refuses({{with({"-m", "8", "--group-size", "3"}), "must be at least parallel.pp=4"},
           {with({"-m", "8", "--group-size", "9"}), "must not exceed schedule.microbatches=8"},
           {with({"-m", "3"}), "schedule.microbatches=3 (-m) must be at least parallel.pp=4"},
           {with({"-m", "9"}),
            "leaves a last group of 1, fewer than parallel.pp=4, after groups of schedule.group_size=4 — use "
            "8 or 12"},
           {with({"-m", "13", "--group-size", "5"}), "leaves a last group of 3"}},
          Purpose::kCheck);
  EXPECT_TRUE(check(with({"-m", "14", "--group-size", "5"}), Purpose::kCheck).ok())
      << "a last group of pp or more is whole";
  EXPECT_EQ(check(with({"-m", "8"}), Purpose::kCheck).config.schedule.group_size, 4);
  refuses({{{"--schedule", "interleaved-2022", "--pp", "4", "--vp", "2", "-m", "14"},
            "is not a multiple of parallel.pp=4"},
           {{"--schedule", "interleaved-2022", "--pp", "4", "--vp", "2", "-m", "16", "--group-size", "8"},
            "must be parallel.pp=4"}},
          Purpose::kCheck);
}

TEST(Validate, TwoRanksWithBatchedCallsAreWarnedAbout) {
  const Flags flags{"--schedule", "interleaved", "--pp", "2", "--vp", "2", "-m", "4"};
  const Validation result = check(flags, Purpose::kCheck);
  EXPECT_TRUE(result.ok());
  ASSERT_EQ(result.warnings.size(), 1u);
  EXPECT_NE(result.warnings[0].find("pp = 2"), std::string::npos);
  Flags separate = flags;
  separate.insert(separate.end(), {"--p2p", "separate"});
  EXPECT_TRUE(check(separate, Purpose::kCheck).warnings.empty());
}

TEST(Validate, KeptHandlesAreForInterleavedSchedules) {
  refuses({{{"--p2p", "flush", "--pp", "2", "--microbatches", "4"}, "schedule.p2p=flush"},
           {{"--p2p", "flush", "--pp", "2", "--microbatches", "4", "--schedule", "forward-only"},
            "schedule.p2p=flush"},
           {{"--p2p", "overlap", "--pp", "2", "-m", "4"}, "schedule.p2p=overlap"},
           {{"--p2p", "deferred", "--pp", "2", "-m", "4"}, "schedule.p2p=deferred"},
           {{"--overlap-moe-expert-parallel-comm", "--schedule", "interleaved", "--pp", "4", "--vp", "2",
             "-m", "4"},
            "schedule.combined=true"},
           {{"--shard-parameters", "--use-distributed-optimizer", "--pp", "2", "-m", "4"},
            "optimizer.shard_parameters=true"},
           {{"--shard-parameters", "--generator", "zb-h1", "--pp", "2", "-m", "4"},
            "optimizer.shard_parameters=true"}},
          Purpose::kCheck);
  EXPECT_TRUE(check({"--p2p", "overlap", "--overlap-moe-expert-parallel-comm", "--schedule", "interleaved",
                     "--pp", "2", "--vp", "2", "-m", "4"},
                    Purpose::kCheck)
                  .ok());
  EXPECT_TRUE(
      check({"--p2p", "flush", "--pp", "2", "--vp", "2", "--microbatches", "4", "--schedule", "forward-only"},
            Purpose::kCheck)
          .ok());
}

TEST(Validate, AGeneratorsNameImpliesTheKind) {
  EXPECT_EQ(check({"--generator", "mine", "--vp", "2"}, Purpose::kCheck).config.schedule.kind,
            ScheduleKind::kGenerator);
  EXPECT_TRUE(check({"--generator", "mine", "--vp", "2"}, Purpose::kCheck).ok());
  refuses({{{"--schedule", "generator"}, "schedule.generator"}});
}

TEST(Validate, CsvNeedsAFile) {
  refuses({{{"--schedule", "csv"}, "schedule.csv='' (default) must name a file"}});
  EXPECT_TRUE(check({"--schedule", "csv", "--schedule-csv", "x.csv"}).ok());
}

TEST(Validate, GlobalBatchSizeBecomesMicrobatches) {
  const Validation result = check({"--global-batch-size", "24", "--micro-batch-size", "2", "--dp", "3"});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result.config.schedule.microbatches, 4);
  EXPECT_EQ(result.config.schedule.global_batch_size, 0);
  refuses({{{"--global-batch-size", "25", "--micro-batch-size", "2", "--dp", "3"},
            "is not a multiple of train.micro_batch_size=2 times parallel.dp=3 — use 30"},
           {{"--global-batch-size", "8", "-m", "4"}, "means 8 microbatches, but schedule.microbatches=4"},
           {{"--global-batch-size", "1048576"}, "but 2^20 - 1 is the most"}});
  EXPECT_TRUE(check({"--global-batch-size", "8", "-m", "8"}).ok());
}

TEST(Validate, AModelDividesOnlyWhereItIsTrained) {
  const std::vector<Broken> cases{
      {{"--num-layers", "5", "--pp", "2"}, "model.layers=5 (--num-layers) is not a multiple of the 2 stages"},
      {{"--hidden-size", "65"},
       "model.hidden=65 (--hidden-size) is not a multiple of model.heads=4 — use 68"},
      {{"--vocab-size", "100"}, "is below 256"}};
  refuses(cases, Purpose::kRun);
  for (const Broken& one : cases) {
    EXPECT_TRUE(check(one.flags, Purpose::kCheck).ok());
    EXPECT_TRUE(check(one.flags, Purpose::kSim).ok());
  }
  EXPECT_TRUE(check({"--vocab-size", "100", "--model", "toy"}).ok());
  EXPECT_EQ(check({}).config.model.ffn_hidden, 256);
  EXPECT_EQ(check({"--ffn-hidden-size", "100"}).config.model.ffn_hidden, 100);
}

TEST(Validate, LearningRatesRelate) {
  refuses({{{"--lr", "0.1", "--min-lr", "0.2"}, "must not exceed optimizer.lr=0.1"},
           {{"--lr-warmup-iters", "10"}, "must be fewer than train.iterations=10"}});
  EXPECT_TRUE(check({"--lr-warmup-iters", "9", "--lr", "0.1", "--min-lr", "0.1"}).ok());
}

TEST(Validate, TimeListsHaveOneEntryOrOneAStage) {
  for (const char* flag : {"--forward-time", "--backward-time", "--input-grad-time", "--weight-grad-time"}) {
    refuses({{{flag, "1ms,2ms,3ms", "--pp", "2"}, "has 3 entries for 2 stages — give 1 entry or 2"}});
    EXPECT_TRUE(check({flag, "1ms,2ms", "--pp", "2"}).ok());
  }
}

TEST(Validate, WhatIfsNameRanksOfTheWorld) {
  refuses({{{"--link", "0-2:10GB/s", "--pp", "2"}, "names the link 0-2 in a world of 2 ranks"},
           {{"--link", "1-1:10GB/s", "--pp", "2"}, "use two different ranks"},
           {{"--slow", "rank=2:1.5", "--pp", "2"}, "names rank 2 of a world of 2"},
           {{"--slow", "rank=-1:1.5"}, "names rank -1"},
           {{"--slow", "rank=0:0"}, "has the factor 0"},
           {{"--slow", "rank=0:-2"}, "has the factor -2"},
           {{"--fp16", "--inject-overflow", "rank=1:step=1"}, "names rank 1 of a world of 1"},
           {{"--fp16", "--inject-overflow", "rank=0:step=0"}, "names step 0"},
           {{"--fp16", "--inject-overflow", "rank=0:step=11"}, "names step 11 of train.iterations=10"},
           {{"--inject-overflow", "rank=0:step=1"}, "needs a loss scale"},
           {{"--bf16", "--inject-overflow", "rank=0:step=1"}, "needs a loss scale"}});
  EXPECT_TRUE(check({"--bf16", "--loss-scale", "128", "--inject-overflow", "rank=0:step=1"}).ok());
}

TEST(Validate, ALinkWithoutALatencyHasThatOfAllLinks) {
  const Validation result =
      check({"--pp", "3", "--link", "0-1:1GB/s", "--link", "1-2:1GB/s:7us", "--link-latency", "3us"},
            Purpose::kCheck);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ((result.config.time.links.at({0, 1}).latency), 3000);
  EXPECT_EQ((result.config.time.links.at({1, 2}).latency), 7000);
}

TEST(Validate, EagerNeedsASize) {
  refuses({{{"--send", "eager"}, "sim.send=eager (--send) needs a size above 0"},
           {{"--send", "eager:0"}, "needs a size"}});
  EXPECT_TRUE(check({"--send", "eager:1"}).ok());
  EXPECT_TRUE(check({"--send", "always-eager"}).ok());
}

TEST(Validate, ErrorsOfAFileHaveItsPlace) {
  const TemporaryFile file(
      "[parallel]\npp = 4\n[schedule]\nkind = \"interleaved\"\nchunks = 2\nmicrobatches = 6\n");
  const LoadedConfig given = loaded({file.path()});
  const Result<RunConfig> result = validate(given.config, given.origins, Purpose::kCheck);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().text(),
            file.path() +
                ":6:1: schedule.microbatches=6 leaves a last group of 2, fewer than "
                "parallel.pp=4, after groups of schedule.group_size=4 — use 4 or 8, or another "
                "group size");
}

TEST(Validate, AllBrokenRulesAreReported) {
  const Validation result = check({"--pp", "0", "--lr", "-1", "--train-iters", "0"});
  EXPECT_EQ(result.errors.size(), 3u);
  const LoadedConfig given = loaded({"--pp", "0", "--lr", "-1", "--train-iters", "0"});
  const Result<RunConfig> first = validate(given.config, given.origins);
  ASSERT_FALSE(first);
  EXPECT_EQ(first.error().message, "parallel.pp=0 (--pp) must be at least 1 — use 1 (2 more broken rules)");
}

// Draws a configuration through the table, so that new options take part by themselves.
LoadedConfig any_config() {
  LoadedConfig out;
  for (int i = *rc::gen::inRange(0, 12); i > 0; --i) {
    const Option& option = *rc::gen::elementOf(options());
    const std::string text = option.choices.empty() ? std::to_string(*rc::gen::inRange(0, 9))
                                                    : *rc::gen::elementOf(option.choices);
    static_cast<void>(
        apply_assignments({{&option, text, Origin{Layer::kCommandLine, "drawn", {}}, false}}, out));
  }
  return out;
}

RC_GTEST_PROP(Validate, ValidatingTwiceChangesNothing, ()) {
  const LoadedConfig given = any_config();
  const Purpose purpose = *rc::gen::element(Purpose::kCheck, Purpose::kSim, Purpose::kRun);
  const Validation once = validate_all(given.config, given.origins, purpose);
  RC_CLASSIFY(once.ok());
  if (!once.ok()) return;
  const Validation twice = validate_all(once.config, given.origins, purpose);
  RC_ASSERT(twice.ok());
  RC_ASSERT(config_toml(twice.config) == config_toml(once.config));
  RC_ASSERT(twice.config.grid == once.config.grid);
  RC_ASSERT(once.config.schedule.group_size > 0);
}

RC_GTEST_PROP(Validate, WhatRunsMayAlsoBeChecked, ()) {
  const LoadedConfig given = any_config();
  if (!validate_all(given.config, given.origins, Purpose::kRun).ok()) return;
  RC_ASSERT(validate_all(given.config, given.origins, Purpose::kCheck).ok());
}

}  // namespace
}  // namespace plumbline

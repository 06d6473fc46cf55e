// Every schedule trains: the toy model finds each contribution once, and the GPT's steps equal the sequential
// reference bit for bit - backwards in two parts, copies of the stages, overlapped pairs.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "engine/program/lower.h"
#include "engine/schedule/csv.h"
#include "engine/schedule/generator.h"
#include "engine/schedule/torch_orders.h"
#include "engine/train/reference.h"
#include "tests/engine/train/small_run.h"

namespace plumbline {
namespace {

using test::Layout;

RunConfig with_generator(RunConfig config, const std::string& name) {
  config.schedule.kind = ScheduleKind::kGenerator;
  config.schedule.generator = name;
  return config;
}

// Whether the generator takes the sizes of this layout.
bool takes(const RunConfig& config) {
  const Result<RunConfig> valid = validate(config, {}, Purpose::kRun);
  return valid && schedule_of(*valid);
}

void expect_exact(RunConfig config) {
  config.train.iterations = 2;
  config.train.eval_iterations = 1;
  const std::unique_ptr<Trainer> trainer = test::make_trainer(config);
  ASSERT_NE(trainer, nullptr);
  const Result<TrainOutcome> outcome = trainer->run();
  ASSERT_TRUE(outcome) << outcome.error().text();
  EXPECT_EQ(outcome->exit_code, 0) << (outcome->findings.empty() ? "" : outcome->findings.front().why);
  EXPECT_TRUE(outcome->toy.empty()) << outcome->toy.front().text;
  EXPECT_EQ(outcome->updates, 2);
}

// Ranks, chunks, microbatches, replicas, groups and slices. PLUMBLINE_TOY_GRID=full: more of each.
TEST(EveryGenerator, ContributionsAreExact) {
  const char* grid = std::getenv("PLUMBLINE_TOY_GRID");
  const bool full = grid != nullptr && std::string_view(grid) == "full";
  const std::vector<int> depths = full ? std::vector<int>{1, 2, 3, 4, 6, 8} : std::vector<int>{1, 2, 4};
  const std::vector<int> widths = full ? std::vector<int>{1, 2, 3, 4} : std::vector<int>{1, 2};
  const std::vector<int> counts = full ? std::vector<int>{1, 2, 3, 4, 6, 8, 12, 16} : std::vector<int>{4, 8};
  std::map<std::string, int> runs;
  for (const Generator& generator : generators()) {
    if (generator.name == "forward-only") continue;  // nothing to train
    runs[generator.name] = 0;
    for (const int pp : depths) {
      for (const int vp : widths) {
        for (const int m : counts) {
          for (const auto& [dp, group] : {std::pair{1, 0}, std::pair{2, 0}, std::pair{1, pp + 1}}) {
            const Layout layout{ScheduleKind::kGenerator, pp, vp, m, dp};
            RunConfig config = with_generator(test::toy_config(layout), generator.name);
            config.model.layers = pp * vp;
            config.schedule.group_size = group;
            config.schedule.slices = generator.name == "seq-1f1b" ? 2 : 1;
            if (group > 0 && generator.name.find("interleaved") == std::string::npos) continue;
            if (!takes(config)) continue;
            SCOPED_TRACE(generator.name + ", " + layout.name() + ", group " + std::to_string(group));
            expect_exact(config);
            ++runs[generator.name];
          }
        }
      }
    }
  }
  int all = 0;
  for (const auto& [name, count] : runs) {
    EXPECT_GT(count, 0) << name;
    all += count;
  }
  RecordProperty("runs", all);
  if (full) std::printf("%d runs\n", all);
}

// Three steps of the GPT against the reference.
void compare(const RunConfig& given) {
  const std::unique_ptr<Trainer> trainer = test::make_trainer(given);
  ASSERT_NE(trainer, nullptr);
  const RunConfig& config = trainer->config();
  const Result<std::unique_ptr<BatchSource>> batches = text_batches(config, *trainer->text());
  ASSERT_TRUE(batches);
  Result<SequentialReference> reference = SequentialReference::create(
      config, **find_model("gpt"), **batches, backward_order_of(*schedule_of(config)));
  ASSERT_TRUE(reference) << reference.error().text();
  for (int step = 0; step < 3; ++step) {
    const Result<TrainOutcome> outcome = trainer->train_step();
    ASSERT_TRUE(outcome) << outcome.error().text();
    ASSERT_TRUE(outcome->completed) << (outcome->findings.empty() ? "" : outcome->findings.front().why);
    ASSERT_EQ(outcome->exit_code, 0) << (outcome->findings.empty() ? "" : outcome->findings.front().why);
    bool overflow = false;
    for (const OverflowFault& fault : config.faults.overflow)
      overflow = overflow || fault.iteration == step + 1;
    const SequentialReference::Step expected = reference->step(step * samples_per_step(config), overflow);
    const StepRow& row = trainer->record().steps.back();
    EXPECT_EQ(row.skipped, expected.found_inf);
    EXPECT_EQ(row.loss, expected.loss);
    EXPECT_EQ(row.grad_norm, expected.norm);
    EXPECT_EQ(row.params_digest, reference->params_digest());
    EXPECT_EQ(row.optimizer_digest, reference->optimizer_digest());
  }
}

struct Case {
  const char* generator;
  int pp, vp, m, dp;
};

const std::vector<Case> kCases{{"zb-h1", 4, 1, 8, 1},
                               {"zb-h2", 4, 1, 8, 1},
                               {"zb-auto", 4, 1, 6, 2},
                               {"zb-v", 4, 2, 8, 1},
                               {"zbv-auto", 4, 2, 6, 1},
                               {"v-min", 4, 2, 6, 1},
                               {"v-half", 2, 2, 6, 2},
                               {"v-zb", 2, 2, 4, 1},
                               {"v-auto", 4, 2, 6, 1},
                               {"torch-interleaved-zb", 4, 2, 8, 1},
                               {"group-interleaved", 4, 2, 8, 1},
                               {"hanayo", 2, 4, 4, 1},
                               {"dualpipe", 4, 1, 8, 1},
                               {"dualpipe", 2, 1, 6, 2},
                               {"dualpipe-v", 2, 2, 6, 1},
                               {"chimera", 4, 1, 8, 1},
                               {"chimera-2-pairs", 4, 1, 8, 1},
                               {"chimera-2-pairs", 8, 1, 4, 1}};

TEST(EveryGenerator, TrainingEqualsTheReferenceInFp32) {
  for (const Case& one : kCases) {
    const Layout layout{ScheduleKind::kGenerator, one.pp, one.vp, one.m, one.dp};
    SCOPED_TRACE(std::string(one.generator) + ", " + layout.name());
    compare(with_generator(test::small_config(layout), one.generator));
  }
}

// Scaled losses, an overflow in the second step, sharded optimizer states, zeros counted once.
TEST(EveryGenerator, TrainingEqualsTheReferenceInFp16) {
  for (const Case& one : {kCases[0], kCases[3], kCases[12], kCases[13], kCases[15], kCases[17]}) {
    const Layout layout{ScheduleKind::kGenerator, one.pp, one.vp, one.m, one.dp};
    SCOPED_TRACE(std::string(one.generator) + ", " + layout.name());
    RunConfig config = with_generator(test::small_config(layout, Precision::kFp16), one.generator);
    config.optimizer.distributed = true;
    config.optimizer.log_num_zeros = true;
    config.faults.overflow = {{1, 2}};
    compare(config);
  }
}

// Copies of a stage that are added up, and then reduced over replicas, beside the pipeline's work.
TEST(EveryGenerator, CopiesThatOverlapTheirReductionsTrainTheSame) {
  for (const Case& one : std::vector<Case>{
           {"dualpipe", 4, 1, 8, 1}, {"dualpipe", 2, 1, 4, 2}, {"chimera-2-pairs", 4, 1, 4, 2}}) {
    const Layout layout{ScheduleKind::kGenerator, one.pp, one.vp, one.m, one.dp};
    SCOPED_TRACE(std::string(one.generator) + ", " + layout.name());
    RunConfig config = with_generator(test::small_config(layout, Precision::kFp16), one.generator);
    config.optimizer.distributed = one.pp == 4;
    config.optimizer.overlap_grad_reduce = true;
    config.optimizer.bucket_size = config.optimizer.distributed ? 600 : 0;
    compare(config);
  }
}

// The same order as rows of a file, whose REDUCE_GRAD say where the reduction of a stage's copies begins.
TEST(EveryGenerator, RowsThatReduceCopiesTrainTheSame) {
  for (const Case& one : std::vector<Case>{{"dualpipe", 4, 1, 8, 2},
                                           {"dualpipe", 2, 1, 4, 1},
                                           {"chimera", 4, 1, 8, 2},
                                           {"chimera-2-pairs", 4, 1, 4, 2}}) {
    const Layout layout{ScheduleKind::kGenerator, one.pp, one.vp, one.m, one.dp};
    SCOPED_TRACE(std::string(one.generator) + ", " + layout.name());
    RunConfig config = with_generator(test::small_config(layout, Precision::kFp16), one.generator);
    const Result<RunConfig> valid = validate(config, {}, Purpose::kRun);
    ASSERT_TRUE(valid) << valid.error().text();
    const Result<Schedule> generated = schedule_of(*valid);
    ASSERT_TRUE(generated) << generated.error().text();
    const Result<Schedule> rows = torch_lowered_rows(*generated, false);
    ASSERT_TRUE(rows) << rows.error().text();
    const std::string text = print_schedule_csv(*rows);
    ASSERT_NE(text.find("REDUCE_GRAD"), std::string::npos);
    config.schedule.kind = ScheduleKind::kCsv;
    config.schedule.generator.clear();
    config.schedule.csv = testing::TempDir() + "reduced_copies.csv";
    std::ofstream(config.schedule.csv) << text;
    compare(config);
  }
}

// Slices of sequences: each one's attention reads what the slices before left, and hands their gradients back.
TEST(EveryGenerator, SlicesOfSequencesTrainTheSame) {
  struct Sliced {
    int slices, pp, dp;
    Precision precision;
  };
  for (const Sliced& one : std::vector<Sliced>{
           {2, 2, 1, Precision::kFp32}, {3, 2, 2, Precision::kFp16}, {4, 4, 1, Precision::kBf16}}) {
    const Layout layout{ScheduleKind::kGenerator, one.pp, 1, 3, one.dp};
    SCOPED_TRACE(layout.name() + ", slices " + std::to_string(one.slices));
    RunConfig config = with_generator(test::small_config(layout, one.precision), "seq-1f1b");
    config.schedule.slices = one.slices;
    config.optimizer.distributed = one.dp > 1;
    compare(config);
  }
}

// And they train what whole sequences train, but for the order in which gradients are added.
TEST(EveryGenerator, SlicesOfSequencesAreTheWholeOnes) {
  const auto record = [](const char* generator, int slices) {
    RunConfig config = with_generator(test::small_config({ScheduleKind::kGenerator, 2, 1, 4, 1}), generator);
    config.schedule.slices = slices;
    config.train.iterations = 3;
    const std::unique_ptr<Trainer> trainer = test::make_trainer(config);
    EXPECT_TRUE(trainer->run());
    return trainer->record();
  };
  const RunRecord whole = record("1f1b", 1), sliced = record("seq-1f1b", 6);
  ASSERT_EQ(sliced.steps.size(), whole.steps.size());
  for (std::size_t i = 0; i < whole.steps.size(); ++i) {
    EXPECT_NEAR(sliced.steps[i].loss, whole.steps[i].loss, 2e-5) << i;
    EXPECT_NEAR(sliced.steps[i].grad_norm, whole.steps[i].grad_norm,
                2e-4 * std::abs(whole.steps[i].grad_norm))
        << i;
    EXPECT_EQ(sliced.steps[i].consumed_samples, whole.steps[i].consumed_samples);
  }
}

// Parameters in shards: gathered before a stage computes, dropped after, gradients reduced where the rows say.
TEST(EveryGenerator, ShardedParametersTrainTheSame) {
  for (const Case& one : std::vector<Case>{{"zb-v", 2, 2, 6, 2},
                                           {"gpipe", 2, 1, 3, 3},
                                           {"breadth-first", 2, 4, 4, 2},
                                           {"torch-interleaved-zb", 2, 4, 4, 2},
                                           {"dualpipe-v", 2, 2, 6, 2}}) {
    for (const Precision precision : {Precision::kFp32, Precision::kFp16}) {
      const Layout layout{ScheduleKind::kGenerator, one.pp, one.vp, one.m, one.dp};
      SCOPED_TRACE(std::string(one.generator) + ", " + layout.name());
      RunConfig config = with_generator(test::small_config(layout, precision), one.generator);
      config.optimizer.distributed = true;
      config.optimizer.shard_parameters = true;
      config.optimizer.post_validation = precision == Precision::kFp16 && one.pp == 2 && one.vp == 2;
      config.optimizer.bucket_size = one.vp == 4 ? 600 : 0;
      compare(config);
      RunConfig toy = with_generator(test::toy_config(layout, precision), one.generator);
      toy.optimizer.distributed = true;
      toy.optimizer.shard_parameters = true;
      toy.train.iterations = 3;
      toy.train.eval_interval = 1;
      toy.train.eval_iterations = 2;
      const std::unique_ptr<Trainer> trainer = test::make_trainer(toy);
      ASSERT_NE(trainer, nullptr);
      const Result<TrainOutcome> outcome = trainer->run();
      ASSERT_TRUE(outcome) << outcome.error().text();
      EXPECT_EQ(outcome->exit_code, 0) << (outcome->findings.empty() ? "" : outcome->findings.front().why);
      EXPECT_TRUE(outcome->toy.empty()) << outcome->toy.front().text;
    }
  }
}

// Megatron's calls whose handles are kept, and its combined steps.
TEST(EveryGenerator, OverlappedCallsTrainTheSame) {
  for (const P2pStyle style : {P2pStyle::kOverlap, P2pStyle::kFlush}) {
    for (const bool combined : {false, true}) {
      for (const Case& one : std::vector<Case>{{"", 2, 2, 4, 1}, {"", 4, 2, 8, 2}}) {
        const Layout layout{ScheduleKind::kInterleaved, one.pp, one.vp, one.m, one.dp};
        SCOPED_TRACE(layout.name());
        RunConfig config = test::small_config(layout, Precision::kFp16);
        config.schedule.p2p = style;
        config.schedule.combined = combined;
        config.schedule.variable_lengths = combined;
        // Flush on an even number of ranks waits for ever where all messages share a queue; of two ranks Megatron has
        // one send on the world's communicator.
        config.schedule.comm_map = one.pp == 2 ? CommMap::kMegatron : CommMap::kPair;
        config.optimizer.distributed = true;
        config.optimizer.overlap_grad_reduce = true;
        config.optimizer.overlap_param_gather = true;
        compare(config);
      }
    }
  }
}

// Zero bubble's own way: nobody waits for the agreement, and a step is taken back if it was wrong.
TEST(EveryGenerator, StepsAreValidatedAfterwards) {
  for (const char* generator : {"zb-h1", "zb-h2", "zb-auto", "zb-v"}) {
    for (const double clip : {1.0, 0.05}) {
      SCOPED_TRACE(std::string(generator) + ", clip " + std::to_string(clip));
      const Layout layout{ScheduleKind::kGenerator, 4, std::string(generator) == "zb-v" ? 2 : 1, 8, 1};
      RunConfig config = with_generator(test::small_config(layout, Precision::kFp16), generator);
      config.optimizer.post_validation = true;
      config.optimizer.clip_grad = clip;
      config.faults.overflow = {{2, 2}};
      compare(config);
    }
  }
}

}  // namespace
}  // namespace plumbline

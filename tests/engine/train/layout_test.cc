// What a layout may not change: losses, weights, samples. And what a second run may not: anything.
#include <cmath>
#include <functional>

#include <gtest/gtest.h>

#include "tests/engine/train/small_run.h"

namespace plumbline {
namespace {

using test::Layout;

using Change = std::function<void(RunConfig&)>;

RunRecord record_of(const Layout& layout, Precision precision, int iterations, const Change& change = {}) {
  RunConfig config = test::small_config(layout, precision);
  if (change) change(config);
  config.train.iterations = iterations;
  config.train.eval_interval = 2;
  const std::unique_ptr<Trainer> trainer = test::make_trainer(config);
  const Result<TrainOutcome> outcome = trainer->run();
  EXPECT_TRUE(outcome) << outcome.error().text();
  EXPECT_EQ(outcome->exit_code, 0);
  return trainer->record();
}

void expect_same_steps(const RunRecord& one, const RunRecord& other) {
  ASSERT_EQ(one.steps.size(), other.steps.size());
  for (std::size_t i = 0; i < one.steps.size(); ++i) {
    EXPECT_EQ(one.steps[i].loss, other.steps[i].loss) << "step " << i;
    EXPECT_EQ(one.steps[i].grad_norm, other.steps[i].grad_norm) << "step " << i;
    EXPECT_EQ(one.steps[i].params_digest, other.steps[i].params_digest) << "step " << i;
    EXPECT_EQ(one.steps[i].optimizer_digest, other.steps[i].optimizer_digest) << "step " << i;
  }
}

TEST(Layout, StagesAndSchedulesDoNotChangeTraining) {
  for (const Precision precision : {Precision::kFp32, Precision::kFp16}) {
    const RunRecord one = record_of({ScheduleKind::kOneFOneB, 1, 1, 8, 1}, precision, 4);
    for (const Layout& layout : std::vector<Layout>{{ScheduleKind::kGpipe, 4, 1, 8, 1},
                                                    {ScheduleKind::kOneFOneB, 8, 1, 8, 1},
                                                    {ScheduleKind::kInterleaved, 4, 2, 8, 1}}) {
      SCOPED_TRACE(layout.name());
      const RunRecord other = record_of(layout, precision, 4);
      expect_same_steps(one, other);
    }
  }
}

// Neither do stages of different sizes: layers by hand on the first and the last rank, ends that count as layers, and
// layouts, one with an empty stage and one whose first and last stages have no layers at all.
TEST(Layout, UnevenStagesDoNotChangeTraining) {
  for (const Precision precision : {Precision::kFp32, Precision::kFp16}) {
    const RunRecord one = record_of({ScheduleKind::kOneFOneB, 1, 1, 8, 1}, precision, 3);
    const auto compare = [&](const Layout& layout, const Change& change) {
      SCOPED_TRACE(layout.name());
      expect_same_steps(one, record_of(layout, precision, 3, change));
    };
    compare({ScheduleKind::kOneFOneB, 4, 1, 8, 1}, [](RunConfig& config) {
      config.model.first_layers = 1;
      config.model.last_layers = 3;
    });
    compare({ScheduleKind::kOneFOneB, 5, 1, 8, 1},
            [](RunConfig& config) { config.model.embedding_as_layer = config.model.loss_as_layer = true; });
    compare({ScheduleKind::kInterleaved, 2, 2, 8, 1}, [](RunConfig& config) {
      config.model.layout = "Ett|ttt||tttL";
      config.schedule.p2p = P2pStyle::kSeparate;
    });
    compare({ScheduleKind::kOneFOneB, 4, 1, 8, 1},
            [](RunConfig& config) { config.model.layout = "E|t*5|ttt|L"; });
  }
}

// Nor does what is built again instead of kept, whatever of it and with whatever backward.
TEST(Layout, RecomputationDoesNotChangeTraining) {
  for (const Precision precision : {Precision::kFp32, Precision::kFp16}) {
    const RunRecord one = record_of({ScheduleKind::kOneFOneB, 1, 1, 4, 1}, precision, 3);
    for (const char* generator : {"1f1b", "zb-v"}) {
      for (const int way : {0, 1, 2, 3}) {
        SCOPED_TRACE(std::string(generator) + ", way " + std::to_string(way));
        const Layout layout{ScheduleKind::kGenerator, 2, std::string(generator) == "zb-v" ? 2 : 1, 4, 1};
        const RunRecord other = record_of(layout, precision, 3, [&](RunConfig& config) {
          config.schedule.generator = generator;
          config.memory.recompute = way == 0 ? Recompute::kSelective : Recompute::kFull;
          config.memory.recompute_method = way == 3 ? RecomputeMethod::kBlock : RecomputeMethod::kUniform;
          config.memory.recompute_layers = way <= 1 ? 1 : way == 2 ? 3 : 2;
        });
        expect_same_steps(one, other);
      }
    }
  }
}

// Neither do sharded states, overlapped reductions and gathers, buckets, or steps validated afterwards, with any
// layout of the same replicas.
TEST(Layout, TheWayOfTheOptimizerDoesNotChangeTraining) {
  const RunRecord one = record_of({ScheduleKind::kOneFOneB, 1, 1, 4, 2}, Precision::kFp16, 4);
  for (const Layout& layout : std::vector<Layout>{{ScheduleKind::kOneFOneB, 1, 1, 4, 2},
                                                  {ScheduleKind::kGpipe, 2, 1, 4, 2},
                                                  {ScheduleKind::kInterleaved, 4, 2, 4, 2}}) {
    for (const int way : {0, 1, 2, 3}) {
      SCOPED_TRACE(layout.name() + ", way " + std::to_string(way));
      const RunRecord other = record_of(layout, Precision::kFp16, 4, [way](RunConfig& config) {
        config.optimizer.distributed = way != 0;
        config.optimizer.overlap_grad_reduce = way != 1;
        config.optimizer.overlap_param_gather = way == 3;
        config.optimizer.post_validation = way >= 2;
        config.optimizer.bucket_size = way == 3 ? 400 : 0;
        config.optimizer.pad_buckets = way == 2;
      });
      expect_same_steps(one, other);
    }
  }
}

// Replicas and microbatches share out the same samples, but are added up in another order.
TEST(Layout, ReplicasTrainOnTheSameSamples) {
  const RunRecord one = record_of({ScheduleKind::kOneFOneB, 2, 1, 8, 1}, Precision::kFp32, 4);
  const RunRecord two = record_of({ScheduleKind::kOneFOneB, 2, 1, 4, 2}, Precision::kFp32, 4);
  ASSERT_EQ(one.steps.size(), two.steps.size());
  for (std::size_t i = 0; i < one.steps.size(); ++i) {
    EXPECT_NEAR(one.steps[i].loss, two.steps[i].loss, 1e-5) << "step " << i;
    EXPECT_EQ(one.steps[i].consumed_samples, two.steps[i].consumed_samples);
  }
  EXPECT_NEAR(one.steps[0].loss, two.steps[0].loss, 1e-12);
}

TEST(Determinism, OneSeedOneDigest) {
  const Layout layout{ScheduleKind::kInterleaved, 4, 2, 4, 2};
  const RunRecord a = record_of(layout, Precision::kFp16, 3);
  const RunRecord b = record_of(layout, Precision::kFp16, 3);
  EXPECT_EQ(a.digest(), b.digest());
  EXPECT_EQ(serialize_record(a), serialize_record(b));
}

TEST(Determinism, AnotherSeedAnotherDigest) {
  RunConfig config = test::small_config({});
  config.train.iterations = 1;
  const std::unique_ptr<Trainer> a = test::make_trainer(config);
  config.train.seed = 99;
  const std::unique_ptr<Trainer> b = test::make_trainer(config);
  ASSERT_TRUE(a->run());
  ASSERT_TRUE(b->run());
  EXPECT_NE(a->record().digest(), b->record().digest());
}

TEST(Training, ReachesLessThanTheUnigramEntropyInALittleWhile) {
  RunConfig config = test::small_config({ScheduleKind::kInterleaved, 4, 2, 4, 1}, Precision::kFp16);
  config.train.iterations = 80;
  config.train.micro_batch_size = 4;
  config.optimizer.lr = 1e-2;
  const std::unique_ptr<Trainer> trainer = test::make_trainer(config);
  const Result<TrainOutcome> outcome = trainer->run();
  ASSERT_TRUE(outcome) << outcome.error().text();
  const Baselines base = text_baselines(trainer->text()->training_part(), trainer->text()->held_out());
  EXPECT_LT(outcome->validation_loss, base.unigram);
  EXPECT_LT(base.bigram, base.unigram);
}

}  // namespace
}  // namespace plumbline

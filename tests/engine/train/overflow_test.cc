// An overflow on one rank: every rank skips that step, the scale backs off, and nothing else differs.
#include <gtest/gtest.h>

#include "engine/program/lower.h"
#include "engine/train/reference.h"
#include "tests/engine/train/small_run.h"

namespace plumbline {
namespace {

using test::Layout;

const Layout kLayout{ScheduleKind::kInterleaved, 4, 2, 4, 2};

RunConfig overflow_config(bool inject) {
  RunConfig config = test::small_config(kLayout, Precision::kFp16);
  config.loss_scale.hysteresis = 1;
  config.train.iterations = 6;
  config.train.eval_iterations = 0;
  if (inject) config.faults.overflow.push_back({5, 3});
  return config;
}

// Everything that training changes, of every rank: parameters, main copies, moments, updates.
std::vector<std::uint64_t> state_of(const Trainer& trainer) {
  std::vector<std::uint64_t> all;
  for (const StageWorker* worker : trainer.workers()) {
    for (const ParameterSlice& slice : worker->model().slices())
      all.push_back(worker->model().parameter_digest(slice));
    for (const RankModel::OwnPart& part : worker->model().own_parts()) all.push_back(state_digest(part));
  }
  return all;
}

TEST(Overflow, EveryRankSkipsTheStepAndTheScaleBacksOff) {
  const std::unique_ptr<Trainer> trainer = test::make_trainer(overflow_config(true));
  ASSERT_TRUE(trainer->train_step());
  ASSERT_TRUE(trainer->train_step());
  const std::vector<std::uint64_t> before = state_of(*trainer);
  ASSERT_TRUE(trainer->train_step());
  EXPECT_EQ(state_of(*trainer), before);
  const StepRow row = trainer->record().steps.back();
  EXPECT_TRUE(row.skipped);
  EXPECT_EQ(row.scale, 1024.0);
  EXPECT_EQ(row.scale_after, 512.0);
  EXPECT_EQ(row.consumed_samples, 3 * 4 * 2 * 2);
  for (const StageWorker* worker : trainer->workers()) {
    EXPECT_TRUE(worker->result().skipped) << "rank " << worker->rank();
    EXPECT_FALSE(worker->result().updated);
    for (const RankModel::OwnPart& part : worker->model().own_parts()) EXPECT_EQ(part.state.step, 2);
    EXPECT_EQ(worker->model().scaler()->scale(), 512.0f);
    EXPECT_EQ(worker->model().scaler()->hysteresis_tracker(), 0);
    EXPECT_TRUE(*worker->model().scaler() == *trainer->workers().front()->model().scaler());
  }
}

TEST(Overflow, WhichRankSawItDoesNotMatter) {
  RunConfig other = overflow_config(true);
  other.faults.overflow.front().rank = 0;
  const std::unique_ptr<Trainer> a = test::make_trainer(overflow_config(true));
  const std::unique_ptr<Trainer> b = test::make_trainer(other);
  ASSERT_TRUE(a->run());
  ASSERT_TRUE(b->run());
  EXPECT_EQ(state_of(*a), state_of(*b));
  EXPECT_EQ(a->record().steps, b->record().steps);
}

// The sequential reference, told that step 3 overflowed and otherwise untouched, goes through the same states
// to the end.
TEST(Overflow, TheRunDiffersInNothingButTheStepTheScaleAndTheCounter) {
  for (const bool inject : {false, true}) {
    const std::unique_ptr<Trainer> trainer = test::make_trainer(overflow_config(inject));
    const RunConfig& config = trainer->config();
    ASSERT_TRUE(trainer->run());
    const std::vector<StepRow> rows = test::training_rows(trainer->record());
    const Result<std::unique_ptr<BatchSource>> batches = text_batches(config, *trainer->text());
    Result<SequentialReference> reference = SequentialReference::create(
        config, **find_model("gpt"), **batches, backward_order_of(*schedule_of(config)));
    ASSERT_TRUE(reference);
    ASSERT_EQ(rows.size(), 6u);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const bool overflow = inject && i == 2;
      const SequentialReference::Step expected =
          reference->step(static_cast<std::int64_t>(i) * samples_per_step(config), overflow);
      EXPECT_EQ(rows[i].skipped, overflow);
      EXPECT_EQ(rows[i].loss, expected.loss);
      EXPECT_EQ(rows[i].grad_norm, expected.norm);
      EXPECT_EQ(rows[i].scale, inject && i > 2 ? 512.0 : 1024.0);
      EXPECT_EQ(rows[i].consumed_samples, static_cast<std::int64_t>(i + 1) * samples_per_step(config));
      EXPECT_EQ(rows[i].params_digest, reference->params_digest());
      EXPECT_EQ(rows[i].optimizer_digest, reference->optimizer_digest());
    }
  }
}

TEST(Overflow, RealOverflowsLowerTheScaleUntilGradientsFit) {
  RunConfig config = test::small_config({ScheduleKind::kOneFOneB, 2, 1, 4, 1}, Precision::kFp16);
  config.loss_scale.initial = 0x1p40;
  config.loss_scale.hysteresis = 1;
  config.train.iterations = 40;
  config.train.eval_iterations = 0;
  const std::unique_ptr<Trainer> trainer = test::make_trainer(config);
  ASSERT_TRUE(trainer->run());
  const std::vector<StepRow> rows = test::training_rows(trainer->record());
  EXPECT_TRUE(rows.front().skipped);
  EXPECT_FALSE(rows.back().skipped);
  for (std::size_t i = 0; i + 1 < rows.size(); ++i) {
    EXPECT_EQ(rows[i].scale_after, rows[i].skipped ? rows[i].scale / 2 : rows[i].scale) << i;
  }
}

}  // namespace
}  // namespace plumbline

// Every way to run the optimizer - sharded or replicated, reductions and gathers overlapped or not, decided or
// validated afterwards, with any rule and precision of the states - trains bit for bit like the sequential
// reference, which knows none of them.
#include <cmath>
#include <functional>
#include <map>

#include <gtest/gtest.h>

#include "engine/config/batch_schedule.h"
#include "engine/program/lower.h"
#include "engine/train/reference.h"
#include "tests/engine/train/small_run.h"

namespace plumbline {
namespace {

using test::Layout;
using Change = std::function<void(RunConfig&)>;

// Trains to the end beside the reference; injected overflows are told to both.
void expect_equal(RunConfig config, const std::string& what) {
  SCOPED_TRACE(what);
  config.train.eval_iterations = 1;
  config.train.eval_interval = 2;
  const std::unique_ptr<Trainer> trainer = test::make_trainer(config);
  ASSERT_NE(trainer, nullptr);
  const RunConfig& valid = trainer->config();
  const Result<TrainOutcome> outcome = trainer->run();
  ASSERT_TRUE(outcome) << outcome.error().text();
  ASSERT_TRUE(outcome->completed);
  ASSERT_EQ(outcome->exit_code, 0) << (outcome->findings.empty() ? "" : outcome->findings.front().why);
  const Result<std::unique_ptr<BatchSource>> batches = text_batches(valid, *trainer->text());
  ASSERT_TRUE(batches);
  Result<SequentialReference> reference = SequentialReference::create(valid, **find_model("gpt"), **batches,
                                                                      backward_order_of(*schedule_of(valid)));
  ASSERT_TRUE(reference) << reference.error().text();
  const std::vector<StepRow> rows = test::training_rows(trainer->record());
  ASSERT_EQ(rows.size(), static_cast<std::size_t>(valid.train.iterations));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    SCOPED_TRACE("iteration " + std::to_string(i + 1));
    bool overflow = false;
    for (const OverflowFault& fault : valid.faults.overflow)
      overflow = overflow || fault.iteration == static_cast<int>(i + 1);
    const SequentialReference::Step expected =
        reference->step(static_cast<std::int64_t>(i) * samples_per_step(valid), overflow);
    EXPECT_EQ(rows[i].skipped, expected.found_inf);
    EXPECT_EQ(rows[i].loss, expected.loss);
    EXPECT_EQ(rows[i].grad_norm, expected.norm);
    EXPECT_EQ(rows[i].lr, expected.lr);
    EXPECT_EQ(rows[i].scale, static_cast<double>(expected.scale));
    EXPECT_EQ(rows[i].params_digest, reference->params_digest());
    EXPECT_EQ(rows[i].optimizer_digest, reference->optimizer_digest());
  }
}

struct Way {
  std::string name;
  Change change;
};

Change distributed(bool reduce, bool gather, bool align, std::int64_t bucket) {
  return [=](RunConfig& config) {
    config.optimizer.distributed = true;
    config.optimizer.overlap_grad_reduce = reduce;
    config.optimizer.overlap_param_gather = gather;
    config.optimizer.align_grad_reduce = config.optimizer.align_param_gather = align;
    config.optimizer.bucket_size = bucket;
  };
}

const std::vector<Way>& ways() {
  static const std::vector<Way> all{
      {"replicated", [](RunConfig&) {}},
      {"replicated, reductions overlap",
       [](RunConfig& config) {
         config.optimizer.overlap_grad_reduce = true;
         config.optimizer.bucket_size = 500;
       }},
      {"distributed", distributed(false, false, true, 0)},
      {"distributed, reductions overlap", distributed(true, false, true, 700)},
      {"distributed, all overlaps", distributed(true, true, true, 300)},
      {"distributed, all overlaps, not aligned", distributed(true, true, false, 0)},
  };
  return all;
}

const std::vector<Layout> kLayouts{{ScheduleKind::kOneFOneB, 2, 1, 2, 2},
                                   {ScheduleKind::kInterleaved, 4, 2, 4, 2},
                                   {ScheduleKind::kOneFOneB, 1, 1, 2, 3}};

RunConfig base(const Layout& layout, Precision precision) {
  RunConfig config = test::small_config(layout, precision);
  config.train.iterations = 3;
  config.loss_scale.hysteresis = 1;
  return config;
}

// Every rank but one learns of the overflow from the others; the next steps must come out as if nothing had been.
void with_overflow(RunConfig& config) {
  if (config.train.precision != Precision::kFp16) return;
  config.faults.overflow.push_back({config.parallel.pp * config.parallel.dp - 1, 2});
}

TEST(Variants, EqualTheReference) {
  for (const Layout& layout : kLayouts) {
    for (const Precision precision : {Precision::kFp32, Precision::kFp16, Precision::kBf16}) {
      if (precision == Precision::kBf16 && layout.kind != ScheduleKind::kInterleaved) continue;
      for (const Way& way : ways()) {
        if (precision == Precision::kFp32 && way.name == ways()[0].name) continue;  // reference_test.cc
        RunConfig config = base(layout, precision);
        with_overflow(config);
        way.change(config);
        expect_equal(config, way.name + ", " + layout.name() + ", precision " +
                                 std::to_string(static_cast<int>(precision)));
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Clipping is always on (the norm is far above the limit), never on, or off: the speculative step is wrong, right,
// or right by definition.
TEST(Variants, PostValidationEqualsTheReference) {
  for (const double clip : {0.01, 1e6, 0.0}) {
    for (const Precision precision : {Precision::kFp32, Precision::kFp16}) {
      for (const Way& way : {ways()[0], ways()[2], ways()[4]}) {
        RunConfig config = base(kLayouts[1], precision);
        config.optimizer.post_validation = true;
        config.optimizer.clip_grad = clip;
        with_overflow(config);
        way.change(config);
        expect_equal(config, way.name + ", clip " + std::to_string(clip) + ", precision " +
                                 std::to_string(static_cast<int>(precision)));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Variants, PostValidationSaysWhatItTookBack) {
  for (const double clip : {0.01, 1e6}) {
    RunConfig config = base(kLayouts[0], Precision::kFp16);
    config.optimizer.post_validation = true;
    config.optimizer.clip_grad = clip;
    config.faults.overflow.push_back({3, 2});
    const std::unique_ptr<Trainer> trainer = test::make_trainer(config);
    ASSERT_TRUE(trainer->train_step());
    for (const StageWorker* worker : trainer->workers()) EXPECT_EQ(worker->result().rolled_back, clip < 1.0);
    ASSERT_TRUE(trainer->train_step());
    for (const StageWorker* worker : trainer->workers()) {
      EXPECT_TRUE(worker->result().skipped);
      // Rank 3 saw it and did not step.
      EXPECT_EQ(worker->result().rolled_back, worker->rank() != 3) << worker->rank();
    }
  }
}

// Rules, rates and states: each in the distributed form with everything overlapped, and where there is one in the
// replicated form.
TEST(Variants, EveryRuleAndPrecisionOfStatesEqualsTheReference) {
  const std::vector<Way> rules{
      {"sgd",
       [](RunConfig& config) {
         config.optimizer.rule = OptimizerRule::kSgd;
         config.optimizer.lr = 0.05;
       }},
      {"adam with L2", [](RunConfig& config) { config.optimizer.decoupled_weight_decay = false; }},
      {"decoupled learning rate, weight decay grows, WSD",
       [](RunConfig& config) {
         config.optimizer.decoupled_lr = 0.02;
         config.optimizer.decoupled_min_lr = 0.001;
         config.optimizer.weight_decay_incr = WdStyle::kLinear;
         config.optimizer.start_weight_decay = 0.01;
         config.optimizer.end_weight_decay = 0.2;
         config.optimizer.decay = DecayStyle::kWsd;
         config.optimizer.wsd_decay_iterations = 1;
         config.optimizer.warmup_iterations = 1;
         config.optimizer.warmup_init = 0.001;
       }},
      {"zeros counted", [](RunConfig& config) { config.optimizer.log_num_zeros = true; }},
      {"deepspeed's scaler", [](RunConfig& config) { config.loss_scale.rule = ScalerRule::kDeepSpeed; }},
      {"torch's scaler", [](RunConfig& config) { config.loss_scale.rule = ScalerRule::kTorch; }},
  };
  for (const Way& rule : rules) {
    for (const Way& way : {ways()[0], ways()[4]}) {
      RunConfig config = base(kLayouts[1], Precision::kFp16);
      with_overflow(config);
      way.change(config);
      rule.change(config);
      expect_equal(config, rule.name + ", " + way.name);
      if (HasFatalFailure()) return;
    }
  }
  const std::vector<Way> sharded{
      {"narrow moments",
       [](RunConfig& config) {
         config.optimizer.precision_aware = true;
         config.optimizer.exp_avg = Precision::kBf16;
         config.optimizer.exp_avg_sq = Precision::kFp16;
       }},
      {"16-bit main parameters",
       [](RunConfig& config) {
         config.optimizer.precision_aware = true;
         config.optimizer.main_params = Precision::kFp16;
       }},
      {"half of the states on the CPU",
       [](RunConfig& config) {
         config.optimizer.cpu_offload = true;
         config.optimizer.offload_fraction = 0.5;
       }},
      {"all states on the CPU", [](RunConfig& config) { config.optimizer.cpu_offload = true; }},
  };
  for (const Way& states : sharded) {
    RunConfig config = base(kLayouts[1], Precision::kBf16);
    ways()[4].change(config);
    states.change(config);
    expect_equal(config, states.name);
    if (HasFatalFailure()) return;
  }
}

// The number of microbatches changes between steps: another Program, the same persistent buffers.
TEST(Variants, ARampUpEqualsTheReference) {
  for (const Way& way : {ways()[0], ways()[4]}) {
    for (const bool post_validation : {false, true}) {
      SCOPED_TRACE(way.name);
      RunConfig config = base(kLayouts[1], Precision::kFp16);
      config.schedule.batch_steps = "0:16 32:32 96:16";  // 4 microbatches, 8, 4 again
      config.train.iterations = 6;
      config.optimizer.post_validation = post_validation;
      config.optimizer.decay = DecayStyle::kCosine;
      config.faults.overflow.push_back({2, 3});
      way.change(config);
      const std::unique_ptr<Trainer> trainer = test::make_trainer(config);
      ASSERT_NE(trainer, nullptr);
      const Result<TrainOutcome> outcome = trainer->run();
      ASSERT_TRUE(outcome) << outcome.error().text();
      ASSERT_EQ(outcome->exit_code, 0);
      const RunConfig& valid = trainer->config();
      const std::vector<StepRow> rows = test::training_rows(trainer->record());
      const Result<std::unique_ptr<BatchSource>> batches = text_batches(valid, *trainer->text());
      Result<SequentialReference> reference = SequentialReference::create(
          valid, **find_model("gpt"), **batches, backward_order_of(*schedule_of(valid)));
      ASSERT_TRUE(reference);
      const std::vector<int> microbatches{4, 4, 8, 8, 4, 4};
      std::int64_t consumed = 0;
      ASSERT_EQ(rows.size(), microbatches.size());
      for (std::size_t i = 0; i < rows.size(); ++i) {
        SCOPED_TRACE("iteration " + std::to_string(i + 1));
        RunConfig step = valid;
        step.schedule.microbatches = microbatches[i];
        reference->set_microbatches(microbatches[i], backward_order_of(*schedule_of(step)));
        const SequentialReference::Step expected = reference->step(consumed, i == 2);
        consumed += reference->samples_of_step();
        EXPECT_EQ(rows[i].consumed_samples, consumed);
        EXPECT_EQ(rows[i].skipped, expected.found_inf);
        EXPECT_EQ(rows[i].loss, expected.loss);
        EXPECT_EQ(rows[i].grad_norm, expected.norm);
        EXPECT_EQ(rows[i].lr, expected.lr);
        EXPECT_EQ(rows[i].params_digest, reference->params_digest());
        EXPECT_EQ(rows[i].optimizer_digest, reference->optimizer_digest());
      }
    }
  }
}

TEST(Variants, ZerosAreThoseOfTheWholeGradient) {
  std::int64_t zeros = -1;
  for (const Way& way : ways()) {
    for (const Layout& layout :
         {Layout{ScheduleKind::kOneFOneB, 1, 1, 4, 2}, Layout{ScheduleKind::kOneFOneB, 4, 1, 4, 2}}) {
      RunConfig config = base(layout, Precision::kFp16);
      config.optimizer.log_num_zeros = true;
      config.loss_scale.constant = 0x1p-8;  // small gradients become zeros
      way.change(config);
      const std::unique_ptr<Trainer> trainer = test::make_trainer(config);
      ASSERT_TRUE(trainer->train_step());
      for (const StageWorker* worker : trainer->workers()) {
        if (zeros < 0) zeros = worker->result().zeros;
        EXPECT_EQ(worker->result().zeros, zeros) << way.name << " " << layout.name();
      }
    }
  }
  EXPECT_GT(zeros, 0);
}

TEST(Variants, AGradientThatIsNotFiniteIsAnErrorThatNamesIt) {
  for (const Way& way : {ways()[0], ways()[2]}) {
    RunConfig config = base(kLayouts[0], Precision::kBf16);
    config.optimizer.check_for_nan = true;
    config.optimizer.lr = 1e38;  // the second forward overflows
    way.change(config);
    const std::unique_ptr<Trainer> trainer = test::make_trainer(config);
    const Result<TrainOutcome> outcome = trainer->run();
    ASSERT_FALSE(outcome) << way.name;
    for (const char* part : {"rank ", "bucket ", "parameter '"})
      EXPECT_NE(outcome.error().text().find(part), std::string::npos) << outcome.error().text();
  }
}

}  // namespace
}  // namespace plumbline

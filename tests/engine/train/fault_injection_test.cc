// Random values that are not finite, at a random rank, stage, microbatch and step of short trainings over random
// layouts and ways to run the optimizer. No training may diverge between ranks, and none may lose a step: a step is
// skipped on all ranks if and only if a fault was put into it, and everything else goes on as if it had not been.
//
// PLUMBLINE_FAULT_TRAININGS=1000 runs the long campaign; a failure prints its seed, PLUMBLINE_FAULT_SEED=<seed> runs
// that one alone.
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine/base/rng.h"
#include "engine/config/batch_schedule.h"
#include "engine/program/lower.h"
#include "engine/train/reference.h"
#include "tests/engine/train/small_run.h"

namespace plumbline {
namespace {

struct Fault {
  Rank rank = 0;
  int stage = 0;
  int microbatch = 0;
  int iteration = 1;
  bool passed = false;  // into the gradient handed to the stage before, else into the main gradient
  float value = 0.0f;
  std::uint64_t element = 0;

  std::string words() const {
    return fmt::format("{} into the {} of stage {} on rank {}, microbatch {}, iteration {}", value,
                       passed ? "passed gradient" : "main gradient", stage, rank, microbatch, iteration);
  }
};

struct Draw {
  explicit Draw(std::uint64_t seed) : rng(seed, "fault injection") {}
  std::uint64_t next() { return rng.bits(count++); }
  int below(int limit) { return static_cast<int>(next() % static_cast<std::uint64_t>(limit)); }
  bool coin() { return below(2) == 1; }
  CounterRng rng;
  std::uint64_t count = 0;
};

struct Campaign {
  RunConfig config;
  std::vector<Fault> faults;
  std::string words() const {
    const OptimizerConfig& o = config.optimizer;
    std::string out = fmt::format(
        "schedule {}, pp {}, vp {}, m {}, dp {}, precision {}, distributed {}, overlap {} {}, "
        "post-validation {}",
        static_cast<int>(config.schedule.kind), config.parallel.pp, config.schedule.chunks,
        config.schedule.microbatches, config.parallel.dp, static_cast<int>(config.train.precision),
        o.distributed, o.overlap_grad_reduce, o.overlap_param_gather, o.post_validation);
    for (const Fault& fault : faults) out += "\n  " + fault.words();
    return out;
  }
};

void draw_optimizer(Draw& draw, RunConfig& config) {
  OptimizerConfig& o = config.optimizer;
  o.rule = draw.below(5) == 0 ? OptimizerRule::kSgd : OptimizerRule::kAdam;
  o.distributed = draw.coin();
  o.overlap_grad_reduce = draw.coin();
  o.overlap_param_gather = o.distributed && o.overlap_grad_reduce && draw.coin();
  o.bucket_size = draw.coin() ? 0 : 300 + draw.below(700);
  o.cpu_offload = o.distributed && draw.below(4) == 0;
  o.offload_fraction = 0.5;
  o.post_validation = !o.cpu_offload && draw.below(3) == 0;
  o.clip_grad = draw.coin() ? 1.0 : 0.05;
  o.decay = DecayStyle::kLinear;
  o.warmup_iterations = draw.below(2);
  LossScaleConfig& s = config.loss_scale;
  s.initial = 256.0;
  s.hysteresis = 1 + draw.below(2);
  s.window = 1 + draw.below(3);
  s.rule = draw.below(4) == 0 ? ScalerRule::kTorch : ScalerRule::kMegatron;
  config.train.precision = draw.below(4) == 0 ? Precision::kBf16 : Precision::kFp16;
  if (config.train.precision == Precision::kBf16 || draw.below(4) == 0) s.constant = 64.0;
}

Campaign draw_campaign(std::uint64_t seed) {
  Draw draw(seed);
  test::Layout layout;
  layout.pp = 1 << draw.below(3);
  layout.dp = 1 + draw.below(2);
  const int kind = draw.below(layout.pp > 1 ? 3 : 2);
  layout.kind = kind == 0   ? ScheduleKind::kGpipe
                : kind == 1 ? ScheduleKind::kOneFOneB
                            : ScheduleKind::kInterleaved;
  if (layout.kind == ScheduleKind::kInterleaved) layout.vp = 2;
  layout.m = layout.pp * (1 + draw.below(2));
  Campaign made;
  made.config = test::small_config(layout, Precision::kFp16);
  RunConfig& config = made.config;
  config.model.layers = 8;
  config.model.hidden = 4;
  config.model.heads = 1;
  config.model.seq_length = 4;
  config.train.micro_batch_size = 1;
  config.train.iterations = 3 + draw.below(2);
  config.train.eval_iterations = 0;
  config.train.seed = seed;
  if (layout.kind == ScheduleKind::kInterleaved) config.schedule.p2p = P2pStyle::kSeparate;
  draw_optimizer(draw, config);

  const int faults = 1 + draw.below(2);
  for (int i = 0; i < faults; ++i) {
    Fault fault;
    fault.stage = draw.below(config.stages());
    const int replica = draw.below(layout.dp);
    const Result<RunConfig> valid = validate(config, {}, Purpose::kRun);
    EXPECT_TRUE(valid) << (valid ? "" : valid.error().text());
    if (!valid) return made;
    for (Rank rank = 0; rank < valid->grid.world(); ++rank) {
      if (valid->grid.coordinate(rank, Axis::kPp) == fault.stage % layout.pp &&
          valid->grid.coordinate(rank, Axis::kDp) == replica) {
        fault.rank = rank;
      }
    }
    fault.microbatch = draw.below(layout.m);
    fault.iteration = 1 + draw.below(config.train.iterations);
    fault.passed = fault.stage > 0 && draw.coin();
    const float infinity = std::numeric_limits<float>::infinity();
    const std::array<float, 3> values{infinity, -infinity, std::numeric_limits<float>::quiet_NaN()};
    fault.value = values[static_cast<std::size_t>(draw.below(3))];
    fault.element = draw.next();
    made.faults.push_back(fault);
  }
  return made;
}

// Runs a rank's worker, and spoils what its faults say right after the backward that is named.
class Saboteur : public Worker {
 public:
  Saboteur(StageWorker& inner, std::vector<Fault> faults, int* done)
      : inner_(inner), faults_(std::move(faults)), done_(done) {}

  Status bind(const SlotClass& slot, const SlotMemory& memory) override { return inner_.bind(slot, memory); }

  Status launch(const KernelCall& call, SlotStore& slots) override {
    const Kernel& kernel = call.program->kernels[call.kernel];
    if (kernel.kind == KernelKind::kZeroGrad) ++iteration_;
    PL_TRY(inner_.launch(call, slots));
    if (kernel.kind != KernelKind::kBackward) return {};
    for (const Fault& fault : faults_) {
      if (fault.rank != call.rank || fault.stage != kernel.stage || fault.microbatch != call.microbatch ||
          fault.iteration != iteration_) {
        continue;
      }
      if (fault.passed) {
        spoil_passed(fault, call, slots);
      } else {
        spoil_main(fault);
      }
    }
    return {};
  }

 private:
  void spoil_main(const Fault& fault) {
    std::vector<at::Tensor> gradients;
    const RankModel& model = inner_.model();
    for (std::size_t i = 0; i < model.slices().size(); ++i) {
      if (model.slices()[i].stage == fault.stage) gradients.push_back(model.parameter(i).main_grad);
    }
    const at::Tensor chosen = gradients[fault.element % gradients.size()].view({-1});
    const auto element =
        static_cast<std::int64_t>((fault.element >> 20) % static_cast<std::uint64_t>(chosen.numel()));
    chosen[element].fill_(fault.value);
    ++*done_;
  }

  void spoil_passed(const Fault& fault, const KernelCall& call, SlotStore& slots) {
    for (const std::uint16_t row : call.program->kernels[call.kernel].writes) {
      const SlotClass& slot = call.program->slots[row];
      if (slot.kind != SlotKind::kGradient || slot.stage != fault.stage) continue;
      const SlotMemory memory = slots.slot({row, call.microbatch});
      const auto count = static_cast<std::uint64_t>(memory.bytes / 2);
      // Sign, all exponent bits, and a bit of the fraction for NaN: fp16 and bf16.
      const std::uint16_t exponent = memory.dtype == DType::kF16 ? 0x7C00 : 0x7F80;
      std::uint16_t bits = exponent;
      if (std::isnan(fault.value)) bits = static_cast<std::uint16_t>(bits | 1u);
      if (fault.value < 0.0f) bits = static_cast<std::uint16_t>(bits | 0x8000u);
      std::memcpy(memory.data + 2 * (fault.element % count), &bits, 2);
      ++*done_;
    }
  }

  StageWorker& inner_;
  std::vector<Fault> faults_;
  int* done_;
  int iteration_ = 0;
};

struct Totals {
  int trainings = 0, steps = 0, skipped = 0, faults = 0;
};

std::set<int> faulty_iterations(const Campaign& campaign) {
  std::set<int> iterations;
  for (const Fault& fault : campaign.faults) iterations.insert(fault.iteration);
  return iterations;
}

// Rows: skipped exactly where a fault was, samples counted, the scale as the rule has it, nothing changed by a skip.
void check_rows(const Campaign& campaign, const RunConfig& config, const std::vector<StepRow>& rows,
                Totals& totals) {
  const std::set<int> faulty = faulty_iterations(campaign);
  LossScaler scaler = *LossScaler::of(config.loss_scale, config.train.precision);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const StepRow& row = rows[i];
    const bool found = faulty.count(static_cast<int>(i + 1)) > 0;
    EXPECT_EQ(row.skipped, found) << "iteration " << i + 1;
    EXPECT_EQ(row.consumed_samples, static_cast<std::int64_t>(i + 1) * samples_per_step(config));
    EXPECT_EQ(row.scale, static_cast<double>(scaler.scale()));
    scaler.update(found);
    EXPECT_EQ(row.scale_after, static_cast<double>(scaler.scale()));
    if (found && i > 0) {
      EXPECT_EQ(row.params_digest, rows[i - 1].params_digest);
      EXPECT_EQ(row.optimizer_digest, rows[i - 1].optimizer_digest);
    }
    ++totals.steps;
    totals.skipped += row.skipped ? 1 : 0;
  }
}

// All ranks: the same branch in the last step, as many updates as steps without a fault, one scaler.
void check_ranks(const Trainer& trainer, std::int64_t updates) {
  const StepResult& first = trainer.workers().front()->result();
  for (const StageWorker* worker : trainer.workers()) {
    EXPECT_EQ(worker->result().skipped, first.skipped) << "rank " << worker->rank();
    EXPECT_EQ(worker->result().updated, !first.skipped) << "rank " << worker->rank();
    EXPECT_EQ(worker->model().scheduler().num_steps(), updates * samples_per_step(trainer.config()));
    EXPECT_TRUE(*worker->model().scaler() == *trainer.workers().front()->model().scaler());
    for (const RankModel::OwnPart& part : worker->model().own_parts()) {
      if (part.state.exp_avg.defined()) EXPECT_EQ(part.state.step, updates) << "rank " << worker->rank();
      EXPECT_TRUE(part.value.isfinite().all().item<bool>()) << "rank " << worker->rank();
    }
  }
}

// The sequential reference, told which steps overflowed, ends in the same bits.
void check_reference(const Campaign& campaign, const Trainer& trainer, const StepRow& last) {
  const RunConfig& config = trainer.config();
  const Result<std::unique_ptr<BatchSource>> batches = text_batches(config, *trainer.text());
  Result<SequentialReference> reference = SequentialReference::create(
      config, **find_model("gpt"), **batches, backward_order_of(*schedule_of(config)));
  ASSERT_TRUE(reference) << reference.error().text();
  const std::set<int> faulty = faulty_iterations(campaign);
  for (int i = 0; i < config.train.iterations; ++i) {
    reference->step(i * samples_per_step(config), faulty.count(i + 1) > 0);
  }
  EXPECT_EQ(last.params_digest, reference->params_digest());
  EXPECT_EQ(last.optimizer_digest, reference->optimizer_digest());
}

void run_training(std::uint64_t seed, bool with_reference, Totals& totals) {
  const Campaign campaign = draw_campaign(seed);
  SCOPED_TRACE(fmt::format("PLUMBLINE_FAULT_SEED={}: {}", seed, campaign.words()));
  int done = 0;
  Trainer::Options options;
  options.wrap = [&](StageWorker& worker) -> std::unique_ptr<Worker> {
    return std::make_unique<Saboteur>(worker, campaign.faults, &done);
  };
  const std::unique_ptr<Trainer> trainer = test::make_trainer(campaign.config, std::move(options));
  ASSERT_NE(trainer, nullptr);
  const Result<TrainOutcome> outcome = trainer->run();
  ASSERT_TRUE(outcome) << outcome.error().text();
  ASSERT_TRUE(outcome->completed);
  ASSERT_EQ(outcome->exit_code, 0) << (outcome->findings.empty() ? "" : outcome->findings.front().why);
  EXPECT_EQ(done, static_cast<int>(campaign.faults.size()));
  const std::vector<StepRow> rows = test::training_rows(trainer->record());
  ASSERT_EQ(rows.size(), static_cast<std::size_t>(trainer->config().train.iterations));
  check_rows(campaign, trainer->config(), rows, totals);
  check_ranks(*trainer, trainer->config().train.iterations -
                            static_cast<std::int64_t>(faulty_iterations(campaign).size()));
  if (with_reference) check_reference(campaign, *trainer, rows.back());
  ++totals.trainings;
  totals.faults += done;
}

int number_from(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

TEST(FaultInjection, NoTrainingDivergesOrLosesAStep) {
  const int trainings = number_from("PLUMBLINE_FAULT_TRAININGS", 120);
  const int only = number_from("PLUMBLINE_FAULT_SEED", -1);
  Totals totals;
  for (int seed = 0; seed < trainings; ++seed) {
    if (only >= 0 && seed != 0) break;
    run_training(static_cast<std::uint64_t>(only >= 0 ? only : seed), true, totals);
    if (HasFailure()) break;  // one seed is enough to look at
  }
  RecordProperty("trainings", totals.trainings);
  RecordProperty("steps", totals.steps);
  RecordProperty("skipped", totals.skipped);
  RecordProperty("faults", totals.faults);
  fmt::print("{} trainings, {} steps, {} faults, {} steps skipped\n", totals.trainings, totals.steps,
             totals.faults, totals.skipped);
  if (only < 0) {
    EXPECT_GT(totals.skipped, totals.trainings * 9 / 10);
    EXPECT_GT(totals.steps - totals.skipped, totals.trainings);
  }
}

// The campaign can fail. One rank's scaler backs off twice:
class DoubleBackOff : public Worker {
 public:
  DoubleBackOff(StageWorker& inner, std::unique_ptr<Worker> next) : inner_(inner), next_(std::move(next)) {}
  Status bind(const SlotClass& slot, const SlotMemory& memory) override { return next_->bind(slot, memory); }
  Status launch(const KernelCall& call, SlotStore& slots) override {
    PL_TRY(next_->launch(call, slots));
    if (call.rank == 1 && call.program->kernels[call.kernel].kind == KernelKind::kSkipStep)
      inner_.model().optimizer().update_scaler(true);
    return {};
  }

 private:
  StageWorker& inner_;
  std::unique_ptr<Worker> next_;
};

TEST(FaultInjection, ADivergingRankIsNoticed) {
  Campaign campaign;
  campaign.config = test::small_config({ScheduleKind::kOneFOneB, 2, 1, 2, 1}, Precision::kFp16);
  campaign.config.train.iterations = 2;
  campaign.config.train.eval_iterations = 0;
  campaign.config.loss_scale.hysteresis = 1;
  Fault fault;
  fault.value = std::numeric_limits<float>::infinity();
  campaign.faults = {fault};
  int done = 0;
  Trainer::Options options;
  options.wrap = [&](StageWorker& worker) -> std::unique_ptr<Worker> {
    return std::make_unique<DoubleBackOff>(worker,
                                           std::make_unique<Saboteur>(worker, campaign.faults, &done));
  };
  const std::unique_ptr<Trainer> trainer = test::make_trainer(campaign.config, std::move(options));
  const Result<TrainOutcome> outcome = trainer->run();
  EXPECT_EQ(done, 1);
  ASSERT_FALSE(outcome);
  EXPECT_NE(outcome.error().message.find("loss scalers of ranks 0 and 1 differ"), std::string::npos)
      << outcome.error().text();
}

// And without the fault the same training has no skip.
TEST(FaultInjection, WithoutFaultsNothingIsSkipped) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const std::unique_ptr<Trainer> trainer = test::make_trainer(draw_campaign(seed).config);
    ASSERT_TRUE(trainer->run());
    for (const StepRow& row : test::training_rows(trainer->record())) EXPECT_FALSE(row.skipped) << seed;
  }
}

}  // namespace
}  // namespace plumbline

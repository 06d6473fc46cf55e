// The toy model proves every contribution in all schedules, and names each seeded fault by rank, stage and
// microbatch.
#include <functional>
#include <set>

#include <gtest/gtest.h>

#include "tests/engine/train/small_run.h"

namespace plumbline {
namespace {

using test::Layout;

TEST(Toy, ContributionsAreExactInEverySchedule) {
  for (const Layout& layout : std::vector<Layout>{{ScheduleKind::kGpipe, 4, 1, 6, 1},
                                                  {ScheduleKind::kOneFOneB, 1, 1, 3, 2},
                                                  {ScheduleKind::kOneFOneB, 4, 1, 8, 2},
                                                  {ScheduleKind::kInterleaved, 4, 2, 8, 2},
                                                  {ScheduleKind::kInterleaved2022, 4, 2, 4, 1}}) {
    for (const Precision precision : {Precision::kFp32, Precision::kFp16, Precision::kBf16}) {
      SCOPED_TRACE(layout.name());
      RunConfig config = test::toy_config(layout, precision);
      config.train.iterations = 4;
      const std::unique_ptr<Trainer> trainer = test::make_trainer(config);
      ASSERT_NE(trainer, nullptr);
      const Result<TrainOutcome> outcome = trainer->run();
      ASSERT_TRUE(outcome) << outcome.error().text();
      EXPECT_EQ(outcome->exit_code, 0);
      EXPECT_TRUE(outcome->toy.empty()) << outcome->toy.front().text;
      EXPECT_FALSE(trainer->record().steps.back().skipped);
    }
  }
}

// Runs a rank's worker and lets a test tamper before a launch; the answer says whether the launch happens at
// all.
class Tampering : public Worker {
 public:
  using Tamper = std::function<bool(const KernelCall&, SlotStore&)>;
  Tampering(Worker& inner, Tamper tamper) : inner_(&inner), tamper_(std::move(tamper)) {}
  Status bind(const SlotClass& slot, const SlotMemory& memory) override { return inner_->bind(slot, memory); }
  Status launch(const KernelCall& call, SlotStore& slots) override {
    return tamper_(call, slots) ? inner_->launch(call, slots) : Status();
  }

 private:
  Worker* inner_;
  Tamper tamper_;
};

const Layout kLayout{ScheduleKind::kInterleaved, 4, 2, 4, 1};
constexpr int kStage = 5;  // of 8, on rank 1
constexpr std::size_t kEntries = 4;

bool is(const KernelCall& call, KernelKind kind, int microbatch) {
  const Kernel& kernel = call.program->kernels[call.kernel];
  return kernel.kind == kind && kernel.stage == kStage && call.microbatch == microbatch;
}

// The fp32 row of the slot of this kind that the kernel takes in.
float* row_of(const KernelCall& call, SlotStore& slots, SlotKind kind, int stage) {
  const Kernel& kernel = call.program->kernels[call.kernel];
  for (const auto* list : {&kernel.reads, &kernel.frees}) {
    for (const std::uint16_t row : *list) {
      const SlotClass& slot_class = call.program->slots[row];
      if (slot_class.kind == kind && slot_class.stage == stage)
        return reinterpret_cast<float*>(slots.slot({row, call.microbatch}).data);
    }
  }
  ADD_FAILURE() << "no such slot";
  return nullptr;
}

std::vector<ToyFinding> findings_with(Tampering::Tamper tamper, int iterations = 1) {
  RunConfig config = test::toy_config(kLayout);
  config.train.iterations = iterations;
  config.train.eval_iterations = 0;
  Trainer::Options options;
  options.wrap = [&](StageWorker& worker) { return std::make_unique<Tampering>(worker, tamper); };
  const std::unique_ptr<Trainer> trainer = test::make_trainer(config, std::move(options));
  const Result<TrainOutcome> outcome = trainer->run();
  EXPECT_TRUE(outcome) << outcome.error().text();
  EXPECT_EQ(outcome->exit_code, 4);
  return outcome->toy;
}

// One finding a stage and a rank it belongs to, all of one fault and microbatch.
void expect_on_stages(const std::vector<ToyFinding>& findings, ToyFault fault, int microbatch,
                      std::set<int> stages) {
  std::set<int> seen;
  for (const ToyFinding& finding : findings) {
    EXPECT_EQ(finding.fault, fault) << finding.text;
    EXPECT_EQ(finding.microbatch, microbatch) << finding.text;
    EXPECT_EQ(finding.rank, finding.stage % 4) << finding.text;
    seen.insert(finding.stage);
  }
  EXPECT_EQ(seen, stages);
}

// A gradient that is changed on its way into a backward is wrong there and in every stage before it.
TEST(Toy, NamesALostADoubledAndAWronglyScaledContribution) {
  for (const auto& [factor, fault] : std::vector<std::pair<float, ToyFault>>{
           {0.0f, ToyFault::kLost}, {2.0f, ToyFault::kDoubled}, {0.25f, ToyFault::kScaled}}) {
    const auto findings = findings_with([factor = factor](const KernelCall& call, SlotStore& slots) {
      if (is(call, KernelKind::kBackward, 2))
        row_of(call, slots, SlotKind::kGradient, kStage + 1)[kEntries] *= factor;
      return true;
    });
    expect_on_stages(findings, fault, 2, {0, 1, 2, 3, 4, 5});
  }
}

// Two activations exchanged at a stage's door: from there on each contributes in the other's place.
TEST(Toy, NamesSwappedMicrobatches) {
  const auto findings = findings_with([](const KernelCall& call, SlotStore& slots) {
    if (is(call, KernelKind::kForward, 0) || is(call, KernelKind::kForward, 1)) {
      float* row = row_of(call, slots, SlotKind::kActivation, kStage);
      std::swap(row[0], row[1]);
    }
    return true;
  });
  ASSERT_EQ(findings.size(), 6u);  // stages 5, 6 and 7, microbatches 0 and 1
  for (const ToyFinding& finding : findings) {
    EXPECT_EQ(finding.fault, ToyFault::kSwapped) << finding.text;
    EXPECT_GE(finding.stage, kStage);
    EXPECT_EQ(finding.other, 1 - finding.microbatch);
  }
}

TEST(Toy, NamesAContributionThatIsStale) {
  const auto findings = findings_with(
      [zeros = 0](const KernelCall& call, SlotStore&) mutable {
        const bool zero = call.program->kernels[call.kernel].kind == KernelKind::kZeroGrad;
        return !(zero && call.rank == 2 && ++zeros > 1);
      },
      3);
  ASSERT_EQ(findings.size(), 8u);  // rank 2's stages 2 and 6, all four microbatches
  for (const ToyFinding& finding : findings) {
    EXPECT_EQ(finding.fault, ToyFault::kStale) << finding.text;
    EXPECT_EQ(finding.rank, 2);
  }
}

// All microbatches look alike to a tensor that took a wrong way; its count of stages does not.
TEST(Toy, SeesATensorThatPassedTheWrongStages) {
  const auto forward = findings_with([](const KernelCall& call, SlotStore& slots) {
    if (is(call, KernelKind::kForward, 3))
      row_of(call, slots, SlotKind::kActivation, kStage)[kEntries + 1] -= 1.0f;
    return true;
  });
  expect_on_stages(forward, ToyFault::kScaled, 3, {5, 6, 7});
  const auto backward = findings_with([](const KernelCall& call, SlotStore& slots) {
    if (is(call, KernelKind::kBackward, 3))
      row_of(call, slots, SlotKind::kGradient, kStage + 1)[kEntries + 1] -= 1.0f;
    return true;
  });
  expect_on_stages(backward, ToyFault::kScaled, 3, {0, 1, 2, 3, 4, 5});
}

}  // namespace
}  // namespace plumbline

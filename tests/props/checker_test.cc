// Checker and simulator on what people run: random configurations, lowered. Both verdicts and both makespans
// agree.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "engine/program/link.h"
#include "engine/program/lower.h"
#include "props/generators.h"
#include "sim/nccl_model.h"
#include "sim/simulator.h"
#include "sim/verify/check.h"

namespace plumbline::props {
namespace {

std::string disagreement(std::uint64_t seed) {
  const RunConfig config = random_config(seed);
  const auto program = program_of(config, default_sizes(config));
  if (!program) return program.error().text();
  const auto linked = link_program(*program);
  if (!linked) return linked.error().text();
  CheckOptions options;
  options.time = TimeModel(config);
  const auto verdict = check_program(*linked, options);
  if (!verdict) return verdict.error().text();
  if (verdict->operations != program_size(*program).operations()) return "operations are counted differently";
  const NcclModel models[] = {certification_model(), default_model()};
  for (std::size_t i = 0; i < 2; ++i) {
    const auto simulated = simulate(*linked, models[i], options.time);
    if (!simulated) return simulated.error().text();
    const ModeVerdict& mode = verdict->modes[i];
    if (mode.completes != simulated->completes) return config_words(config) + ": outcome in " + mode.mode;
    if (mode.completes && mode.makespan != simulated->makespan)
      return config_words(config) + ": makespan in " + mode.mode;
  }
  if (verdict->modes[0].completes && !verdict->modes[1].completes)
    return config_words(config) + ": certified, yet hangs";
  return {};
}

RC_GTEST_PROP(CheckerProperty, AgreesWithTheSimulatorOnLoweredPrograms, (std::uint64_t seed)) {
  const std::string text = disagreement(seed);
  if (!text.empty()) RC_FAIL(text);
}

// The verdict is a value: checking twice gives the same, byte for byte.
RC_GTEST_PROP(CheckerProperty, IsDeterministic, (std::uint64_t seed)) {
  const RunConfig config = random_config(seed);
  const auto program = program_of(config, default_sizes(config));
  RC_ASSERT(program.has_value());
  const auto linked = link_program(*program);
  RC_ASSERT(linked.has_value());
  const auto a = check_program(*linked);
  const auto b = check_program(*linked);
  RC_ASSERT(a.has_value() && b.has_value());
  RC_ASSERT(verdict_json(*a) == verdict_json(*b));
}

}  // namespace
}  // namespace plumbline::props

// libFuzzer target: no text breaks the readers of scenarios; what they read prints and reads back as the same in
// both forms, and what can be translated is examined without a fault in every reference mode.
// Built by preset fuzz; started by hand with a corpus, docs/testing.md
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/base/assert.h"
#include "sim/scenario/examine.h"

namespace plumbline {
namespace {

void round_trip(const Scenario& scenario) {
  const Result<std::vector<Scenario>> lines = parse_scenario_lines(print_scenario_json(scenario), "fuzz");
  PL_ASSERT(lines.has_value() && lines->size() == 1 && lines->front() == scenario);
  const Result<Scenario> toml = parse_scenario_toml(print_scenario_toml(scenario), "fuzz");
  PL_ASSERT(toml.has_value() && *toml == scenario);
}

void examine(const Scenario& scenario) {
  std::size_t host_ops = 0;
  for (const ScenarioThread& thread : scenario.threads) host_ops += thread.host_ops.size();
  if (host_ops > 200) return;  // slow, and nothing new
  (void)examine_scenario(scenario, reference_models());
}

}  // namespace

int fuzz_scenario(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const Result<std::vector<Scenario>> all = parse_scenario_lines(text, "fuzz")) {
    for (const Scenario& scenario : *all) {
      round_trip(scenario);
      examine(scenario);
    }
  }
  if (const Result<Scenario> one = parse_scenario_toml(text, "fuzz")) {
    round_trip(*one);
    examine(*one);
  }
  return 0;
}

}  // namespace plumbline

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return plumbline::fuzz_scenario(data, size);
}

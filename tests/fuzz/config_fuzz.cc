// libFuzzer target: no configuration file breaks its reader, what it holds can be stored and validated without a
// fault, and a valid configuration printed as TOML loads as the same.
// Built by preset fuzz; started by hand with a corpus, docs/testing.md
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/config/explain.h"
#include "engine/config/loader.h"
#include "engine/config/toml_source.h"
#include "engine/config/validate.h"

namespace plumbline {
namespace {

// Unlike PL_ASSERT, which ends the process, it leaves the input in a file.
void require(bool holds) {
  if (!holds) __builtin_trap();
}

Result<LoadedConfig> loaded(std::string_view text) {
  const Result<Assignments> assignments = read_toml(text, "fuzz");
  if (!assignments) return tl::unexpected(assignments.error());
  LoadedConfig config;
  PL_TRY(apply_assignments(*assignments, config));
  return config;
}

}  // namespace

int fuzz_config(const std::uint8_t* data, std::size_t size) {
  const Result<LoadedConfig> config = loaded({reinterpret_cast<const char*>(data), size});
  if (!config) return 0;
  const std::string text = config_toml(config->config);
  const Result<LoadedConfig> again = loaded(text);
  require(again.has_value());
  require(config_toml(again->config) == text);
  (void)validate(config->config);
  return 0;
}

}  // namespace plumbline

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return plumbline::fuzz_config(data, size);
}

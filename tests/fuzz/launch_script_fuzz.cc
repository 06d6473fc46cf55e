// libFuzzer target: no launch script and no layout string breaks its reader, and what a script becomes prints as
// TOML that loads. The first byte chooses. How to run it: docs/testing.md.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/base/assert.h"
#include "engine/config/loader.h"
#include "engine/config/megatron_args.h"
#include "engine/program/model_shape.h"

namespace plumbline {

int fuzz_launch_script(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if ((data[0] & 1) != 0) {
    (void)parse_pipeline_layout(text, 1 + (data[0] >> 1) % 8);
    return 0;
  }
  const Result<LaunchScript> script = read_launch_script(text, "fuzz");
  if (!script) return 0;
  const Result<MegatronImport> import = import_megatron(*script, "fuzz");
  if (!import) return 0;
  (void)model_shape(*script, *import, "fuzz");
  LoadRequest request;
  request.arguments = {"-"};
  request.text = megatron_import_toml(*import);
  const Result<LoadedConfig> loaded = load_config(request);
  // A name of arbitrary bytes may not be TOML; all else must be.
  PL_ASSERT(loaded.has_value() || loaded.error().code == ErrorCode::kParse ||
            loaded.error().code == ErrorCode::kConfig);
  return 0;
}

}  // namespace plumbline

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return plumbline::fuzz_launch_script(data, size);
}

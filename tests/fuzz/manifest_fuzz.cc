// libFuzzer target: no text breaks the manifest reader, and a manifest it accepts prints as itself. The
// digest at the end would keep a fuzzer out, so the target puts the right one there. Built by preset fuzz;
// started by hand: fuzz_manifest -max_total_time=600
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/base/assert.h"
#include "engine/base/hash.h"
#include "engine/storage/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace plumbline;
  const std::string_view given(reinterpret_cast<const char*>(data), size);
  (void)parse_manifest(given, "fuzz");
  const std::string body =
      std::string("{\"format\":\"plumbline-checkpoint\",\"version\":1,\"iteration\":1,\"ranks\":1") +
      std::string(given);
  const std::string whole = body + ",\n\"digest\":\"" + hex64(hash64(body)) + "\"}\n";
  const Result<Manifest> manifest = parse_manifest(whole, "fuzz");
  if (!manifest) return 0;
  const std::string printed = print_manifest(*manifest);
  const Result<Manifest> again = parse_manifest(printed, "printed");
  PL_ASSERT_MSG(again.has_value(), again.has_value() ? "" : again.error().message);
  PL_ASSERT(print_manifest(*again) == printed);
  return 0;
}

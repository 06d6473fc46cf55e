// libFuzzer target: no bytes break the data-only pickle reader, and what it reads can be written and read
// again as the same graph. Built by preset fuzz; started by hand: fuzz_pickle -max_total_time=600
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/base/assert.h"
#include "engine/storage/pickle.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace plumbline;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const PickleLimits limits{.bytes = 1u << 20, .operations = 1u << 20, .nodes = 1u << 18, .text = 1u << 20};
  const Result<Pickle> pickle = parse_pickle(bytes, "fuzz", limits);
  if (!pickle) return 0;
  (void)describe_pickle(*pickle, 1000);
  const Result<std::string> printed = print_pickle(*pickle);
  if (!printed) return 0;
  const Result<Pickle> again = parse_pickle(*printed, "printed");
  PL_ASSERT_MSG(again.has_value(), again.has_value() ? "" : again.error().message);
  return 0;
}

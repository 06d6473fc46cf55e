// libFuzzer target: no text breaks the schedule reader, and what it reads prints and reads back as the same.
// Not built by default. From the repository's root:
//
//   clang++ -std=c++20 -g -O1 -I. -fsanitize=fuzzer,address,undefined tests/fuzz/schedule_csv_fuzz.cc
//     engine/schedule/*.cc engine/base/{assert,result,text}.cc -lfmt -o schedule_csv_fuzz
//   ./schedule_csv_fuzz -max_len=4096 tests/oracles/torch_pipelining/generated/csv
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/base/assert.h"
#include "engine/schedule/csv.h"

namespace plumbline {

int fuzz_action_csv(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const bool fragment : {false, true}) {
    const CsvOptions options{fragment};
    const Result<Schedule> schedule = parse_schedule_csv(text, "fuzz", options);
    if (!schedule) continue;
    const std::vector<ScheduleFinding> findings = validate_schedule(*schedule, fragment);
    for (const bool crlf : {false, true}) {
      const Result<Schedule> again = parse_schedule_csv(print_schedule_csv(*schedule, crlf), "fuzz", options);
      PL_ASSERT(again.has_value());
      PL_ASSERT(*again == *schedule);
    }
    PL_ASSERT(validate_schedule(*schedule, fragment).size() == findings.size());
  }
  return 0;
}

}  // namespace plumbline

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return plumbline::fuzz_action_csv(data, size);
}

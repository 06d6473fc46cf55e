// libFuzzer target: no text breaks the readers of other projects' orders (first byte chooses which), and what they
// read prints and reads back as the same where it can be printed. How to run it: docs/testing.md.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/base/assert.h"
#include "engine/schedule/deepspeed.h"
#include "engine/schedule/order_text.h"
#include "engine/schedule/torchtitan.h"

namespace plumbline {
namespace {

void same_again(const Schedule& schedule, const Result<std::string>& text,
                Result<Schedule> (*parse)(std::string_view, const std::string&, Placement)) {
  if (!text) return;
  const bool v = schedule.stages == 2 * schedule.ranks &&
                 schedule.rank_of_stage == wave_placement(schedule.stages, schedule.ranks);
  const bool loop = schedule.rank_of_stage == loop_placement(schedule.stages, schedule.ranks);
  const Result<Schedule> again = parse(*text, "fuzz", loop || !v ? Placement::kLoop : Placement::kV);
  PL_ASSERT(again.has_value());
  PL_ASSERT(again->actions == schedule.actions && again->offsets == schedule.offsets);
}

}  // namespace

int fuzz_order_text(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Placement placement = (data[0] & 4) != 0 ? Placement::kV : Placement::kLoop;
  Result<Schedule> read = fail(ErrorCode::kParse, "");
  switch (data[0] & 3) {
    case 0:
      read = parse_deepspeed(text, "fuzz");
      break;
    case 1:
      read = parse_zero_bubble(text, "fuzz", placement);
      break;
    case 2:
      read = parse_megatron_order(text, "fuzz", placement);
      break;
    default:
      (void)parse_torchtitan(text, "fuzz");
      return 0;
  }
  if (!read || read->actions.empty()) return 0;
  (void)validate_schedule(*read);
  if (!read->has_communication()) same_again(*read, print_zero_bubble(*read), parse_zero_bubble);
  same_again(*read, print_megatron_order(*read), parse_megatron_order);
  return 0;
}

}  // namespace plumbline

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return plumbline::fuzz_order_text(data, size);
}

// libFuzzer target: no text breaks the reader of Programs; what it reads prints and reads back as the same, and small
// ones are linked, proved and simulated without a fault, with one answer.
// Built by preset fuzz; started by hand with a corpus, docs/testing.md
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/program/link.h"
#include "engine/program/text.h"
#include "sim/simulator.h"
#include "sim/verify/check.h"

namespace plumbline {
namespace {

// Unlike PL_ASSERT, which ends the process, it leaves the input in a file.
void require(bool holds) {
  if (!holds) __builtin_trap();
}

void examine(const Program& program) {
  if (program.items.size() > 300 || program.grid.world() > 64) return;  // slow, and nothing new
  const Result<LinkedProgram> linked = link_program(program);
  if (!linked) return;
  const Result<ModeVerdict> simulated = simulate(*linked, certification_model(), {});
  if (!is_provable(*linked)) return;
  const Result<Verdict> proved = check_program(*linked);
  require(proved.has_value());
  if (simulated) require(proved->modes.front().completes == simulated->completes);
}

}  // namespace

int fuzz_program(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<Program> program = parse_program(text, "fuzz");
  if (!program) return 0;
  const Result<Program> again = parse_program(print_program(*program), "fuzz");
  require(again.has_value());
  require(program_digest(*again) == program_digest(*program));
  examine(*program);
  return 0;
}

}  // namespace plumbline

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return plumbline::fuzz_program(data, size);
}

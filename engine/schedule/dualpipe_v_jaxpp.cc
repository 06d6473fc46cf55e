// DualPipeV as JaxPP runs it: DeepSeek's order but for the end, where only one of the two arms is split on
// each rank, the first stage never is, and all weight gradients come last.
//
//   P = 2, V = 2, M = 5, a backward takes two steps, an overlapped pair three
//   (0..4 forward, a..e backward or input gradient, A..E weight gradient, ' marks the second chunk,
//   + joins a pair, . idle)
//
//   rank 0   0  1  2  0' a' A' 1' 3 +b'+b' .  2'+a +a  4 +c'+c' 3'+b +b  d' d' .  4'+c +c  e' e' d  d  .  e  e
//   rank 1   .  0  0' 1  1' 2  a' a' 2'+a +a  3 +b'+b' 3'+b +b  4 +c'+c' 4'+c +c  d' d' d  d  .  e' e  e  E' .
//
// Order    engine/schedule/dualpipe_rows.h, with the other ending.
// Bubble   no formula; the same forwards and pairs as dualpipe-v.
// Memory   2P+1 live chunk activations on every rank, held until W.
// Limits   M >= 2P.
// Source   JaxPP schedules.py, DualPipeV.
#include "engine/schedule/dualpipe_rows.h"
#include "engine/schedule/generator_support.h"

namespace plumbline {
namespace {

constexpr const char* kName = "dualpipe-v-jaxpp";

Result<Schedule> make(const GeneratorArgs& args) {
  return dualpipe_v_schedule(args, kName, DualPipeEnding::kJaxPP);
}

}  // namespace

namespace detail {

RegisterGenerator register_dualpipe_v_jaxpp{Generator{
    .name = kName,
    .summary = "DualPipeV with JaxPP's ending: one arm split, weight gradients last",
    .constraints = "two chunks a rank; M >= 2P",
    .bubble = "no formula; evaluate it for the costs at hand",
    .memory = "2P+1 chunks on every rank, until W",
    .source = "JaxPP schedules.py (DualPipeV)",
    .make = make,
}};

}  // namespace detail
}  // namespace plumbline

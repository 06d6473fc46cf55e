// DualPipeV: DualPipe cut in half. Two chunks a rank in a V; forwards of one arm are overlapped with
// backwards of the other, so that one's communication hides behind the other's computation.
//
//   P = 2, V = 2, M = 5, a backward takes two steps, an overlapped pair three
//   (0..4 forward, a..e backward or input gradient, A..E weight gradient, ' marks the second chunk,
//   + joins a pair, . idle)
//
//   rank 0   0  1  2  0' a' A' 1' 3 +b'+b' .  2'+a +a  4 +c'+c' 3'+b +b  d' d' .  4'+c +c  e' e' d  D  e  E
//   rank 1   .  0  0' 1  1' 2  a' a' 2'+a +a  3 +b'+b' 3'+b +b  4 +c'+c' 4'+c +c  d' d' d  d  .  e' e  E' E
//
// Order    engine/schedule/dualpipe_rows.h, with depth P and position r; phase 0 is chunk 0, phase 1 chunk 1.
// Bubble   (P-1)(FB+B-3W) of makespan on the rank that idles most, for F = I = W and FB the time of a pair;
//          with other costs, or FB < F+B, ranks idle differently, which the evaluator tells.
// Memory   2P+1 live chunk activations on every rank, held until W.
// Limits   M >= 2P.
// Source   deepseek-ai/DualPipe, dualpipe/dualpipev.py; PyTorch pipelining/schedules.py (ScheduleDualPipeV)
//          has the same order.
#include "engine/schedule/dualpipe_rows.h"

namespace plumbline {
namespace {

constexpr const char* kName = "dualpipe-v";

Result<Schedule> make(const GeneratorArgs& args) {
  return dualpipe_v_schedule(args, kName, DualPipeEnding::kDeepSeek);
}

}  // namespace

namespace detail {

RegisterGenerator register_dualpipe_v{Generator{
    .name = kName,
    .summary = "forwards overlapped with backwards on a V (DeepSeek's DualPipeV)",
    .constraints = "two chunks a rank; M >= 2P",
    .bubble = "makespan, idlest rank: (P-1)(FB+B-3W) for F = I = W, FB one overlapped pair",
    .memory = "2P+1 chunks on every rank, until W",
    .source = "deepseek-ai/DualPipe, dualpipev.py",
    .make = make,
}};

}  // namespace detail
}  // namespace plumbline

// ZB-H2: ZB-H1 with twice the warm-up. If F = I = W no rank is idle between its first and its last action:
// the bubble of stage time is gone, at twice the memory. Ranks start and end one after another, so that the
// makespan keeps a gap which only consecutive steps without a barrier close.
//
//   P = 3, M = 6 (0..5 forward, a..f input gradient, A..F weight gradient, . idle)
//
//   rank 0   0 1 2 3 4 a A 5 b B c C d D e E f F . .
//   rank 1   . 0 1 2 a 3 b 4 c A 5 d B e C f D E F .
//   rank 2   . . 0 a 1 b 2 c 3 d 4 e A 5 f B C D E F
//
// Warm-up  2(P-1-r) forwards on rank r; from backward k on, 2(P-1-r) + k >= 2(P-1), one W follows each I.
// Bubble   (P-1)(F+I-2W) of stage time, never below 0; with a latency C between ranks (P-1)(F+I+2C-2W).
// Memory   2P-1 live activations on every rank, held until W; 2(P-r)-1 held until I.
// Source   Qi et al., Zero Bubble Pipeline Parallelism, arXiv 2401.10241, section 2 and table 2.
#include "engine/schedule/generator_support.h"
#include "engine/schedule/zb_rows.h"

namespace plumbline {
namespace {

constexpr const char* kName = "zb-h2";

Result<Schedule> make(const GeneratorArgs& args) {
  PL_TRY(check_args(args, kName, Chunks::kOne));
  PL_TRY(refuse_forward_only(args, kName));
  return delayed_weight_grads(begin_schedule(args, kName, Backward::kSplit), 2);
}

}  // namespace

namespace detail {

RegisterGenerator register_zb_h2{Generator{
    .name = kName,
    .summary = "split backward, twice the warm-up: no bubble at twice the memory",
    .constraints = "one chunk a rank; M >= 1, made for M >= 2P",
    .bubble = "stage time: (P-1)(F+I-2W), at least 0, for M >= 2P",
    .memory = "2P-1 on every rank, until W",
    .source = "arXiv 2401.10241 (Zero Bubble)",
    .make = make,
}};

}  // namespace detail
}  // namespace plumbline

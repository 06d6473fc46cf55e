// ZB-H1: 1F1B with the backward split. The input gradient is passed on at once, the weight gradient fills
// what was idle, later on the later ranks, so that no rank holds more than 1F1B's first rank.
//
//   P = 3, M = 6 (0..5 forward, a..f input gradient, A..F weight gradient, . idle)
//
//   rank 0   0 1 2 . . a A 3 b B 4 c C 5 d D e E f F
//   rank 1   . 0 1 . a 2 b A 3 c B 4 d C 5 e D f E F
//   rank 2   . . 0 a 1 b 2 c A 3 d B 4 e C 5 f D E F
//
// Warm-up  P-1-r forwards on rank r; from backward k on, P-1-r + k >= P-1, one W follows each I.
// Bubble   (P-1)(F+I-W) of makespan for W <= I and M >= 2P, no latency.
// Memory   P live activations on every rank, held until W; P-r held until I.
// Source   Qi et al., Zero Bubble Pipeline Parallelism, arXiv 2401.10241, section 2 and table 2. JaxPP's
//          ZeroBubble gives the same orders.
#include "engine/schedule/generator_support.h"
#include "engine/schedule/zb_rows.h"

namespace plumbline {
namespace {

constexpr const char* kName = "zb-h1";

Result<Schedule> make(const GeneratorArgs& args) {
  PL_TRY(check_args(args, kName, Chunks::kOne));
  PL_TRY(refuse_forward_only(args, kName));
  return delayed_weight_grads(begin_schedule(args, kName, Backward::kSplit), 1);
}

}  // namespace

namespace detail {

RegisterGenerator register_zb_h1{Generator{
    .name = kName,
    .summary = "1F1B with split backward: less bubble at the same memory",
    .constraints = "one chunk a rank; M >= 1, made for M >= 2P",
    .bubble = "makespan: (P-1)(F+I-W) for W <= I, M >= 2P",
    .memory = "P on every rank, until W",
    .source = "arXiv 2401.10241 (Zero Bubble)",
    .make = make,
}};

}  // namespace detail
}  // namespace plumbline

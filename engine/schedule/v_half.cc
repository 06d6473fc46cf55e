// V-Half: the V at half of 1F1B's memory and half of its bubble.
//
//   P = 2, V = 2, M = 3
//   (0..2 forward, a..c input gradient, A..C weight gradient, ' marks the second chunk, . idle)
//
//   rank 0   0  1  2  0' a' A' 1' .  a  b' B' 2' c' b  C' c  A  B  C
//   rank 1   .  0  0' 1  1' a' A' a  A  2  2' b' b  c' c  B' C' B  C
//
// Block    on rank r the four legs start in slots 2r, 3P-2-r, 3P+k+2r-1 and 6P+k-2-r, every six slots
//          again; k = 3 where P is even, else 0, keeps them from colliding. How blocks become an order:
//          engine/schedule/v_repeat.h.
// Bubble   about half of 1F1B's for F = I = W.
// Memory   2 floor((P+2)/2) live chunk activations on the fullest rank, held until W, for M >= P.
// Source   Qi et al., Pipeline Parallelism with Controllable Memory, arXiv 2405.15362;
//          sail-sg/zero-bubble-pipeline-parallelism, scheduler/zbv_greedy.py.
#include "engine/schedule/v_repeat.h"

namespace plumbline {
namespace {

constexpr const char* kName = "v-half";

Result<Schedule> make(const GeneratorArgs& args) {
  PL_TRY(check_args(args, kName, Chunks::kTwo));
  PL_TRY(refuse_forward_only(args, kName));
  const std::int64_t p = args.ranks;
  const std::int64_t k = p % 2 == 0 ? 3 : 0;
  std::vector<LegSlots> block;
  for (std::int64_t r = 0; r < p; ++r) {
    block.push_back({2 * r, 3 * p - 2 - r, 3 * p + k + 2 * r - 1, 6 * p + k - 2 - r});
  }
  return v_block_schedule(args, kName, block);
}

}  // namespace

namespace detail {

RegisterGenerator register_v_half{Generator{
    .name = kName,
    .summary = "half of 1F1B's memory, half of its bubble",
    .constraints = "two chunks a rank; M >= 1",
    .bubble = "0.4 to 0.5 of 1F1B's for F = I = W, P >= 8",
    .memory = "2 floor((P+2)/2) chunks on the fullest rank, until W, for M >= P",
    .source = "arXiv 2405.15362 (Pipeline Parallelism with Controllable Memory)",
    .make = make,
}};

}  // namespace detail
}  // namespace plumbline

// V-Min: the V whose blocks lie as close as they can. A third of 1F1B's memory, at two thirds of its bubble.
//
//   P = 2, V = 2, M = 3
//   (0..2 forward, a..c input gradient, A..C weight gradient, ' marks the second chunk, . idle)
//
//   rank 0   0  1  .  0' a' A' .  a  A  1' b' B' 2  b  B  2' c' C' .  c  C
//   rank 1   .  0  0' .  .  a' a  1  1' A' A  b' b  2  2' B' B  c' c  C' C
//
// Block    on rank r the four legs start in slots r, 2P-1-r, 2P+k+r and 4P+k-1-r, every six slots again; k
//          = 2 where 3 divides P, else 0, keeps them from colliding. How blocks become an order:
//          engine/schedule/v_repeat.h.
// Bubble   about two thirds of 1F1B's for F = I = W; where they differ, a part that grows with M.
// Memory   2 floor((P+4)/3) live chunk activations on the fullest rank, held until W, for M >= P.
// Source   Qi et al., Pipeline Parallelism with Controllable Memory, arXiv 2405.15362;
//          sail-sg/zero-bubble-pipeline-parallelism, scheduler/zbv_greedy.py.
#include "engine/schedule/v_repeat.h"

namespace plumbline {
namespace {

constexpr const char* kName = "v-min";

Result<Schedule> make(const GeneratorArgs& args) {
  PL_TRY(check_args(args, kName, Chunks::kTwo));
  PL_TRY(refuse_forward_only(args, kName));
  const std::int64_t p = args.ranks;
  const std::int64_t k = p % 3 == 0 ? 2 : 0;
  std::vector<LegSlots> block;
  for (std::int64_t r = 0; r < p; ++r) {
    block.push_back({r, 2 * p - 1 - r, 2 * p + k + r, 4 * p + k - 1 - r});
  }
  return v_block_schedule(args, kName, block);
}

}  // namespace

namespace detail {

RegisterGenerator register_v_min{Generator{
    .name = kName,
    .summary = "a third of 1F1B's memory, two thirds of its bubble",
    .constraints = "two chunks a rank; M >= 1",
    .bubble = "about 2/3 of 1F1B's for F = I = W, P >= 8; O(M) more where they differ",
    .memory = "2 floor((P+4)/3) chunks on the fullest rank, until W, for M >= P",
    .source = "arXiv 2405.15362 (Pipeline Parallelism with Controllable Memory)",
    .make = make,
}};

}  // namespace detail
}  // namespace plumbline

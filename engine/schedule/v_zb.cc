// V-ZB: the V without a bubble, at 1F1B's memory.
//
//   P = 2, V = 2, M = 3
//   (0..2 forward, a..c input gradient, A..C weight gradient, ' marks the second chunk, . idle)
//
//   rank 0   0  1  2  0' a' A' 1' b' a  B' b  A  B  2' c' C' .  c  C
//   rank 1   .  0  0' 1  1' a' a  A' b' b  B' 2  2' A  B  c' c  C' C
//
// Block    on rank r the four legs start in slots 4r, 6(P-1)+1-2r, 6(P-1)+2+4r and 12(P-1)+3-2r, every six
//          slots again: four down and two up for each rank, so that all ranks see the same pattern, F F' I'
//          I and two slots for W. How blocks become an order: engine/schedule/v_repeat.h.
// Bubble   2(P-1)(max(F,I)-W) of stage time for M >= 3P, W at most F and I, 2F <= 2I+W and 2I <= 2F+W; so 0
//          for F = I = W, and M does not add to it.
// Memory   2P live chunk activations on every rank, held until W, for M >= 2P.
// Source   Qi et al., Pipeline Parallelism with Controllable Memory, arXiv 2405.15362. The authors publish
//          the offsets' sum and the memory, no code; the slots above are ours, the only ones without a gap
//          for the offsets 4 and 2.
#include "engine/schedule/v_repeat.h"

namespace plumbline {
namespace {

constexpr const char* kName = "v-zb";

Result<Schedule> make(const GeneratorArgs& args) {
  PL_TRY(check_args(args, kName, Chunks::kTwo));
  PL_TRY(refuse_forward_only(args, kName));
  const std::int64_t p = args.ranks;
  std::vector<LegSlots> block;
  for (std::int64_t r = 0; r < p; ++r) {
    block.push_back({4 * r, 6 * (p - 1) + 1 - 2 * r, 6 * (p - 1) + 2 + 4 * r, 12 * (p - 1) + 3 - 2 * r});
  }
  return v_block_schedule(args, kName, block);
}

}  // namespace

namespace detail {

RegisterGenerator register_v_zb{Generator{
    .name = kName,
    .summary = "no bubble on a V, at 1F1B's memory",
    .constraints = "two chunks a rank; M >= 1",
    .bubble = "stage time: 2(P-1)(max(F,I)-W) for W <= F, W <= I, |F-I| <= W/2 and M >= 3P",
    .memory = "2P chunks on every rank, until W, for M >= 2P",
    .source = "arXiv 2405.15362 (Pipeline Parallelism with Controllable Memory)",
    .make = make,
}};

}  // namespace detail
}  // namespace plumbline

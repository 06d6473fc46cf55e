// Chimera with two pairs of pipelines: four copies of the model, two down and two up, the second of each
// shifted by half the ring. Half the bubble of one pair, for twice its weights.
//
//   P = 4, M = 4, a backward takes two steps
//   (0..3 forward, a..d backward of the same microbatches, ' " ^ mark a rank's stages from the second on,
//   . idle)
//
//   rank 0   0  3' 1" 2^ c^ c^ b" b" d' d' a  a
//   rank 1   3  0' 2" 1^ b^ b^ c" c" a' a' d  d
//   rank 2   1  2' 0" 3^ d^ d^ a" a" c' c' b  b
//   rank 3   2  1' 3" 0^ a^ a^ d" d" b' b' c  c
//
// Order    engine/schedule/chimera_rows.h. Microbatches 0 to 3 of each four start on ranks 0, P/2, P-1 and
//          P/2-1.
// Bubble   share of makespan (P/2-2)/(2M+P/2-2) for F = B, M a multiple of P.
// Memory   P-1 or P live activations for P >= 8; four times the weights.
// Limits   P a multiple of 4; M = P/2 (one pair alone) or a multiple of P.
// Source   Li and Hoefler, Chimera, SC 2021; Shigangli/Chimera, chimera_pipeline_rank.py, where its
//          instances are complete.
#include "engine/schedule/chimera_rows.h"
#include "engine/schedule/generator_support.h"

namespace plumbline {
namespace {

constexpr const char* kName = "chimera-2-pairs";

Result<Schedule> make(const GeneratorArgs& args) { return chimera_schedule(args, kName, 2); }

}  // namespace

namespace detail {

RegisterGenerator register_chimera_2_pairs{Generator{
    .name = kName,
    .summary = "four pipelines in both directions, four copies of the weights",
    .constraints = "one stage of each copy a rank; P a multiple of 4; M = P/2 or a multiple of P",
    .bubble = "share of makespan: (P/2-2)/(2M+P/2-2) for F = B, M a multiple of P",
    .memory = "at most P; four times the weights",
    .source = "Li and Hoefler 2021 (Chimera)",
    .make = make,
}};

}  // namespace detail
}  // namespace plumbline

// Chimera: two pipelines over the same ranks, one down and one up, each with a copy of the model. One's
// forwards fill the gaps of the other's, which halves 1F1B's bubble; the copies' gradients have to be added
// up at the end of the step.
//
//   P = 4, M = 4, a backward takes two steps
//   (0..3 forward, a..d backward of the same microbatches, ' marks the upper of a rank's two stages, . idle)
//
//   rank 0   0  2  .  1' b' b' 3' d' d' .  a  a  .  .  c  c
//   rank 1   .  0  1' 2  3' .  b' b' a  a  d' d' c  c  .  .
//   rank 2   .  1  0' 3  2' .  a' a' b  b  c' c' d  d  .  .
//   rank 3   1  3  .  0' a' a' 2' c' c' .  b  b  .  .  d  d
//
// Order    engine/schedule/chimera_rows.h. Microbatches 0, 2, ... go down, 1, 3, ... go up.
// Bubble   share of makespan (P-2)/(2M+P-2) for F = B; with B = 2F more, which the evaluator tells.
// Memory   P/2+1 to P live activations, most in the middle; twice the weights.
// Limits   P even; M = P/2 (one pipeline alone) or a multiple of P.
// Source   Li and Hoefler, Chimera, SC 2021; Shigangli/Chimera, chimera_pipeline_rank.py, where its
//          instances are complete.
#include "engine/schedule/chimera_rows.h"
#include "engine/schedule/generator_support.h"

namespace plumbline {
namespace {

constexpr const char* kName = "chimera";

Result<Schedule> make(const GeneratorArgs& args) { return chimera_schedule(args, kName, 1); }

}  // namespace

namespace detail {

RegisterGenerator register_chimera{Generator{
    .name = kName,
    .summary = "two pipelines in opposite directions, two copies of the weights",
    .constraints = "one stage of each copy a rank; P even; M = P/2 or a multiple of P",
    .bubble = "share of makespan: (P-2)/(2M+P-2) for F = B",
    .memory = "P/2+1 to P; twice the weights",
    .source = "Li and Hoefler 2021 (Chimera)",
    .make = make,
}};

}  // namespace detail
}  // namespace plumbline

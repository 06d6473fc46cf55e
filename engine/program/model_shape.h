// ModelShape: what a transformer's sizes follow from - layers, widths, parallel shares, what is recomputed - and
// the sizes themselves: parameters of a stage, what one forward keeps for its backward, the tensor between two
// stages. Every size of this tree that is not asked of a model comes from here (default_sizes, `plumbline
// estimate`).
//
// Formulas and their sources: docs/estimate.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/base/result.h"
#include "engine/base/units.h"
#include "engine/config/launch_script.h"
#include "engine/config/pipeline_layout.h"
#include "engine/config/run_config.h"
#include "engine/program/lower.h"

namespace plumbline {

enum class Recompute : std::uint8_t {
  kNone,
  kSelective,  // attention's scores, softmax and dropout
  kFull,       // whole layers, from their inputs
};
enum class RecomputeMethod : std::uint8_t {
  kUniform,  // all layers of a stage, in groups whose first input is kept
  kBlock,    // the first layers of a stage, one by one
};

struct ModelShape {
  std::int64_t hidden = 64;
  std::int64_t heads = 4;
  std::int64_t query = 64;  // width of all queries: heads x channels
  std::int64_t kv = 64;     // width of keys, and of values: groups x channels
  std::int64_t ffn = 256;
  std::int64_t seq = 64;
  std::int64_t micro = 1;       // sequences a microbatch
  std::int64_t vocab = 256;     // padded
  std::int64_t positions = 64;  // learned position embeddings; 0: none
  bool gated = false;           // SwiGLU: two matrices into the feed-forward
  bool bias = true;             // of linear layers
  bool norm_bias = true;        // LayerNorm; false: RMSNorm
  bool tied = true;             // output layer = embedding
  bool tied_twice =
      true;  // also where one stage holds both ends: each use is a leaf of its own, as in our models
  bool flash = false;  // attention never writes its s x s scores
  // What the embedding and the output layer keep counts in their stages' stashes: token numbers and a dropout mask;
  // the last norm's and the output layer's inputs, and the fp32 exponentials of the logits.
  bool ends = false;
  int tp = 1;
  bool sequence_parallel = false;
  DType dtype = DType::kF32;
  Recompute recompute = Recompute::kNone;
  RecomputeMethod method = RecomputeMethod::kUniform;
  int recompute_layers =
      1;  // uniform: layers kept as one group; block: layers of a stage that are recomputed
  std::vector<StageLayers> stages;

  Bytes element() const { return dtype_bytes(dtype); }
};

// Of the [model] section: GPT-2 style, layers dealt out evenly, earlier stages one more where they do not divide.
ModelShape model_shape(const RunConfig& config);

// Of Megatron's launch flags; parallel sizes and the layout as imported (megatron_args.h), widths from the script.
// Errors: what is not estimated (mixture of experts, multi-latent attention, context parallelism), sizes that do
// not divide.
struct MegatronImport;
Result<ModelShape> model_shape(const LaunchScript& script, const MegatronImport& import,
                               const std::string& name);

// Parameter tensors of one rank of a stage in registration order.
std::vector<ParamSize> stage_tensors(const ModelShape& shape, int stage);
// Parameters of the whole model, every copy of a tied embedding but one left out.
std::int64_t parameters_of(const ModelShape& shape);

// One layer's activations for its backward; nothing of it recomputed.
Bytes layer_activation(const ModelShape& shape);
// The tensor between two stages, and so the input of a layer.
Bytes boundary_activation(const ModelShape& shape);
// What a forward of the stage keeps until its backward, with what is recomputed.
Bytes stage_stash(const ModelShape& shape, int stage);
// What a backward of the stage builds again beside that, at most at one time.
Bytes recompute_buffer(const ModelShape& shape, int stage);
// Share of a stage's forward that its backward does again, from 0 to 1; selective recomputation counts as none.
double recomputed_share(const ModelShape& shape, int stage);

ModelSizes sizes_of(const ModelShape& shape);

}  // namespace plumbline

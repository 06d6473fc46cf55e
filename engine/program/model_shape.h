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
#include "engine/config/run_config.h"
#include "engine/config/stage_layers.h"
#include "engine/program/lower.h"

namespace plumbline {

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
  // Mixture of experts: in these layers each token goes to `topk` of `experts` feed-forwards, and to a shared one.
  std::vector<bool> expert_layers;  // by decoder layer; empty: none
  std::int64_t experts = 0, topk = 2;
  std::int64_t expert_ffn = 0, shared_ffn = 0;  // widths; 0: no shared one
  // Multi-latent attention: widths of a head's queries and keys without and with positions, of its values, and of the
  // latents that they are made from (queries: 0, made from the input).
  std::int64_t qk_head = 0, qk_rope = 0, v_head = 0, q_rank = 0;
  std::int64_t kv_rank = 0;             // 0: ordinary attention
  int tp = 1, cp = 1, ep = 1, etp = 1;  // etp: tensor-parallel size of experts
  int slices = 1;                       // parts of a sequence that pass one after another
  bool sequence_parallel = false;
  DType dtype = DType::kF32;
  Recompute recompute = Recompute::kNone;
  RecomputeMethod method = RecomputeMethod::kUniform;
  int recompute_layers =
      1;  // uniform: layers kept as one group; block: layers of a stage that are recomputed
  std::vector<StageLayers> stages;

  Bytes element() const { return dtype_bytes(dtype); }
  std::int64_t tokens() const {
    return seq / cp / slices;
  }  // of a sequence, on one context-parallel rank at a time
  bool latent() const { return kv_rank > 0; }
};

// Of the [model] section: GPT-2 style, layers dealt out evenly, earlier stages one more where they do not divide.
ModelShape model_shape(const RunConfig& config);

// Of Megatron's launch flags; parallel sizes and the layout as imported (megatron_args.h), widths from the script.
// Errors: what is not estimated (Mamba, encoders), sizes that do not divide.
struct MegatronImport;
Result<ModelShape> model_shape(const LaunchScript& script, const MegatronImport& import,
                               const std::string& name);

// Parameter tensors of one rank of a stage in registration order; those of experts, which have buffers of their own,
// behind them.
std::vector<ParamSize> stage_tensors(const ModelShape& shape, int stage);
std::vector<ParamSize> dense_tensors(const ModelShape& shape, int stage);
std::vector<ParamSize> expert_tensors(const ModelShape& shape, int stage);
// Parameters of the whole model, every copy of a tied embedding but one left out.
std::int64_t parameters_of(const ModelShape& shape);

// One layer's activations for its backward, without what selective recomputation builds again.
Bytes layer_activation(const ModelShape& shape, bool experts = false);
// The tensor between two stages, and so the input of a layer.
Bytes boundary_activation(const ModelShape& shape);
// What a forward of the stage keeps until its backward, with what is recomputed.
Bytes stage_stash(const ModelShape& shape, int stage);
// What a backward of the stage builds again beside that, at most at one time.
Bytes recompute_buffer(const ModelShape& shape, int stage);
// The same where an I builds it and its W still needs it: all that is recomputed, not a group at a time.
Bytes recompute_buffer_split(const ModelShape& shape, int stage);
// Share of a stage's forward that its backward does again, from 0 to 1: of its layers, or with selective recomputation
// that of the scores in a layer's multiplications.
double recomputed_share(const ModelShape& shape, int stage);
// Time that goes ahead of a B or I of each stage, for forwards that take `forward` (one entry, or one a stage); empty
// without recomputation.
std::vector<Nanoseconds> recompute_times(const ModelShape& shape, const std::vector<Nanoseconds>& forward);

ModelSizes sizes_of(const ModelShape& shape);

}  // namespace plumbline

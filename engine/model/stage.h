// Stage: what a user writes to run a model of their own through plumbline (docs/bring-your-own-stage.md). One
// object is one pipeline stage of one data-parallel replica; it holds parameters and turns an input into an
// output. Autograd does the backward; schedule, communication, precision, optimizer and records are the
// engine's.
//
// Determinism: a stage may use nothing but its parameters, its input and its batch. Initial values come from
// CounterRng(seed, parameter name), indexed by element, so that no layout changes them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "engine/base/result.h"
#include "engine/config/run_config.h"
#include "engine/program/lower.h"

namespace plumbline {

// A leaf of a stage. `value` has the run's precision (fp32, fp16 or bf16) and requires grad. Names are
// global: "layers.3.mlp.w1", never local to a rank or chunk.
struct StageParameter {
  std::string name;
  at::Tensor value;
  // The embedding shared by the first and the last stage: same name on both, updated by the summed gradient,
  // counted once in norms and digests.
  bool tied = false;
  // Of the embedding or the output layer: has --decoupled-lr. A tied one always is.
  bool embedding_or_output = false;
};

// Where sequences pass in slices (schedule.slices): what one slice leaves in a stage for the later slices of its
// sequence. Backwards come in descending order, so that the gradients of what was shared are complete before the
// slice's own, which begins at `own` as well as at the output.
struct SliceState {
  std::vector<at::Tensor> own;     // in the slice's graph: keys and values, by layer
  std::vector<at::Tensor> shared;  // the same as leaves, which later slices read
};
struct SlicePlace {
  int slice = 0;
  std::vector<const SliceState*> before;  // of the slices before, ascending
  SliceState* here = nullptr;             // to be filled
};

// Integer inputs of one microbatch, int64 [micro_batch_size, seq_length]. Always given to every stage.
struct Batch {
  at::Tensor tokens;
  at::Tensor targets;
  const SlicePlace* place = nullptr;  // null: whole sequences; else tokens and targets are the slice's
};

struct StageSpec {
  int stage = 0;
  int stages = 1;
  const RunConfig* config = nullptr;  // outlives the stage
  bool first() const { return stage == 0; }
  bool last() const { return stage == stages - 1; }
};

class Stage {
 public:
  virtual ~Stage() = default;
  // Fixed order; the same objects during the stage's life. The engine writes new values in place.
  virtual std::vector<StageParameter>& parameters() = 0;
  // `input` is undefined on the first stage, else the previous stage's output, a leaf that requires grad.
  // Returns the output [micro_batch_size, seq_length, hidden] in the run's precision, or, on the last stage,
  // the mean loss of the microbatch as a scalar float32 tensor, unscaled.
  virtual at::Tensor forward(const at::Tensor& input, const Batch& batch) = 0;
};

// A registered model.
struct ModelFamily {
  std::string name;
  std::string summary;
  std::unique_ptr<Stage> (*make_stage)(const StageSpec& spec) = nullptr;
  // Sizes for lowering: activation and its dtype, stash, main-gradient bytes and parameter tensors by stage, tied
  // gradient, parameter count.
  ModelSizes (*sizes)(const RunConfig& config) = nullptr;
  // Whether its backwards build again what [memory] recompute says (ops::checkpoint) and `sizes` counts so.
  bool recomputes = false;
  // Whether its stages know Batch::place.
  bool slices = false;
  // Whether its stages compute on a device: they use ops.h and LibTorch alone, make tensors where their parameters are,
  // and never look at a tensor's values.
  bool on_device = false;
};

const std::vector<ModelFamily>& model_families();
Result<const ModelFamily*> find_model(const std::string& name);  // unknown: nearest name

struct RegisterModel {
  explicit RegisterModel(ModelFamily family);
};

}  // namespace plumbline

// Parameter and ParamGroup: what optimizers work on. A parameter is an object with an identity - optimizers
// keep state by it and hold it by shared pointer -, and its tensors are handles that may be re-pointed
// (offload, views of a gradient buffer). The fp32 main copy of an fp16 parameter, and the shard of it that
// a rank owns, are parameters too.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace plumbline {

struct Parameter {
  std::string name;  // global: "layers.3.mlp.w1"; of a main copy or shard: its model parameter's
  at::Tensor value;  // never undefined
  // Gradients, undefined when there is none. Model parameters: `main_grad` is the accumulation buffer of the
  // data-parallel wrapper (fp32, or the model's precision), `grad` what came without one. Main parameters:
  // `grad` is what the base optimizer reads, `decoupled_grad` the same in another precision than value's
  // (precision-aware states).
  at::Tensor grad;
  at::Tensor main_grad;
  at::Tensor decoupled_grad;
  int global = -1;      // place among all parameters of the model, the tied one once; -1: unknown
  bool shared = false;  // the further use of a tied parameter: left out of norms, counts and digests
  bool shared_embedding = false;     // word embedding used on two stages: gets a bucket of its own
  bool embedding_or_output = false;  // of the embedding or the output layer: has the decoupled learning rate
  bool tensor_parallel = false;      // sharded over tp; otherwise every tp rank holds it and rank 0 counts it
  bool expert = false;               // expert-parallel ("allreduce = False"): reduced over the expert groups
  int bucket = -1;                   // of the gradient buffer, for messages; -1: none
  // Of a part of a tensor that other ranks hold the rest of (tensor parallel): shape of the whole and where
  // the part lies. Empty: the value is the whole.
  std::vector<std::int64_t> global_shape, global_offset;
  // Of a shard: elements [begin, begin + value.numel()) of the flattened model parameter; 0 otherwise.
  std::int64_t begin = 0;

  std::int64_t numel() const { return value.numel(); }
};
using ParameterPtr = std::shared_ptr<Parameter>;

// Settings shared by some parameters. Fields without a value are absent, which is what a saved None means
// too.
struct ParamGroup {
  std::vector<ParameterPtr> params;
  double lr = 0.0;                                // written by the scheduler before each step
  double weight_decay = 0.0;                      // likewise
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;  // Adam
  double momentum = 0.0;                          // SGD
  std::optional<double> wd_mult, lr_mult;         // absent: 1
  std::optional<bool> is_expert_parallel, is_decoupled_lr;
  std::optional<double> max_lr, min_lr, start_wd, end_wd;  // overrides of the scheduler's
  std::optional<std::string> optimizer;
  std::optional<std::int64_t> step;  // a step kept by group instead of by parameter
};

}  // namespace plumbline

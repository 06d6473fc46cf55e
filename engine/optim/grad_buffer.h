// GradBuffer: the contiguous memory of the data-parallel wrapper (Megatron: _ParamAndGradBuffer). Parameters of
// one precision, one gradient precision and one reduction group (dense or expert) lie in it as ParamLayout says,
// cut into buckets; a bucket is what one reduce-scatter, all-reduce or all-gather moves.
//
//   gradients    Parameter::main_grad becomes a view of its place. fp32, or the parameter's precision.
//   parameters   with the distributed optimizer only: Parameter::value is re-pointed (set_data) to its place, so
//                that an all-gather of a bucket updates the model; its old memory is released.
//
// Memory. Buckets are separate storages. A bucket's memory is the buffer's own, or somebody else's handed in with
// bind_*: in a run the backend owns the slots. Re-binding swaps the pointer below all views, so handles taken
// before stay right; whoever lends memory keeps it alive until it is bound again. Units: elements unless said.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "engine/base/dtype.h"
#include "engine/base/result.h"
#include "engine/optim/parameter.h"
#include "engine/program/param_layout.h"

namespace plumbline {

struct GradBufferOptions {
  ParamLayoutOptions layout;        // `shards` is the size of the reduction group
  int shard = 0;                    // own place in that group
  bool grad_reduce_in_fp32 = true;  // false: gradients are kept and reduced in the parameter's precision
  bool own_memory = true;           // false: gradients have no memory until bind_gradients
  int rank = 0;                     // for messages
};

class GradBuffer {
 public:
  struct Key {
    DType parameter = DType::kF32;
    DType gradient = DType::kF32;
    bool expert = false;
    bool operator==(const Key&) const = default;
  };

  // `params` in registration order, of one key and one device; refused otherwise. Own gradients begin as zeros.
  static Result<std::unique_ptr<GradBuffer>> create(std::vector<ParameterPtr> params,
                                                    const GradBufferOptions& options);
  ~GradBuffer();
  GradBuffer(const GradBuffer&) = delete;
  GradBuffer& operator=(const GradBuffer&) = delete;

  const Key& key() const { return key_; }
  const GradBufferOptions& options() const { return options_; }
  const ParamLayout& layout() const { return layout_; }
  const std::vector<ParameterPtr>& params() const { return params_; }
  int buckets() const { return static_cast<int>(layout_.buckets().size()); }
  bool distributed() const { return options_.layout.distributed; }
  std::int64_t bucket_numel(int bucket) const;
  // Without padding, over all buckets: the length of Megatron's coalesced checkpoint tensors.
  std::int64_t numel_unpadded() const;

  // --- gradients
  // From now on the bucket lies in `memory` (bucket_numel elements of the gradient precision, aligned to one).
  // What is in it is taken as it is, what was in the old memory is not carried over.
  void bind_gradients(int bucket, std::byte* memory);
  const at::Tensor& gradients(int bucket) const;  // flat, padding included
  at::Tensor shard_gradients(int bucket) const;   // own part of it (distributed)
  std::span<std::byte> gradient_bytes(int bucket) const;
  // Padding too.
  void zero();
  void zero(int bucket);
  // Multiplies a bucket, rounding once: averaging over the group before the sum, as Megatron does.
  void scale(int bucket, float factor);
  // An error that names rank, bucket, parameter and element when a gradient is NaN or infinite.
  Status check_for_nan(int bucket) const;

  // --- parameters (distributed)
  // Like bind_gradients, but the values move along.
  void bind_parameters(int bucket, std::byte* memory);
  // The same without the values: what is in `memory` is taken as it is, what was in the old memory is not looked at.
  void point_parameters(int bucket, std::byte* memory);
  const at::Tensor& parameters(int bucket) const;
  std::span<std::byte> parameter_bytes(int bucket) const;

 private:
  GradBuffer(std::vector<ParameterPtr> params, const GradBufferOptions& options, Key key, ParamLayout layout);
  void place_gradients();
  void place_parameters();

  GradBufferOptions options_;
  Key key_;
  ParamLayout layout_;
  std::vector<ParameterPtr> params_;
  std::vector<at::Tensor> gradients_, parameters_;  // one a bucket
};

// The buffers of a model chunk: one a key, in the order in which keys first appear. `expert` are the options of
// expert parameters, which are reduced over another group.
Result<std::vector<std::shared_ptr<GradBuffer>>> make_grad_buffers(const std::vector<ParameterPtr>& params,
                                                                   const GradBufferOptions& dense,
                                                                   const GradBufferOptions& expert);

// main_grad += gradient, added in fp32 and rounded once to main_grad's precision. The gradient is fp32, fp16 or
// bf16 and has the parameter's number of elements.
Status accumulate_main_grad(Parameter& parameter, const at::Tensor& gradient);

}  // namespace plumbline

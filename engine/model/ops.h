// Differentiable operations in the run's precision, for writing stages (docs/bring-your-own-stage.md). Inputs
// and outputs are fp32, fp16 or bf16 tensors; each operation computes in fp32 and rounds its result once, in
// the forward and in the backward, so that fp16 works on any LibTorch and means the same everywhere. An fp32
// stage may use plain ATen instead.
//
// None of them keeps its own output for the backward, so an output may be released once it has been sent. Backwards in
// two parts leave the gradients of weight matrices, biases and embeddings for the second one (deferred.h).
#pragma once

#include <functional>

#include <ATen/core/Tensor.h>

namespace plumbline::ops {

// round(x @ weight^T + bias): x [..., in], weight [out, in], bias [out] or undefined.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});
// gelu(linear(x, weight, bias)), tanh form.
at::Tensor linear_gelu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);
// residual + linear(x, weight, bias).
at::Tensor linear_add(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      const at::Tensor& residual);

// Over the last dimension, epsilon 1e-5.
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

// Causal self-attention: qkv [batch, length, 3 * heads * depth] -> [batch, length, heads * depth].
at::Tensor causal_attention(const at::Tensor& qkv, std::int64_t heads);

// The same where earlier positions of the sequence have been through: `past` holds their keys and values, [batch,
// length of the past, 2 * heads * depth].
at::Tensor causal_attention(const at::Tensor& qkv, const at::Tensor& past, std::int64_t heads);

// table[tokens] + positions: tokens int64 [batch, length], table [vocabulary, hidden], positions [>= length,
// hidden].
at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& table, const at::Tensor& positions);

// Mean cross entropy in nats, an fp32 scalar: logits [..., vocabulary], targets int64 of the leading shape.
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& targets);

// compute(x), of which x alone is kept: the backward computes it again and goes on through that, with the same bits.
// x must require a gradient; what `compute` uses besides, parameters, must be leaves, and `compute` no random numbers.
at::Tensor checkpoint(std::function<at::Tensor(const at::Tensor&)> compute, const at::Tensor& x);

// Conversions without autograd. to_float returns its argument when it is fp32 already.
at::Tensor to_float(const at::Tensor& tensor);
at::Tensor to_type(const at::Tensor& fp32, at::ScalarType type);

}  // namespace plumbline::ops

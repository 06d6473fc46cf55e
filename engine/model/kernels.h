// The model's arithmetic on raw fp32 arrays, row-major, without LibTorch: what ops.h wraps for autograd.
// Matrix products of whole layers are LibTorch's; everything here is ours, so that one thread, many threads
// and any LibTorch give the same bits. Where a result is stored in the run's precision, `type` says which,
// and the values come out already rounded.
#pragma once

#include <cstdint>

#include "engine/base/dtype.h"

namespace plumbline::kernels {

// values[r][c] = round(values[r][c] + bias[c]); no bias when null.
void add_bias(float* values, const float* bias, std::int64_t rows, std::int64_t columns, DType type);
// out[c] = sum over r of values[r][c].
void column_sums(const float* values, float* out, std::int64_t rows, std::int64_t columns);
// values[i] = round(values[i] + other[i])
void add(float* values, const float* other, std::int64_t count, DType type);

// GELU, tanh form: x * sigmoid(2 * sqrt(2/pi) * (x + 0.044715 x^3)).
void gelu(const float* in, float* out, std::int64_t count, DType type);
// out = gradient * gelu'(in)
void gelu_grad(const float* in, const float* gradient, float* out, std::int64_t count, DType type);

// Layer norm with epsilon 1e-5. `mean` and `rstd` (one a row) are kept for the backward, which overwrites
// d_weight, d_bias.
void layer_norm(const float* in, const float* weight, const float* bias, float* out, float* mean, float* rstd,
                std::int64_t rows, std::int64_t columns, DType type);
void layer_norm_grad(const float* in, const float* weight, const float* mean, const float* rstd,
                     const float* gradient, float* d_in, float* d_weight, float* d_bias, std::int64_t rows,
                     std::int64_t columns, DType type);

// Mean over rows of -log softmax(logits)[target]. The gradient is (softmax - one hot) * scale / rows.
float cross_entropy(const float* logits, const std::int64_t* targets, std::int64_t rows,
                    std::int64_t columns);
void cross_entropy_grad(const float* logits, const std::int64_t* targets, float scale, float* d_logits,
                        std::int64_t rows, std::int64_t columns, DType type);

// Causal self-attention. qkv is [batch, length, 3 * heads * depth]: all queries, all keys, all values of a
// position. `probabilities` is [batch, heads, length, length], zero above the diagonal, rounded; out is
// [batch, length, heads * depth].
struct AttentionShape {
  std::int64_t batch, length, heads, depth;
};
void attention(const AttentionShape& shape, const float* qkv, float* out, float* probabilities, DType type);
void attention_grad(const AttentionShape& shape, const float* qkv, const float* probabilities,
                    const float* gradient, float* d_qkv, DType type);

// For tests: runs the copy for any processor although this one has AVX2.
void force_plain(bool on);

}  // namespace plumbline::kernels

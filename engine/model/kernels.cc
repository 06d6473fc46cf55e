#include "engine/model/kernels.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "engine/model/precision.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3", "no-trapping-math", "no-math-errno")
#endif

namespace plumbline::kernels {
namespace {

using Index = std::int64_t;
using Lanes = float __attribute__((vector_size(32)));

// An operand read at data[i * row + p * column].
struct Left {
  const float* data;
  Index row, column;
  float at(Index i, Index p) const { return data[i * row + p * column]; }
};
// Operands whose rows are contiguous.
struct Right {
  const float* data;
  Index row;
};
struct Out {
  float* data;
  Index row;
};

enum class Skip {
  kUpper,          // left(i, p) is zero for p > i
  kLower,          // left(i, p) is zero for p < i
  kAboveDiagonal,  // out(i, j) is not wanted for j > i
};

namespace plain {
#include "engine/model/kernels_body.h"
}  // namespace plain

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__)
#pragma GCC push_options
#pragma GCC target("avx2")
namespace avx2 {
#include "engine/model/kernels_body.h"
}  // namespace avx2
#pragma GCC pop_options
bool plain_forced = false;
bool has_avx2() {
  static const bool yes = __builtin_cpu_supports("avx2");
  return yes && !plain_forced;
}
// Calls the copy that this processor can run.
#define PL_RUN(function, ...) (has_avx2() ? avx2::function(__VA_ARGS__) : plain::function(__VA_ARGS__))
#else
bool plain_forced = true;
#define PL_RUN(function, ...) plain::function(__VA_ARGS__)
#endif

std::size_t size(Index count) { return static_cast<std::size_t>(count); }

}  // namespace

void force_plain(bool on) { plain_forced = on; }

void add_bias(float* values, const float* bias, Index rows, Index columns, DType type) {
  if (bias != nullptr) PL_RUN(add_rows, values, bias, rows, columns);
  round_to(type, values, size(rows * columns));
}

void column_sums(const float* values, float* out, Index rows, Index columns) {
  PL_RUN(sum_columns, values, out, rows, columns);
}

void add(float* values, const float* other, Index count, DType type) {
  PL_RUN(add_all, values, other, count);
  round_to(type, values, size(count));
}

void gelu(const float* in, float* out, Index count, DType type) {
  PL_RUN(gelu_all, in, out, count);
  round_to(type, out, size(count));
}

void gelu_grad(const float* in, const float* gradient, float* out, Index count, DType type) {
  PL_RUN(gelu_grad_all, in, gradient, out, count);
  round_to(type, out, size(count));
}

void layer_norm(const float* in, const float* weight, const float* bias, float* out, float* mean, float* rstd,
                Index rows, Index columns, DType type) {
  PL_RUN(norm_rows, in, weight, bias, out, mean, rstd, rows, columns);
  round_to(type, out, size(rows * columns));
}

void layer_norm_grad(const float* in, const float* weight, const float* mean, const float* rstd,
                     const float* gradient, float* d_in, float* d_weight, float* d_bias, Index rows,
                     Index columns, DType type) {
  std::vector<float> hat(size(columns));
  PL_RUN(norm_rows_grad, in, weight, mean, rstd, gradient, d_in, d_weight, d_bias, hat.data(), rows, columns);
  round_to(type, d_in, size(rows * columns));
  round_to(type, d_weight, size(columns));
  round_to(type, d_bias, size(columns));
}

float cross_entropy(const float* logits, const Index* targets, Index rows, Index columns) {
  std::vector<float> work(size(rows * columns + 2 * rows));
  float* sums = work.data() + rows * columns;
  float* most = sums + rows;
  PL_RUN(softmax_rows, logits, work.data(), sums, most, rows, columns);
  double total = 0.0;
  for (Index r = 0; r < rows; ++r) {
    total += std::log(static_cast<double>(sums[r])) + static_cast<double>(most[r]) -
             static_cast<double>(logits[r * columns + targets[r]]);
  }
  return static_cast<float>(total / static_cast<double>(rows));
}

void cross_entropy_grad(const float* logits, const Index* targets, float scale, float* d_logits, Index rows,
                        Index columns, DType type) {
  std::vector<float> work(size(2 * rows));
  PL_RUN(softmax_rows, logits, d_logits, work.data(), work.data() + rows, rows, columns);
  const float each = scale / static_cast<float>(rows);
  for (Index r = 0; r < rows; ++r) {
    float* d = d_logits + r * columns;
    const float share = 1.0f / work[size(r)];
    for (Index c = 0; c < columns; ++c) d[c] *= share;
    d[targets[r]] -= 1.0f;
    for (Index c = 0; c < columns; ++c) d[c] *= each;
  }
  round_to(type, d_logits, size(rows * columns));
}

void attention(const AttentionShape& shape, const float* qkv, float* out, float* probabilities, DType type) {
  const Index t = shape.length, d = shape.depth, width = shape.heads * d;
  const float scale = 1.0f / std::sqrt(static_cast<float>(d));
  std::vector<float> keys(size(d * t));
  for (Index batch = 0; batch < shape.batch; ++batch) {
    for (Index head = 0; head < shape.heads; ++head) {
      const float* q = qkv + batch * t * 3 * width + head * d;
      float* p = probabilities + (batch * shape.heads + head) * t * t;
      PL_RUN(transpose, q + width, 3 * width, keys.data(), t, d);
      PL_RUN(multiply, (Left{q, 3 * width, 1}), (Right{keys.data(), t}), (Out{p, t}), t, t, d,
             Skip::kAboveDiagonal);
      PL_RUN(scale_all, p, scale, t * t);
      round_to(type, p, size(t * t));
      PL_RUN(causal_softmax, p, t);
      round_to(type, p, size(t * t));
      PL_RUN(multiply, (Left{p, t, 1}), (Right{q + 2 * width, 3 * width}),
             (Out{out + batch * t * width + head * d, width}), t, d, t, Skip::kUpper);
    }
  }
  round_to(type, out, size(shape.batch * t * width));
}

void attention_grad(const AttentionShape& shape, const float* qkv, const float* probabilities,
                    const float* gradient, float* d_qkv, DType type) {
  const Index t = shape.length, d = shape.depth, width = shape.heads * d;
  const float scale = 1.0f / std::sqrt(static_cast<float>(d));
  std::vector<float> values(size(d * t));
  std::vector<float> scores(size(t * t));
  float* ds = scores.data();
  for (Index batch = 0; batch < shape.batch; ++batch) {
    for (Index head = 0; head < shape.heads; ++head) {
      const float* q = qkv + batch * t * 3 * width + head * d;
      const float* p = probabilities + (batch * shape.heads + head) * t * t;
      const float* g = gradient + batch * t * width + head * d;
      float* dq = d_qkv + batch * t * 3 * width + head * d;
      PL_RUN(transpose, q + 2 * width, 3 * width, values.data(), t, d);
      PL_RUN(multiply, (Left{g, width, 1}), (Right{values.data(), t}), (Out{ds, t}), t, t, d,
             Skip::kAboveDiagonal);
      round_to(type, ds, size(t * t));
      PL_RUN(causal_softmax_grad, p, ds, t);
      round_to(type, ds, size(t * t));
      PL_RUN(scale_all, ds, scale, t * t);
      PL_RUN(multiply, (Left{ds, t, 1}), (Right{q + width, 3 * width}), (Out{dq, 3 * width}), t, d, t,
             Skip::kUpper);
      PL_RUN(multiply, (Left{ds, 1, t}), (Right{q, 3 * width}), (Out{dq + width, 3 * width}), t, d, t,
             Skip::kLower);
      PL_RUN(multiply, (Left{p, 1, t}), (Right{g, width}), (Out{dq + 2 * width, 3 * width}), t, d, t,
             Skip::kLower);
    }
  }
  round_to(type, d_qkv, size(shape.batch * t * 3 * width));
}

}  // namespace plumbline::kernels

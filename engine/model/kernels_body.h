// no-guard: kernels.cc includes it once for any processor and once for AVX2
//
// The loops behind kernels.h. kernels.cc includes this file twice, once for any processor and once for AVX2,
// each time inside a namespace of its own. Both copies give the same bits: fp contraction is off, and the
// compiler never reorders a sum - long sums run in eight lanes that the source spells out. No templates and no
// lambdas: their instances would lose the target.

constexpr float kGeluSlope = 1.5957691216f;  // 2 * sqrt(2 / pi)
constexpr float kGeluCube = 0.044715f;
constexpr float kNormEpsilon = 1e-5f;

// The order in which eight lanes are added.
inline float fold(const float* lanes) {
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

inline float sum(const float* x, Index count) {
  float lanes[8] = {};
  Index i = 0;
  for (; i + 8 <= count; i += 8) {
    for (int k = 0; k < 8; ++k) lanes[k] += x[i + k];
  }
  for (int k = 0; i < count; ++i, ++k) lanes[k] += x[i];
  return fold(lanes);
}

inline float dot(const float* x, const float* y, Index count) {
  float lanes[8] = {};
  Index i = 0;
  for (; i + 8 <= count; i += 8) {
    for (int k = 0; k < 8; ++k) lanes[k] += x[i + k] * y[i + k];
  }
  for (int k = 0; i < count; ++i, ++k) lanes[k] += x[i] * y[i];
  return fold(lanes);
}

// Largest value. A NaN may hide here, but not from the sum of exponentials that follows every use.
inline float largest(const float* x, Index count) {
  float lanes[8];
  for (float& lane : lanes) lane = x[0];
  Index i = 0;
  for (; i + 8 <= count; i += 8) {
    for (int k = 0; k < 8; ++k) lanes[k] = x[i + k] > lanes[k] ? x[i + k] : lanes[k];
  }
  for (int k = 0; i < count; ++i, ++k) lanes[k] = x[i] > lanes[k] ? x[i] : lanes[k];
  float most = lanes[0];
  for (const float lane : lanes) most = lane > most ? lane : most;
  return most;
}

// e^x to about 1 ulp for x in [-87, 88], clamped outside; NaN stays NaN.
inline float exponential(float x) {
  const float above = x < -87.0f ? -87.0f : x;
  const float bounded = above > 88.0f ? 88.0f : above;
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  const float shifted = bounded * 1.44269504088896341f + kMagic;
  const float n = shifted - kMagic;
  const float r = (bounded - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const std::uint32_t whole =
      __builtin_bit_cast(std::uint32_t, shifted) - __builtin_bit_cast(std::uint32_t, kMagic);
  return p * __builtin_bit_cast(float, (whole << 23) + 0x3f800000u);
}

void add_rows(float* values, const float* bias, Index rows, Index columns) {
  for (Index r = 0; r < rows; ++r) {
    float* row = values + r * columns;
    for (Index c = 0; c < columns; ++c) row[c] += bias[c];
  }
}

void add_all(float* __restrict values, const float* __restrict other, Index count) {
  for (Index i = 0; i < count; ++i) values[i] += other[i];
}

void gelu_all(const float* __restrict in, float* __restrict out, Index count) {
  for (Index i = 0; i < count; ++i) {
    const float x = in[i];
    const float t = kGeluSlope * (x + kGeluCube * x * x * x);
    out[i] = x / (1.0f + exponential(-t));
  }
}

void gelu_grad_all(const float* __restrict in, const float* __restrict gradient, float* __restrict out,
                   Index count) {
  for (Index i = 0; i < count; ++i) {
    const float x = in[i];
    const float t = kGeluSlope * (x + kGeluCube * x * x * x);
    const float s = 1.0f / (1.0f + exponential(-t));
    const float slope = kGeluSlope * (1.0f + 3.0f * kGeluCube * x * x);
    out[i] = gradient[i] * (s + x * s * (1.0f - s) * slope);
  }
}

void norm_rows(const float* in, const float* weight, const float* bias, float* out, float* mean, float* rstd,
               Index rows, Index columns) {
  const float share = 1.0f / static_cast<float>(columns);
  for (Index r = 0; r < rows; ++r) {
    const float* x = in + r * columns;
    float* y = out + r * columns;
    const float m = sum(x, columns) * share;
    for (Index c = 0; c < columns; ++c) y[c] = x[c] - m;
    const float s = 1.0f / std::sqrt(dot(y, y, columns) * share + kNormEpsilon);
    for (Index c = 0; c < columns; ++c) y[c] = y[c] * s * weight[c] + bias[c];
    mean[r] = m;
    rstd[r] = s;
  }
}

// `hat` is work space of one row.
void norm_rows_grad(const float* in, const float* weight, const float* mean, const float* rstd,
                    const float* gradient, float* d_in, float* d_weight, float* d_bias, float* hat,
                    Index rows, Index columns) {
  const float share = 1.0f / static_cast<float>(columns);
  for (Index c = 0; c < columns; ++c) d_weight[c] = d_bias[c] = 0.0f;
  for (Index r = 0; r < rows; ++r) {
    const float* x = in + r * columns;
    const float* g = gradient + r * columns;
    float* dx = d_in + r * columns;
    const float m = mean[r];
    const float s = rstd[r];
    const float a = dot(g, weight, columns) * share;
    for (Index c = 0; c < columns; ++c) {
      hat[c] = (x[c] - m) * s;
      dx[c] = g[c] * weight[c];
    }
    const float b = dot(dx, hat, columns) * share;
    for (Index c = 0; c < columns; ++c) {
      dx[c] = (dx[c] - a - hat[c] * b) * s;
      d_weight[c] += g[c] * hat[c];
      d_bias[c] += g[c];
    }
  }
}

// Row by row: exponentials of (logits - largest) into `out`, their sum returned through `sums`, the largest
// through `most`.
void softmax_rows(const float* logits, float* out, float* sums, float* most, Index rows, Index columns) {
  for (Index r = 0; r < rows; ++r) {
    const float* x = logits + r * columns;
    float* e = out + r * columns;
    const float top = largest(x, columns);
    for (Index c = 0; c < columns; ++c) e[c] = exponential(x[c] - top);
    sums[r] = sum(e, columns);
    most[r] = top;
  }
}

void sum_columns(const float* values, float* out, Index rows, Index columns) {
  for (Index c = 0; c < columns; ++c) out[c] = 0.0f;
  for (Index r = 0; r < rows; ++r) {
    const float* row = values + r * columns;
    for (Index c = 0; c < columns; ++c) out[c] += row[c];
  }
}

constexpr Index kTileRows = 4;
constexpr Index kTileColumns = 16;

inline void edge(const Left& a, const Right& b, const Out& c, Index i, Index j, Index columns, Index from,
                 Index to) {
  for (Index k = 0; k < columns; ++k) {
    float sum = 0.0f;
    for (Index p = from; p < to; ++p) sum += a.at(i, p) * b.data[p * b.row + j + k];
    c.data[i * c.row + j + k] = sum;
  }
}

inline void tile(const Left& a, const Right& b, const Out& c, Index i, Index j, Index from, Index to) {
  Lanes low[kTileRows] = {};
  Lanes high[kTileRows] = {};
  for (Index p = from; p < to; ++p) {
    const float* row = b.data + p * b.row + j;
    Lanes left, right;
    __builtin_memcpy(&left, row, sizeof(left));
    __builtin_memcpy(&right, row + 8, sizeof(right));
    for (Index r = 0; r < kTileRows; ++r) {
      const float value = a.at(i + r, p);
      low[r] += value * left;
      high[r] += value * right;
    }
  }
  for (Index r = 0; r < kTileRows; ++r) {
    float* out = c.data + (i + r) * c.row + j;
    __builtin_memcpy(out, &low[r], sizeof(Lanes));
    __builtin_memcpy(out + 8, &high[r], sizeof(Lanes));
  }
}

// out[rows x columns] = left[rows x inner] * right[inner x columns]. Every sum runs over p in ascending
// order, so that tiles and edges agree.
void multiply(const Left& a, const Right& b, const Out& c, Index rows, Index columns, Index inner,
              Skip skip) {
  for (Index i = 0; i < rows; i += kTileRows) {
    const Index height = rows - i < kTileRows ? rows - i : kTileRows;
    const Index from = skip == Skip::kLower ? i : 0;
    const Index to = skip == Skip::kUpper && i + height < inner ? i + height : inner;
    for (Index j = 0; j < columns; j += kTileColumns) {
      if (skip == Skip::kAboveDiagonal && j > i + height - 1) break;
      const Index width = columns - j < kTileColumns ? columns - j : kTileColumns;
      if (height == kTileRows && width == kTileColumns) {
        tile(a, b, c, i, j, from, to);
      } else {
        for (Index r = 0; r < height; ++r) edge(a, b, c, i + r, j, width, from, to);
      }
    }
  }
}

// out[columns][rows] = in[rows][columns]
void transpose(const float* in, Index in_row, float* out, Index rows, Index columns) {
  for (Index c = 0; c < columns; ++c) {
    for (Index r = 0; r < rows; ++r) out[c * rows + r] = in[r * in_row + c];
  }
}

// scores (rounded) -> probabilities (rounded), zero above the diagonal.
void causal_softmax(float* scores, Index length) {
  for (Index i = 0; i < length; ++i) {
    float* row = scores + i * length;
    const Index seen = i + 1;
    const float top = largest(row, seen);
    for (Index j = 0; j < seen; ++j) row[j] = exponential(row[j] - top);
    const float share = 1.0f / sum(row, seen);
    for (Index j = 0; j < seen; ++j) row[j] *= share;
    for (Index j = seen; j < length; ++j) row[j] = 0.0f;
  }
}

// d_probabilities -> d_scores of the causal softmax, in place; zero above the diagonal.
void causal_softmax_grad(const float* probabilities, float* gradient, Index length) {
  for (Index i = 0; i < length; ++i) {
    const float* p = probabilities + i * length;
    float* d = gradient + i * length;
    const Index seen = i + 1;
    const float shared = dot(p, d, seen);
    for (Index j = 0; j < seen; ++j) d[j] = p[j] * (d[j] - shared);
    for (Index j = seen; j < length; ++j) d[j] = 0.0f;
  }
}

void scale_all(float* values, float factor, Index count) {
  for (Index i = 0; i < count; ++i) values[i] *= factor;
}

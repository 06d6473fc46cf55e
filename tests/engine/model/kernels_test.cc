// The copy of the kernels for any processor and the one for AVX2 give the same bits.
#include "engine/model/kernels.h"

#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include "engine/base/rng.h"

namespace plumbline {
namespace {

using Floats = std::vector<float>;

Floats random(std::size_t count, const char* name, double size = 1.0) {
  const CounterRng rng(3, name);
  Floats out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<float>(size * rng.normal(i));
  return out;
}

void expect_same_bits(const std::function<Floats()>& run) {
  kernels::force_plain(true);
  const Floats plain = run();
  kernels::force_plain(false);
  const Floats fast = run();
  ASSERT_EQ(plain.size(), fast.size());
  EXPECT_EQ(std::memcmp(plain.data(), fast.data(), plain.size() * sizeof(float)), 0);
}

TEST(Kernels, PointwiseHaveOneResult) {
  const Floats x = random(1003, "x", 4.0), g = random(1003, "g");
  for (const DType type : {DType::kF32, DType::kF16}) {
    expect_same_bits([&] {
      Floats out(x.size());
      kernels::gelu(x.data(), out.data(), 1003, type);
      return out;
    });
    expect_same_bits([&] {
      Floats out(x.size());
      kernels::gelu_grad(x.data(), g.data(), out.data(), 1003, type);
      return out;
    });
    expect_same_bits([&] {
      Floats out = x;
      kernels::add(out.data(), g.data(), 1003, type);
      kernels::add_bias(out.data(), g.data(), 17, 59, type);
      Floats sums(59);
      kernels::column_sums(out.data(), sums.data(), 17, 59);
      out.insert(out.end(), sums.begin(), sums.end());
      return out;
    });
  }
}

TEST(Kernels, NormsAndCrossEntropyHaveOneResult) {
  const Floats x = random(29 * 37, "x", 3.0), g = random(29 * 37, "g"), w = random(37, "w"),
               b = random(37, "b");
  expect_same_bits([&] {
    Floats out(x.size()), mean(29), rstd(29), dx(x.size()), dw(37), db(37);
    kernels::layer_norm(x.data(), w.data(), b.data(), out.data(), mean.data(), rstd.data(), 29, 37,
                        DType::kF32);
    kernels::layer_norm_grad(x.data(), w.data(), mean.data(), rstd.data(), g.data(), dx.data(), dw.data(),
                             db.data(), 29, 37, DType::kF32);
    for (const Floats* part : {&mean, &rstd, &dx, &dw, &db})
      out.insert(out.end(), part->begin(), part->end());
    return out;
  });
  const std::vector<std::int64_t> targets(29, 5);
  expect_same_bits([&] {
    Floats out(x.size());
    kernels::cross_entropy_grad(x.data(), targets.data(), 3.0f, out.data(), 29, 37, DType::kF32);
    out.push_back(kernels::cross_entropy(x.data(), targets.data(), 29, 37));
    return out;
  });
}

TEST(Kernels, AttentionHasOneResult) {
  for (const kernels::AttentionShape shape :
       {kernels::AttentionShape{2, 21, 2, 16}, kernels::AttentionShape{1, 64, 1, 12}}) {
    const std::int64_t width = shape.heads * shape.depth, rows = shape.batch * shape.length;
    const Floats qkv = random(static_cast<std::size_t>(rows * 3 * width), "qkv");
    const Floats g = random(static_cast<std::size_t>(rows * width), "g");
    expect_same_bits([&] {
      Floats out(g.size()),
          p(static_cast<std::size_t>(shape.batch * shape.heads * shape.length * shape.length)), d(qkv.size());
      kernels::attention(shape, qkv.data(), out.data(), p.data(), DType::kF32);
      kernels::attention_grad(shape, qkv.data(), p.data(), g.data(), d.data(), DType::kF32);
      out.insert(out.end(), p.begin(), p.end());
      out.insert(out.end(), d.begin(), d.end());
      return out;
    });
  }
}

}  // namespace
}  // namespace plumbline

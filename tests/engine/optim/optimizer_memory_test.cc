// Bytes a parameter, by counted allocations: fp16 and bf16 keep 2 (weight) + 4 (main copy) + 4 + 4
// (moments) = 14, and a gradient of 2 or a main gradient of 4 beside them.
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/engine/optim/optimizer_support.h"
#include "tests/support/counted_memory.h"

namespace plumbline::test {
namespace {

constexpr std::int64_t kSize = 1 << 16;
constexpr std::int64_t kTensors = 3;
constexpr std::int64_t kAll = kSize * kTensors;

struct Counted {
  std::vector<ParameterPtr> models;
  std::unique_ptr<Float16OptimizerWithFloat16Params> optimizer;

  explicit Counted(at::ScalarType type, BaseOptimizerOptions options = {}) {
    for (std::int64_t i = 0; i < kTensors; ++i) {
      models.push_back(std::make_shared<Parameter>());
      models.back()->name = std::to_string(i);
      models.back()->value = at::ones({kSize}, at::dtype(type));
    }
    optimizer = must(Float16OptimizerWithFloat16Params::create(adam({group_of(models)}, options), {},
                                                               *LossScaler::constant(2.0)));
  }
};

TEST(OptimizerMemory, FourteenBytesAParameter) {
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    const CountedMemory memory;
    Counted counted(type);
    EXPECT_EQ(memory.held(), 6 * kAll);  // weights and main copies
    // Main gradients in fp32: 4, used where they are.
    for (const ParameterPtr& model : counted.models) model->main_grad = at::ones({kSize});
    EXPECT_EQ(memory.held(), (6 + 4) * kAll);
    for (int step = 0; step < 2; ++step) {
      must(counted.optimizer->step());
      EXPECT_EQ(memory.held(), (14 + 4) * kAll);
      EXPECT_EQ(memory.peak(), (14 + 4) * kAll);  // clipping, update and copy-back need nothing besides
    }
    counted.optimizer->zero_grad();
    for (const ParameterPtr& model : counted.models) model->main_grad.reset();
    EXPECT_EQ(memory.held(), 14 * kAll);
  }
}

TEST(OptimizerMemory, GradientsWithoutABufferTakeTwoThenFour) {
  const CountedMemory memory;
  Counted counted(at::kBFloat16);
  counted.optimizer->init_state();
  EXPECT_EQ(memory.held(), 14 * kAll);
  for (const ParameterPtr& model : counted.models) model->grad = at::ones({kSize}, at::dtype(at::kBFloat16));
  EXPECT_EQ(memory.held(), (14 + 2) * kAll);
  must(counted.optimizer->step());  // widened one by one, each 16-bit gradient dropped
  EXPECT_EQ(memory.held(), (14 + 4) * kAll);
  EXPECT_LE(memory.peak(), (14 + 4) * kAll + 2 * kSize);
  counted.optimizer->zero_grad();
  EXPECT_EQ(memory.held(), 14 * kAll);
}

TEST(OptimizerMemory, SixteenBitMomentsTakeHalf) {
  const CountedMemory memory;
  BaseOptimizerOptions options;
  options.exp_avg_type = options.exp_avg_sq_type = DType::kBF16;
  Counted counted(at::kBFloat16, options);
  counted.optimizer->init_state();
  EXPECT_EQ(memory.held(), (2 + 4 + 2 + 2) * kAll);
}

// Not even the moments, when the first step of all overflows.
TEST(OptimizerMemory, SkippedStepAllocatesNothing) {
  Counted counted(at::kHalf);
  for (const ParameterPtr& model : counted.models) {
    model->main_grad = at::full({kSize}, std::numeric_limits<float>::infinity());
  }
  const CountedMemory memory;
  EXPECT_TRUE(must(counted.optimizer->step()).found_inf);
  EXPECT_EQ(memory.held(), 0);
  EXPECT_EQ(memory.peak(), 0);
}

}  // namespace
}  // namespace plumbline::test

#include "engine/optim/fused_adam.h"

#include <gtest/gtest.h>

namespace plumbline {
namespace {

int made = 0;

std::unique_ptr<BaseOptimizer> make_counted(std::vector<ParamGroup> groups, BaseOptimizerOptions options) {
  ++made;
  return std::make_unique<BaseOptimizer>(std::move(groups), options);
}

TEST(FusedAdam, ThereIsOneForTheCpuAndNoneForOtherDevices) {
  ASSERT_NE(get_fused_adam_class(c10::DeviceType::CPU), nullptr);
  EXPECT_EQ(get_fused_adam_class(c10::DeviceType::XLA), nullptr);
  EXPECT_NE(make_base_optimizer({}, {}, c10::DeviceType::XLA), nullptr);  // the plain one
}

TEST(FusedAdam, ARegisteredOneIsUsedForAdamAsLongAsItIsRegistered) {
  BaseOptimizerOptions sgd;
  sgd.rule = BaseOptimizerOptions::Rule::kSgd;
  made = 0;
  {
    const RegisterFusedAdam registered({"counted", c10::DeviceType::XLA, make_counted});
    ASSERT_NE(get_fused_adam_class(c10::DeviceType::XLA), nullptr);
    EXPECT_EQ(get_fused_adam_class(c10::DeviceType::XLA)->name, "counted");
    make_base_optimizer({}, {}, c10::DeviceType::XLA);
    make_base_optimizer({}, sgd, c10::DeviceType::XLA);
    make_base_optimizer({}, {}, c10::DeviceType::CPU);
    EXPECT_EQ(made, 1);
  }
  EXPECT_EQ(get_fused_adam_class(c10::DeviceType::XLA), nullptr);
}

}  // namespace
}  // namespace plumbline

// The store where the ranks of a run meet.
#include "backends/processes/store.h"

#include <gtest/gtest.h>

namespace plumbline {
namespace {

TEST(Store, APortInUseIsSaid) {
  Result<std::unique_ptr<processes::Store>> store = processes::Store::serve(0);
  ASSERT_TRUE(store);
  const auto second = processes::Store::serve((*store)->port());
  ASSERT_FALSE(second);
  EXPECT_NE(std::string::npos, second.error().message.find("the port is in use")) << second.error().message;
}

}  // namespace
}  // namespace plumbline

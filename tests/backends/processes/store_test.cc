// The store where the ranks of a run meet.
#include "backends/processes/store.h"

#include <chrono>

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

TEST(Store, ValuesComeBackAsTheyWereAndKeysGo) {
  Result<std::unique_ptr<processes::Store>> store = processes::Store::serve(0);
  ASSERT_TRUE(store);
  EXPECT_FALSE((*store)->get("key").value());
  for (const std::string& value : {std::string(), std::string("="), std::string("a\0b", 3)}) {
    ASSERT_TRUE((*store)->set("key", value));
    EXPECT_EQ(value, (*store)->get("key").value());
    EXPECT_EQ(value, (*store)->wait_for("key", 1.0).value());
    EXPECT_EQ(value, (*store)->set_once("key", "another").value());
    ASSERT_TRUE((*store)->remove("key"));
    EXPECT_FALSE((*store)->get("key").value());
    EXPECT_TRUE((*store)->remove("key")) << "one that is not there";
    EXPECT_EQ(value, (*store)->set_once("key", value).value());
  }
}

// An empty value used to reach the store after 200 ms and more.
TEST(Store, AnEmptyValueIsThereAtOnce) {
  Result<std::unique_ptr<processes::Store>> store = processes::Store::serve(0);
  ASSERT_TRUE(store);
  Result<std::unique_ptr<processes::Store>> other =
      processes::Store::join({"127.0.0.1", (*store)->port(), {}}, 20.0);
  ASSERT_TRUE(other);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE((*store)->set(std::to_string(i), ""));
    EXPECT_TRUE((*other)->wait_for(std::to_string(i), 20.0));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3)) << "20 times 200 ms are 4 s";
}

}  // namespace
}  // namespace plumbline

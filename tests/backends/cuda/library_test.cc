#include "backends/cuda/library.h"

#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plumbline::cuda {
namespace {

using ::testing::HasSubstr;

TEST(Libraries, ANamedFileThatIsNotThereIsSaidByName) {
  const auto loaded = load_libraries({}, {.cudart = "/nowhere/libcudart.so"});
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, ErrorCode::kMissing);
  EXPECT_THAT(loaded.error().message, HasSubstr("/nowhere/libcudart.so"));
  EXPECT_THAT(loaded.error().message, HasSubstr("CUDART_LIBRARY"));
}

TEST(Libraries, ALibraryWithoutTheFunctionsIsRefused) {
  const auto loaded = load_libraries({}, {.cudart = "libm.so.6"});
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(loaded.error().message, HasSubstr("libm.so.6 has no function cudaRuntimeGetVersion"));
}

TEST(Libraries, VersionsInWords) {
  EXPECT_EQ(nccl_version_text(22809), "NCCL 2.28.9");
  EXPECT_EQ(nccl_version_text(21805), "NCCL 2.18.5");
}

}  // namespace
}  // namespace plumbline::cuda

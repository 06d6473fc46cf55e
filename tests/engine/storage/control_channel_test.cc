#include "engine/storage/control_channel.h"

#include <gtest/gtest.h>

namespace plumbline {
namespace {

// The channel of one rank, whose fellows say what a test gives them; keeps what the rank itself said.
class Scripted : public ControlChannel {
 public:
  Scripted(int rank, std::vector<std::string> all) : rank_(rank), all_(std::move(all)) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(all_.size()); }
  Result<std::vector<std::string>> exchange(const std::string& message) override {
    all_[static_cast<std::size_t>(rank_)] = said = message;
    return all_;
  }
  std::string said;

 private:
  int rank_;
  std::vector<std::string> all_;
};

std::string words_of(const Status& own) {
  Scripted alone(0, {""});
  (void)agree(alone, own);
  return alone.said;
}

TEST(Agree, NobodyFailed) {
  Scripted channel(1, {"", "", ""});
  EXPECT_TRUE(agree(channel, {}).has_value());
  EXPECT_TRUE(agree(lone_channel(), {}).has_value());
}

// Ranks that are fine must end with the code of those that are not, or their processes end with different exit codes.
TEST(Agree, AllRanksReturnTheSameErrorAndCode) {
  const Status full = fail(ErrorCode::kIo, "disk full"), held = fail(ErrorCode::kState, "held");
  const std::vector<Status> own{{}, full, {}, held};
  std::vector<std::string> said;
  for (const Status& status : own) said.push_back(words_of(status));
  for (int rank = 0; rank < 4; ++rank) {
    Scripted channel(rank, said);
    const Status all = agree(channel, own[static_cast<std::size_t>(rank)]);
    ASSERT_FALSE(all.has_value());
    EXPECT_EQ(all.error().message, "rank 1: disk full; rank 3: held");
    EXPECT_EQ(all.error().code, ErrorCode::kIo);
  }
}

TEST(Agree, WhatAllSayIsSaidOnce) {
  const std::string said = words_of(fail(ErrorCode::kConfig, "another model"));
  Scripted channel(1, {said, said, said});
  EXPECT_EQ(agree(channel, fail(ErrorCode::kConfig, "another model")).error().message, "another model");
  EXPECT_EQ(agree(lone_channel(), fail(ErrorCode::kIo, "disk full")).error().message, "disk full");
}

TEST(Agree, AnErrorWithoutWordsIsAnError) {
  EXPECT_FALSE(agree(lone_channel(), fail(ErrorCode::kTimeout, "")).has_value());
  EXPECT_EQ(agree(lone_channel(), fail(ErrorCode::kTimeout, "")).error().code, ErrorCode::kTimeout);
}

}  // namespace
}  // namespace plumbline

#include "engine/train/text.h"

#include <cmath>
#include <filesystem>

#include <gtest/gtest.h>
#include <unistd.h>

#include "engine/base/text.h"
#include "engine/train/baselines.h"
#include "engine/train/batches.h"
#include "tests/engine/train/small_run.h"

namespace plumbline {
namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("plumbline_text_" + std::to_string(::getpid()))) {
    fs::create_directories(path_ / "b");
  }
  ~Folder() { fs::remove_all(path_); }
  std::string at(const std::string& name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

TEST(Text, ADirectoryIsReadInSortedOrderRegularFilesOnly) {
  const Folder folder;
  ASSERT_TRUE(write_file(folder.at("z.txt"), std::string(500, 'z')));
  ASSERT_TRUE(write_file(folder.at("a.txt"), std::string(500, 'a')));
  ASSERT_TRUE(write_file(folder.at("b/m.txt"), std::string(500, 'm')));
  fs::create_directory_symlink(folder.at("b"), folder.at("loop"));
  const Result<Text> text = load_text(folder.at(""));
  ASSERT_TRUE(text) << text.error().text();
  EXPECT_EQ(text->bytes, std::string(500, 'a') + std::string(500, 'm') + std::string(500, 'z'));
  EXPECT_EQ(text->training, 1350u);
  EXPECT_EQ(text->held_out().size(), 150u);
}

TEST(Text, RefusesWhatCannotBeTrainedOn) {
  const Folder folder;
  ASSERT_TRUE(write_file(folder.at("short.txt"), "short"));
  EXPECT_FALSE(load_text(folder.at("short.txt")));
  EXPECT_FALSE(load_text(folder.at("missing.txt")));
}

TEST(Text, TheDefaultOneIsFoundAndUsable) {
  const Result<Text> text = load_text("");
  ASSERT_TRUE(text) << text.error().text();
  EXPECT_GT(text->bytes.size(), 150'000u);
  EXPECT_LT(text->bytes.size(), 250'000u);
}

TEST(Baselines, OfTextsThatCanBeWorkedOut) {
  // Two equally frequent bytes that alternate: one bit without context, almost none with it.
  std::string alternating;
  for (int i = 0; i < 2000; ++i) alternating += i % 2 == 0 ? 'a' : 'b';
  const Baselines out = text_baselines(alternating, std::string_view(alternating).substr(0, 1000));
  EXPECT_NEAR(out.unigram * kBitsPerNat, 1.0, 1e-12);
  EXPECT_NEAR(out.bigram, std::log((1000.0 + 25.6) / 1000.1), 2e-4);
}

TEST(Batches, NumberSamplesAcrossReplicasAndMicrobatches) {
  RunConfig one = test::small_config({ScheduleKind::kOneFOneB, 1, 1, 4, 1});
  RunConfig two = test::small_config({ScheduleKind::kOneFOneB, 1, 1, 2, 2});
  const Result<Text> text = load_text(one.train.data);
  ASSERT_TRUE(text);
  const auto a = text_batches(one, *text), b = text_batches(two, *text);
  ASSERT_TRUE(a && b);
  EXPECT_EQ(samples_per_step(one), samples_per_step(two));
  for (int m = 0; m < 4; ++m) {
    const Batch x = (*a)->training(8, 0, m), y = (*b)->training(8, m % 2, m / 2);
    const Batch u = (*a)->evaluation(1, 0, m), v = (*b)->evaluation(1, m % 2, m / 2);
    EXPECT_TRUE(x.tokens.equal(y.tokens) && x.targets.equal(y.targets)) << m;
    EXPECT_TRUE(u.tokens.equal(v.tokens) && u.targets.equal(v.targets)) << m;
    EXPECT_FALSE(x.tokens.equal((*a)->training(0, 0, m).tokens));
  }
  // Targets are the next bytes.
  const Batch batch = (*a)->training(0, 0, 0);
  EXPECT_TRUE(batch.tokens.slice(1, 1).equal(batch.targets.slice(1, 0, -1)));
}

}  // namespace
}  // namespace plumbline

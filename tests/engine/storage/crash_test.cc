// Whatever happens while four ranks save, a restarted run finds the old checkpoint or the new one, whole, and
// the next save succeeds. Each changing call of each rank is a point; at each one a rank is killed, all
// machines lose power (with several drawings of what survives), or the call fails.
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/engine/storage/save_support.h"

namespace plumbline::test {
namespace {

constexpr int kOld = 1, kNew = 2, kNext = 3;

struct Setting {
  const char* name;
  bool old_there = true;
  std::int64_t new_iteration = 20;  // 10: of the old one's name
  int keep_last = 0;
};

constexpr Setting kSettings[] = {{"second save", true, 20, 0},
                                 {"first save", false, 20, 0},
                                 {"same iteration", true, 10, 0},
                                 {"keep one", true, 20, 1}};

// Calls each rank makes in an undisturbed save.
std::vector<std::uint64_t> calls_of(const Setting& setting) {
  SimulatedDisk disk;
  if (setting.old_there) expect_saved(Processes(disk).save(10, kOld));
  Processes ranks(disk);
  SaveOptions options;
  options.keep_last = setting.keep_last;
  expect_saved(ranks.save(setting.new_iteration, kNew, options));
  std::vector<std::uint64_t> calls;
  for (int rank = 0; rank < kRanks; ++rank) calls.push_back(ranks.at(rank).calls());
  return calls;
}

struct Point {
  int rank = 0;
  std::uint64_t call = 0;
  std::uint64_t seed = 0;
};

enum class Disaster { kPower, kKill, kKillAfter, kIoError, kShortThenPower, kNoSpace };

void arm(Processes& ranks, Disaster disaster, const Point& point) {
  using Kind = SimulatedFiles::Fault::Kind;
  SimulatedFiles& one = ranks.at(point.rank);
  if (disaster == Disaster::kPower || disaster == Disaster::kShortThenPower) {
    ranks.power_rank = point.rank;
    ranks.power_call = point.call;
  }
  if (disaster == Disaster::kShortThenPower) {
    for (auto& files : ranks.files) files->set_fault({Kind::kShortWrite, 0});
  }
  if (disaster == Disaster::kKill) one.set_fault({Kind::kKill, point.call});
  if (disaster == Disaster::kKillAfter) one.set_fault({Kind::kKillAfter, point.call});
  if (disaster == Disaster::kIoError) one.set_fault({Kind::kIoError, point.call});
  if (disaster == Disaster::kNoSpace) one.set_fault({Kind::kNoSpace, point.call});
}

// What a survivor must see: all the same error, or none.
void check_errors(const std::vector<std::string>& errors, Processes& ranks, const std::string& where) {
  std::string first;
  bool any = false;
  for (int rank = 0; rank < kRanks; ++rank) {
    if (ranks.at(rank).dead()) continue;
    const std::string& error = errors[static_cast<std::size_t>(rank)];
    if (any) EXPECT_EQ(error, first) << where;
    first = error;
    any = true;
  }
}

void crash_once(const Setting& setting, Disaster disaster, const Point& point) {
  const std::string where = fmt::format("{}, disaster {}, rank {}, call {}, seed {}", setting.name,
                                        static_cast<int>(disaster), point.rank, point.call, point.seed);
  SimulatedDisk disk;
  if (setting.old_there) expect_saved(Processes(disk).save(10, kOld));
  Processes ranks(disk, point.seed);
  arm(ranks, disaster, point);
  SaveOptions options;
  options.keep_last = setting.keep_last;
  const std::vector<std::string> errors = ranks.save(setting.new_iteration, kNew, options);
  check_errors(errors, ranks, where);
  const bool power = disaster == Disaster::kPower || disaster == Disaster::kShortThenPower;
  if (power) disk.lose_power(point.seed);

  const int found = found_salt(disk, where);
  EXPECT_TRUE(found == kNew || found == (setting.old_there ? kOld : -1)) << where << ": found " << found;
  bool success = true;
  for (const std::string& error : errors) success = success && error.empty();
  if (success) EXPECT_EQ(found, kNew) << where;
  // A survivor that was told of success holds a checkpoint that a later loss of power cannot take.
  if (!power) {
    disk.lose_power(point.seed + 7);
    const int later = found_salt(disk, where + ", then power");
    if (success)
      EXPECT_EQ(later, kNew) << where;
    else
      EXPECT_TRUE(later == kNew || later == (setting.old_there ? kOld : -1)) << where << ": found " << later;
  }
  expect_saved(Processes(disk).save(30, kNext));
  EXPECT_EQ(found_salt(disk, where + ", next save"), kNext) << where;
}

// Every point of every setting; `drawings` of what survives a loss of power.
int crash_everywhere(Disaster disaster, std::uint64_t drawings) {
  int points = 0;
  for (const Setting& setting : kSettings) {
    const std::vector<std::uint64_t> calls = calls_of(setting);
    for (int rank = 0; rank < kRanks && !testing::Test::HasFailure(); ++rank) {
      for (std::uint64_t call = 0; call < calls[static_cast<std::size_t>(rank)]; ++call) {
        for (std::uint64_t seed = 0; seed < drawings; ++seed, ++points)
          crash_once(setting, disaster, {rank, call, seed * 1000 + call});
      }
    }
  }
  return points;
}

TEST(Crash, LossOfPowerAtEveryCall) { EXPECT_GE(crash_everywhere(Disaster::kPower, 4), 500); }
TEST(Crash, LossOfPowerWithShortWrites) { EXPECT_GE(crash_everywhere(Disaster::kShortThenPower, 1), 120); }
TEST(Crash, RankKilledBeforeEveryCall) { EXPECT_GE(crash_everywhere(Disaster::kKill, 1), 120); }
TEST(Crash, RankKilledAfterEveryCall) { EXPECT_GE(crash_everywhere(Disaster::kKillAfter, 1), 120); }
TEST(Crash, EveryCallFails) { EXPECT_GE(crash_everywhere(Disaster::kIoError, 1), 120); }
TEST(Crash, NoSpaceFromEveryCallOn) { EXPECT_GE(crash_everywhere(Disaster::kNoSpace, 1), 120); }

TEST(Crash, RankMissingInEveryPhase) {
  for (const Setting& setting : kSettings) {
    for (int rank = 0; rank < kRanks; ++rank) {
      for (int exchange = 1; exchange <= 4; ++exchange) {
        const std::string where = fmt::format("{}, rank {}, exchange {}", setting.name, rank, exchange);
        SimulatedDisk disk;
        if (setting.old_there) expect_saved(Processes(disk).save(10, kOld));
        Processes ranks(disk, static_cast<std::uint64_t>(exchange));
        ranks.kill_rank = rank;
        ranks.kill_exchange = exchange;
        const std::vector<std::string> errors = ranks.save(setting.new_iteration, kNew);
        check_errors(errors, ranks, where);
        for (const std::string& error : errors) EXPECT_NE(error, "") << where;
        const int found = found_salt(disk, where);
        // Only in the last exchange the new one is committed already.
        EXPECT_EQ(found, exchange == 4 ? kNew : setting.old_there ? kOld : -1) << where;
        expect_saved(Processes(disk).save(30, kNext));
        EXPECT_EQ(found_salt(disk, where), kNext);
      }
    }
  }
}

// The disk must be able to catch a protocol that forgets a sync, or the tests above prove nothing.
TEST(Crash, DiskNoticesAMissingSync) {
  int lost = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SimulatedDisk disk;
    SimulatedFiles files(disk);
    auto file = files.create("/a");
    ASSERT_TRUE(write_all(**file, "0123456789", 10));
    ASSERT_TRUE(files.sync_directory("/"));
    disk.lose_power(seed);
    const std::string* content = disk.content("/a");
    ASSERT_NE(content, nullptr);
    if (*content != "0123456789") ++lost;
  }
  EXPECT_GT(lost, 20);
  lost = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SimulatedDisk disk;
    SimulatedFiles files(disk);
    ASSERT_TRUE(write_new_file(files, "/a", "old"));
    ASSERT_TRUE(files.sync_directory("/"));
    ASSERT_TRUE(write_new_file(files, "/b", "new"));
    ASSERT_TRUE(files.rename("/b", "/a"));
    disk.lose_power(seed);
    const std::string* content = disk.content("/a");
    ASSERT_NE(content, nullptr);  // a rename is one change
    if (*content == "old") ++lost;
  }
  EXPECT_GT(lost, 10);
  EXPECT_LT(lost, 50);
}

}  // namespace
}  // namespace plumbline::test

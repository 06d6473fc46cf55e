// Non-persistent checkpoints beside the persistent ones: the newest of both is what a run goes on from, whatever ended
// the one before, and local ones are loaded from iterations alone that every rank has whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/storage/layout.h"
#include "engine/train/run_checkpoint.h"
#include "tests/engine/train/resume_support.h"

namespace plumbline::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int kLength = 8;

RunConfig tiny(bool distributed) {
  RunConfig config = small_config({ScheduleKind::kOneFOneB, 2, 1, 2, distributed ? 2 : 1}, Precision::kFp16);
  config.model.layers = 2;
  config.model.hidden = 8;
  config.train.micro_batch_size = 1;
  config.train.eval_iterations = 0;
  config.train.iterations = kLength;
  config.faults.overflow = {{0, 2}};
  config.optimizer.distributed = config.optimizer.overlap_grad_reduce =
      config.optimizer.overlap_param_gather = distributed;
  return config;
}

// Persistent ones after the iterations 4 and 8, others after 3 and 6, or each.
RunConfig saving(RunConfig config, NonPersistent type, int interval = 3) {
  config.checkpoint.save = config.checkpoint.load = "/a";
  config.checkpoint.interval = 4;
  config.checkpoint.non_persistent = type;
  config.checkpoint.non_persistent_interval = interval;
  if (type == NonPersistent::kLocal) config.checkpoint.non_persistent_local = "/l";
  return config;
}

// A run that something ends after an iteration.
std::string run_until(FileLayer& files, const RunConfig& config, int iteration) {
  const Result<RunConfig> valid = validate(config, {}, Purpose::kRun);
  EXPECT_TRUE(valid) << (valid ? "" : valid.error().text());
  Trainer::Options options;
  options.files = &files;
  options.on_step = [&](const RunRecord& record) -> Status {
    if (record.steps.back().iteration <= iteration) return {};
    return fail(ErrorCode::kState, "ended");
  };
  const auto trainer = Trainer::create(*valid, std::move(options));
  if (!trainer) return trainer.error().text();
  const Result<TrainOutcome> outcome = (*trainer)->run();
  return outcome ? "" : outcome.error().message;
}

// Equals the end of the run that was never interrupted; with `draws` the random draws of its steps too, which
// run_until() makes none of.
void expect_tail(const Ran& whole, const Ran& rest, std::size_t left, bool draws = false) {
  ASSERT_EQ(rest.error, "");
  ASSERT_EQ(rest.steps.size(), left);
  for (std::size_t i = 0; i < left; ++i) {
    const Draws& expected = whole.steps[whole.steps.size() - left + i];
    EXPECT_EQ(difference(expected.row, rest.steps[i].row), "");
    if (draws) EXPECT_EQ(expected.draws, rest.steps[i].draws);
  }
}

Ran whole_run(const RunConfig& config) {
  SimulatedDisk disk;
  SimulatedFiles files(disk);
  RunConfig alone = config;
  alone.checkpoint.save = "/w";  // random states begin with the seed where something is saved
  return run_on(files, alone);
}

std::vector<std::int64_t> iterations_in(FileLayer& files, const std::string& directory) {
  const Result<PathKind> kind = files.kind(directory);
  if (!kind || *kind == PathKind::kAbsent) return {};
  return list_iterations(files, directory).value_or(std::vector<std::int64_t>{-1});
}

TEST(NonPersistent, TheNewestOfBothIsGoneOnFrom) {
  for (const bool distributed : {false, true}) {
    const Ran whole = whole_run(tiny(distributed));
    ASSERT_EQ(whole.error, "");
    for (const NonPersistent type : {NonPersistent::kGlobal, NonPersistent::kLocal}) {
      for (const bool async : {false, true}) {
        SimulatedDisk disk;
        SimulatedFiles files(disk);
        RunConfig config = saving(tiny(distributed), type);
        config.checkpoint.async_save = async;
        const std::string directory = type == NonPersistent::kGlobal ? "/a/non_persistent" : "/l/rank_00000";
        EXPECT_EQ(run_until(files, config, 5), "ended");
        EXPECT_THAT(iterations_in(files, directory), ElementsAre(3));
        EXPECT_THAT(iterations_in(files, "/a"), ElementsAre(4));
        // The persistent one is newer here, the other one there.
        EXPECT_EQ(run_until(files, config, 7), "ended");
        EXPECT_THAT(iterations_in(files, directory), ElementsAre(6));
        const Ran rest = run_on(files, config, [&](Trainer& trainer) {
          EXPECT_EQ(trainer.resume().counters.iteration, 6);
          EXPECT_EQ(trainer.resume().path, directory + "/iter_0000006");
          EXPECT_EQ(trainer.resume().non_persistent, type);
        });
        expect_tail(whole, rest, 2);
        EXPECT_THAT(iterations_in(files, "/a"), ElementsAre(4, 8));
        const Ran finished = run_on(files, config);
        ASSERT_EQ(finished.error, "");
        EXPECT_EQ(finished.trainer->resume().path, "/a/iter_0000008");
        EXPECT_THAT(finished.trainer->resume().notices,
                    testing::Contains(HasSubstr("older than /a/iter_0000008")));
      }
    }
  }
}

// Killed, or without power, at many of the calls that change files: what is gone on from is whole and the newest that
// the run was told of, and ends in the same state.
TEST(NonPersistent, ACrashBetweenTheTwoKinds) {
  const Ran whole = whole_run(tiny(false));
  for (const NonPersistent type : {NonPersistent::kGlobal, NonPersistent::kLocal}) {
    const RunConfig config = saving(tiny(false), type, 1);
    SimulatedDisk measured;
    SimulatedFiles all(measured);
    ASSERT_EQ(run_on(all, config).error, "");
    ASSERT_GT(all.calls(), 100u);
    int crashed = 0;
    // Not the very end: ranks clear away at once, so a run may have some calls fewer, and then nothing would strike.
    const std::uint64_t step = all.calls() / 22;
    for (std::uint64_t at = 3; at + step < all.calls(); at += step) {
      SimulatedDisk disk;
      SimulatedFiles files(disk);
      files.set_fault({SimulatedFiles::Fault::Kind::kKill, at});
      const Ran first = run_on(files, config);
      EXPECT_NE(first.error, "");
      if (at % 2 == 0) disk.lose_power(at);
      SimulatedFiles after(disk);
      const int told = static_cast<int>(first.saved.size());  // one an iteration
      const Ran rest = run_on(after, config, [&](Trainer& trainer) {
        EXPECT_GE(trainer.resume().counters.iteration, told);
        EXPECT_LE(trainer.resume().counters.iteration, told + 1);
      });
      ASSERT_EQ(rest.error, "");
      expect_tail(
          whole, rest,
          static_cast<std::size_t>(kLength) - static_cast<std::size_t>(rest.trainer->record().resumed_from),
          true);
      ++crashed;
    }
    EXPECT_GE(crashed, 20);
  }
}

TEST(NonPersistent, LocalOnesCountWhereEveryRankHasThemWhole) {
  const Ran whole = whole_run(tiny(false));
  const RunConfig config = saving(tiny(false), NonPersistent::kLocal);
  for (const bool damaged : {false, true}) {
    SimulatedDisk disk;
    SimulatedFiles files(disk);
    ASSERT_EQ(run_until(files, config, 7), "ended");
    const std::string shard = "/l/rank_00001/iter_0000006/shard_00000_of_00001.safetensors";
    if (damaged) {
      ASSERT_NE(disk.content(shard), nullptr);
      disk.content(shard)->back() ^= 1;
    } else {
      ASSERT_TRUE(remove_tree(files, "/l/rank_00001"));
    }
    const Ran rest = run_on(files, config);
    expect_tail(whole, rest, 4);
    EXPECT_EQ(rest.trainer->resume().path, "/a/iter_0000004");
    const std::string why = damaged ? shard + ": damaged between byte" : "/l/rank_00001: no such directory";
    EXPECT_THAT(rest.trainer->resume().notices, testing::Contains(HasSubstr("rank 1: " + why)));
    // What rank 0 still had of the run that is no more was taken away before anything new came.
    EXPECT_THAT(iterations_in(files, "/l/rank_00000"), ElementsAre(6));
    EXPECT_THAT(iterations_in(files, "/l/rank_00001"), ElementsAre(6));
  }
}

TEST(NonPersistent, AnotherLayoutLoadsGlobalOnesAndRefusesLocalOnes) {
  for (const NonPersistent type : {NonPersistent::kGlobal, NonPersistent::kLocal}) {
    SimulatedDisk disk;
    SimulatedFiles files(disk);
    RunConfig config = saving(tiny(false), type);
    ASSERT_EQ(run_until(files, config, 7), "ended");
    config.parallel.pp = 1;
    const Ran other = run_on(files, config);
    if (type == NonPersistent::kGlobal) {
      ASSERT_EQ(other.error, "");
      EXPECT_EQ(other.trainer->record().resumed_from, 6);
      continue;
    }
    EXPECT_THAT(other.error, HasSubstr("/l/rank_00000/iter_0000006: was saved with pp 2"));
    EXPECT_THAT(other.error, HasSubstr("this run has pp 1"));
    config.checkpoint.non_persistent = NonPersistent::kNone;
    config.checkpoint.non_persistent_interval = 0;
    config.checkpoint.non_persistent_local.clear();
    const Ran persistent = run_on(files, config);
    ASSERT_EQ(persistent.error, "");
    EXPECT_EQ(persistent.trainer->record().resumed_from, 4);
  }
}

// What a run was set back from is never newer than what it saves.
TEST(NonPersistent, ARunThatIsSetBackForgetsThem) {
  for (const NonPersistent type : {NonPersistent::kGlobal, NonPersistent::kLocal}) {
    SimulatedDisk disk;
    SimulatedFiles files(disk);
    RunConfig config = saving(tiny(false), type);
    ASSERT_EQ(run_until(files, config, 7), "ended");
    RunConfig back = config;
    back.checkpoint.step = 4;
    back.train.exit_interval = 5;
    const Ran ran = run_on(files, back);
    ASSERT_EQ(ran.error, "");
    EXPECT_EQ(ran.trainer->record().resumed_from, 4);
    EXPECT_THAT(iterations_in(files, "/a/non_persistent"), IsEmpty());
    EXPECT_THAT(iterations_in(files, "/l/rank_00001"), IsEmpty());
    const Ran rest = run_on(files, config);
    ASSERT_EQ(rest.error, "");
    EXPECT_EQ(rest.trainer->record().resumed_from, 5);
  }
}

TEST(NonPersistent, OptionsThatDoNotGoTogether) {
  const auto why = [](const std::function<void(CheckpointConfig&)>& change) {
    RunConfig config = tiny(false);
    change(config.checkpoint);
    const Result<RunConfig> valid = validate(config, {}, Purpose::kRun);
    return valid ? std::string() : valid.error().text();
  };
  EXPECT_THAT(why([](auto& c) { c.non_persistent = NonPersistent::kInMemory; }),
              HasSubstr("memory ends with the process"));
  EXPECT_THAT(why([](auto& c) { c.non_persistent = NonPersistent::kLocal; }),
              HasSubstr("give --non-persistent-local-ckpt-dir"));
  EXPECT_THAT(why([](auto& c) { c.non_persistent_interval = 2; }),
              HasSubstr("needs checkpoint.non_persistent"));
  EXPECT_THAT(why([](auto& c) {
                c.non_persistent = NonPersistent::kGlobal;
                c.non_persistent_interval = 2;
              }),
              HasSubstr("needs --save"));
  EXPECT_THAT(why([](auto& c) { c.non_persistent_local = "/l"; }),
              HasSubstr("is for checkpoint.non_persistent=local"));
  EXPECT_THAT(why([](auto& c) { c.non_persistent_global = "/g"; }),
              HasSubstr("is for checkpoint.non_persistent=global"));
  EXPECT_THAT(why([](auto& c) {
                c.non_persistent = NonPersistent::kLocal;
                c.non_persistent_local = "/l";
                c.non_persistent_algorithm = LocalAlgorithm::kFullyParallel;
              }),
              HasSubstr("use atomic"));
}

}  // namespace
}  // namespace plumbline::test

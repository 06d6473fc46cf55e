// What a run saves and goes on from, apart from the layouts of resume_test.cc: batches that change, samples
// that are left, weights alone, disks that fail.
#include "engine/train/run_checkpoint.h"

#include <functional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/train/resume_support.h"

namespace plumbline::test {
namespace {

using testing::HasSubstr;

RunConfig tiny(Precision precision = Precision::kFp32) {
  RunConfig config = small_config({ScheduleKind::kOneFOneB, 2, 1, 2, 1}, precision);
  config.model.layers = 2;
  config.model.hidden = 8;
  config.train.micro_batch_size = 1;
  config.train.eval_iterations = 0;
  config.train.iterations = 8;
  return config;
}

RunConfig saving(RunConfig config, int interval) {
  config.checkpoint.save = "/a";
  config.checkpoint.interval = interval;
  return config;
}

RunConfig loading(RunConfig config, int step = -1) {
  config.checkpoint.load = "/a";
  config.checkpoint.step = step;
  return config;
}

void expect_tail(const Ran& whole, const Ran& rest) {
  ASSERT_EQ(rest.error, "");
  ASSERT_LE(rest.steps.size(), whole.steps.size());
  const std::size_t first = whole.steps.size() - rest.steps.size();
  for (std::size_t i = 0; i < rest.steps.size(); ++i)
    EXPECT_EQ(difference(whole.steps[first + i].row, rest.steps[i].row), "");
}

TEST(RunCheckpoint, RampUpGoesOnWithTheBatchOfItsSamples) {
  RunConfig config = tiny();
  config.schedule.global_batch_size = 4;
  config.schedule.rampup = {1, 1, 9};
  SimulatedDisk disk;
  SimulatedFiles files(disk);
  const Ran whole = run_on(files, saving(config, 3));
  ASSERT_EQ(whole.error, "");
  EXPECT_EQ(whole.saved, (std::vector<std::string>{"/a/iter_0000003", "/a/iter_0000006", "/a/iter_0000008"}));
  for (const int step : {3, 6}) {
    const Ran rest = run_on(files, loading(config, step));
    EXPECT_EQ(rest.steps.size(), static_cast<std::size_t>(8 - step));
    expect_tail(whole, rest);
  }
}

// The rest of the run is counted in samples, also when the batch is another one from here on.
TEST(RunCheckpoint, SamplesThatAreLeft) {
  RunConfig config = tiny();
  config.train.samples = 16;  // 8 steps of 2
  SimulatedDisk disk;
  SimulatedFiles files(disk);
  ASSERT_EQ(run_on(files, saving(config, 4)).error, "");
  config.schedule.microbatches = 4;
  const Ran rest = run_on(files, loading(config, 4));
  ASSERT_EQ(rest.error, "");
  ASSERT_EQ(rest.steps.size(), 2u);
  EXPECT_EQ(rest.steps.front().row.iteration, 5);
  EXPECT_EQ(rest.steps.back().row.consumed_samples, 16);
}

TEST(RunCheckpoint, WeightsAloneBeginWithNewStates) {
  for (const bool distributed : {false, true}) {
    RunConfig config = tiny(Precision::kFp16);
    config.optimizer.distributed = distributed;
    SimulatedDisk disk;
    SimulatedFiles files(disk);
    ASSERT_EQ(run_on(files, saving(config, 0)).error, "");
    for (const bool finetune : {false, true}) {
      RunConfig again = loading(config);
      again.checkpoint.finetune = finetune;
      again.checkpoint.load_optim = again.checkpoint.load_rng = false;
      again.train.iterations = 9;
      int seen = 0;
      const Ran ran = run_on(files, again, [&seen](Trainer& trainer) {
        for (const StageWorker* worker : trainer.workers()) {
          for (const RankModel::OwnPart& part : worker->model().own_parts()) {
            // Main copies are the weights, not those of before nor those of the beginning.
            EXPECT_TRUE(at::equal(part.main, part.value.to(at::kFloat)));
            EXPECT_FALSE(part.state.exp_avg.defined());
            ++seen;
          }
        }
      });
      ASSERT_EQ(ran.error, "");
      EXPECT_GT(seen, 0);
      EXPECT_EQ(ran.steps.size(), finetune ? 9u : 1u);
    }
  }
}

// The state of LibTorch's own generator, which begins with noise, is saved: it has to begin with the seed.
TEST(RunCheckpoint, SameSeedSameBytes) {
  std::vector<std::string> shards, manifests;
  for (const std::uint64_t noise : {1, 2}) {
    at::manual_seed(noise);
    SimulatedDisk disk;
    SimulatedFiles files(disk);
    ASSERT_EQ(run_on(files, saving(tiny(), 0)).error, "");
    for (const auto& [all, name] :
         {std::pair{&manifests, "manifest.json"}, std::pair{&shards, "shard_00000_of_00002.safetensors"}}) {
      const Result<std::string> bytes =
          read_small_file(files, std::string("/a/iter_0000008/") + name, 1 << 24);
      ASSERT_TRUE(bytes) << bytes.error().message;
      all->push_back(*bytes);
    }
  }
  EXPECT_TRUE(manifests[0] == manifests[1]);
  EXPECT_TRUE(shards[0] == shards[1]);
}

// Every step so far overflowed: there are no moments to save, and none are loaded.
TEST(RunCheckpoint, BeforeTheFirstUpdate) {
  for (const bool distributed : {false, true}) {
    RunConfig config = tiny(Precision::kFp16);
    config.optimizer.distributed = distributed;
    config.faults.overflow = {{0, 1}, {1, 2}};
    SimulatedDisk disk;
    SimulatedFiles files(disk);
    const Ran whole = run_on(files, saving(config, 2));
    ASSERT_EQ(whole.error, "");
    EXPECT_TRUE(whole.steps[1].row.skipped);
    config.optimizer.distributed = !distributed;
    expect_tail(whole, run_on(files, loading(config, 2)));
  }
}

TEST(RunCheckpoint, AFailedSaveEndsTheRunAndTheOldOneIsLoaded) {
  for (const bool async : {false, true}) {
    RunConfig config = tiny();
    SimulatedDisk disk;
    SimulatedFiles files(disk);
    config.train.exit_interval = 2;
    ASSERT_EQ(run_on(files, saving(config, 2)).error, "");
    config.train.exit_interval = 0;
    files.set_read_only(true);
    RunConfig failing = loading(saving(config, 2));
    failing.checkpoint.async_save = async;
    const Ran failed = run_on(files, failing);
    EXPECT_THAT(failed.error, HasSubstr("Read-only"));
    files.set_read_only(false);
    disk.limit_space(1000);
    EXPECT_THAT(run_on(files, failing).error, HasSubstr("No space"));
    disk.limit_space(UINT64_MAX);
    const Ran rest = run_on(files, failing);
    ASSERT_EQ(rest.error, "");
    EXPECT_EQ(rest.trainer->record().resumed_from, 2);
    EXPECT_EQ(rest.saved.back(), "/a/iter_0000008");
  }
}

TEST(RunCheckpoint, OtherLayoutsBeginWithTheRandomStatesOfTheSeed) {
  RunConfig config = tiny();
  SimulatedDisk disk;
  SimulatedFiles files(disk);
  ASSERT_EQ(run_on(files, saving(config, 4)).error, "");
  RunConfig other = loading(config, 4);
  other.parallel.pp = 1;
  const Ran ran = run_on(files, other);
  ASSERT_EQ(ran.error, "");
  EXPECT_THAT(ran.trainer->resume().notices.back(),
              HasSubstr("random states are of another layout than pp 1, dp 1"));
}

// As a process group does it: each rank knows its own state alone, and the files are those of one process with
// all ranks.
TEST(RunCheckpoint, OneRankAProcess) {
  RunConfig config = saving(tiny(Precision::kFp16), 0);
  config.parallel.dp = 2;
  config.optimizer.distributed = true;
  SimulatedDisk disk, other;
  SimulatedFiles files(disk), theirs(other);
  const Ran ran = run_on(files, config);
  ASSERT_EQ(ran.error, "");
  const std::vector<StageWorker*>& workers = ran.trainer->workers();
  const auto group = thread_group(static_cast<int>(workers.size()));
  RunConfig loads = ran.trainer->config();
  loads.checkpoint.load = "/a";
  const RunCounters counters{8, 32, 0, 8, 0};
  const auto in_each = [&](const std::function<void(RunCheckpoint&, const std::vector<RankState>&)>& work) {
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < workers.size(); ++i) {
      threads.emplace_back([&, i] {
        const auto channel = collective_channel(group[i]);
        RunCheckpoint::Parts parts{
            &loads, &theirs, one_rank_a_process(*channel), 1, ran.trainer->record().data_digest, {}};
        const auto made = RunCheckpoint::create(std::move(parts));
        ASSERT_TRUE(made);
        work(**made, {{workers[i]->rank(), &workers[i]->model(), &ran.trainer->random(i)}});
      });
    }
    for (std::thread& thread : threads) thread.join();
  };
  // Random states have been drawn from since the trainer saved; everything else is as it was.
  in_each([&](RunCheckpoint& checkpoint, const std::vector<RankState>& ranks) {
    const auto saved = checkpoint.save(counters, ranks);
    EXPECT_TRUE(saved) << saved.error().text();
  });
  EXPECT_EQ(difference(theirs, "/a/iter_0000008", "/a/iter_0000008"), "");
  EXPECT_EQ(tensors_in(files, "/a/iter_0000008"), tensors_in(theirs, "/a/iter_0000008"));
  for (int shard = 0; shard < 4; ++shard) {
    const std::string name = fmt::format("/a/iter_0000008/shard_{:05}_of_00004.safetensors", shard);
    ASSERT_NE(other.content(name), nullptr);
    EXPECT_EQ(other.content(name)->size(), disk.content(name)->size());
  }
  in_each([&](RunCheckpoint& checkpoint, const std::vector<RankState>& ranks) {
    const auto resume = checkpoint.open();
    ASSERT_TRUE(resume) << resume.error().text();
    EXPECT_EQ(resume->counters.consumed_train_samples, 32);
    std::vector<std::string> notices;
    const Status loaded = checkpoint.load(ranks, notices);
    EXPECT_TRUE(loaded) << loaded.error().text();
  });
  loads.checkpoint.async_save = true;
  const auto channel = collective_channel(alone());
  RunCheckpoint::Parts parts{&loads, &theirs, one_rank_a_process(*channel), 1, "", {}};
  const auto refused = RunCheckpoint::create(std::move(parts));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("needs a second group"));
}

TEST(RunCheckpoint, GroupsAreTheCallers) {
  RunConfig config = saving(tiny(), 0);
  const Result<RunConfig> valid = validate(config, {}, Purpose::kRun);
  ASSERT_TRUE(valid);
  int asked = 0;
  SimulatedDisk disk;
  SimulatedFiles files(disk);
  Trainer::Options options;
  options.files = &files;
  options.groups = [&asked](int local_ranks) {
    ++asked;
    EXPECT_EQ(local_ranks, 2);
    return in_this_process()(local_ranks);
  };
  const auto trainer = Trainer::create(*valid, std::move(options));
  ASSERT_TRUE(trainer) << trainer.error().text();
  ASSERT_TRUE((*trainer)->run());
  EXPECT_EQ(asked, 1);
  EXPECT_NE(disk.content("/a/iter_0000008/shard_00001_of_00002.safetensors"), nullptr);
}

}  // namespace
}  // namespace plumbline::test

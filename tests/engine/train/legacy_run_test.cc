// Runs that are saved in Megatron-LM's own files and go on from them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/checkpoint/torch_file.h"
#include "engine/train/run_checkpoint.h"
#include "tests/engine/train/resume_support.h"

namespace plumbline::test {
namespace {

using testing::HasSubstr;

RunConfig tiny(const Layout& layout, Precision precision) {
  RunConfig config = small_config(layout, precision);
  config.model.layers = 4;
  config.model.hidden = 8;
  config.train.micro_batch_size = 1;
  config.train.eval_iterations = 0;
  config.train.iterations = 6;
  if (layout.vp > 1) config.schedule.p2p = P2pStyle::kSeparate;
  if (precision == Precision::kFp16) config.faults.overflow = {{0, 2}};
  return config;
}

RunConfig saving(RunConfig config) {
  config.checkpoint.save = "/a";
  config.checkpoint.interval = 4;
  config.checkpoint.format = CheckpointFormat::kTorch;
  return config;
}

RunConfig loading(RunConfig config, int step = 4) {
  config.checkpoint.load = "/a";
  config.checkpoint.step = step;
  return config;
}

TEST(LegacyRun, EqualsTheRunThatWasNeverInterrupted) {
  const Layout plain{ScheduleKind::kOneFOneB, 2, 1, 2, 2}, chunks{ScheduleKind::kInterleaved, 2, 2, 2, 1},
      one{ScheduleKind::kGpipe, 1, 1, 2, 1};
  for (const Layout& layout : {plain, chunks, one}) {
    for (const Precision precision : {Precision::kFp32, Precision::kFp16, Precision::kBf16}) {
      SimulatedDisk disk;
      SimulatedFiles files(disk);
      RunConfig config = tiny(layout, precision);
      if (precision == Precision::kBf16) config.optimizer.rule = OptimizerRule::kSgd;
      const Ran whole = run_on(files, saving(config));
      ASSERT_EQ(whole.error, "") << layout.name();
      EXPECT_EQ(whole.saved, (std::vector<std::string>{"/a/iter_0000004", "/a/iter_0000006"}));
      const char* folder = layout.pp > 1 ? "mp_rank_00_001" : "mp_rank_00";
      EXPECT_NE(disk.content(fmt::format("/a/iter_0000004/{}/model_optim_rng.pt", folder)), nullptr);
      const Ran rest = run_on(files, loading(config));
      ASSERT_EQ(rest.error, "") << layout.name();
      ASSERT_EQ(rest.steps.size(), 2u);
      for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(difference(whole.steps[4 + i].row, rest.steps[i].row), "") << layout.name();
        EXPECT_EQ(whole.steps[4 + i].draws, rest.steps[i].draws);
      }
      const Ran finished = run_on(files, loading(config, -1));
      ASSERT_EQ(finished.error, "");
      EXPECT_EQ(finished.trainer->resume().counters.iteration, 6);
      EXPECT_TRUE(finished.steps.empty());
    }
  }
}

TEST(LegacyRun, PartsOfIt) {
  SimulatedDisk disk;
  SimulatedFiles files(disk);
  const RunConfig config = tiny({ScheduleKind::kOneFOneB, 2, 1, 2, 1}, Precision::kFp16);
  RunConfig partial = saving(config);
  partial.checkpoint.save_optim = partial.checkpoint.save_rng = false;
  ASSERT_EQ(run_on(files, partial).error, "");
  EXPECT_THAT(run_on(files, loading(config)).error, HasSubstr("no-load-optim"));
  RunConfig weights = loading(config);
  weights.checkpoint.load_optim = false;
  EXPECT_THAT(run_on(files, weights).error, HasSubstr("no-load-rng"));
  weights.checkpoint.load_rng = false;
  const Ran without = run_on(files, weights);
  ASSERT_EQ(without.error, "");
  EXPECT_EQ(without.steps.size(), 2u);
  RunConfig fine = loading(config);
  fine.checkpoint.finetune = true;
  const Ran tuned = run_on(files, fine, [](Trainer& trainer) {
    for (const StageWorker* worker : trainer.workers()) {
      for (const RankModel::OwnPart& part : worker->model().own_parts())
        EXPECT_TRUE(at::equal(part.main, part.value.to(at::kFloat)));
    }
  });
  ASSERT_EQ(tuned.error, "");
  EXPECT_EQ(tuned.steps.size(), 6u);
}

TEST(LegacyRun, WhatDoesNotFitIsRefusedByName) {
  SimulatedDisk disk;
  SimulatedFiles files(disk);
  const RunConfig config = tiny({ScheduleKind::kOneFOneB, 2, 1, 2, 1}, Precision::kFp16);
  ASSERT_EQ(run_on(files, saving(config)).error, "");
  RunConfig chunks = tiny({ScheduleKind::kInterleaved, 2, 2, 2, 1}, Precision::kFp16);
  EXPECT_THAT(run_on(files, loading(chunks)).error,
              HasSubstr("1 model chunks a rank were saved, this run has 2"));
  RunConfig stages = config;
  stages.parallel.pp = 1;
  EXPECT_THAT(
      run_on(files, loading(stages)).error,
      HasSubstr("has no mp_rank_00 but mp_rank_00_000, mp_rank_00_001; Megatron's files load in the"));
  RunConfig layers = config;
  layers.model.layers = 2;
  EXPECT_THAT(run_on(files, loading(layers)).error, HasSubstr("num_layers"));
  RunConfig distributed = saving(config);
  distributed.optimizer.distributed = true;
  const Result<RunConfig> refused = validate(distributed, {}, Purpose::kRun);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().text(), HasSubstr("those files hold one rank's"));
  // A file of another save among them.
  const std::string name = "/mp_rank_00_001/model_optim_rng.pt";
  *disk.content("/a/iter_0000004" + name) = *disk.content("/a/iter_0000006" + name);
  EXPECT_THAT(run_on(files, loading(config)).error, HasSubstr("holds iteration 6"));
  // A file of Megatron's own.
  const std::string path = "/a/iter_0000006" + name;
  Result<StateValue> file = read_torch_file(files, path);
  ASSERT_TRUE(file) << file.error().text();
  StateDict theirs = *file->get<StateDict>();
  ASSERT_TRUE(theirs.erase("plumbline"));
  ASSERT_TRUE(files.remove_file(path));
  ASSERT_TRUE(write_torch_file(files, path, theirs));
  EXPECT_THAT(run_on(files, loading(config, 6)).error, HasSubstr("these files are not of plumbline"));
}

}  // namespace
}  // namespace plumbline::test

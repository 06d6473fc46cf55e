// `run --save` and `run --load` as users and job managers see them: what goes on equals what was never interrupted, and
// what cannot be loaded never ends with exit code 0.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/base/text.h"
#include "tests/cli/run_program.h"

namespace plumbline {
namespace {

using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

constexpr const char* kModel =
    " --num-layers 2 --hidden-size 16 --num-attention-heads 2 --seq-length 8 -m 2 --eval-iters 0 --fp16 "
    "--initial-loss-scale 1024 --train-iters 6";

class Resume : public testing::Test {
 protected:
  void SetUp() override {
    if (std::string(PLUMBLINE_ENGINE_EXECUTABLE).empty()) GTEST_SKIP() << "plumbline-engine is not built";
    directory_ =
        fs::path(testing::TempDir()) /
        (std::string("plumbline_resume_") + testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(directory_);
    fs::create_directories(directory_);
  }
  void TearDown() override { fs::remove_all(directory_); }

  std::string path(const std::string& name) const { return (directory_ / name).string(); }
  Outcome run(const std::string& flags, const std::string& prefix = "") const {
    return run_plumbline(fmt::format("run {} {} -o {}", kModel, flags, path("run.plmb")), prefix);
  }
  // Four iterations with a checkpoint after the second and the fourth.
  void save_four(const std::string& flags = "") const {
    const Outcome outcome =
        run(fmt::format("--save {} --save-interval 2 --exit-interval 4 {}", path("c"), flags));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
  }
  Outcome resume(const std::string& flags = "") const { return run("--load " + path("c") + " " + flags); }
  Outcome checkpoint(const std::string& words) const { return run_plumbline("checkpoint " + words); }

  fs::path directory_;
};

// "model  <parameters> <optimizer> after iteration 6"
std::string model_line(const Outcome& outcome) {
  const std::size_t at = outcome.out.find("model  ");
  return at == std::string::npos ? "" : outcome.out.substr(at, outcome.out.find('\n', at) - at);
}

void change_byte(const std::string& path, std::streamoff from_end) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-from_end, std::ios::end);
  const char byte = static_cast<char>(file.get());
  file.seekp(-from_end, std::ios::end);
  file.put(static_cast<char>(byte ^ 1));
}

TEST_F(Resume, EqualsTheRunThatWasNeverInterruptedInAnyLayout) {
  const Outcome whole = run("--pp 2 --dp 2");
  ASSERT_EQ(whole.code, 0) << whole.err;
  ASSERT_THAT(model_line(whole), HasSubstr("after iteration 6"));
  save_four("--pp 2 --dp 2 --async-save");
  EXPECT_TRUE(fs::exists(path("c/iter_0000002/manifest.json")));
  for (const char* layout : {"--pp 2 --dp 2",
                             "--pp 1 --dp 2 --use-distributed-optimizer --overlap-grad-reduce "
                             "--overlap-param-gather --schedule gpipe"}) {
    const Outcome rest = resume(layout);
    ASSERT_EQ(rest.code, 0) << rest.err;
    EXPECT_EQ(model_line(rest), model_line(whole)) << layout;
    EXPECT_THAT(rest.out, HasSubstr("iter_0000004, going on from iteration 4"));
    const auto record = nlohmann::json::parse(run_plumbline("record dump --json " + path("run.plmb")).out);
    EXPECT_EQ(record["resumed_from"], 4);
    EXPECT_EQ(record["steps"][0]["iteration"], 5);
  }
  const Outcome earlier = resume("--pp 2 --dp 2 --ckpt-step 2");
  EXPECT_EQ(model_line(earlier), model_line(whole)) << earlier.err;
}

TEST_F(Resume, WithoutATrackerItStartsAtZeroAndSaysSo) {
  const Outcome fresh = run("");
  const Outcome outcome = resume();
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.err, HasSubstr("warning: "));
  EXPECT_THAT(outcome.err,
              HasSubstr("no latest_checkpointed_iteration.txt in it: nothing is loaded, and training "
                        "starts at iteration 0"));
  EXPECT_EQ(model_line(outcome), model_line(fresh));
  const Outcome refused = resume("--exit-on-missing-checkpoint");
  EXPECT_EQ(refused.code, 4);
  EXPECT_THAT(refused.err, HasSubstr("--exit-on-missing-checkpoint makes that an error"));
}

TEST_F(Resume, WhatCannotBeLoadedIsNoSuccess) {
  save_four();
  change_byte(path("c/iter_0000004/shard_00000_of_00001.safetensors"), 100);
  const Outcome damaged = resume();
  EXPECT_EQ(damaged.code, 4);
  EXPECT_THAT(damaged.err, HasSubstr("shard_00000_of_00001.safetensors: damaged between byte"));
  EXPECT_THAT(damaged.err, HasSubstr("the newest whole checkpoint is iter_0000002"));
  EXPECT_EQ(resume("--ckpt-step 2").code, 0);
  EXPECT_NE(resume("--ckpt-step 3").code, 0);
  fs::remove(path("c/iter_0000004/manifest.json"));
  EXPECT_NE(resume().code, 0);
  // Megatron ends with exit code 0 in these two.
  std::ofstream(path("c/latest_checkpointed_iteration.txt")) << "";
  const Outcome empty = resume();
  EXPECT_EQ(empty.code, 2);
  EXPECT_THAT(empty.err, HasSubstr("must be an iteration or 'release', it is ''"));
  std::ofstream(path("c/latest_checkpointed_iteration.txt")) << "100";
  EXPECT_EQ(resume().code, 4);
}

TEST_F(Resume, AnotherModelIsRefusedAndOtherDifferencesAreTold) {
  save_four();
  const Outcome other = resume("--num-attention-heads 4 --ffn-hidden-size 48");
  EXPECT_EQ(other.code, 4);
  EXPECT_THAT(other.err,
              HasSubstr("model.heads is 4 here and was 2; model.ffn_hidden is 48 here and was 64"));
  const Outcome precision = resume("--precision bf16");
  EXPECT_THAT(precision.err, HasSubstr("train.precision is bf16 here and was fp16"));
  const Outcome seed = resume("--seed 7 --clip-grad 0.25");
  EXPECT_EQ(seed.code, 0);
  EXPECT_THAT(seed.err, HasSubstr("not as in the run that was saved: train.seed is 7 here and was 1234; "
                                  "optimizer.clip_grad is 0.25 here and was 1"));
  const Outcome rate = resume("--lr 0.5");
  EXPECT_EQ(rate.code, 4);  // the scheduler's own rule
  EXPECT_EQ(resume("--lr 0.5 --override-opt-param-scheduler").code, 0);
}

TEST_F(Resume, PartsOfACheckpoint) {
  save_four("--no-save-optim --no-save-rng");
  EXPECT_THAT(resume().err,
              HasSubstr("was saved without the optimizer; load with --no-load-optim or --finetune"));
  EXPECT_THAT(resume("--no-load-optim").err,
              HasSubstr("was saved without random states; load with --no-load-rng"));
  const Outcome weights = resume("--no-load-optim --no-load-rng");
  EXPECT_EQ(weights.code, 0) << weights.err;
  EXPECT_THAT(weights.out, HasSubstr("going on from iteration 4"));
  const Outcome finetune = resume("--finetune");
  EXPECT_EQ(finetune.code, 0) << finetune.err;
  EXPECT_THAT(finetune.err, HasSubstr("weights alone are loaded; training starts at iteration 0"));
  EXPECT_THAT(finetune.out, HasSubstr("after iteration 6"));
}

TEST_F(Resume, AFinishedRunHasNothingLeftToTrain) {
  ASSERT_EQ(run("--save " + path("c") + " --save-interval 2 --ckpt-keep-last 2").code, 0);
  EXPECT_FALSE(fs::exists(path("c/iter_0000002")));
  EXPECT_TRUE(fs::exists(path("c/iter_0000004")));
  const Outcome again = resume();
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("nothing was left to train"));
}

TEST_F(Resume, DirectoriesThatCannotBeWritten) {
  EXPECT_EQ(run("--save-interval 2").code, 2);
  EXPECT_THAT(run("--save-interval 2").err, HasSubstr("checkpoint.interval=2"));
  EXPECT_EQ(run("--finetune").code, 2);
  std::ofstream(path("file")) << "in the way";
  const Outcome blocked = run("--save " + path("file") + "/c");
  EXPECT_EQ(blocked.code, 2);
  EXPECT_THAT(blocked.err, HasSubstr("nothing was saved"));
  const Outcome full = run("--save /dev/full");
  EXPECT_NE(full.code, 0);
}

TEST_F(Resume, KilledWhileSavingTheNewestWholeOneIsFound) {
  const Outcome whole = run("");
  int loaded = 0;
  for (int round = 0; round < 6; ++round) {
    // A run takes some hundred milliseconds to start; from then on it saves without a pause.
    run(fmt::format("--save {0} --load {0} --save-interval 1 -q", path("c")),
        fmt::format("timeout -s KILL {:.2f}", 0.35 + 0.1 * round));
    if (!fs::exists(path("c/latest_checkpointed_iteration.txt"))) continue;
    ++loaded;
    EXPECT_EQ(checkpoint("verify " + path("c")).code, 0);
  }
  const Outcome rest = run(fmt::format("--save {0} --load {0} --save-interval 1", path("c")));
  ASSERT_EQ(rest.code, 0) << rest.err;
  if (!model_line(rest).empty()) EXPECT_EQ(model_line(rest), model_line(whole));
  EXPECT_EQ(checkpoint("verify " + path("c")).code, 0);
  for (const auto& entry : fs::directory_iterator(path("c")))
    EXPECT_THAT(entry.path().filename().string(), Not(HasSubstr(".saving")));
  RecordProperty("loaded", loaded);
}

TEST_F(Resume, ASaverThatFindsAnotherIsRefused) {
  save_four();
  // flock holds the directory's lock as long as the run takes.
  const std::string flags = fmt::format("--save {0} --load {0}", path("c"));
  const Outcome second = run(flags, fmt::format("flock '{}/.lock'", path("c")));
  EXPECT_EQ(second.code, 4);
  EXPECT_THAT(second.err, HasSubstr("nothing was saved"));
  EXPECT_THAT(second.err, HasSubstr("held by another process that saves here"));
  EXPECT_FALSE(fs::exists(path("c/iter_0000006")));
  EXPECT_EQ(checkpoint("verify " + path("c")).code, 0);
  EXPECT_EQ(run(flags).code, 0);
  EXPECT_TRUE(fs::exists(path("c/iter_0000006")));
}

// Two runs that differ in their seeds: what is left is all of one of them.
TEST_F(Resume, TwoRunsThatSaveIntoOneDirectoryAtOnce) {
  for (const char* seed : {"1", "2"})
    ASSERT_EQ(run(fmt::format("--seed {0} --save {1}{0}", seed, path("alone"))).code, 0);
  ASSERT_EQ(run("--seed 1 --save " + path("again")).code, 0);
  ASSERT_EQ(checkpoint(fmt::format("diff {} {}1", path("again"), path("alone"))).code, 0);
  ASSERT_EQ(checkpoint(fmt::format("diff {0}1 {0}2", path("alone"))).code, 4);
  EXPECT_EQ(checkpoint(fmt::format("diff {0}1 {0}2 --within 1e-9", path("alone"))).code, 4);
  std::string both;
  for (const char* seed : {"1", "2"})
    both +=
        fmt::format("('{}' run {} --seed {} --save {} --save-interval 1 -o {}{} 2>{}{}; echo $? >{}{}) & ",
                    PLUMBLINE_EXECUTABLE, kModel, seed, path("c"), path("run.plmb"), seed, path("err"), seed,
                    path("code"), seed);
  ASSERT_EQ(std::system(("{ " + both + "wait; } >/dev/null </dev/null").c_str()), 0);
  int succeeded = 0;
  for (const char* seed : {"1", "2"}) {
    const std::string code = read_file(path("code") + seed).value_or("");
    succeeded += code == "0\n" ? 1 : 0;
    if (code == "0\n") continue;
    EXPECT_EQ(code, "4\n");
    EXPECT_THAT(read_file(path("err") + seed).value_or(""),
                HasSubstr("held by another process that saves here"));
  }
  // Only who holds the lock can be in another's way, so one of them always comes to its end.
  EXPECT_GE(succeeded, 1);
  EXPECT_EQ(read_file(path("c/latest_checkpointed_iteration.txt")).value_or(""), "6");
  for (int iteration = 1; iteration <= 6; ++iteration)
    EXPECT_EQ(checkpoint(fmt::format("verify {}/iter_{:07}", path("c"), iteration)).code, 0) << iteration;
  const int first = checkpoint(fmt::format("diff {} {}1", path("c"), path("alone"))).code;
  const int second = checkpoint(fmt::format("diff {} {}2", path("c"), path("alone"))).code;
  EXPECT_TRUE((first == 0 && second == 4) || (first == 4 && second == 0)) << first << " " << second;
}

// What was saved between persistent checkpoints is what is left when these are lost: each rank's own below a directory
// of its machine, or one for all.
TEST_F(Resume, NonPersistentOnesOnBothBackends) {
  const std::string pipeline = "--pp 2 ",
                    replicas =
                        "--dp 2 --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather ";
  for (const auto& [type, layout] : {std::pair("global", pipeline), std::pair("local", replicas)}) {
    const Outcome whole = run(layout);
    ASSERT_EQ(whole.code, 0) << whole.err;
    for (const std::string backend : {"", "--backend gloo --nproc 2 "}) {
      fs::remove_all(path("c"));
      fs::remove_all(path("n"));
      const std::string flags =
          layout + backend +
          fmt::format("--load {0} --non-persistent-ckpt-type {2} --non-persistent-{2}-ckpt-dir {1} ",
                      path("c"), path("n"), type);
      const std::string saving =
          fmt::format("--save {} --save-interval 4 --non-persistent-save-interval 3 ", path("c"));
      const Outcome saved = run(flags + saving + "--exit-interval 5");
      ASSERT_EQ(saved.code, 0) << saved.err;
      const std::string folder = std::string(type) == "local" ? path("n") + "/rank_00001" : path("n");
      EXPECT_TRUE(fs::exists(folder + "/iter_0000003/manifest.json")) << saved.out;
      fs::remove_all(path("c"));
      const Outcome rest = run(flags + saving);
      ASSERT_EQ(rest.code, 0) << rest.err;
      EXPECT_EQ(model_line(rest), model_line(whole)) << flags;
      EXPECT_THAT(rest.out, HasSubstr(fmt::format("iter_0000003 (non-persistent, {}), going on from", type)));
      if (std::string(type) == "global") continue;
      // Both kinds are there, and a machine was changed for another one.
      fs::remove_all(path("n/rank_00001"));
      const Outcome moved = run(flags);
      EXPECT_EQ(moved.code, 0) << moved.err;
      EXPECT_THAT(moved.err, HasSubstr("rank 1: " + path("n/rank_00001") + ": no such directory"));
      EXPECT_THAT(moved.out, HasSubstr("nothing was left to train"));
    }
  }
}

TEST_F(Resume, MegatronsFilesOnBothBackends) {
  const Outcome whole = run("--pp 2");
  for (const std::string backend : {"", " --backend gloo --nproc 2"}) {
    fs::remove_all(path("c"));
    const Outcome saved =
        run(fmt::format("--pp 2 --save {} --ckpt-format torch --exit-interval 4 {}", path("c"), backend));
    ASSERT_EQ(saved.code, 0) << saved.err;
    EXPECT_TRUE(fs::exists(path("c/iter_0000004/mp_rank_00_001/model_optim_rng.pt")));
    for (const std::string other : {"", " --backend gloo --nproc 2"})
      EXPECT_EQ(model_line(resume("--pp 2" + other)), model_line(whole)) << backend << " then " << other;
    const Outcome inspect = checkpoint("inspect " + path("c/iter_0000004/mp_rank_00_000/model_optim_rng.pt"));
    EXPECT_EQ(inspect.code, 0) << inspect.err;
    EXPECT_NE(resume("--pp 1").code, 0);
  }
  EXPECT_THAT(run("--ckpt-format torch_dist --save " + path("c")).err, HasSubstr("torch"));
}

TEST_F(Resume, AsynchronousSavesOfOneRankAProcess) {
  const Outcome whole = run("--pp 2");
  const std::string flags =
      "--pp 2 --backend gloo --nproc 2 --save-interval 1 --async-save --save " + path("c");
  const Outcome saved = run(flags + " --exit-interval 4");
  ASSERT_EQ(saved.code, 0) << saved.err;
  for (int iteration = 1; iteration <= 4; ++iteration)
    EXPECT_EQ(checkpoint(fmt::format("verify {}/iter_{:07}", path("c"), iteration)).code, 0) << iteration;
  const Outcome rest = run(flags + " --load " + path("c"));
  ASSERT_EQ(rest.code, 0) << rest.err;
  EXPECT_EQ(model_line(rest), model_line(whole));
  EXPECT_EQ(model_line(resume("--ckpt-step 2")), model_line(whole));
  // A failure ends the run at the next save, on all ranks alike.
  std::ofstream(path("file")) << "in the way";
  const Outcome blocked =
      run("--pp 2 --backend gloo --nproc 2 --save-interval 1 --async-save --save " + path("file") + "/c");
  EXPECT_EQ(blocked.code, 2) << blocked.err;
  EXPECT_THAT(blocked.err, HasSubstr("nothing was saved"));
}

TEST_F(Resume, CheckpointSubcommands) {
  save_four("--pp 2");
  const std::string c = path("c");
  const Outcome help = checkpoint("--help");
  EXPECT_THAT(help.out, HasSubstr("plumbline checkpoint inspect|verify|diff|convert|reshard"));
  EXPECT_THAT(help.out, Not(HasSubstr("plumbline-engine")));
  EXPECT_THAT(run_plumbline("run --help").out, Not(HasSubstr("plumbline-engine")));
  const Outcome inspect = checkpoint("inspect " + c);
  EXPECT_THAT(inspect.out, HasSubstr("optimizer.state.exp_avg."));
  EXPECT_THAT(inspect.out, HasSubstr("object  run: dict of 6"));
  EXPECT_EQ(checkpoint("verify " + c).code, 0);
  EXPECT_EQ(checkpoint(fmt::format("diff {0}/iter_0000002 {0}/iter_0000004", c)).code, 4);
  EXPECT_EQ(checkpoint(fmt::format("reshard {} {} --ranks 3 --iteration 4", c, path("r"))).code, 0);
  EXPECT_EQ(checkpoint(fmt::format("diff {} {}", c, path("r"))).code, 0);
  // What was resharded goes on as well, and what was converted there and back.
  const Outcome rest = run("--load " + path("r"));
  EXPECT_EQ(model_line(rest), model_line(resume("--pp 2"))) << rest.err;
  ASSERT_EQ(checkpoint(fmt::format("convert {} {} --to dcp", c, path("d"))).code, 0);
  ASSERT_EQ(checkpoint(fmt::format("convert {} {} --iteration 4", path("d"), path("n"))).code, 0);
  EXPECT_EQ(model_line(run("--load " + path("n"))), model_line(rest));
  EXPECT_EQ(checkpoint("verify " + path("nothing")).code, 2);
  EXPECT_EQ(checkpoint("diff " + c).code, 2);
  EXPECT_EQ(checkpoint(fmt::format("convert {} {} --to huggingface", c, path("h"))).code, 2);
}

}  // namespace
}  // namespace plumbline

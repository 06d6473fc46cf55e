// `plumbline config` from the outside: sources, origins, errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/run_program.h"

namespace plumbline {
namespace {

using testing::HasSubstr;

// A configuration file in the folder for temporary files, removed at the end of the test.
class ConfigCommand : public testing::Test {
 protected:
  ~ConfigCommand() override { std::remove(file_.c_str()); }
  void write(const std::string& text) { ASSERT_TRUE(write_file(file_, text)); }
  const std::string file_ = testing::TempDir() + "plumbline_config_command.toml";
};

TEST_F(ConfigCommand, ItsOutputLoadsBack) {
  const Outcome first =
      run_plumbline("config --pp 4 -m 8 --vp 2 --schedule interleaved --slow rank=3:1.2 --fp16");
  ASSERT_EQ(first.code, 0) << first.err;
  write(first.out);
  const Outcome second = run_plumbline("config " + file_);
  EXPECT_EQ(second.code, 0);
  EXPECT_EQ(second.out, first.out);
}

TEST_F(ConfigCommand, ExplainsOrigins) {
  write("[parallel]\npp = 2\n");
  const Outcome outcome = run_plumbline("config --explain " + file_ + " --global-batch-size=6",
                                        "PLUMBLINE_PARALLEL_DP=3 COLUMNS=200");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.out, testing::ContainsRegex("parallel.pp  +2  +.*command.toml:2\n"));
  EXPECT_THAT(outcome.out, testing::ContainsRegex("parallel.dp  +3  +environment PLUMBLINE_PARALLEL_DP\n"));
  EXPECT_THAT(outcome.out, testing::ContainsRegex(
                               "schedule.microbatches  +2  +derived from schedule.global_batch_size=6"));
  EXPECT_THAT(outcome.out, testing::ContainsRegex("model.ffn_hidden  +256  +derived\n"));
}

TEST_F(ConfigCommand, JsonIsOneDocument) {
  const nlohmann::json document = nlohmann::json::parse(run_plumbline("config --json --pp 2").out);
  EXPECT_EQ(document["config"]["parallel"]["pp"], 2);
  EXPECT_EQ(document["origins"]["parallel.pp"], "--pp");
}

TEST_F(ConfigCommand, DocsAreThePage) {
  EXPECT_EQ(run_plumbline("config --docs").out, *read_file(PLUMBLINE_TEST_DATA "/../docs/config.md"));
  EXPECT_EQ(run_plumbline("help config").out, run_plumbline("config --docs").out);
}

TEST_F(ConfigCommand, ErrorsHaveTheirPlace) {
  write("[parallel]\npp = 4\n[schedule]\nkind = \"interleaved\"\nchunks = 2\nmicrobatches = 6\n");
  const Outcome outcome = run_plumbline("config " + file_);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr(file_ + ":6:1: schedule.microbatches=6 leaves a last group of 2"));
  write("[parallel]\npq = 4\n");
  EXPECT_THAT(run_plumbline("config " + file_).err, HasSubstr(file_ + ":2:1: unknown option parallel.pq"));
  EXPECT_EQ(run_plumbline("config /nonexistent/file.toml").code, 2);
}

TEST_F(ConfigCommand, AllBrokenRulesArePrinted) {
  const Outcome outcome = run_plumbline("config --pp 0 --lr -1");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("parallel.pp=0"));
  EXPECT_THAT(outcome.err, HasSubstr("optimizer.lr=-1"));
}

TEST_F(ConfigCommand, ThePurposeDecidesAboutTheModel) {
  EXPECT_EQ(run_plumbline("config --num-layers 5 --pp 2").code, 0);
  EXPECT_EQ(run_plumbline("config --num-layers 5 --pp 2 --for run").code, 2);
  EXPECT_EQ(run_plumbline("config --for fun").code, 2);
}

TEST_F(ConfigCommand, WarningsGoToStderr) {
  const Outcome outcome = run_plumbline("config --pp 2 --vp 2 -m 4 --schedule interleaved");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.err, testing::StartsWith("warning: batched calls with pp = 2"));
}

}  // namespace
}  // namespace plumbline

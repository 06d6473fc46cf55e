// import, export and diff as a user starts them: conversions in pipes, exit codes, messages for wrong input.
#include <filesystem>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/base/text.h"
#include "tests/cli/run_program.h"
#include "tests/support/oracle.h"

namespace plumbline {
namespace {

class Import : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = testing::TempDir() + "plumbline_import_" + test->name();
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string file(const std::string& name, std::string_view text) const {
    EXPECT_TRUE(write_file(folder_ + "/" + name, text).has_value());
    return folder_ + "/" + name;
  }
  // `@` stands for the executable.
  static Outcome shell(std::string line) {
    for (std::size_t at = line.find('@'); at != std::string::npos; at = line.find('@'))
      line.replace(at, 1, PLUMBLINE_EXECUTABLE);
    return run_program("/bin/bash", "-c 'set -o pipefail; " + line + "'");
  }

 private:
  std::string folder_;
};

void expect_refused(const Outcome& outcome, const std::string& text) {
  EXPECT_EQ(outcome.code, 2) << outcome.out;
  EXPECT_NE(outcome.err.find(text), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.out, "");
}

TEST_F(Import, EveryTorchArtifactComesBackToTheByte) {
  for (const char* name : {"dualpipev_4rank_10mb.csv", "torchtitan_custom_schedule.csv",
                           "zb1p_2rank_2stagep_comms.csv", "zb1p_2rank_2stagep_compute.csv"}) {
    const std::string path = test::data_path(std::string("oracles/torch_pipelining/artifacts/") + name);
    const Outcome outcome = run_plumbline("import torch '" + path + "'");
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.out, read_file(path).value()) << name;
  }
  for (const char* name : {"1F1B_pp4_v1_mb8_comms.csv", "DualPipeV_pp4_v2_mb8_comms.csv"}) {
    const std::string path = test::data_path(std::string("oracles/torch_pipelining/generated/csv/") + name);
    EXPECT_EQ(run_plumbline("export torch-comms '" + path + "'").out, read_file(path).value()) << name;
  }
}

TEST_F(Import, TorchRowsOfAGeneratorAreTorchs) {
  const std::string folder = "oracles/torch_pipelining/generated/csv/";
  const auto same = [&](const std::string& command, const std::string& name) {
    EXPECT_EQ(run_plumbline(command).out, read_file(test::data_path(folder + name)).value()) << command;
  };
  same("export torch --generator torch-interleaved-zb --pp 4 --vp 2 -m 8",
       "InterleavedZeroBubble_pp4_v2_mb8_compute.csv");
  EXPECT_EQ(run_plumbline("export torch --pp 2 -m 2").out, "0F0,0F1,0B0,0B1\r\n1F0,1B0,1F1,1B1\r\n");
  same("export torch-comms --generator torch-interleaved-zb --pp 4 --vp 2 -m 8",
       "InterleavedZeroBubble_pp4_v2_mb8_comms.csv");
  same("export torch-comms-deferred --generator zb-v --pp 4 --vp 2 -m 8",
       "ZBVZeroBubble_pp4_v2_mb8_comms_deferred.csv");
}

TEST_F(Import, InAPipeToTheCheck) {
  const std::string streams = file(
      "ds.txt", "L0,F0;SA0;L1,F1;RG0,SA1,B0;;RG1,B1;;RT,R,O\n;RA0,L0,F0;B0;SG0,RA1,L1,F1;B1;SG1;RT,R,O\n");
  const Outcome deepspeed = shell("@ import deepspeed " + streams + " | @ check -");
  EXPECT_EQ(deepspeed.code, 0) << deepspeed.out << deepspeed.err;
  const std::string script = file("run.sh",
                                  "torchrun x.py --pipeline-model-parallel-size 2 --num-layers 4 \\\n "
                                  "--micro-batch-size 1 --global-batch-size 8 --fp16\n");
  const Outcome megatron = shell("@ import megatron-args " + script + " | @ check - --pipeline-only");
  EXPECT_EQ(megatron.code, 0) << megatron.out << megatron.err;
  EXPECT_NE(megatron.out.find("1f1b"), std::string::npos) << megatron.out;
  const Outcome flags = shell(
      "@ import megatron-args -- --pipeline-model-parallel-size 2 --num-layers 4 --global-batch-size 4 | @ "
      "check -");
  EXPECT_EQ(flags.code, 0) << flags.out << flags.err;
  const Outcome titan = shell(
      "@ import torchtitan -- --parallelism.pipeline_parallel_degree 2 "
      "--parallelism.pipeline_parallel_schedule ZBVZeroBubble | @ check -");
  EXPECT_EQ(titan.code, 0) << titan.out << titan.err;
  const Outcome order = shell(
      "@ export megatron-order --pp 2 --vp 2 --schedule interleaved -m 4 | @ import megatron-order - | @ "
      "check -");
  EXPECT_EQ(order.code, 0) << order.out << order.err;
  const Outcome bubble =
      shell("@ export zero-bubble --generator zb-v --pp 2 --vp 2 -m 4 | @ import zero-bubble | @ check -");
  EXPECT_EQ(bubble.code, 0) << bubble.out << bubble.err;
  const Outcome program = shell("@ export program --pp 2 -m 4 | @ import program | @ check -");
  EXPECT_EQ(program.code, 0) << program.out << program.err;
  // Half a pipe that fails fails the whole.
  EXPECT_EQ(shell("echo F0 | @ import deepspeed - | @ check -").code, 2);
}

TEST_F(Import, EveryExportComesBack) {
  EXPECT_EQ(shell("@ export deepspeed --pp 3 -m 4 | @ import deepspeed | @ export torch-comms - | tr -d "
                  "\"\\r\" | head -c 9")
                .out,
            "0F0,0SEND");
  expect_refused(run_plumbline("export deepspeed --schedule gpipe --pp 2 -m 4"), "'1f1b'");
  expect_refused(run_plumbline("export megatron-order --generator dualpipe-v --pp 2 --vp 2 -m 4"), "a pair");
}

TEST_F(Import, WrongInputNamesThePlace) {
  expect_refused(run_plumbline("import"), "which format?");
  expect_refused(run_plumbline("import deepsped x"), "did you mean 'deepspeed'?");
  expect_refused(run_plumbline("import torch a.csv b.csv"), "unexpected argument");
  expect_refused(run_plumbline("import torch -- --pp 2"), "read from a file");
  expect_refused(run_plumbline("import torch /no/such/file"), "/no/such/file");
  const std::string bad = file("bad.txt", "F0 B0\nF0 X0\n");
  expect_refused(run_plumbline("import zero-bubble " + bad), "bad.txt:2:4");
  expect_refused(run_plumbline("import zero-bubble --placement ring " + bad), "--placement 'ring'");
  expect_refused(run_plumbline("import megatron-order " + bad), "bad.txt:1:1");
  const std::string script = file("run.sh", "x.py\n --pipeline-model-parallel-size two\n");
  expect_refused(run_plumbline("import megatron-args " + script), "run.sh:2");
  expect_refused(run_plumbline("export"), "which format?");
  expect_refused(run_plumbline("export tourch --pp 2"), "did you mean 'torch'?");
  expect_refused(run_plumbline("export torch --pp two"), "--pp");
}

TEST_F(Import, DiffNamesWhatMoved) {
  const std::string before = file("a.csv", "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
  const std::string after = file("b.csv", "0F0,0F1,0B1,0B0\n1F0,1F1,1B1,1B0\n");
  EXPECT_EQ(run_plumbline("diff " + before + " " + before).code, 0);
  const Outcome outcome = run_plumbline("diff " + before + " " + after);
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_NE(outcome.out.find("2 changes; 8 calls before, 8 after"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("before  " + before + ": holds"), std::string::npos) << outcome.out;
  const Outcome json = run_plumbline("diff --json 1f1b gpipe --pp 2 -m 3");
  const nlohmann::json document = nlohmann::json::parse(json.out, nullptr, false);
  ASSERT_FALSE(document.is_discarded()) << json.out << json.err;
  EXPECT_FALSE(document["equal"].get<bool>());
  EXPECT_EQ(document["verdict_after"]["code"], 0);
}

// The lowering that hangs is told from the one that does not.
TEST_F(Import, DiffShowsTheVerdictBeforeAndAfter) {
  const std::string before = file("asap.csv", run_plumbline("export torch-comms --pp 2 -m 2").out);
  const std::string after =
      file("deferred.csv", run_plumbline("export torch-comms-deferred --pp 2 -m 2").out);
  const Outcome outcome = run_plumbline("diff " + before + " " + after + " --comm-map pair");
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_NE(outcome.out.find("1RECV_F1"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("asap.csv: holds"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("deferred.csv: deadlock"), std::string::npos) << outcome.out;
}

TEST_F(Import, DiffOfRecords) {
  const std::string one = file("one.plmb", ""), same = file("same.plmb", ""), slow = file("slow.plmb", ""),
                    other = file("other.plmb", "");
  ASSERT_EQ(run_plumbline("sim --pp 2 -m 4 -o " + one).code, 0);
  ASSERT_EQ(run_plumbline("sim --pp 2 -m 4 -o " + same).code, 0);
  ASSERT_EQ(run_plumbline("sim --pp 2 -m 4 --slow rank=1:2 -o " + slow).code, 0);
  ASSERT_EQ(run_plumbline("sim --pp 2 -m 4 --schedule gpipe -o " + other).code, 0);
  EXPECT_EQ(run_plumbline("diff " + one + " " + same).code, 0);
  const Outcome times = run_plumbline("diff " + one + " " + slow);
  EXPECT_EQ(times.code, 0) << "times differ, order and numbers do not: " << times.out << times.err;
  EXPECT_NE(times.out, run_plumbline("diff " + one + " " + same).out);
  EXPECT_EQ(run_plumbline("diff " + one + " " + other).code, 4);
  expect_refused(run_plumbline("diff --json " + one + " " + same), "two records are compared in text");
  // Within a tolerance the same; it is printed, and judged only between records.
  const Outcome derived = run_plumbline("diff " + one + " " + same + " --tolerance derived");
  EXPECT_EQ(derived.code, 0) << derived.err;
  EXPECT_NE(derived.out.find("summands in fp32"), std::string::npos) << derived.out;
  EXPECT_NE(derived.out.find("(not judged)"), std::string::npos) << derived.out;
  expect_refused(run_plumbline("diff " + one + " " + same + " --tolerance near"),
                 "known are bitwise, derived");
  expect_refused(run_plumbline("diff --tolerance derived 1f1b gpipe --pp 2 -m 3"), "two records");
  expect_refused(run_plumbline("diff " + one + " " + file("a.csv", "0F0,0B0\n")), "is a record");
}

TEST_F(Import, DiffOfPrograms) {
  const Outcome outcome =
      run_plumbline("diff --program \"--p2p batched\" \"--p2p separate\" --pp 4 -m 8 --pipeline-only");
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_NE(outcome.out.find("SEND_F"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("changed"), std::string::npos) << outcome.out;
  expect_refused(run_plumbline("diff 1f1b --pp 2"), "1 were given");
  expect_refused(run_plumbline("diff 1f1b gpipe zb-h1"), "3 were given");
  expect_refused(run_plumbline("diff 1f1b zb-h7 --pp 2"), "there is no file 'zb-h7'; no schedule is named");
  expect_refused(run_plumbline("diff 1f1b /no/such.csv --pp 2"), "/no/such.csv");
}

}  // namespace
}  // namespace plumbline

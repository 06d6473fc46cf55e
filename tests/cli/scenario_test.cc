// check and explain with NCCL scenarios, as a user starts them.
#include <filesystem>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/base/text.h"
#include "tests/cli/run_program.h"

namespace plumbline {
namespace {

using testing::HasSubstr;

class ScenarioCommand : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = testing::TempDir() + "plumbline_scenario_" + test->name();
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string file(const std::string& name, std::string_view text) const {
    EXPECT_TRUE(write_file(path(name), text).has_value());
    return path(name);
  }

 private:
  std::string folder_;
};

const std::string kScenarios = PLUMBLINE_TEST_DATA "/oracles/nccl/scenarios.jsonl";

constexpr const char* kSwap = R"(id = "swap"
[communicators]
C = [0, 1]
[[threads]]
rank = 0
host_ops = ["send C to 1 1KiB on S", "recv C from 1 1KiB on S"]
[[threads]]
rank = 1
host_ops = ["send C to 0 1KiB on S", "recv C from 0 1KiB on S"]
)";

TEST_F(ScenarioCommand, JsonLinesAreThoseOfTheReference) {
  const Outcome outcome = run_plumbline("check --modes all --json " + kScenarios);
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  std::istringstream ours(outcome.out), theirs(read_file(kScenarios).value());
  std::string a, b;
  int lines = 0;
  while (std::getline(theirs, b)) {
    ASSERT_TRUE(std::getline(ours, a));
    const auto found = nlohmann::json::parse(a);
    const auto expected = nlohmann::json::parse(b);
    EXPECT_EQ(found.at("id"), expected.at("id"));
    EXPECT_EQ(found.at("verdict"), expected.at("verdict"));
    EXPECT_EQ(found.size(), 2U);
    ++lines;
  }
  EXPECT_EQ(lines, 40);
  const Outcome compared = run_plumbline("check --modes all --expected " + kScenarios);
  EXPECT_EQ(compared.code, 0) << compared.err;
  EXPECT_EQ(compared.out, "40 scenarios, 320 verdicts compared, 0 differ\n");
}

TEST_F(ScenarioCommand, ADifferenceIsNamed) {
  const std::string swap = file("swap.toml", std::string(kSwap) + "[verdict]\nrendezvous = \"OK\"\n");
  const Outcome outcome = run_plumbline("check --modes rendezvous,eager_2MiB --expected " + swap);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("swap: rendezvous: OK is expected, DEADLOCK was found"));
  EXPECT_EQ(outcome.out, "1 scenarios, 1 verdicts compared, 1 differ\n");
}

TEST_F(ScenarioCommand, OneScenarioInWords) {
  const std::string swap = file("swap.toml", kSwap);
  const Outcome outcome = run_plumbline("check " + swap);
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.out, HasSubstr("certification: rendezvous+strict+cold"));
  EXPECT_EQ(run_plumbline("check --modes eager_2MiB " + swap).code, 0);
  EXPECT_EQ(run_plumbline("sim " + swap).code, 3);
  EXPECT_EQ(run_plumbline("sim --send eager:2MiB " + swap).code, 0);
}

TEST_F(ScenarioCommand, AHangComesWithAdvice) {
  const std::string swap = file("swap.toml", kSwap);
  const Outcome outcome = run_plumbline("check " + swap, "COLUMNS=400");
  EXPECT_THAT(outcome.out, HasSubstr("hangs unless sends of 1 KiB complete alone"));
  EXPECT_THAT(outcome.out, HasSubstr("A change that helps: put "));
  EXPECT_THAT(outcome.out, HasSubstr("N12: group 1 of the two ranks in communicator C is cut differently"));
  const Outcome holds = run_plumbline("check --pp 2 -m 4 --sensitivity", "COLUMNS=400");
  EXPECT_EQ(holds.code, 0);
  EXPECT_THAT(holds.out, HasSubstr("PROVED(every interleaving, buffer size, launch order and connection)"));
  EXPECT_THAT(holds.out, HasSubstr("completes with one hardware queue"));
  const auto json = nlohmann::json::parse(run_plumbline("check --pp 2 -m 4 --sensitivity --json").out);
  EXPECT_EQ(json.at("portable_safe"), true);
  EXPECT_EQ(json.at("modes").at(1).at("class"), "PROVED(every interleaving)");
  EXPECT_GT(json.at("sensitivity").size(), 5U);
}

TEST_F(ScenarioCommand, ChoosesById) {
  EXPECT_THAT(run_plumbline("sim " + kScenarios).err, HasSubstr("holds 40 scenarios; choose one with --id"));
  EXPECT_THAT(run_plumbline("check --id send_send_firs " + kScenarios).err,
              HasSubstr("did you mean 'send_send_first'?"));
  const Outcome outcome = run_plumbline("check --id send_send_grouped " + kScenarios);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("holds: send_send_grouped"));
}

TEST_F(ScenarioCommand, FormsForContinuousIntegration) {
  const std::string swap = file("swap.toml", kSwap), junit = path("junit.xml");
  const Outcome outcome = run_plumbline("check --format github --junit " + junit + " " + swap);
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.out, testing::StartsWith("::error file="));
  EXPECT_THAT(outcome.out, HasSubstr(",title=swap%3A deadlock (rendezvous)::"));
  const std::string xml = read_file(junit).value();
  EXPECT_THAT(xml, HasSubstr("<testsuites name=\"plumbline\" tests=\"3\" failures=\"2\">"));
  EXPECT_THAT(xml, HasSubstr("<failure type=\"deadlock\""));
  EXPECT_EQ(run_plumbline("check --format github --pp 2 -m 4").out, "");
  EXPECT_EQ(run_plumbline("check --format xml --pp 2 -m 4").code, 2);
  EXPECT_EQ(run_plumbline("check --junit /nonexistent/x.xml --pp 2 -m 4").code, 2);
  EXPECT_EQ(run_plumbline("check --expected --pp 2 -m 4").code, 2);
  EXPECT_EQ(run_plumbline("check --modes nonsense --pp 2 -m 4").code, 2);
}

TEST_F(ScenarioCommand, ProgramsBeyondTheProofAreSimulated) {
  const std::string text = R"(plumbline-program 1
grid pp=2
stages 1
microbatches 1
placement 0
stream compute
family X 0,1
communicator make call=init family=X
ranks 0
  comm make
ranks 1
)";
  const Outcome outcome = run_plumbline("check " + file("init.txt", text));
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("that rank 1 never posts"));
  EXPECT_EQ(run_plumbline("check " + file("init.txt", text + "  comm make\n")).code, 0);
}

TEST_F(ScenarioCommand, ModesOfAProgram) {
  const Outcome outcome = run_plumbline("check --modes all --json --pp 2 -m 4");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(nlohmann::json::parse(outcome.out).at("modes").size(), 8U);
}

TEST_F(ScenarioCommand, FaultsOfTheTextHaveTheirPlace) {
  const std::string bad =
      file("bad.jsonl", "{\"id\":\"x\",\"communicators\":{\"C\":[0,1]},\"threads\":[{\"rank\":9}]}\n");
  const Outcome outcome = run_plumbline("check " + bad);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("bad.jsonl:1: threads[0]: lacks 'host_ops'"));
}

TEST_F(ScenarioCommand, ExplainsRulesAndVerdicts) {
  EXPECT_THAT(run_plumbline("explain").out, HasSubstr("N46   Kernels of two communicators"));
  const Outcome two = run_plumbline("explain N6 n46");
  EXPECT_EQ(two.code, 0);
  EXPECT_THAT(two.out, testing::StartsWith("N6 A communicator is a queue"));
  EXPECT_THAT(two.out, HasSubstr("\nN46 "));
  EXPECT_EQ(run_plumbline("explain N999").code, 2);
  const std::string swap = file("swap.toml", kSwap);
  const Outcome outcome = run_plumbline("explain --modes rendezvous " + swap);
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.out, HasSubstr("Rules behind it: N6, N12, N20, N32, N55\n"));
  const std::string hang = file("hang.csv", "0SEND_F1,2RECV_F0\n1SEND_F0,1RECV_F1\n");
  const Outcome saved = run_plumbline("check --fragment --json " + hang);
  EXPECT_THAT(run_plumbline("explain " + file("verdict.json", saved.out)).out,
              HasSubstr("Rules behind it: N"));
  const Outcome holds = run_plumbline("explain --pp 2 -m 4");
  EXPECT_EQ(holds.code, 0);
  EXPECT_THAT(holds.out, testing::Not(HasSubstr("Rules behind it")));
}

TEST_F(ScenarioCommand, DocsAreThePage) {
  EXPECT_EQ(run_plumbline("explain --docs").out, *read_file(PLUMBLINE_TEST_DATA "/../docs/nccl-rules.md"));
}

}  // namespace
}  // namespace plumbline

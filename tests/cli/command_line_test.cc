// What every command shares: finding the command, help, flags, exit codes, colours, streams.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/run_program.h"

namespace plumbline {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(CommandLine, HelpListsCommandsAndTopics) {
  const Outcome help = run_plumbline("--help");
  EXPECT_EQ(help.code, 0);
  EXPECT_EQ(help.err, "");
  for (const char* name : {"config", "doctor", "completion", "version", "help", "run", "exit-codes"}) {
    EXPECT_THAT(help.out, HasSubstr(std::string("\n  ") + name + " "));
  }
  EXPECT_EQ(run_plumbline("help").out, help.out);
}

TEST(CommandLine, WithoutACommandTheHelpIsAnError) {
  const Outcome outcome = run_plumbline("");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("Usage: plumbline COMMAND"));
}

TEST(CommandLine, CommandHelpBeginsWithExamples) {
  for (const char* line : {"config --help", "config -h", "help config-", "doctor --help", "version --help",
                           "completion --help"}) {
    const Outcome outcome = run_plumbline(line);
    if (outcome.code != 0) continue;  // "config-" is no command, looked at below
    EXPECT_LT(outcome.out.find("Examples:"), outcome.out.find("Usage:")) << line;
    EXPECT_NE(outcome.out.find("Usage:"), std::string::npos) << line;
  }
  EXPECT_THAT(run_plumbline("help config-").err, HasSubstr("did you mean 'config'?"));
  EXPECT_EQ(run_plumbline("help doctor").out, run_plumbline("doctor --help").out);
}

TEST(CommandLine, UnknownNamesAreUsageErrorsWithTheNearest) {
  const Outcome command = run_plumbline("confg");
  EXPECT_EQ(command.code, 2);
  EXPECT_EQ(command.err, "error: unknown command 'confg' — did you mean 'config'?\n");
  const Outcome flag = run_plumbline("version --jsno");
  EXPECT_EQ(flag.code, 2);
  EXPECT_THAT(flag.err, StartsWith("error: unknown flag --jsno — did you mean '--json'?"));
  EXPECT_EQ(run_plumbline("version extra").code, 2);
  EXPECT_EQ(run_plumbline("--nonsense version").code, 2);
  EXPECT_EQ(run_plumbline("completion powershell").code, 2);
  EXPECT_EQ(run_plumbline("completion").code, 2);
  EXPECT_EQ(run_plumbline("help nothing-like-it").code, 2);
}

TEST(CommandLine, VersionHasThreeForms) {
  const Outcome flag = run_plumbline("--version");
  EXPECT_EQ(flag.code, 0);
  EXPECT_THAT(flag.out, StartsWith("plumbline "));
  EXPECT_THAT(run_plumbline("version").out, HasSubstr("compiler"));
  const nlohmann::json document = nlohmann::json::parse(run_plumbline("version --json").out);
  EXPECT_EQ(document["plumbline"], 1);
  EXPECT_EQ(document["executable"], "plumbline");
  EXPECT_FALSE(document["version"].get<std::string>().empty());
}

TEST(CommandLine, ColourFollowsTheRules) {
  const std::string escape = "\x1b[";
  const std::string bad = "config --nonsense-flag";
  EXPECT_THAT(run_plumbline(bad).err, Not(HasSubstr(escape))) << "no terminal";
  EXPECT_THAT(run_plumbline(bad, "CLICOLOR_FORCE=1").err, HasSubstr(escape));
  EXPECT_THAT(run_plumbline(bad, "CLICOLOR_FORCE=0").err, Not(HasSubstr(escape)));
  EXPECT_THAT(run_plumbline(bad, "CLICOLOR_FORCE=1 NO_COLOR=1").err, Not(HasSubstr(escape)));
  EXPECT_THAT(run_plumbline(bad, "NO_COLOR= CLICOLOR_FORCE=1").err, HasSubstr(escape))
      << "an empty NO_COLOR counts as unset";
  EXPECT_THAT(run_plumbline(bad + " --color=always", "NO_COLOR=1").err, HasSubstr(escape));
  EXPECT_THAT(run_plumbline("--color always " + bad, "TERM=dumb").err, HasSubstr(escape));
  EXPECT_THAT(run_plumbline(bad + " --color never", "CLICOLOR_FORCE=1").err, Not(HasSubstr(escape)));
  EXPECT_EQ(run_plumbline("version --color=sometimes").code, 2);
}

TEST(CommandLine, UnderscoresAndDashesAreTheSame) {
  EXPECT_EQ(run_plumbline("config --num_layers 8").out, run_plumbline("config --num-layers 8").out);
}

TEST(CommandLine, AFullDiskIsAnError) {
  const Outcome outcome = run_plumbline("config > /dev/full");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("standard output"));
}

TEST(CommandLine, TheExitCodePageIsGenerated) {
  // Renew it with: plumbline help exit-codes > docs/exit-codes.md
  const Result<std::string> page = read_file(PLUMBLINE_TEST_DATA "/../docs/exit-codes.md");
  ASSERT_TRUE(page);
  EXPECT_EQ(run_plumbline("help exit-codes").out, *page);
  for (const char* row : {"| 0 | ", "| 1 | ", "| 2 | ", "| 3 | ", "| 4 | ", "| 5 | ", "| 6 | ", "| 75 | ",
                          "| 101 | ", "| 124 | "}) {
    EXPECT_THAT(*page, HasSubstr(row));
  }
}

TEST(CommandLine, HelpFitsEightyColumns) {
  for (const char* line : {"--help", "config --help", "doctor --help"}) {
    const std::string text = run_plumbline(line).out;
    for (const std::string_view row : split(text, '\n')) EXPECT_LE(row.size(), 80u) << line << ": " << row;
  }
}

TEST(CommandLine, AMissingEngineIsExitCode75) {
  const Outcome outcome = run_plumbline("run --pp 4", "PLUMBLINE_ENGINE=/nonexistent/engine");
  EXPECT_EQ(outcome.code, 75);
  EXPECT_THAT(outcome.err, HasSubstr("--target plumbline-engine"));
}

TEST(CommandLine, TheEngineGetsTheWholeCommandLineAndItsExitCodeIsKept) {
  const std::string engine = testing::TempDir() + "plumbline_fake_engine";
  ASSERT_TRUE(write_file(engine, "#!/bin/sh\nprintf '[%s]' \"$@\"\nexit 5\n"));
  ASSERT_EQ(std::system(("chmod +x " + engine).c_str()), 0);
  const std::string variable = "PLUMBLINE_ENGINE=" + engine;
  const Outcome outcome = run_plumbline("--color never run cfg.toml --num_layers=4 'a b' --help", variable);
  EXPECT_EQ(outcome.code, 5);
  EXPECT_EQ(outcome.out, "[--color][never][run][cfg.toml][--num_layers=4][a b][--help]");
  EXPECT_EQ(run_plumbline("help run", variable).out, "[run][--help]");
  std::remove(engine.c_str());
}

TEST(CommandLine, CompletionScriptsKnowCommandsFlagsAndValues) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const Outcome script = run_plumbline(std::string("completion ") + shell);
    EXPECT_EQ(script.code, 0);
    for (const char* word :
         {"doctor", "explain", "num-virtual-stages-per-pipeline-rank", "interleaved-2022", "exit-codes"}) {
      EXPECT_THAT(script.out, HasSubstr(word)) << shell;
    }
  }
}

// The script is loaded into a real bash and asked as readline would ask it.
TEST(CommandLine, BashCompletes) {
  const auto complete = [](const std::string& words, int at) {
    const std::string script = "eval \"$('" PLUMBLINE_EXECUTABLE "' completion bash)\"; COMP_WORDS=(" +
                               words + "); COMP_CWORD=" + std::to_string(at) +
                               "; _plumbline; echo \"${COMPREPLY[@]}\"";
    return run_program(
               "/bin/bash", "--norc -c '" +
                                [&] {
                                  std::string quoted;
                                  for (const char c : script)
                                    quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
                                  return quoted;
                                }() +
                                "'")
        .out;
  };
  EXPECT_EQ(complete("plumbline doc", 1), "doctor\n");
  EXPECT_EQ(complete("plumbline config --expl", 2), "--explain\n");
  EXPECT_EQ(complete("plumbline config --schedule inter", 3), "interleaved interleaved-2022\n");
  EXPECT_EQ(complete("plumbline help exit", 2), "exit-codes\n");
}

TEST(CommandLine, DoctorNamesEverythingAndCanInsist) {
  const Outcome text = run_plumbline("doctor");
  EXPECT_EQ(text.code, 0);
  const Outcome json = run_plumbline("doctor --json", "NCCL_DEBUG=INFO");
  ASSERT_EQ(json.code, 0);
  const nlohmann::json document = nlohmann::json::parse(json.out);
  EXPECT_EQ(document["plumbline"], 1);
  for (const char* name : {"version", "compiler", "engine", "libtorch", "graphviz dot", "cuda driver",
                           "cuda runtime", "nccl", "gpus", "cores"}) {
    EXPECT_TRUE(document["found"].contains(name)) << name;
    EXPECT_THAT(text.out, HasSubstr(name));
  }
  const auto& environment = document["environment"];
  EXPECT_NE(std::find(environment.begin(), environment.end(), "NCCL_DEBUG=INFO"), environment.end());
  EXPECT_EQ(run_plumbline("doctor --require engine", "PLUMBLINE_ENGINE=/nonexistent/engine").code, 75);
  EXPECT_EQ(run_plumbline("doctor --require version,cores").code, 0);
  EXPECT_EQ(run_plumbline("doctor --require ncl").code, 2);
}

TEST(CommandLine, DoctorAsksTheEngineForLibTorch) {
  const std::string engine = testing::TempDir() + "plumbline_talking_engine";
  ASSERT_TRUE(
      write_file(engine,
                 "#!/bin/sh\n[ \"$*\" = 'version --json' ] || exit 1\n"
                 "echo '{\"plumbline\":1,\"version\":\"9.8\",\"revision\":\"abc\",\"libtorch\":\"7.6\"}'\n"));
  ASSERT_EQ(std::system(("chmod +x " + engine).c_str()), 0);
  const Outcome outcome = run_plumbline("doctor --json", "PLUMBLINE_ENGINE=" + engine);
  const nlohmann::json found = nlohmann::json::parse(outcome.out)["found"];
  EXPECT_EQ(found["libtorch"]["detail"], "7.6");
  EXPECT_THAT(found["engine"]["detail"].get<std::string>(), StartsWith("9.8+abc at "));
  std::remove(engine.c_str());
}

}  // namespace
}  // namespace plumbline

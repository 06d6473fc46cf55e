#include "engine/config/flags.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace plumbline {
namespace {

using Words = std::vector<std::string>;

// name=text of each assignment.
Words read(const Words& arguments) {
  const Result<ParsedFlags> parsed = parse_flags(arguments);
  EXPECT_TRUE(parsed) << parsed.error().text();
  Words out;
  if (parsed) {
    for (const Assignment& one : parsed->assignments) out.push_back(one.option->name() + "=" + one.text);
  }
  return out;
}

std::string refusal(const Words& arguments) {
  const Result<ParsedFlags> parsed = parse_flags(arguments);
  EXPECT_FALSE(parsed);
  return parsed ? std::string() : parsed.error().text();
}

TEST(Flags, ValuesFollowOrAreAttached) {
  EXPECT_EQ(read({"--pp", "4", "--vp=2", "-m", "8"}),
            (Words{"parallel.pp=4", "schedule.chunks=2", "schedule.microbatches=8"}));
  EXPECT_EQ(read({"--lr", "-1"}), Words{"optimizer.lr=-1"});
  EXPECT_EQ(read({"--data="}), Words{"train.data="});
  EXPECT_EQ(read({"--slow=rank=3:1.2"}), Words{"time.slow=rank=3:1.2"});
}

TEST(Flags, SwitchesTakeNoValue) {
  EXPECT_EQ(read({"--launch-blocking", "--fp16"}),
            (Words{"sim.launch_blocking=true", "train.precision=fp16"}));
  EXPECT_EQ(read({"--no-launch-blocking", "--no_deallocate_pipeline_outputs"}),
            (Words{"sim.launch_blocking=false", "schedule.deallocate_outputs=false"}));
  EXPECT_EQ(read({"--launch-blocking=false"}), Words{"sim.launch_blocking=false"});
  EXPECT_EQ(read({"--use_tp_pp_dp_mapping"}), Words{"parallel.order=tp-cp-ep-pp-dp"});
  EXPECT_EQ(refusal({"--fp16=1"}), "--fp16 takes no value — write --fp16 alone");
  EXPECT_EQ(refusal({"--no-launch-blocking=1"}),
            "--no-launch-blocking takes no value — write --no-launch-blocking alone");
  EXPECT_EQ(refusal({"--no-pp"}).find("unknown flag --no-pp"), 0u);
}

TEST(Flags, SetNamesAnOption) {
  EXPECT_EQ(read({"--set", "schedule.group_size=4", "--set=train.data=a=b.c"}),
            (Words{"schedule.group_size=4", "train.data=a=b.c"}));
  EXPECT_EQ(refusal({"--set", "pp=4"}), "--set 'pp=4' is not of the form section.key=value");
  EXPECT_EQ(refusal({"--set", "pp"}), "--set 'pp' is not of the form section.key=value");
  EXPECT_EQ(refusal({"--set", "parallel.pq=4"}),
            "--set: unknown option parallel.pq — did you mean 'parallel.pp'?");
}

TEST(Flags, OnlyListsAppend) {
  const Result<ParsedFlags> parsed =
      parse_flags({"--slow", "rank=1:2", "--set", "time.slow=rank=1:2", "--pp", "2"});
  ASSERT_TRUE(parsed);
  EXPECT_TRUE(parsed->assignments[0].append);
  EXPECT_FALSE(parsed->assignments[1].append);
  EXPECT_FALSE(parsed->assignments[2].append);
}

// Megatron's --rampup-batch-size takes three words; what is no number after it is a word as always.
TEST(Flags, ARampTakesUpToThreeNumbers) {
  const Result<ParsedFlags> parsed =
      parse_flags({"--rampup-batch-size", "16", "8", "300000", "42", "--rampup-batch-size=1,2,3", "7"});
  ASSERT_TRUE(parsed);
  ASSERT_EQ(parsed->assignments.size(), 2u);
  EXPECT_EQ(parsed->assignments[0].text, "16,8,300000");
  EXPECT_EQ(parsed->assignments[1].text, "1,2,3");
  EXPECT_EQ(parsed->words, (Words{"42", "7"}));
  const Result<ParsedFlags> file = parse_flags({"--rampup-batch-size", "16,8,300000", "cfg.toml"});
  ASSERT_TRUE(file);
  EXPECT_EQ(file->words, (Words{"cfg.toml"}));
}

TEST(Flags, WordsAndTheFileStayApart) {
  const Result<ParsedFlags> parsed =
      parse_flags({"a.toml", "--config", "b.toml", "--pp", "2", "-", "--", "--pp", "x"});
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->words, (Words{"a.toml", "-", "--pp", "x"}));
  EXPECT_EQ(parsed->file, "b.toml");
  EXPECT_FALSE(parse_flags({"--config", "a", "--config", "b"}));
}

TEST(Flags, AMissingValueIsNamed) {
  EXPECT_EQ(refusal({"--pp"}).find("--pp needs ranks of a pipeline"), 0u);
  EXPECT_EQ(refusal({"--pp", "--vp"}).find("--pp needs "), 0u);
  EXPECT_EQ(refusal({"--set"}).find("--set needs section.key=value"), 0u);
}

TEST(Flags, UnknownOnesAreRefusedWithTheNearest) {
  EXPECT_EQ(refusal({"--microbatchs", "4"}), "unknown flag --microbatchs — did you mean '--microbatches'?");
  EXPECT_EQ(refusal({"--pipeline_model_parallel_sise=4"}),
            "unknown flag --pipeline_model_parallel_sise — did you mean '--pipeline-model-parallel-size'?");
}

RC_GTEST_PROP(Flags, NoArgumentsCrash, ()) {
  const auto argument =
      rc::gen::oneOf(rc::gen::arbitrary<std::string>(),
                     rc::gen::element<std::string>("--pp", "--set", "--fp16", "--config", "--", "-", "--slow",
                                                   "--no-launch-blocking", "--=", "=", "--set=", "--no-"));
  const auto parsed = parse_flags(*rc::gen::container<Words>(argument));
  if (!parsed) RC_ASSERT(!parsed.error().message.empty());
}

}  // namespace
}  // namespace plumbline

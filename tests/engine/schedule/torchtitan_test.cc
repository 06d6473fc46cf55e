#include "engine/schedule/torchtitan.h"

#include <gtest/gtest.h>

#include "engine/schedule/csv.h"
#include "tests/engine/schedule/reference.h"
#include "tests/support/oracle.h"

namespace plumbline {
namespace {

TEST(Torchtitan, SettingsFromToml) {
  const Result<TorchtitanSettings> read = parse_torchtitan(
      "[model]\nname = \"llama3\"\n[training]\nlocal_batch_size = 8\n[parallelism]\npipeline_parallel_degree "
      "= 4\n"
      "pipeline_parallel_schedule = \"Interleaved1F1B\"\npipeline_parallel_microbatch_size = 2\n",
      "t.toml");
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(read->microbatches(), 4);
  const TorchRows rows = torchtitan_rows(*read, 0).value();
  EXPECT_EQ(rows.schedule.stages, 8);  // two stages a rank
  EXPECT_EQ(test::findings_text(validate_schedule(rows.schedule)), "");
  EXPECT_EQ(rows.schedule.actions, test::generate("torch-interleaved", {4, 2, 4}).value().actions);
}

TEST(Torchtitan, SettingsFromFlags) {
  const TorchtitanSettings read =
      parse_torchtitan_flags({"--parallelism.pipeline_parallel_degree=2",
                              "--parallelism.pipeline_parallel_schedule", "ZBVZeroBubble",
                              "--training.local-batch-size", "6", "--other", "x"})
          .value();
  EXPECT_EQ(read.degree, 2);
  EXPECT_EQ(read.microbatches(), 6);
  EXPECT_EQ(torchtitan_rows(read, 0).value().schedule.rank_of_stage, wave_placement(4, 2));
}

TEST(Torchtitan, StagesFromLayers) {
  TorchtitanSettings settings;
  settings.schedule = "Interleaved1F1B";
  settings.degree = 4;
  settings.local_batch_size = 8;
  settings.layers_per_stage = 2;
  EXPECT_EQ(torchtitan_rows(settings, 14).value().schedule.stages, 8);  // 14 + 1 + 1
  EXPECT_NE(torchtitan_rows(settings, 0).error().message.find("--layers"), std::string::npos);
  EXPECT_NE(torchtitan_rows(settings, 15).error().message.find("9 stages on 4 ranks"), std::string::npos);
}

TEST(Torchtitan, AFileMayLieOtherwiseThanTheNamedSchedule) {
  const Schedule file =
      parse_schedule_csv(test::read_data("oracles/torch_pipelining/artifacts/torchtitan_custom_schedule.csv"),
                         "c.csv")
          .value();
  TorchtitanSettings settings;
  settings.schedule = "PipelineScheduleMulti";
  settings.degree = 2;
  EXPECT_EQ(torchtitan_misplacement(settings, file), "");
  settings.schedule = "ZBVZeroBubble";
  EXPECT_NE(
      torchtitan_misplacement(settings, file).find("stage 2 on rank 1, but the file computes it on rank 0"),
      std::string::npos);
}

TEST(Torchtitan, Refusals) {
  const auto error = [](const char* text) { return parse_torchtitan(text, "t.toml").error().text(); };
  EXPECT_NE(error("[parallelism]\npipeline_parallel_degree = \"4\"\n").find("t.toml:2:28: "),
            std::string::npos);
  EXPECT_NE(error("[parallelism]\npipeline_parallel_degree = 0\n").find("at least 1"), std::string::npos);
  EXPECT_NE(error("[parallelism]\npipeline_parallel_schedule = 1\n").find("no string"), std::string::npos);
  EXPECT_NE(error("[training]\nlocal_batch_size = 5\n[parallelism]\npipeline_parallel_microbatch_size = 2\n")
                .find("no multiple"),
            std::string::npos);
  EXPECT_NE(error("[parallelism\n").find("t.toml:1"), std::string::npos);
  EXPECT_FALSE(parse_torchtitan_flags({"--parallelism.pipeline_parallel_degree"}));
  EXPECT_FALSE(parse_torchtitan_flags({"--parallelism.pipeline_parallel_degree", "x"}));
}

}  // namespace
}  // namespace plumbline

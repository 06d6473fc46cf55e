// Launch scripts and layout strings of Megatron as configurations.
#include "engine/config/megatron_args.h"

#include <gtest/gtest.h>

#include "engine/config/loader.h"
#include "engine/config/pipeline_layout.h"
#include "engine/config/validate.h"

namespace plumbline {
namespace {

constexpr std::string_view kScript = R"(#!/bin/bash
# Llama-like, 64 GPUs
NNODES=${NNODES:-8}
GPUS_PER_NODE=8
PP=4; VPP_LAYERS=2
DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes "$NNODES"   # of the cluster
    --master_addr $MASTER_ADDR
)
MODEL_ARGS="
    --num-layers 32 \
    --hidden-size 4096 --num-attention-heads 32
    --seq-length 4096
"
TRAIN_ARGS=(--micro-batch-size 1 --global-batch-size=256 --bf16 --lr 3e-4)
TRAIN_ARGS+=(--use-distributed-optimizer --tokenizer-type GPTSentencePiece)
torchrun "${DISTRIBUTED_ARGS[@]}" pretrain_gpt.py ${MODEL_ARGS} "${TRAIN_ARGS[@]}" \
    --tensor-model-parallel-size 2 --pipeline-model-parallel-size ${PP} \
    --num-layers-per-virtual-pipeline-stage $VPP_LAYERS 2>&1 | tee log.txt
)";

Result<MegatronImport> import_text(std::string_view text) {
  const Result<LaunchScript> script = read_launch_script(text, "run.sh");
  if (!script) return tl::unexpected(script.error());
  return import_megatron(*script, "run.sh");
}

TEST(MegatronArgs, ScriptBecomesAConfiguration) {
  const Result<MegatronImport> import = import_text(kScript);
  ASSERT_TRUE(import) << import.error().text();
  EXPECT_EQ(import->config.parallel.pp, 4);
  EXPECT_EQ(import->config.parallel.dp, 8);  // 64 / (tp 2 x pp 4)
  EXPECT_EQ(import->tp, 2);
  EXPECT_EQ(import->config.schedule.chunks, 4);  // 32 layers / (4 ranks x 2)
  EXPECT_EQ(import->config.schedule.kind, ScheduleKind::kInterleaved);
  EXPECT_EQ(import->config.schedule.p2p, P2pStyle::kSeparate);
  EXPECT_EQ(import->config.schedule.global_batch_size, 256);
  EXPECT_EQ(import->config.train.precision, Precision::kBf16);
  EXPECT_TRUE(import->config.optimizer.distributed);
  EXPECT_NE(std::find(import->ignored.begin(), import->ignored.end(), "--tokenizer-type"),
            import->ignored.end());
  EXPECT_NE(std::find(import->ignored.begin(), import->ignored.end(), "--master_addr"),
            import->ignored.end());

  // What is printed loads to the same, and holds as a configuration.
  const std::string toml = megatron_import_toml(*import);
  LoadRequest request;
  request.arguments = {"-"};
  request.text = toml;
  const Result<LoadedConfig> loaded = load_config(request);
  ASSERT_TRUE(loaded) << loaded.error().text() << toml;
  for (const Option& option : options())
    EXPECT_EQ(option.get(loaded->config), option.get(import->config)) << option.name();
  const Validation valid = validate_all(loaded->config, loaded->origins, Purpose::kCheck);
  EXPECT_TRUE(valid.ok()) << (valid.ok() ? "" : valid.errors.front().text());
  EXPECT_EQ(valid.config.schedule.microbatches, 32);
}

TEST(MegatronArgs, WordsOfACommandLine) {
  const LaunchScript script =
      read_launch_words({"--pipeline-model-parallel-size", "2", "--num-layers=8", "--fp16", "--no-such-flag"})
          .value();
  const MegatronImport import = import_megatron(script, "").value();
  EXPECT_EQ(import.config.parallel.pp, 2);
  EXPECT_EQ(import.config.model.layers, 8);
  EXPECT_EQ(import.config.train.precision, Precision::kFp16);
  EXPECT_EQ(import.ignored, (std::vector<std::string>{"--no-such-flag"}));
  EXPECT_EQ(import.config.schedule.kind, ScheduleKind::kOneFOneB);
}

TEST(MegatronArgs, LayoutGivesChunksLayersAndTimes) {
  const Result<MegatronImport> import = import_text(
      "x.py --pipeline-model-parallel-size 16 --pipeline-model-parallel-layout 'Et*3|(tt|)*29,m|L'\n");
  ASSERT_TRUE(import) << import.error().text();
  EXPECT_EQ(import->config.model.layers, 61);
  EXPECT_EQ(import->config.schedule.chunks, 2);
  ASSERT_EQ(import->config.time.forward.size(), 32U);
  EXPECT_EQ(import->config.time.forward[0], 3'000'000);
  EXPECT_EQ(import->config.time.forward[30], 1'000'000);
  EXPECT_EQ(import->config.time.backward[1], 4'000'000);
}

void refused(std::string_view text, const std::string& place, const std::string& word) {
  const Result<MegatronImport> import = import_text(text);
  ASSERT_FALSE(import) << text;
  EXPECT_EQ(import.error().where.text(), place) << import.error().text();
  EXPECT_NE(import.error().message.find(word), std::string::npos) << import.error().text();
}

TEST(MegatronArgs, ErrorsNameTheLine) {
  refused("echo hello\n", "run.sh", "no flag");
  refused("A=\"--num-layers 4\n", "run.sh:1", "not closed");
  refused("\nARGS=(--num-layers 4\n", "run.sh:2", "not closed");
  refused("a\nb --num-layers many\n", "run.sh:2", "--num-layers");
  refused("b --num-layers\n", "run.sh:1", "missing");
  refused("--nproc_per_node 8 --nnodes 1 --pipeline-model-parallel-size 3\n", "run.sh:1", "no multiple");
  refused("--pipeline-model-parallel-size 4 --num-layers 10 --num-layers-per-virtual-pipeline-stage 2\n",
          "run.sh:1", "no multiple");
  refused(
      "--num-layers 3 --pipeline-model-parallel-size 2 \\\n --pipeline-model-parallel-layout \"Ett|tttL\"\n",
      "run.sh:2", "--num-layers 3");
  refused("--tensor-model-parallel-size x\n", "run.sh:1", "positive");
}

TEST(PipelineLayout, ReadsWhatMegatronReads) {
  const std::vector<StageLayers> deepseek = parse_pipeline_layout("Et*3|(tt|)*29,m|L", 16).value();
  ASSERT_EQ(deepseek.size(), 32U);
  EXPECT_EQ(deepseek[0], (StageLayers{3, 0, true, false}));
  EXPECT_EQ(deepseek[29], (StageLayers{2, 0, false, false}));
  EXPECT_EQ(deepseek[30], (StageLayers{0, 1, false, false}));
  EXPECT_EQ(deepseek[31], (StageLayers{0, 0, false, true}));
  EXPECT_EQ(layers_of(deepseek), 61);
  EXPECT_EQ(parse_pipeline_layout("E||t|L", 2).value()[1], StageLayers{});
  EXPECT_EQ(parse_pipeline_layout("E|(t|)*3,m|m||L", 4).value().size(), 8U);
  EXPECT_EQ(parse_pipeline_layout("E(t*2|)*2L", 3).value()[1].layers, 2);
  EXPECT_EQ(parse_pipeline_layout("EttL", 1).value(), (std::vector<StageLayers>{{2, 0, true, true}}));
  EXPECT_EQ(parse_pipeline_layout("E|*2L", 3).value().size(), 3U);
}

TEST(PipelineLayout, ErrorsNameTheColumn) {
  const auto message = [](const char* text, int ranks) {
    return parse_pipeline_layout(text, ranks).error().message;
  };
  EXPECT_NE(message("Etx|L", 2).find("column 3: 'x'"), std::string::npos);
  EXPECT_NE(message("E(tt|L", 2).find("column 2: this parenthesis"), std::string::npos);
  EXPECT_NE(message("E(tt|)L", 2).find("column 2: a part in parentheses needs a count"), std::string::npos);
  EXPECT_NE(message("E((t)*2)*2L", 2).find("do not nest"), std::string::npos);
  EXPECT_NE(message("Et*|L", 2).find("column 4: a '*' is followed"), std::string::npos);
  EXPECT_NE(message("Et*2*2|L", 2).find("cannot be repeated"), std::string::npos);
  EXPECT_NE(message("Et*99999999|L", 2).find("more than 1000000"), std::string::npos);
  EXPECT_NE(message("E(t*900000)*900000|L", 2).find("more than 1000000"), std::string::npos);
  EXPECT_NE(message("Et|t|L", 2).find("3 stages on 2 ranks"), std::string::npos);
  EXPECT_NE(message("t|EL", 2).find("embedding"), std::string::npos);
  EXPECT_NE(message("EL|t", 2).find("loss"), std::string::npos);
  EXPECT_NE(message("", 2).find("1 stages"), std::string::npos);
}

}  // namespace
}  // namespace plumbline

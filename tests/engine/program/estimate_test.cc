// Estimates: the same numbers as the Program's slots and as the checker, and Megatron's own formulas.
#include "engine/program/estimate.h"

#include <gtest/gtest.h>

#include "engine/config/megatron_args.h"
#include "engine/config/validate.h"
#include "engine/program/lower.h"
#include "engine/schedule/evaluate.h"
#include "engine/schedule/generator.h"
#include "tests/engine/program/config.h"

namespace plumbline {
namespace {

struct Made {
  RunConfig config;
  ModelShape shape;
};

Made made(const std::vector<std::string>& flags) {
  const LaunchScript script = read_launch_words(flags).value();
  const Result<MegatronImport> import = import_megatron(script, "");
  EXPECT_TRUE(import) << import.error().text();
  const Validation valid = validate_all(import->config, {}, Purpose::kCheck);
  EXPECT_TRUE(valid.ok()) << valid.errors.front().text();
  const Result<ModelShape> shape = model_shape(script, *import, "");
  EXPECT_TRUE(shape) << shape.error().text();
  return Made{valid.config, *shape};
}

const std::vector<std::string> kGpt3 = {"--num-layers",
                                        "96",
                                        "--hidden-size",
                                        "12288",
                                        "--num-attention-heads",
                                        "96",
                                        "--seq-length",
                                        "2048",
                                        "--vocab-size",
                                        "51200",
                                        "--micro-batch-size",
                                        "1",
                                        "--tensor-model-parallel-size",
                                        "8",
                                        "--pipeline-model-parallel-size",
                                        "16",
                                        "--bf16",
                                        "--transformer-impl",
                                        "local"};

std::vector<std::string> with(std::vector<std::string> flags, const std::vector<std::string>& more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

// Korthikanti et al. 2022, equations 1 to 4, for GPT-3: s b h (10 + 24/t + 5as/ht) and s b h / t (34 + 5as/h).
TEST(Estimate, LayerActivationsAreThePapers) {
  const double s = 2048, b = 1, h = 12288, a = 96, t = 8;
  ModelShape shape = made(with(kGpt3, {"--global-batch-size", "16"})).shape;
  EXPECT_EQ(layer_activation(shape), static_cast<Bytes>(s * b * h * (10 + 24 / t + 5 * a * s / (h * t))));
  shape.sequence_parallel = true;
  EXPECT_EQ(layer_activation(shape), static_cast<Bytes>(s * b * h / t * (34 + 5 * a * s / h)));
  shape.recompute = Recompute::kSelective;
  EXPECT_EQ(layer_activation(shape), static_cast<Bytes>(s * b * h / t * 34));
  shape.tp = 1;
  shape.recompute = Recompute::kNone;
  EXPECT_EQ(layer_activation(shape), static_cast<Bytes>(s * b * h * (34 + 5 * a * s / h)));
  shape.recompute = Recompute::kFull;
  shape.ends = false;
  EXPECT_EQ(stage_stash(shape, 3),
            6 * static_cast<Bytes>(2 * s * b * h));  // 6 layers of a stage, their inputs
  shape.recompute_layers = 4;
  EXPECT_EQ(stage_stash(shape, 3), 2 * static_cast<Bytes>(2 * s * b * h));
  EXPECT_EQ(recompute_buffer(shape, 3), 4 * layer_activation(shape));
  shape.method = RecomputeMethod::kBlock;
  EXPECT_EQ(stage_stash(shape, 3), 4 * static_cast<Bytes>(2 * s * b * h) + 2 * layer_activation(shape));
  EXPECT_EQ(recomputed_share(shape, 3), 4.0 / 6.0);
}

// 12 h^2 L (1 + 13/12h + (V + s)/12hL) parameters: 175 billion.
TEST(Estimate, ParametersOfGpt3) {
  const ModelShape shape = made(with(kGpt3, {"--global-batch-size", "16"})).shape;
  const std::int64_t h = 12288, layers = 96;
  EXPECT_EQ(parameters_of(shape), layers * (12 * h * h + 13 * h) + 51200 * h + 2048 * h + 2 * h);
  EXPECT_NEAR(static_cast<double>(parameters_of(shape)) / 1e9, 174.6, 0.1);
}

// Llama-2 70B: grouped queries, SwiGLU, RMSNorm, no biases, untied.
TEST(Estimate, ParametersOfLlama70B) {
  const ModelShape shape = made({"--num-layers",
                                 "80",
                                 "--hidden-size",
                                 "8192",
                                 "--ffn-hidden-size",
                                 "28672",
                                 "--num-attention-heads",
                                 "64",
                                 "--group-query-attention",
                                 "--num-query-groups",
                                 "8",
                                 "--seq-length",
                                 "4096",
                                 "--vocab-size",
                                 "32000",
                                 "--make-vocab-size-divisible-by",
                                 "1",
                                 "--swiglu",
                                 "--disable-bias-linear",
                                 "--normalization",
                                 "RMSNorm",
                                 "--untie-embeddings-and-output-weights",
                                 "--position-embedding-type",
                                 "rope",
                                 "--bf16",
                                 "--pipeline-model-parallel-size",
                                 "4",
                                 "--global-batch-size",
                                 "8"})
                               .shape;
  EXPECT_EQ(parameters_of(shape), 68976648192);  // as published with the model
}

// Bytes a parameter: 18 without, 6 + 12/d with the distributed optimizer (Megatron-LM README).
TEST(Estimate, BytesAParameter) {
  const std::vector<std::string> flags =
      with(kGpt3, {"--global-batch-size", "128", "--data-parallel-size", "4"});
  const Made plain = made(flags);
  const MemoryEstimate whole = estimate_memory(plain.config, plain.shape).value();
  const auto of = [](const MemoryEstimate& estimate, MemoryClass kind) {
    return static_cast<double>(estimate.ranks[3].of(kind));
  };
  const auto elements = [](const ModelShape& shape) {
    double all = 0;
    for (const ParamSize& tensor : stage_tensors(shape, 3)) all += static_cast<double>(tensor.numel);
    return all;
  };
  const double n = elements(plain.shape);
  EXPECT_EQ(of(whole, MemoryClass::kWeights), 2 * n);
  EXPECT_EQ(of(whole, MemoryClass::kGradients), 4 * n);
  EXPECT_EQ(of(whole, MemoryClass::kOptimizer), 12 * n);
  const Made split = made(with(flags, {"--use-distributed-optimizer"}));
  const MemoryEstimate sharded = estimate_memory(split.config, split.shape).value();
  EXPECT_NEAR(of(sharded, MemoryClass::kOptimizer), 12 * n / 4, 12 * n / 4 * 1e-3);  // padding
  EXPECT_NEAR(of(sharded, MemoryClass::kWeights), 2 * n, 2 * n * 1e-3);
}

// The activations at the peak are those of the microbatches that 1F1B and interleaved hold.
TEST(Estimate, ActivationsFollowTheSchedule) {
  const Made plain = made(with(kGpt3, {"--global-batch-size", "64"}));
  const MemoryEstimate estimate = estimate_memory(plain.config, plain.shape).value();
  for (int rank = 0; rank < 16; ++rank) {
    EXPECT_EQ(estimate.ranks[static_cast<std::size_t>(rank)].of(MemoryClass::kActivations),
              (16 - rank) * stage_stash(plain.shape, rank));
  }
  EXPECT_EQ(estimate.largest, 0);
  EXPECT_EQ(estimate.ranks[0].peak_text,
            "0RECV_B0 from rank 1");  // sixteen stashes, and the first gradient arrives
  const Made chunks =
      made(with(kGpt3, {"--global-batch-size", "64", "--num-layers-per-virtual-pipeline-stage", "3"}));
  const MemoryEstimate interleaved = estimate_memory(chunks.config, chunks.shape).value();
  // pv + p - 1 chunks of three layers on rank 0, chunk 0 with the embedding.
  ModelShape bare = chunks.shape;
  bare.ends = false;
  const Bytes layers = (2 * 16 + 15) * stage_stash(bare, 1);
  EXPECT_GT(interleaved.ranks[0].of(MemoryClass::kActivations), layers);
  EXPECT_LT(interleaved.ranks[0].of(MemoryClass::kActivations),
            layers + 47 * (stage_stash(chunks.shape, 0) - stage_stash(bare, 0)) + 1);
}

// Every generator that has a Program: slots in host order and the evaluator's order agree on what is held.
TEST(Estimate, SlotsAreTheSchedulesPeaks) {
  int compared = 0;
  for (const Generator& generator : generators()) {
    for (const int chunks : {1, 2}) {
      RunConfig config;
      config.parallel.pp = 4;
      config.schedule.generator = generator.name;
      config.schedule.chunks = chunks;
      config.schedule.microbatches = 8;
      config.model.layers = 16;
      const Validation valid = validate_all(config, {}, Purpose::kCheck);
      if (!valid.ok()) continue;
      const Result<Schedule> schedule = schedule_of(valid.config);
      if (!schedule || schedule->forward_only) continue;
      const ModelSizes sizes = default_sizes(valid.config);
      const Result<Program> program = lower(valid.config, *schedule, sizes, {StepTail::kSchedule});
      if (!program) continue;  // bidirectional
      const std::vector<std::int64_t> peaks = peak_held(*schedule, ActivationModel{sizes.stash, {0}, {}});
      const std::vector<RankBytes> slots = slot_memory(*program);
      for (std::size_t rank = 0; rank < slots.size(); ++rank)
        EXPECT_LE(slots[rank].of(MemoryClass::kActivations), peaks[rank]) << generator.name;
      // The slots' peak counts what lies between stages too, and is at least the stashes' peak.
      for (std::size_t rank = 0; rank < slots.size(); ++rank)
        EXPECT_GE(slots[rank].peak, peaks[rank]) << generator.name;
      ++compared;
    }
  }
  EXPECT_GT(compared, 25);
}

void refused(const std::vector<std::string>& flags, const std::string& word) {
  const LaunchScript script = read_launch_words(flags).value();
  const Result<MegatronImport> import = import_megatron(script, "");
  ASSERT_TRUE(import) << import.error().text();
  const Result<ModelShape> shape = model_shape(script, *import, "");
  ASSERT_FALSE(shape) << word;
  EXPECT_NE(shape.error().message.find(word), std::string::npos) << shape.error().text();
}

// DeepSeek-V3: latent attention, 3 dense layers and 58 of 256 experts and a shared one, tied nowhere. As published,
// less the 58 x 256 biases of the router, which are no parameters.
const std::vector<std::string> kDeepSeek = {"--num-layers",
                                            "61",
                                            "--hidden-size",
                                            "7168",
                                            "--ffn-hidden-size",
                                            "18432",
                                            "--num-attention-heads",
                                            "128",
                                            "--seq-length",
                                            "4096",
                                            "--vocab-size",
                                            "129280",
                                            "--multi-latent-attention",
                                            "--q-lora-rank",
                                            "1536",
                                            "--kv-lora-rank",
                                            "512",
                                            "--qk-head-dim",
                                            "128",
                                            "--qk-pos-emb-head-dim",
                                            "64",
                                            "--v-head-dim",
                                            "128",
                                            "--num-experts",
                                            "256",
                                            "--moe-router-topk",
                                            "8",
                                            "--moe-ffn-hidden-size",
                                            "2048",
                                            "--moe-shared-expert-intermediate-size",
                                            "2048",
                                            "--moe-layer-freq",
                                            "([0]*3+[1]*58)",
                                            "--swiglu",
                                            "--disable-bias-linear",
                                            "--normalization",
                                            "RMSNorm",
                                            "--untie-embeddings-and-output-weights",
                                            "--position-embedding-type",
                                            "rope",
                                            "--bf16"};

TEST(Estimate, ParametersOfDeepSeekV3) {
  const ModelShape shape = made(with(kDeepSeek, {"--global-batch-size", "8"})).shape;
  EXPECT_EQ(parameters_of(shape), 671026419200 - 58 * 256);
}

TEST(Estimate, ParametersOfMixtral8x7B) {
  const ModelShape shape = made({"--num-layers",
                                 "32",
                                 "--hidden-size",
                                 "4096",
                                 "--ffn-hidden-size",
                                 "14336",
                                 "--num-attention-heads",
                                 "32",
                                 "--group-query-attention",
                                 "--num-query-groups",
                                 "8",
                                 "--seq-length",
                                 "4096",
                                 "--vocab-size",
                                 "32000",
                                 "--num-experts",
                                 "8",
                                 "--swiglu",
                                 "--disable-bias-linear",
                                 "--normalization",
                                 "RMSNorm",
                                 "--untie-embeddings-and-output-weights",
                                 "--position-embedding-type",
                                 "rope",
                                 "--bf16",
                                 "--global-batch-size",
                                 "8"})
                               .shape;
  EXPECT_EQ(parameters_of(shape), 46702792704);  // as published with the model
}

// By hand: 4096 tokens, 2-byte elements, fused attention, one microbatch.
TEST(Estimate, LayerOfLatentAttentionAndExperts) {
  const ModelShape shape = made(with(kDeepSeek, {"--global-batch-size", "8"})).shape;
  const Bytes s = 4096, h = 7168, heads = 128;
  const Bytes around = 10 * s * h;
  // Queries and keys of 192, values and outputs of 128 a head; the latents, 1536 and 512 wide, before and after their
  // norms, and the keys' positions, 64 wide.
  const Bytes attention = 2 * s * (heads * (2 * 192 + 2 * 128) + 2 * 1536 + 2 * 512 + 64);
  EXPECT_EQ(layer_activation(shape), around + attention + s * 6 * 18432);
  // Eight copies of each token into experts of 2048, the shared one, and fp32 scores and probabilities of 256.
  const Bytes experts = 8 * s * (2 * h + 6 * 2048) + s * 6 * 2048 + 8 * s * 256;
  EXPECT_EQ(layer_activation(shape, true), around + attention + experts);
  ModelShape first = shape;
  first.ends = false;
  EXPECT_EQ(stage_stash(first, 0), 3 * layer_activation(shape) + 58 * layer_activation(shape, true));
}

// 64 ranks a stage: tp 2, cp 2, dp 16 (32 sequences' replicas), experts over 8 of them, whole (etp 1).
TEST(Estimate, ExpertsAndContextShareWhatTheirRanksHold) {
  const std::vector<std::string> flags = with(
      kDeepSeek, {"--global-batch-size", "64", "--pipeline-model-parallel-size", "2", "--data-parallel-size",
                  "16", "--tensor-model-parallel-size", "2", "--sequence-parallel", "--context-parallel-size",
                  "2", "--expert-model-parallel-size", "8", "--expert-tensor-parallel-size", "1",
                  "--use-distributed-optimizer", "--decoder-first-pipeline-num-layers", "31"});
  const Made model = made(flags);
  const MemoryEstimate estimate = estimate_memory(model.config, model.shape).value();
  const double norm_router = 7168.0 * (2 + 256), latents = 7168.0 * (1536 + 512 + 64) + 1536 + 512;
  const double heads = 64.0 * (1536 * 192 + 512 * 256 + 128 * 7168);  // of one tensor-parallel rank
  const double dense = 30 * (norm_router + latents + heads + 3.0 * 7168 * 1024) + 7168 + 64640.0 * 7168;
  const double experts = 30.0 * 32 * 3 * 7168 * 2048;  // 32 of 256
  const RankBytes& last = estimate.ranks[1];
  const auto near = [](Bytes bytes, double expected) {
    EXPECT_NEAR(static_cast<double>(bytes), expected, expected * 1e-3);  // padding
  };
  near(last.of(MemoryClass::kWeights), 2 * (dense + experts));
  near(last.of(MemoryClass::kGradients), 4 * (dense + experts));
  // 32 replicas of what is dense, 64 ranks / 8 of what is an expert's.
  near(last.of(MemoryClass::kOptimizer), 12 * (dense / 32 + experts / 8));
  EXPECT_EQ(boundary_activation(model.shape), 2 * 2048 * 7168 / 2);
  ModelShape whole = model.shape;
  whole.cp = 1;
  EXPECT_EQ(layer_activation(model.shape, true) * 2, layer_activation(whole, true));
}

// What is recomputed is in the Program's slots, so that the checker's peak, the estimate and the evaluator agree.
TEST(Estimate, RecomputationIsInTheSlots) {
  int compared = 0;
  for (const char* name : {"1f1b", "interleaved", "zb-h1", "zb-v", "zb-auto", "gpipe"}) {
    for (const Recompute how : {Recompute::kSelective, Recompute::kFull}) {
      RunConfig config;
      config.parallel.pp = 4;
      config.schedule.generator = name;
      config.schedule.chunks = std::string(name) == "interleaved" || std::string(name) == "zb-v" ? 2 : 1;
      config.schedule.microbatches = 8;
      config.model.layers = 16;
      config.memory.recompute = how;
      config.memory.recompute_layers = how == Recompute::kFull ? 2 : 1;
      const Validation valid = validate_all(config, {}, Purpose::kCheck);
      ASSERT_TRUE(valid.ok()) << valid.errors.front().text();
      const Schedule schedule = schedule_of(valid.config).value();
      const ModelSizes sizes = default_sizes(valid.config);
      const Program program = lower(valid.config, schedule, sizes, {StepTail::kSchedule}).value();
      ActivationModel held;
      held.held = sizes.stash, held.rebuilt = sizes.rebuilt, held.rebuilt_split = sizes.rebuilt_split;
      const std::vector<std::int64_t> peaks = peak_held(schedule, held);
      const std::vector<RankBytes> slots = slot_memory(program);
      for (std::size_t rank = 0; rank < slots.size(); ++rank) {
        EXPECT_LE(slots[rank].of(MemoryClass::kActivations), peaks[rank]) << name;
        EXPECT_GE(slots[rank].peak, peaks[rank]) << name;
        EXPECT_GT(slots[rank].rebuilt, 0) << name;
        ++compared;
      }
    }
  }
  EXPECT_EQ(compared, 48);
}

TEST(Estimate, WhatIsNotEstimatedIsRefused) {
  refused(with(kGpt3, {"--mamba-num-heads", "8"}), "--mamba-num-heads");
  refused(with(kGpt3, {"--context-parallel-size", "3"}), "3 does not divide 2048 tokens");
  refused(with(kGpt3, {"--num-experts", "9", "--expert-model-parallel-size", "2"}),
          "2 does not divide 9 experts");
  refused(with(kGpt3, {"--num-experts", "8", "--expert-model-parallel-size", "2",
                       "--expert-tensor-parallel-size", "8"}),
          "16 does not divide 8 ranks");
  refused(with(kGpt3, {"--num-experts", "8", "--moe-layer-freq", "[0]*3+[1]*90"}), "entry for each layer");
  refused(with(kGpt3, {"--num-experts", "8", "--moe-layer-freq", "[0]*3+[2]*93"}),
          "something else than 0 and 1");
  refused(with(kGpt3, {"--multi-latent-attention"}), "needs --kv-lora-rank");
  refused({"--num-layers", "4"}, "--hidden-size: is missing");
  refused({"--num-layers", "4", "--hidden-size", "64", "--num-attention-heads", "4", "--seq-length", "8"},
          "--vocab-size");
  refused(with(kGpt3, {"--recompute-granularity", "full"}), "--recompute-method");
  refused(with(kGpt3, {"--decoder-first-pipeline-num-layers", "5"}), "leaves 91 layers");
}

}  // namespace
}  // namespace plumbline

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

TEST(Estimate, WhatIsNotEstimatedIsRefused) {
  refused(with(kGpt3, {"--num-experts", "8"}), "--num-experts");
  refused(with(kGpt3, {"--context-parallel-size", "2"}), "--context-parallel-size");
  refused({"--num-layers", "4"}, "--hidden-size: is missing");
  refused({"--num-layers", "4", "--hidden-size", "64", "--num-attention-heads", "4", "--seq-length", "8"},
          "--vocab-size");
  refused(with(kGpt3, {"--recompute-granularity", "half"}), "'half'");
  refused(with(kGpt3, {"--recompute-granularity", "full"}), "--recompute-method");
  refused(with(kGpt3, {"--decoder-first-pipeline-num-layers", "5"}), "leaves 91 layers");
}

}  // namespace
}  // namespace plumbline

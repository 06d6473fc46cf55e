// compare and estimate as a user starts them.
#include <filesystem>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/base/text.h"
#include "tests/cli/run_program.h"

namespace plumbline {
namespace {

nlohmann::json parsed(const Outcome& outcome) {
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const nlohmann::json document = nlohmann::json::parse(outcome.out, nullptr, false);
  EXPECT_FALSE(document.is_discarded()) << outcome.out;
  return document;
}

TEST(Compare, PublishedMakespansAtUnitCosts) {
  // p = 4, m = 8, F = I = W = 1: 1F1B 33, ZB-H1 27, ZB-2p stage time 24 (Zero Bubble, arXiv 2401.10241).
  const nlohmann::json one = parsed(run_plumbline(
      "compare --json 1f1b zb-h1 zb-auto --pp 4 -m 8 --forward-time 1ms --input-grad-time 1ms "
      "--weight-grad-time 1ms "
      "--backward-time 2ms --link-latency 0 --link-bandwidth 1000000GB/s --activation-bytes 1"))["schedules"];
  ASSERT_EQ(one.size(), 3U);
  const auto units = [](const nlohmann::json& time) { return time.get<double>() / 1e6; };
  EXPECT_NEAR(units(one[0]["makespan_ns"]), 33, 1e-4);  // a hop is a nanosecond at least
  EXPECT_NEAR(units(one[1]["makespan_ns"]), 27, 1e-4);
  EXPECT_NEAR(units(one[2]["stage_time_ns"]), 24, 1e-4);
  EXPECT_EQ(one[0]["held"], (nlohmann::json{4, 3, 2, 1}));
}

// Ranks that share cores: what compare evaluates is what the simulator finds, with replicas beside each other, and on
// machines of several ranks. With a core a rank nothing changes.
TEST(Compare, SharedCoresAreTheSimulators) {
  const std::string flags = " --pp 4 -m 8 --num-layers 8 --link-latency 0 --link-bandwidth 1000000GB/s ";
  const auto compared = [&](const std::string& schedule, const std::string& arguments) {
    return parsed(
               run_plumbline("compare --json " + schedule + flags + arguments))["schedules"][0]["makespan_ns"]
        .get<double>();
  };
  const auto simulated = [&](const std::string& schedule, const std::string& arguments) {
    return parsed(run_plumbline("sim --json --schedule " + schedule + flags + arguments))["makespan_ns"]
        .get<double>();
  };
  for (const std::string schedule : {"1f1b", "gpipe", "zb-h1"}) {
    const double own = compared(schedule, "");
    EXPECT_EQ(own, compared(schedule, "--cores 4")) << schedule;
    const double two = compared(schedule, "--cores 2");
    EXPECT_GT(two, own) << schedule;
    EXPECT_NEAR(simulated(schedule == "zb-h1" ? "generator --generator zb-h1" : schedule, "--cores 2"), two,
                1e4)
        << schedule;
  }
  for (const char* more : {"--cores 1", "--cores 2 --core-interference 0.2", "--cores 2 --dp 2",
                           "--cores 2 --dp 2 --ranks-per-node 4", "--cores 2 --slow rank=3:2"})
    EXPECT_NEAR(simulated("1f1b", more), compared("1f1b", more), 1e4) << more;
  EXPECT_NE(run_plumbline("compare 1f1b --cores 2" + flags).out.find(", 2 cores a machine"),
            std::string::npos);
}

// One option for time, memory and pictures: the simulated step grows by what compare says, the checker's peak is the
// estimate's, and the timeline has the recomputation.
TEST(Compare, SimulationChecksAndPicturesKnowRecomputation) {
  const std::string folder = testing::TempDir() + "plumbline_recompute";
  std::filesystem::create_directories(folder);
  const std::string flags = " --pp 4 -m 8 --num-layers 8 --link-latency 0 --link-bandwidth 100000GB/s ";
  const std::string again =
      flags + "--recompute-granularity full --recompute-method block --recompute-num-layers 1 ";
  const auto simulated = [&](const std::string& arguments) {
    return parsed(run_plumbline("sim --json " + arguments))["makespan_ns"].get<double>();
  };
  const auto compared = [&](const std::string& arguments) {
    return parsed(run_plumbline("compare --json 1f1b " + arguments))["schedules"][0]["makespan_ns"]
        .get<double>();
  };
  EXPECT_NEAR(simulated(again), compared(again), 1e4);
  // Half of each stage's forward, before eight backwards and those of the ranks behind.
  EXPECT_NEAR(simulated(again) - simulated(flags), 0.5e6 * (8 + 3), 1e4);
  const nlohmann::json estimate = parsed(run_plumbline("estimate --json" + again));
  EXPECT_GT(estimate["ranks"][0]["recomputed"].get<double>(), 0.0);
  const Outcome run = run_plumbline("sim" + again + "-o " + folder + "/r.plmb");
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run_plumbline("show " + folder + "/r.plmb").out.find(" R0 B0"), std::string::npos);
  EXPECT_EQ(run_plumbline("report " + folder + "/r.plmb --svg " + folder + "/r.svg").code, 0);
  const std::string svg = read_file(folder + "/r.svg").value();
  EXPECT_NE(svg.find("#f0e442"), std::string::npos);
  EXPECT_NE(svg.find("R recomputation"), std::string::npos);
  std::filesystem::remove_all(folder);
}

TEST(Compare, FitsEightyColumnsAndOneAxis) {
  const Outcome outcome = run_plumbline("compare 1f1b interleaved zb-v dualpipe --pp 4 -m 8");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (std::size_t begin = 0; begin < outcome.out.size();) {
    const std::size_t end = outcome.out.find('\n', begin);
    EXPECT_LE(end - begin, 80U) << outcome.out.substr(begin, end - begin);
    begin = end + 1;
  }
  EXPECT_NE(outcome.out.find("one character ="), std::string::npos);
  EXPECT_NE(outcome.out.find("#"), std::string::npos) << "pairs";
}

TEST(Compare, RecomputationCostsTimeAndSavesMemory) {
  const nlohmann::json none = parsed(run_plumbline("compare --json 1f1b --pp 4 -m 8"))["schedules"][0];
  const nlohmann::json full =
      parsed(run_plumbline("compare --json 1f1b --pp 4 -m 8 --recompute-granularity full"))["schedules"][0];
  EXPECT_GT(full["makespan_ns"].get<double>(), none["makespan_ns"].get<double>());
  // What one backward builds again counts, beside the inputs of four.
  EXPECT_LT(full["held_bytes"][0].get<double>(), none["held_bytes"][0].get<double>() / 3);
  const Outcome text = run_plumbline("compare 1f1b --pp 4 -m 8 --recompute-granularity full");
  EXPECT_NE(text.out.find('r', text.out.find("rank 0")), std::string::npos);
}

TEST(Compare, PairsMayOverlap) {
  const nlohmann::json sum =
      parsed(run_plumbline("compare --json dualpipe-v --pp 2 --vp 2 -m 8"))["schedules"][0];
  const nlohmann::json pair =
      parsed(run_plumbline("compare --json dualpipe-v --pp 2 --vp 2 -m 8 --pair-time 2ms"))["schedules"][0];
  EXPECT_LT(pair["makespan_ns"].get<double>(), sum["makespan_ns"].get<double>());
}

// A slow rank costs what the same rank's stages cost when their times are listed.
TEST(Compare, SlowRanks) {
  const std::string flags = "compare --json 1f1b zb-h1 --pp 4 -m 8 --per-chunk ";
  const nlohmann::json even = parsed(run_plumbline(
      flags +
      "--forward-time 2ms --backward-time 4ms --input-grad-time 2ms --weight-grad-time 2ms"))["schedules"];
  const nlohmann::json slow =
      parsed(run_plumbline(
          flags + "--forward-time 2ms --backward-time 4ms --input-grad-time 2ms --weight-grad-time 2ms "
                  "--slow rank=2:1.5"))["schedules"];
  const nlohmann::json listed =
      parsed(run_plumbline(
          flags + "--forward-time 2ms,2ms,3ms,2ms --backward-time 4ms,4ms,6ms,4ms "
                  "--input-grad-time 2ms,2ms,3ms,2ms --weight-grad-time 2ms,2ms,3ms,2ms"))["schedules"];
  ASSERT_EQ(slow.size(), 2U);
  for (std::size_t i = 0; i < slow.size(); ++i) {
    EXPECT_EQ(slow[i]["makespan_ns"], listed[i]["makespan_ns"]) << i;
    EXPECT_EQ(slow[i]["stage_time_ns"], listed[i]["stage_time_ns"]) << i;
    EXPECT_GT(slow[i]["makespan_ns"].get<double>(), even[i]["makespan_ns"].get<double>()) << i;
    EXPECT_GE(slow[i]["makespan_ns"].get<double>(), 8 * 9e6) << "what rank 2 alone computes";
  }
  EXPECT_NE(run_plumbline("compare 1f1b --pp 4 -m 8 --slow rank=2:1.5").out.find("rank 2 times 1.5"),
            std::string::npos);
  // Rank 1 of 2 x 2 is the first stage's second replica.
  const Outcome other = run_plumbline("compare 1f1b --pp 2 --dp 2 -m 4 --slow rank=1:2");
  EXPECT_EQ(other.code, 0) << other.err;
  EXPECT_NE(other.err.find("--slow rank=1: not in the pipeline of rank 0"), std::string::npos) << other.err;
  EXPECT_EQ(run_plumbline("compare 1f1b --pp 2 -m 4 --slow rank=2:2").code, 2);
}

TEST(Compare, WritesPictureAndPage) {
  const std::string folder = testing::TempDir() + "plumbline_compare";
  std::filesystem::create_directories(folder);
  const Outcome outcome =
      run_plumbline("compare 1f1b zb-h1 --pp 2 -m 4 --svg " + folder + "/c.svg -o " + folder + "/c.html");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const std::string svg = read_file(folder + "/c.svg").value();
  EXPECT_EQ(svg.find("<svg"), 0U);
  EXPECT_NE(svg.find("zb-h1"), std::string::npos);
  EXPECT_NE(read_file(folder + "/c.html").value().find("default-src 'none'"), std::string::npos);
  std::filesystem::remove_all(folder);
}

TEST(Compare, WrongFlags) {
  const auto refused = [](const std::string& arguments, const std::string& text) {
    const Outcome outcome = run_plumbline("compare " + arguments);
    EXPECT_EQ(outcome.code, 2) << outcome.out;
    EXPECT_NE(outcome.err.find(text), std::string::npos) << outcome.err;
  };
  refused("", "nothing to compare");
  refused("1f1b --pp two", "--pp");
  refused("1f1b --pp 2 --pair-time x", "--pair-time");
  refused("zb-v --pp 2 --vp 3 -m 4", "zb-v: ");
  refused("1f1b --pp 2 --recompute-granularity half", "selective, full");
  refused("/no/such.csv", "/no/such.csv");
}

// The checker counts the same slots in the same order; parameters and optimizer states beside them are not its
// business.
TEST(Estimate, SlotsAreTheCheckersMemory) {
  struct Case {
    const char* flags;
    std::size_t replicas;
    bool distributed;
  };
  int compared = 0;
  for (const Case& one :
       {Case{"--pp 4 -m 8 --num-layers 8", 1, false},
        Case{"--pp 4 --vp 2 --schedule interleaved -m 8 --num-layers 8 --fp16", 1, false},
        Case{"--pp 4 -m 6 --num-layers 4 --dp 2 --bf16 --use-distributed-optimizer", 2, true},
        Case{"--generator zb-h1 --pp 4 -m 8 --num-layers 8", 1, false},
        Case{"--generator dualpipe --pp 4 -m 8 --num-layers 8", 1, false},
        Case{"--generator dualpipe-v --pp 4 --vp 2 -m 8 --num-layers 8 --bf16", 1, false},
        Case{"--generator chimera --pp 4 -m 8 --num-layers 8 --dp 2 --bf16 --use-distributed-optimizer", 2,
             true},
        Case{"--generator chimera-2-pairs --pp 4 -m 8 --num-layers 8 --fp16", 1, false}}) {
    const nlohmann::json check = parsed(run_plumbline(std::string("check --json ") + one.flags));
    const nlohmann::json estimate = parsed(run_plumbline(std::string("estimate --json ") + one.flags));
    for (std::size_t rank = 0; rank < estimate["ranks"].size(); ++rank) {
      const nlohmann::json& row = estimate["ranks"][rank];
      std::int64_t slots = 0;
      for (const char* kind : {"activations", "buffers", "gradients"}) slots += row[kind].get<std::int64_t>();
      if (one.distributed) slots += row["weights"].get<std::int64_t>();
      EXPECT_EQ(slots, check["memory"][rank * one.replicas]["peak"].get<std::int64_t>())
          << one.flags << " rank " << rank;
      ++compared;
    }
  }
  EXPECT_EQ(compared, 32);
}

// Every pipeline of a bidirectional schedule has its own copy of every stage, optimizer states included.
TEST(Estimate, CopiesOfTheStages) {
  const auto sum = [](const std::string& schedule, const char* kind) {
    const nlohmann::json estimate =
        parsed(run_plumbline("estimate --json " + schedule + " --pp 4 -m 8 --num-layers 8 --bf16"));
    std::int64_t bytes = 0;
    for (const nlohmann::json& row : estimate["ranks"]) bytes += row[kind].get<std::int64_t>();
    return bytes;
  };
  for (const char* kind : {"weights", "gradients", "optimizer"}) {
    const std::int64_t once = sum("--schedule 1f1b", kind);
    EXPECT_GT(once, 0) << kind;
    EXPECT_EQ(sum("--generator dualpipe", kind), 2 * once) << kind;
    EXPECT_EQ(sum("--generator chimera", kind), 2 * once) << kind;
    EXPECT_EQ(sum("--generator chimera-2-pairs", kind), 4 * once) << kind;
  }
}

TEST(Estimate, LaunchScriptAgainstALimit) {
  const std::string script = testing::TempDir() + "plumbline_estimate.sh";
  ASSERT_TRUE(write_file(script,
                         "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 "
                         "--num-attention-heads 32 --seq-length 2048 --vocab-size 50257 --micro-batch-size 1 "
                         "--global-batch-size 32 --bf16 --tensor-model-parallel-size 2 "
                         "--pipeline-model-parallel-size 4 --sequence-parallel\n"));
  const Outcome fits = run_plumbline("estimate " + script + " --memory-limit 80GiB");
  EXPECT_EQ(fits.code, 0) << fits.out << fits.err;
  EXPECT_NE(fits.out.find("peak: rank 0"), std::string::npos) << fits.out;
  EXPECT_NE(fits.out.find("6.66 billion parameters"), std::string::npos) << fits.out;
  const Outcome over = run_plumbline("estimate " + script + " --memory-limit 10GiB");
  EXPECT_EQ(over.code, 5) << over.out << over.err;
  EXPECT_NE(over.out.find("over the limit"), std::string::npos) << over.out;
  const Outcome less = run_plumbline("estimate --json --recompute-granularity full " + script);
  EXPECT_EQ(less.code, 0) << less.err;
  EXPECT_EQ(less.out.find("\"recomputed\":0,"), std::string::npos) << less.out;
  std::filesystem::remove(script);
}

TEST(Estimate, WrongFlags) {
  const auto refused = [](const std::string& arguments, const std::string& text) {
    const Outcome outcome = run_plumbline("estimate " + arguments);
    EXPECT_EQ(outcome.code, 2) << outcome.out;
    EXPECT_NE(outcome.err.find(text), std::string::npos) << outcome.err;
  };
  refused("--pp 2 --memory-limit much", "--memory-limit");
  refused("/no/such.sh", "/no/such.sh");
  refused("-- --num-layers 4", "--hidden-size");
  refused(
      "-- --num-layers 4 --mamba-num-heads 2 --hidden-size 8 --num-attention-heads 2 --seq-length 4 "
      "--vocab-size "
      "8",
      "not estimated");
  refused("run.sh --pp 2", "launch script");
  refused("--pp 2 --recompute-granularity full --recompute-num-layers 0", "at least 1");
  refused("--pp 2 --recompute-num-layers 2", "says how many layers are recomputed whole, and none are");
  refused("--pp 2 --recompute-granularity selective --recompute-method block", "says which layers");
}

}  // namespace
}  // namespace plumbline

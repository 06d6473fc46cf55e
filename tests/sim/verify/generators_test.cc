// Every generated schedule, lowered with the communication that any order gets, is proved free of faults
// under every communicator map, whole training step included. What is refused says why.
#include <map>

#include <gtest/gtest.h>

#include "engine/program/link.h"
#include "engine/program/lower.h"
#include "engine/schedule/generator.h"
#include "engine/schedule/generator_args.h"
#include "sim/verify/check.h"
#include "tests/engine/program/config.h"

namespace plumbline {
namespace {

struct Outcome {
  int certified = 0;
  int refused_sizes = 0;  // by the generator
};

void check(const Generator& generator, int ranks, int chunks, int microbatches, CommMap map, P2pStyle style,
           Outcome* outcome) {
  RunConfig config = test::config_of(ScheduleKind::kGenerator, ranks, chunks, microbatches);
  config.schedule.generator = generator.name;
  config.schedule.comm_map = map;
  config.schedule.p2p = style;
  config.schedule.slices = generator.name == "seq-1f1b" ? 2 : 1;
  const std::string label = generator.name + " P " + std::to_string(ranks) + " V " + std::to_string(chunks) +
                            " M " + std::to_string(microbatches) + " map " +
                            std::to_string(static_cast<int>(map));
  const Result<Schedule> schedule = schedule_of(config);
  if (!schedule) {
    ASSERT_EQ(schedule.error().code, ErrorCode::kConfig) << label;
    ++outcome->refused_sizes;
    return;
  }
  const Result<Program> program = lower(config, *schedule, default_sizes(config));
  ASSERT_TRUE(program) << label << ": " << program.error().text();
  const Result<LinkedProgram> linked = link_program(*program);
  ASSERT_TRUE(linked) << label;
  CheckOptions options;
  options.time = TimeModel(config);
  const Result<Verdict> verdict = check_program(*linked, options);
  ASSERT_TRUE(verdict) << label << ": " << verdict.error().text();
  EXPECT_TRUE(verdict->holds()) << label << ": " << verdict->findings.front().why;
  ++outcome->certified;
}

TEST(Generators, EveryScheduleIsCertified) {
  std::map<std::string, Outcome> outcomes;
  for (const Generator& generator : generators()) {
    Outcome& outcome = outcomes[generator.name];
    for (const int ranks : {1, 2, 3, 4}) {
      for (const int chunks : {1, 2, 4}) {
        for (const int microbatches : {1, 4, 6, 8}) {
          for (const CommMap map : {CommMap::kOne, CommMap::kPair, CommMap::kDirection, CommMap::kMegatron}) {
            check(generator, ranks, chunks, microbatches, map, P2pStyle::kSeparate, &outcome);
          }
        }
      }
    }
  }
  for (const auto& [name, outcome] : outcomes) {
    EXPECT_GT(outcome.certified, 0) << name;
  }
}

// In the batches of its own code too, where these are one group each.
TEST(Generators, DualPipeIsCertifiedInItsOwnBatches) {
  for (const auto& [name, chunks] : {std::pair{"dualpipe", 1}, std::pair{"dualpipe-v", 2}}) {
    Outcome outcome;
    for (const int ranks : {2, 4, 6, 8}) {
      for (const int more : {0, 2, 6}) {
        for (const CommMap map : {CommMap::kOne, CommMap::kMegatron}) {
          check(*find_generator(name).value(), ranks, chunks, 2 * ranks + more, map, P2pStyle::kBatched,
                &outcome);
        }
      }
    }
    EXPECT_EQ(outcome.certified, 24) << name;
  }
}

// Copies that are added up beside the pipeline's work hang in no mode: both holders of a stage are through with it at
// the same point of their rows, so that neither needs from the other what stands behind its own reduction.
TEST(Generators, CopiesThatOverlapTheirReductionsAreCertified) {
  int certified = 0;
  for (const char* name : {"dualpipe", "chimera", "chimera-2-pairs"}) {
    for (const int ranks : {2, 4, 8}) {
      for (const int replicas : {1, 2}) {
        for (const CommMap map : {CommMap::kOne, CommMap::kPair, CommMap::kMegatron}) {
          RunConfig config = test::config_of(ScheduleKind::kGenerator, ranks, 1, 2 * ranks, 0, replicas);
          config.schedule.generator = name;
          config.schedule.p2p = P2pStyle::kSeparate;
          config.schedule.comm_map = map;
          config.optimizer.overlap_grad_reduce = true;
          const Result<Schedule> schedule = schedule_of(config);
          if (!schedule || schedule->pipelines() == 1) continue;
          const Result<Program> program = lower(config, *schedule, default_sizes(config));
          ASSERT_TRUE(program) << program.error().text();
          const Result<LinkedProgram> linked = link_program(*program);
          ASSERT_TRUE(linked);
          const Result<Verdict> verdict = check_program(*linked, {});
          ASSERT_TRUE(verdict) << verdict.error().text();
          EXPECT_TRUE(verdict->holds()) << name << ", " << ranks << " ranks, " << replicas
                                        << " replicas: " << verdict->findings.front().why;
          ++certified;
        }
      }
    }
  }
  EXPECT_GT(certified, 30);
}

}  // namespace
}  // namespace plumbline

// DualPipe's and DualPipeV's batches of sends and receives, as their own code was recorded making them: which calls
// stand before which computation, in what order (tests/oracles/schedules, comm_groups). A pair is one computation
// there. The recording names calls that have no partner as well.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/schedule/dualpipe_rows.h"
#include "engine/schedule/generator.h"
#include "tests/engine/schedule/orders.h"

namespace plumbline {
namespace {

using nlohmann::json;

const char* word_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::kSendForward:
      return "SF";
    case ActionKind::kRecvForward:
      return "RF";
    case ActionKind::kSendBackward:
      return "SB";
    default:
      return "RB";
  }
}

// "@4:SF0,SB1": before the fourth computation, counted from 0.
std::vector<std::string> groups_of(const DualPipeRow& row, bool second_half) {
  std::vector<std::string> groups;
  std::size_t before = 0;
  for (const PhaseCall& call : row.calls()) {
    const int direction = call.phase ^ (second_half ? 1 : 0);
    const std::string word = word_of(call.kind) + std::to_string(direction);
    if (groups.empty() || call.before != before) {
      const auto pairs =
          std::count_if(row.steps().begin(), row.steps().begin() + static_cast<std::ptrdiff_t>(call.before),
                        [](const PhaseStep& step) { return step.paired; });
      groups.push_back("@" + std::to_string(call.before - static_cast<std::size_t>(pairs)) + ":" + word);
    } else {
      groups.back() += "," + word;
    }
    before = call.before;
  }
  return groups;
}

TEST(DualPipeCalls, AreTheRecordedBatches) {
  std::map<std::string, int> compared;
  test::for_each_line("oracles/schedules/dualpipe.jsonl.gz", [&](const json& line) {
    const bool both_ways = line["gen"] == "dualpipe";
    if (!line.contains("comm_groups")) {
      ++compared["not recorded"];
      return;
    }
    const int ranks = line["p"];
    const int microbatches = line["m"];
    for (int rank = 0; rank < ranks; ++rank) {
      const bool second_half = both_ways && 2 * rank >= ranks;
      DualPipeRow row(both_ways ? ranks / 2 : ranks, second_half ? ranks - 1 - rank : rank,
                      both_ways ? microbatches / 2 : microbatches, DualPipeEnding::kDeepSeek,
                      both_ways ? DualPipeCalls::kDualPipe : DualPipeCalls::kDualPipeV);
      row.build();
      EXPECT_EQ(groups_of(row, second_half),
                line["comm_groups"][static_cast<std::size_t>(rank)].get<std::vector<std::string>>())
          << test::label_of(line) << " rank " << rank;
    }
    ++compared[line["gen"]];
  });
  EXPECT_EQ(compared,
            (std::map<std::string, int>{{"dualpipe", 16}, {"dualpipev", 24}, {"not recorded", 34}}));
}

// What the lowering gets of them: each transfer once, at both of its ends.
TEST(DualPipeCalls, HavePartners) {
  for (const auto& [name, chunks] : {std::pair{"dualpipe", 1}, std::pair{"dualpipe-v", 2}}) {
    GeneratorArgs args;
    args.ranks = 4;
    args.chunks = chunks;
    args.microbatches = 12;
    const Schedule schedule = (*find_generator(name).value()->make)(args).value();
    std::map<std::string, int> sends, receives;
    for (int rank = 0; rank < schedule.ranks; ++rank) {
      for (const DualPipeCall& call : dualpipe_calls(schedule, rank)) {
        Action action = call.action;
        EXPECT_EQ(schedule.rank_of(action.stage, action.microbatch), rank);
        EXPECT_LE(call.before, schedule.row(rank).size());
        if (is_send(action.kind)) {
          ++sends[print_action(action)];
          continue;
        }
        const bool forward = action.kind == ActionKind::kRecvForward;
        action.stage = static_cast<std::uint16_t>(forward ? action.stage - 1 : action.stage + 1);
        action.kind = forward ? ActionKind::kSendForward : ActionKind::kSendBackward;
        ++receives[print_action(action)];
      }
    }
    EXPECT_EQ(sends, receives) << name;
    // Every hop between ranks, there and back; the V turns round on its last rank.
    const std::size_t hops = std::string(name) == "dualpipe" ? 3 : 6;
    EXPECT_EQ(sends.size(), 2 * hops * 12) << name;
  }
}

}  // namespace
}  // namespace plumbline

// Where overlapped reductions and gathers begin: every recorded line of Megatron's gradient- and parameter-sync
// hooks, with all calls between.
#include <gtest/gtest.h>

#include "engine/base/text.h"
#include "engine/program/trace.h"
#include "tests/engine/program/megatron_lines.h"

namespace plumbline {
namespace {

using Events = std::vector<std::string>;

// What is left of the reductions begins at the end of the pipeline's calls, which the recording counts to another phase
// than we do: the mark between is left out. Outside its no-sync context the wrapper reduces a chunk's gradients as its
// backward makes them.
Events recorded(const std::string& trace) {
  Events out;
  bool outside = false;
  for (const std::string_view event : split(trace, ';')) {
    if (event == "NS-") outside = true;
    if (event == "NS+") outside = false;
    if (event == "NS-" || event == "NS+" || event == "#misc") continue;
    out.emplace_back(event);
    if (!outside || event.size() < 2 || event[0] != 'B') continue;
    const std::string chunk(event.substr(event.find('.') + 1));
    out.push_back("GS" + chunk.substr(0, chunk.find('<')));
  }
  return out;
}

Events lowered(const Program& program, std::size_t thread) {
  Events out;
  const std::string trace = megatron_trace(program, thread, TraceStyle::kCurrent);
  for (const std::string_view event : split(trace, ';')) {
    if (event != "#misc") out.emplace_back(event);
  }
  return out;
}

Result<Program> program_of_line(const nlohmann::json& line) {
  RunConfig config = test::config_of_line(line);
  const int pp = line.at("pp");
  config.parallel.dp = 2;
  config.grid = RankGrid::create({1, 1, 1, 2, pp}).value();
  config.optimizer.distributed = true;
  config.optimizer.bucket_size = 10'000;  // several buckets a chunk
  config.optimizer.overlap_grad_reduce = !line.at("grad_sync").is_null();
  config.optimizer.align_grad_reduce = line.at("grad_sync") == "align";
  config.optimizer.overlap_param_gather = line.at("param_sync");
  LowerOptions options;
  options.call_marks = true;
  return program_of(config, default_sizes(config), options);
}

TEST(SyncHooks, EveryRecordedLine) {
  int compared = 0;
  int unreachable = 0;
  const auto compare = [&](const nlohmann::json& line) {
    if (line.contains("error")) {
      // One chunk in the interleaved function, which Megatron's arguments do not let happen.
      EXPECT_EQ(line.at("vp"), 1);
      ++unreachable;
      return;
    }
    const std::string what = line.dump().substr(0, 120);
    const auto program = program_of_line(line);
    ASSERT_TRUE(program.has_value()) << what << "\n" << program.error().text();
    for (std::size_t rank = 0; rank < line.at("ranks").size(); ++rank) {
      // Thread of a pipeline coordinate: replicas are the faster axis.
      ASSERT_EQ(lowered(*program, rank * 2), recorded(line.at("ranks")[rank].get<std::string>()))
          << what << " rank " << rank;
    }
    ++compared;
  };
  EXPECT_EQ(test::for_each_line("oracles/megatron/schedule_sync_hooks_current.jsonl.gz", compare), 330);
  EXPECT_EQ(compared, 255);
  EXPECT_EQ(unreachable, 75);
}

}  // namespace
}  // namespace plumbline

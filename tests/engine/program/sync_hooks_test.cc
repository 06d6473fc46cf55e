// Where overlapped reductions and gathers begin: every recorded line of Megatron's gradient- and parameter-sync
// hooks. The recording runs point-to-point calls with overlap, which are not lowered for training; compared are
// the chunk passes and what begins between them.
#include <gtest/gtest.h>

#include "engine/base/text.h"
#include "engine/program/lower.h"
#include "engine/program/trace.h"
#include "tests/engine/program/config.h"
#include "tests/support/oracle.h"

namespace plumbline {
namespace {

using Events = std::vector<std::string>;

bool is_pass(std::string_view event) {
  return event.size() > 1 && (event[0] == 'F' || event[0] == 'B') && event[1] >= '0' && event[1] <= '9';
}
bool is_sync(std::string_view event) { return event.substr(0, 2) == "GS" || event.substr(0, 2) == "PS"; }

// "F3.1<8!*" -> "F3.1".
std::string plain(std::string_view event) { return std::string(event.substr(0, event.find_first_of("<!*"))); }

// Outside its no-sync context the wrapper reduces a chunk's gradients as its backward makes them.
Events recorded(const std::string& trace) {
  Events out;
  bool outside = false;
  for (const std::string_view event : split(trace, ';')) {
    if (event == "NS-") outside = true;
    if (event == "NS+") outside = false;
    if (!is_pass(event) && !is_sync(event)) continue;
    out.push_back(plain(event));
    if (outside && event[0] == 'B') out.push_back("GS" + out.back().substr(out.back().find('.') + 1));
  }
  return out;
}

Events lowered(const Program& program, std::size_t thread) {
  Events out;
  const std::string trace = megatron_trace(program, thread, TraceStyle::kCurrent);
  for (const std::string_view event : split(trace, ';')) {
    if (is_pass(event) || is_sync(event)) out.push_back(plain(event));
  }
  return out;
}

Result<Program> program_of_line(const nlohmann::json& line) {
  const bool plain_schedule = line.at("sched") == "1f1b";
  const int group = line.contains("g") && !line.at("g").is_null() ? line.at("g").get<int>() : 0;
  RunConfig config =
      test::config_of(plain_schedule ? ScheduleKind::kOneFOneB : ScheduleKind::kInterleaved, line.at("pp"),
                      plain_schedule ? 1 : line.at("vp").get<int>(), line.at("m"), group, 2);
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

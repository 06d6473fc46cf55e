// Single faults in torch's rows (tests/oracles/torch_pipelining/generated/mutants.jsonl.gz): at least what torch's
// own validator, lowering and dry run find, and all duplicates, dropped or early reductions and channel-order
// faults, of which they find none; no alarm on any valid schedule of any recording.
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "engine/schedule/comm_check.h"
#include "engine/schedule/torch_passes.h"
#include "tests/engine/schedule/orders.h"
#include "tests/engine/schedule/reference.h"

namespace plumbline {
namespace {

using nlohmann::json;
using test::csv_of;

Schedule rows_of(const json& line, const char* field) {
  Schedule schedule = parse_schedule_csv(csv_of(line[field]), field).value();
  return schedule;
}

// The checks of a schedule: structure, both channel scopes, and that its calls can finish (dry run: buffered sends).
bool found(const Schedule& schedule) {
  if (!validate_schedule(schedule).empty()) return true;
  if (!schedule.has_communication()) return false;
  return !check_channels(schedule, ChannelScope::kPair).empty() || !dry_run(schedule);
}

TEST(TorchMutants, EveryFaultThatTorchFindsAndThoseItCannot) {
  std::map<std::string, int> all, ours, theirs;
  int missed = 0;
  const int lines =
      test::for_each_line("oracles/torch_pipelining/generated/mutants.jsonl.gz", [&](const json& line) {
        const std::string kind = line["kind"];
        const auto accepts = [&](const char* field) {
          const std::string verdict = line.value(field, std::string("-"));
          return verdict == "accept" || verdict == "-";
        };
        const bool torch =
            !(accepts("torch_validate") && accepts("torch_lower") && accepts("torch_simulate"));
        const bool we = found(rows_of(line, "rows"));
        ++all[kind];
        ours[kind] += we ? 1 : 0;
        theirs[kind] += torch ? 1 : 0;
        // What torch's lowering cannot place may still be an order that finishes: none of those here.
        if (torch && !we) ++missed;
        EXPECT_TRUE(we || !torch) << kind << " " << line["schedule"] << "\n" << csv_of(line["rows"]);
      });
  EXPECT_EQ(lines, 771);
  EXPECT_EQ(missed, 0);
  for (const char* kind :
       {"duplicate_forward", "duplicate_backward", "duplicate_weight", "duplicate_send", "duplicate_recv",
        "drop_reduce_grad", "reduce_grad_too_early", "drop_unshard", "extra_weight_after_backward",
        "send_before_its_compute", "recv_after_its_consumer", "drop_send", "drop_recv"}) {
    EXPECT_GT(all[kind], 0) << kind;
    EXPECT_EQ(ours[kind], all[kind]) << kind;
  }
}

// A channel whose order differs between its ends, by the recorded count over both directions.
TEST(TorchMutants, EveryChannelOrderFault) {
  int faulty = 0;
  test::for_each_line("oracles/torch_pipelining/generated/mutants.jsonl.gz", [&](const json& line) {
    if (line["level"] != "comms") return;
    const std::string kind = line["kind"];
    const bool swapped = kind.starts_with("two_sends_of_a_channel_swapped") ||
                         kind == "adjacent_send_recv_swapped" || kind == "recv_posted_first" ||
                         kind == "send_moved_to_end";
    if (!swapped) return;
    const Schedule schedule = rows_of(line, "rows");
    const bool ours = !check_channels(schedule, ChannelScope::kPair).empty();
    EXPECT_EQ(ours, line["channel_mismatch"].get<int>() > 0) << kind << "\n" << csv_of(line["rows"]);
    faulty += ours ? 1 : 0;
  });
  EXPECT_GT(faulty, 40);
}

// Every lowered row of torch, both ways, and the orders that every other project makes.
TEST(TorchMutants, NoAlarmOnAnyValidSchedule) {
  int torch = 0;
  std::map<std::string, int>
      crossed;  // deferred receives whose order differs where both directions share a queue
  test::for_each_line("oracles/torch_pipelining/generated/schedules_small.jsonl", [&](const json& line) {
    for (const char* field : {"comms", "comms_deferred"}) {
      if (!line.contains(field) || !line[field].is_array()) continue;
      const Schedule schedule = rows_of(line, field);
      EXPECT_EQ(test::findings_text(validate_schedule(schedule)), "") << line["schedule"] << field;
      const bool pair = !check_channels(schedule, ChannelScope::kPair).empty();
      if (std::string(field) == "comms") {
        EXPECT_FALSE(pair) << line["schedule"];
      } else {
        crossed[line["schedule"]] += pair ? 1 : 0;
      }
      ++torch;
    }
  });
  EXPECT_GT(torch, 300);
  EXPECT_EQ(crossed["1F1B"], 0);
  EXPECT_GT(crossed["ZBVZeroBubble"], 0);
  int others = 0;
  for (const char* file : {"orders.jsonl.gz", "zbv_handcrafted.jsonl.gz", "dualpipe.jsonl.gz"}) {
    test::for_each_line(std::string("oracles/schedules/") + file, [&](const json& line) {
      EXPECT_EQ(test::findings_text(validate_schedule(test::schedule_of_order(line))), "") << line["gen"];
      ++others;
    });
  }
  EXPECT_EQ(others, 1740 + 41 + 74);
}

void finds(const char* csv, const std::string& rule, const std::string& text) {
  const std::vector<ScheduleFinding> findings = validate_schedule(parse_schedule_csv(csv, "x").value());
  ASSERT_FALSE(findings.empty()) << csv;
  bool named = false;
  for (const ScheduleFinding& finding : findings)
    named = named || (finding.rule == rule && finding.why.find(text) != std::string::npos);
  EXPECT_TRUE(named) << test::findings_text(findings);
}

TEST(CommunicationCheck, EachRuleNamesActionsAndRanks) {
  const char* whole = "0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n";
  EXPECT_TRUE(validate_schedule(parse_schedule_csv(whole, "x").value()).empty());
  finds("0F0,0SEND_F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", "duplicate",
        "0SEND_F0 on rank 0 at position 2");
  finds("0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1B0,1SEND_B0\n", "missing", "1RECV_F0 stands nowhere");
  finds("0F0,0RECV_B0,0B0\n1F0,1B0,1SEND_B0\n", "missing", "0SEND_F0 and 1RECV_F0 stand nowhere");
  finds("0SEND_F0,0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", "order", "before 0F0");
  finds("0F0,0SEND_F0,0B0,0RECV_B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", "order", "behind 0B0");
  finds("0F0,0B0,0REDUCE_GRAD\n1F0,1B0\n", "missing", "stage 1 on rank 1 is never reduced");
  finds("0F0,0REDUCE_GRAD,0B0\n1F0,1B0,1REDUCE_GRAD\n", "order", "0REDUCE_GRAD on rank 0 stands before 0B0");
  finds("0F0,0B0,0REDUCE_GRAD,0REDUCE_GRAD\n", "duplicate", "position 3");
  finds("0UNSHARD,0F0,0RESHARD,0B0\n", "sharding", "0B0 on rank 0 computes");
  finds("0UNSHARD,0UNSHARD,0F0,0B0,0RESHARD\n", "sharding", "gathers what was gathered");
  finds("0UNSHARD,0F0,0B0\n", "sharding", "0RESHARD is missing");
  finds("0UNSHARD,0F0,0B0,0RESHARD,0RESHARD\n", "sharding", "drops what is not gathered");
  finds(
      "0F0,0F1,0SEND_F0,0SEND_F1,0RECV_B0,0RECV_B1,0B0,0B1\n1RECV_F1,1RECV_F0,1F0,1F1,1B0,1SEND_B0,1B1,1SEND_"
      "B1\n",
      "channel", "message 0 from rank 0 to rank 1 is 0SEND_F0");
  // Part of a step lacks what it does not list.
  EXPECT_TRUE(validate_schedule(
                  parse_schedule_csv("0SEND_F1,2RECV_F0\n1SEND_F0,1RECV_F1\n", "x", {true}).value(), true)
                  .empty());
}

}  // namespace
}  // namespace plumbline

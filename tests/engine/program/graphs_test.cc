#include "engine/program/graphs.h"

#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/program/lower.h"
#include "engine/program/text.h"
#include "tests/engine/program/config.h"

namespace plumbline {
namespace {

using ::testing::HasSubstr;

constexpr const char* kTables = R"(plumbline-program 1
name small
grid pp=2
stages 2
microbatches 2
fragment
placement 0 1
stream compute
stream pair
stream side
slot activation.1 kind=activation stage=1 dtype=f32 bytes=4
slot found kind=found-inf stage=0 dtype=f32 bytes=4 step
family pair 0,1
kernel work kind=other stage=0
endpoint s kind=send family=pair slot=activation.1 dtype=f32 bytes=4 peer=coordinate:1
endpoint r kind=recv family=pair slot=activation.1 dtype=f32 bytes=4 peer=coordinate:0
variable found slot=found
event e
ranks 0
)";

Program parsed(const std::string& items) {
  Result<Program> program = parse_program(kTables + items + "ranks 1\n", "text");
  EXPECT_TRUE(program) << program.error().text();
  return program ? *program : Program{};
}

// The first rank's items as graphs; where no stream is named, it is the compute stream.
std::string rewritten(const std::string& items) {
  const Result<Program> program = with_graphs(parsed(items));
  EXPECT_TRUE(program) << program.error().text();
  if (!program) return {};
  const std::string text = print_program(*program);
  const std::size_t begin = text.find("ranks 0\n") + 8;
  std::string block = text.substr(begin, text.find("ranks 1") - begin);
  constexpr std::string_view kCompute = " stream=compute";
  for (std::size_t at = block.find(kCompute); at != std::string::npos; at = block.find(kCompute))
    block.erase(at, kCompute.size());
  return block;
}

TEST(Graphs, HoldWhatStandsBetweenTwoPointsAtWhichTheHostWaits) {
  EXPECT_EQ(rewritten("  launch work\n  op s mb=0 stream=pair after-compute compute-waits\n  read found\n"
                      "  launch work\n  launch work\n"),
            "  graph begin\n  launch work\n  op s mb=0 stream=pair after-compute compute-waits\n  graph end\n"
            "  read found\n  graph begin\n  launch work\n  launch work\n  graph end\n");
  // One launch alone is not worth one; a group that the host waits for ends one.
  EXPECT_EQ(rewritten("  launch work\n  op s mb=0 stream=pair after-compute host-waits\n  launch work\n"),
            "  launch work\n  op s mb=0 stream=pair after-compute host-waits\n  launch work\n");
}

TEST(Graphs, StartAfterWhatOtherStreamsHaveBefore) {
  EXPECT_EQ(rewritten("  op s mb=0 stream=pair\n  sync-stream stream=side\n  launch work\n  launch work\n"),
            "  op s mb=0 stream=pair\n  sync-stream stream=side\n"
            "  record graph.joins stream=pair\n  wait-event graph.joins\n"
            "  graph begin\n  launch work\n  launch work\n  graph end\n");
  // The host has waited for it.
  for (const std::string over :
       {"  op s mb=0 stream=pair host-waits\n", "  op s mb=0 stream=pair\n  sync-stream stream=pair\n"})
    EXPECT_EQ(rewritten(over + "  launch work\n  launch work\n"),
              over + "  graph begin\n  launch work\n  launch work\n  graph end\n");
}

TEST(Graphs, AreOverBeforeWhatStreamsAndHostsDoBehindThem) {
  const std::string inside =
      "  launch work\n  op s mb=0 stream=pair queue=1 after-compute handle\n  record e stream=pair\n  launch "
      "work\n";
  // A stream of the graph goes on outside.
  EXPECT_EQ(rewritten(inside + "  sync-stream\n  op s mb=1 stream=pair\n"),
            "  graph begin\n" + inside +
                "  graph end\n  record graph.over\n  sync-stream\n  wait-event graph.over stream=pair\n"
                "  op s mb=1 stream=pair\n");
  // After the compute stream it is behind the graph anyway.
  EXPECT_EQ(
      rewritten(inside + "  sync-stream\n  op s mb=1 stream=pair after-compute\n"),
      "  graph begin\n" + inside + "  graph end\n  sync-stream\n  op s mb=1 stream=pair after-compute\n");
  // A stream or the host waits for what a graph holds.
  EXPECT_EQ(rewritten(inside + "  sync-stream\n  wait-event e stream=side\n"),
            "  graph begin\n" + inside +
                "  graph end\n  record graph.over\n  sync-stream\n  wait-event graph.over stream=side\n"
                "  wait-event e stream=side\n");
  EXPECT_EQ(rewritten(inside + "  wait queue=1 count=1 host-waits\n  sync-event e\n"),
            "  graph begin\n" + inside +
                "  graph end\n  record graph.over\n  sync-event graph.over\n"
                "  wait queue=1 count=1 host-waits\n  sync-event e\n");
}

TEST(Graphs, AreSingleCallsWithoutThem) {
  const Program program = with_graphs(parsed("  launch work\n  launch work\n  op s mb=0 stream=pair\n"
                                             "  sync-stream\n  op s mb=1 stream=pair\n"))
                              .value();
  const Program calls = without_graphs(program);
  EXPECT_TRUE(is_plain(calls));
  EXPECT_TRUE(validate_program(calls));
  EXPECT_EQ(program.threads[0].end - program.threads[0].begin,
            2 + calls.threads[0].end - calls.threads[0].begin);
  EXPECT_EQ(calls.threads[1].begin, calls.threads[1].end);
  for (const Item item : calls.items) EXPECT_NE(item_op(item), ItemOp::kGraph);
}

TEST(Graphs, AreMadeOfPlainProgramsAlone) {
  const Result<Program> again = with_graphs(with_graphs(parsed("  launch work\n")).value());
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(again.error().message, HasSubstr("graph begin"));
}

TEST(Graphs, OfAConfigurationKeepWhatReplicasShare) {
  RunConfig config = test::config_of(ScheduleKind::kOneFOneB, 2, 1, 4, 0, 2);
  config.train.precision = Precision::kFp16;
  config.schedule.p2p = P2pStyle::kSeparate;
  const Program plain = program_of(config, default_sizes(config)).value();
  config.schedule.cuda_graphs = true;
  const Program program = program_of(config, default_sizes(config)).value();
  EXPECT_TRUE(program.extras.graphs);
  EXPECT_EQ(parse_program(print_program(program), "text").value().items, program.items);
  for (std::size_t a = 0; a < plain.threads.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      EXPECT_EQ(plain.threads[a].begin == plain.threads[b].begin,
                program.threads[a].begin == program.threads[b].begin);
    }
  }
  // Before the overflow is read, and after.
  int begins = 0;
  for (const Item item : program.thread_items(0))
    begins += item_op(item) == ItemOp::kGraph && item_ref(item) == 0 ? 1 : 0;
  EXPECT_EQ(begins, 2);
}

}  // namespace
}  // namespace plumbline

// From where hosts stand to what they wait for: the real run's positions give the simulator's own explanation.
#include "sim/positions.h"

#include "tests/sim/tiny_program.h"

namespace plumbline {
namespace {

using test::recv;
using test::send;
using test::TinyProgram;

using State = HostPosition::State;

// Both send first, each waited for by its host: neither gets to its receive.
const Program& head_on(TinyProgram& tiny) {
  const int both = tiny.comm("c", {0, 1}), stream = tiny.stream("c");
  for (const Rank rank : {0, 1}) {
    tiny.launch(rank);
    tiny.group(rank, stream, {send(both, 1 - rank)}, kHostWaits);
    tiny.group(rank, stream, {recv(both, 1 - rank)}, kHostWaits);
  }
  return tiny.finish();
}

std::vector<std::string> texts(const std::vector<WaitEdge>& edges) {
  std::vector<std::string> out;
  for (const WaitEdge& edge : edges) out.push_back(edge.from.text + " " + edge.reason);
  return out;
}

TEST(Positions, OfADeadlockGiveTheSimulatorsCircle) {
  TinyProgram tiny(2);
  const Program& program = head_on(tiny);
  const Result<LinkedProgram> linked = link_program(program);
  ASSERT_TRUE(linked) << linked.error().text();
  const Result<ModeVerdict> simulated = simulate(*linked, {}, {});
  ASSERT_TRUE(simulated);
  ASSERT_FALSE(simulated->completes);
  const std::vector<HostPosition> positions{{State::kBlocked, program.threads[0].begin + 1, {}},
                                            {State::kBlocked, program.threads[1].begin + 1, {}}};
  const Result<Stall> stall = explain_positions(*linked, {}, positions, 0.0);
  ASSERT_TRUE(stall) << stall.error().text();
  ASSERT_TRUE(stall->deadlock);
  EXPECT_TRUE(stall->late.empty());
  EXPECT_EQ(texts(simulated->findings.front().cycle), texts(stall->deadlock->cycle));
  EXPECT_FALSE(stall->deadlock->cycle.empty());
}

TEST(Positions, ARankThatComputesOrIsSilentIsLateAndNothingIsDeadlocked) {
  TinyProgram tiny(2);
  const Program& program = head_on(tiny);
  const Result<LinkedProgram> linked = link_program(program);
  ASSERT_TRUE(linked);
  std::vector<HostPosition> positions{
      {State::kBlocked, program.threads[0].begin + 1, {}},
      {State::kBlocked, program.threads[1].begin + 1, program.threads[1].begin}};
  Result<Stall> stall = explain_positions(*linked, {}, positions, 0.0);
  ASSERT_TRUE(stall);
  EXPECT_FALSE(stall->deadlock);
  ASSERT_EQ(1u, stall->late.size());
  EXPECT_EQ(1, stall->late[0].rank);
  EXPECT_NE(std::string::npos, stall->late[0].text.find("the computation of"));
  positions[1] = {};
  stall = explain_positions(*linked, {}, positions, 0.0);
  ASSERT_TRUE(stall);
  EXPECT_FALSE(stall->deadlock);
  ASSERT_EQ(1u, stall->late.size());
  EXPECT_NE(std::string::npos, stall->late[0].text.find("did not answer"));
}

TEST(Positions, AWaitThatTheProgramLetsEndIsNamed) {
  TinyProgram tiny(2);
  const int both = tiny.comm("c", {0, 1}), stream = tiny.stream("c");
  tiny.group(0, stream, {send(both, 1)}, kHostWaits);
  tiny.group(1, stream, {recv(both, 0)}, kHostWaits);
  const Program& program = tiny.finish();
  const Result<LinkedProgram> linked = link_program(program);
  ASSERT_TRUE(linked);
  const std::vector<HostPosition> positions{{State::kBlocked, program.threads[0].begin, {}},
                                            {State::kBlocked, program.threads[1].begin, {}}};
  const Result<Stall> stall = explain_positions(*linked, {}, positions, 0.0);
  ASSERT_TRUE(stall);
  EXPECT_FALSE(stall->deadlock);
  EXPECT_FALSE(stall->late.empty()) << "the message got lost, or is on its way";
}

}  // namespace
}  // namespace plumbline

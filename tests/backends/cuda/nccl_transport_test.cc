// Making communicators with the transport of one rank, as in a process of its own.
#include "backends/cuda/nccl_transport.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/backends/cuda/doubles.h"
#include "tests/backends/cuda/programs.h"

namespace plumbline::cuda {
namespace {

// Notes what is asked for and published, in order.
class NotedIds final : public IdExchange {
 public:
  Status publish(const std::string& key, const UniqueId& id) override {
    published.push_back(key);
    return ids_.publish(key, id);
  }
  Result<std::optional<UniqueId>> look_up(const std::string& key) override { return ids_.look_up(key); }
  std::vector<std::string> published;

 private:
  LocalIds ids_;
};

// The middle rank of three is a member of two pairs, and the first member of the second one alone. It used to join that
// one at once where the id of the first had not come yet, so that ranks made their communicators in different orders.
TEST(NcclTransport, ARankJoinsInOrderAlsoWhereAnIdComesLate) {
  RunConfig config = config_of(ScheduleKind::kOneFOneB, 3, 1, 1, Precision::kFp32);
  config.schedule.comm_map = CommMap::kPair;
  const Program program = program_of(config).value();
  const LinkedProgram linked = link_program(program).value();
  const Doubles& on = doubles(3);
  NotedIds ids;
  NcclTransport transport({{1, {on.libraries, 1}}}, ids);
  ASSERT_TRUE(transport.set_program(linked));
  const Poll poll = transport.ready();
  EXPECT_EQ(PollState::kPending, poll.state);
  EXPECT_THAT(poll.reason, testing::HasSubstr("its first member has not told its id yet"));
  EXPECT_THAT(ids.published, testing::IsEmpty());

  UniqueId id{};
  ASSERT_EQ(0, on.libraries->nccl.ncclGetUniqueId(&id));
  for (const Communicator& row : linked.communicators) {
    if (row.members == std::vector<Rank>{0, 1}) {
      ASSERT_TRUE(ids.publish(row.name + "(0,1)#0", id));
    }
  }
  ids.published.clear();
  EXPECT_EQ(PollState::kPending, transport.ready().state);
  EXPECT_THAT(ids.published, testing::Contains(testing::HasSubstr("(1,2)#0")));
}

}  // namespace
}  // namespace plumbline::cuda

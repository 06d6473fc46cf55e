// Collectives over Gloo against the simulator's, bit for bit, and the small messages beside them.
#include "backends/gloo/collectives.h"

#include <cstring>
#include <mutex>

#include "engine/base/rng.h"
#include "sim/collectives.h"
#include "tests/backends/gloo/ranks.h"

namespace plumbline {
namespace {

std::vector<std::byte> contents(Rank rank, DType dtype, std::size_t count) {
  std::vector<std::byte> out(count * static_cast<std::size_t>(dtype_bytes(dtype)));
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<std::byte>((static_cast<std::size_t>(rank) * 131 + i * 29 + i / 7) & 0x3F);
  return out;
}

TEST(GlooCollectives, EveryKindAndTypeGivesTheSimulatorsBits) {
  constexpr int kWorld = 3;
  struct Case {
    EndpointKind kind;
    DType dtype;
    ReduceOp op;
    std::size_t count;
  };
  std::vector<Case> cases;
  for (const EndpointKind kind : {EndpointKind::kAllReduce, EndpointKind::kReduce, EndpointKind::kBroadcast,
                                  EndpointKind::kAllGather, EndpointKind::kReduceScatter}) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kI64})
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax})
        for (const std::size_t count : {std::size_t{3}, std::size_t{999}})
          cases.push_back({kind, dtype, op, count});
    // Fewer elements than members.
    if (kind == EndpointKind::kAllReduce) cases.push_back({kind, DType::kF32, ReduceOp::kSum, 1});
  }
  std::vector<std::vector<std::vector<std::byte>>> measured(cases.size(),
                                                            std::vector<std::vector<std::byte>>(kWorld));
  test::on_ranks(kWorld, [&](gloo::Transport& transport) {
    gloo::Membership own;
    own.members = {0, 1, 2};
    own.position = transport.rank();
    for (std::size_t c = 0; c < cases.size(); ++c) {
      std::vector<std::byte> data = contents(transport.rank(), cases[c].dtype, cases[c].count);
      const gloo::CollectiveCall call{
          cases[c].kind, cases[c].dtype, cases[c].op, 1, data.data(), static_cast<Bytes>(data.size())};
      const Status status = gloo::run_collective(transport, own, call);
      ASSERT_TRUE(status) << status.error().text();
      measured[c][static_cast<std::size_t>(transport.rank())] = std::move(data);
    }
  });
  for (std::size_t c = 0; c < cases.size(); ++c) {
    std::vector<std::vector<std::byte>> expected;
    std::vector<std::byte*> slots;
    for (Rank r = 0; r < kWorld; ++r) expected.push_back(contents(r, cases[c].dtype, cases[c].count));
    for (auto& data : expected) slots.push_back(data.data());
    Endpoint endpoint;
    endpoint.kind = cases[c].kind;
    endpoint.dtype = cases[c].dtype;
    endpoint.reduce = cases[c].op;
    sim::run_collective(endpoint, 1, static_cast<Bytes>(expected[0].size()), slots);
    // Of a reduce only the root's result counts, of a reduce-scatter the own share.
    const std::size_t share = expected[0].size() / kWorld;
    for (std::size_t r = 0; r < kWorld; ++r) {
      if (cases[c].kind == EndpointKind::kReduce && r != 1) continue;
      const bool scattered = cases[c].kind == EndpointKind::kReduceScatter;
      const std::size_t from = scattered ? r * share : 0, bytes = scattered ? share : expected[r].size();
      EXPECT_EQ(0, std::memcmp(measured[c][r].data() + from, expected[r].data() + from, bytes))
          << "case " << c << ", " << endpoint_kind_name(cases[c].kind) << " of " << dtype_name(cases[c].dtype)
          << ", rank " << r;
    }
  }
}

TEST(GlooTransport, SelfSendsAndEmptyMessagesMeet) {
  test::on_ranks(2, [](gloo::Transport& transport) {
    const Rank own = transport.rank(), other = 1 - own;
    int out = 41 + own, in = 0, to_self = 0;
    std::vector<gloo::Message> messages{
        {true, own, 1, reinterpret_cast<std::byte*>(&out), sizeof out, 0},
        {true, other, 2, nullptr, 0, 0},
        {false, own, 1, reinterpret_cast<std::byte*>(&to_self), sizeof to_self, 0},
        {false, other, 2, nullptr, 0, 0},
        {true, other, 3, reinterpret_cast<std::byte*>(&out), sizeof out, 0},
        {false, other, 3, reinterpret_cast<std::byte*>(&in), sizeof in, 0}};
    const Status status = transport.exchange(messages);
    ASSERT_TRUE(status) << status.error().text();
    EXPECT_EQ(out, to_self);
    EXPECT_EQ(41 + other, in);
    for (const gloo::Message& message : messages) EXPECT_GT(message.end, 0);
  });
}

TEST(GlooChannel, EveryRankGetsAllMessagesByRank) {
  test::on_ranks(3, [](gloo::Transport& transport) {
    const std::unique_ptr<ControlChannel> channel = gloo::control_channel(transport);
    for (int round = 0; round < 3; ++round) {
      const std::string own(static_cast<std::size_t>(transport.rank() * 1000 * round),
                            static_cast<char>('a' + transport.rank()));
      const Result<std::vector<std::string>> all = channel->exchange(own);
      ASSERT_TRUE(all) << all.error().text();
      for (std::size_t r = 0; r < 3; ++r)
        EXPECT_EQ(std::string(r * 1000 * static_cast<std::size_t>(round), static_cast<char>('a' + r)),
                  (*all)[r]);
    }
  });
}

TEST(GlooCollective, TheOptimizersReductionsOverSomeOfTheRanks) {
  test::on_ranks(3, [](gloo::Transport& transport) {
    if (transport.rank() == 1) return;
    const std::shared_ptr<Collective> group = gloo::collective(transport, {0, 2});
    std::vector<double> values{1.5, static_cast<double>(transport.rank())};
    const Status status = group->sum(values);
    ASSERT_TRUE(status) << status.error().text();
    EXPECT_EQ((std::vector<double>{3.0, 2.0}), values);
  });
}

TEST(GlooTransport, RanksThatDoNotComeAreNamed) {
  Result<std::unique_ptr<processes::Store>> store = processes::Store::serve(0);
  ASSERT_TRUE(store);
  const auto transport = gloo::connect({"127.0.0.1", (*store)->port()}, "test", 0, 3, 0.3);
  ASSERT_FALSE(transport);
  EXPECT_EQ(ErrorCode::kTimeout, transport.error().code);
  EXPECT_NE(std::string::npos, transport.error().message.find("did not come: 1, 2"))
      << transport.error().message;
}

}  // namespace
}  // namespace plumbline

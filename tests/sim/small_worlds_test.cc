// Small worlds: the checker's one pass and the simulator's one run against every interleaving of a model that shares
// no code with them (interleavings.h). In both modes of a check, all ends of a program must be one and the same, and
// it must be the one that the pass found.
//
// Exhaustively: two ranks of at most three operations and three ranks of at most one; with the environment variable
// PLUMBLINE_SMALL_WORLDS set, of at most four and at most two. Programs that a permutation of ranks or communicators
// makes of each other count once. Random: balanced programs of three ranks with three or four operations each, 2,000,
// or as many as the variable says.
#include <cstdio>
#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

#include "engine/base/rng.h"
#include "engine/base/text.h"
#include "sim/simulator.h"
#include "tests/sim/interleavings.h"
#include "tests/sim/verify/builder.h"

namespace plumbline::test {
namespace {

std::int64_t campaign() {
  const char* text = std::getenv("PLUMBLINE_SMALL_WORLDS");
  return text == nullptr ? 0 : parse_integer(text).value_or(0);
}

// Puts worlds into one Program, whose tables are made once.
class Worlds {
 public:
  explicit Worlds(int ranks) : b_(ranks, 1) {
    b_.program().fragment = true;
    const unsigned slot = b_.slot("x");
    const unsigned sums = b_.slot("sums", 64, SlotKind::kOther, false, true);
    std::vector<Rank> all;
    for (Rank r = 0; r < ranks; ++r) all.push_back(r);
    for (unsigned comm = 0; comm < 2; ++comm) b_.family("c" + std::to_string(comm), {all});
    for (unsigned comm = 0; comm < 2; ++comm) {
      for (Rank peer = 0; peer < ranks; ++peer) {
        rows_[comm][0].push_back(b_.endpoint(EndpointKind::kSend, comm, slot, peer));
        rows_[comm][1].push_back(b_.endpoint(EndpointKind::kRecv, comm, slot, peer));
        rows_[comm][2].push_back(b_.endpoint(EndpointKind::kAllReduce, comm, sums, -1));
      }
    }
  }

  const Program& make(const SmallWorld& world) {
    Program& program = b_.program();
    program.items.clear();
    program.threads.clear();
    for (std::size_t rank = 0; rank < world.size(); ++rank) {
      const auto begin = static_cast<std::uint32_t>(program.items.size());
      for (std::size_t i = 0; i < world[rank].size(); ++i) add(world[rank], i);
      program.threads.push_back(
          {static_cast<Rank>(rank), begin, static_cast<std::uint32_t>(program.items.size())});
    }
    return program;
  }

 private:
  void add(const std::vector<SmallOp>& ops, std::size_t i) {
    std::size_t last = i;
    while (last + 1 < ops.size() && ops[last + 1].chained) ++last;
    const auto row = rows_[static_cast<std::size_t>(ops[i].comm)][static_cast<std::size_t>(ops[i].kind)];
    const unsigned flags = i < last ? unsigned{kMore} : ops[i].waited ? unsigned{kHostWaits} : 0u;
    b_.program().items.push_back(
        make_item(ItemOp::kOp, ops[i].kind == SmallKind::kAllReduce ? kNoMicrobatch : 0, flags,
                  row[static_cast<std::size_t>(ops[i].peer)], 1u + static_cast<unsigned>(ops[last].comm)));
  }

  Builder b_;
  std::vector<unsigned> rows_[2][3];  // by communicator, kind; by peer
};

std::string words_of(const SmallWorld& world) {
  std::string out;
  for (std::size_t rank = 0; rank < world.size(); ++rank) {
    out += std::to_string(rank) + ":";
    for (const SmallOp& op : world[rank]) {
      const char* kind = op.kind == SmallKind::kSend ? "send" : op.kind == SmallKind::kRecv ? "recv" : "sum";
      out += std::string(op.chained ? " +" : " ") + kind + std::to_string(op.comm) +
             (op.kind == SmallKind::kAllReduce ? "" : ">" + std::to_string(op.peer)) + (op.waited ? "!" : "");
    }
    out += "\n";
  }
  return out;
}

struct Tally {
  std::int64_t programs = 0, certified = 0, by_default = 0, states = 0;
  void print(const char* what) const {
    std::printf(
        "[ programs ] %s: %lld, of them %lld complete in certification and %lld by default; %lld states\n",
        what, static_cast<long long>(programs), static_cast<long long>(certified),
        static_cast<long long>(by_default), static_cast<long long>(states));
  }
};

void compare(Worlds& worlds, const SmallWorld& world, Tally& tally) {
  const auto linked = link_program(worlds.make(world));
  ASSERT_TRUE(linked.has_value()) << words_of(world);
  CheckOptions options;
  options.makespan = false;
  const auto verdict = check_program(*linked, options);
  ASSERT_TRUE(verdict.has_value());
  const auto strict = Interleavings(world, true, true).run();
  const auto free = Interleavings(world, false, false).run();
  ASSERT_TRUE(strict.confluent) << words_of(world);
  ASSERT_TRUE(free.confluent) << words_of(world);
  ASSERT_EQ(verdict->modes[0].completes, strict.completes) << words_of(world) << words(*verdict);
  ASSERT_EQ(verdict->modes[1].completes, free.completes) << words_of(world) << words(*verdict);
  ASSERT_TRUE(free.completes || !strict.completes) << words_of(world);
  if (tally.programs % 16 == 0) {
    ASSERT_EQ(simulate(*linked, certification_model(), {})->completes, strict.completes) << words_of(world);
    ASSERT_EQ(simulate(*linked, default_model(), {})->completes, free.completes) << words_of(world);
  }
  ++tally.programs;
  tally.certified += strict.completes ? 1 : 0;
  tally.by_default += free.completes ? 1 : 0;
  tally.states += strict.states + free.states;
}

// All lists of at most `most` messages of `rank`, alone or chained.
std::vector<std::vector<SmallOp>> all_lists(int ranks, int rank, int most) {
  std::vector<std::vector<SmallOp>> lists{{}};
  for (std::size_t from = 0, length = 0; static_cast<int>(length) < most; ++length) {
    const std::size_t end = lists.size();
    for (std::size_t at = from; at < end; ++at) {
      for (int code = 0; code < 8 * ranks; ++code) {
        SmallOp op;
        op.kind = (code & 1) != 0 ? SmallKind::kRecv : SmallKind::kSend;
        op.comm = code >> 1 & 1;
        op.chained = (code & 4) != 0;
        op.peer = code >> 3;
        if (op.peer == rank || (op.chained && length == 0)) continue;
        lists.push_back(lists[at]);
        lists.back().push_back(op);
      }
    }
    from = end;
  }
  return lists;
}

SmallWorld renamed(const SmallWorld& world, const std::vector<int>& to, bool swap) {
  SmallWorld out(world.size());
  for (std::size_t rank = 0; rank < world.size(); ++rank) {
    std::vector<SmallOp>& list = out[static_cast<std::size_t>(to[rank])];
    list = world[rank];
    for (SmallOp& op : list) {
      op.peer = to[static_cast<std::size_t>(op.peer)];
      if (swap) op.comm = 1 - op.comm;
    }
  }
  return out;
}

// Rings are rotated, not mirrored: a connection's order depends on which neighbour is the next one (N2).
bool is_first_of_its_names(const SmallWorld& world) {
  const auto ranks = static_cast<int>(world.size());
  for (int shift = 0; shift < ranks; ++shift) {
    std::vector<int> to;
    for (int rank = 0; rank < ranks; ++rank) to.push_back((rank + shift) % ranks);
    for (const bool swap : {false, true}) {
      if (renamed(world, to, swap) < world) return false;
    }
  }
  return true;
}

TEST(SmallWorlds, TwoRanksExhaustively) {
  const int most = campaign() > 0 ? 4 : 3;
  const auto left = all_lists(2, 0, most), right = all_lists(2, 1, most);
  Worlds worlds(2);
  Tally tally;
  std::int64_t seen = 0;
  for (const auto& a : left) {
    for (const auto& b : right) {
      // What sends and receives different numbers sticks whatever the order; one in 64 of those is looked at.
      std::array<int, 4> surplus{};
      for (const SmallOp& op : a)
        ++surplus[static_cast<std::size_t>(op.comm * 2 + (op.kind == SmallKind::kSend))];
      for (const SmallOp& op : b)
        --surplus[static_cast<std::size_t>(op.comm * 2 + (op.kind == SmallKind::kRecv))];
      if (surplus != std::array<int, 4>{} && ++seen % 64 != 0) continue;
      const SmallWorld world{a, b};
      if (!is_first_of_its_names(world)) continue;
      compare(worlds, world, tally);
      if (HasFatalFailure()) return;
    }
  }
  tally.print(most == 4 ? "two ranks, four operations" : "two ranks, three operations");
  EXPECT_GT(tally.programs, 1000);
  EXPECT_GT(tally.certified, 100);
  EXPECT_GT(tally.by_default, tally.certified);
}

TEST(SmallWorlds, ThreeRanksExhaustively) {
  const int most = campaign() > 0 ? 2 : 1;
  std::vector<std::vector<std::vector<SmallOp>>> lists;
  for (int rank = 0; rank < 3; ++rank) lists.push_back(all_lists(3, rank, most));
  Worlds worlds(3);
  Tally tally;
  for (const auto& a : lists[0]) {
    for (const auto& b : lists[1]) {
      for (const auto& c : lists[2]) {
        const SmallWorld world{a, b, c};
        if (!is_first_of_its_names(world)) continue;
        compare(worlds, world, tally);
        if (HasFatalFailure()) return;
      }
    }
  }
  tally.print(most == 2 ? "three ranks, two operations" : "three ranks, one operation");
  EXPECT_GT(tally.programs, 100);
}

// Messages and collectives dealt to their ends until every rank has three or four operations; then the order of each
// rank is disturbed a little.
SmallWorld balanced(std::uint64_t seed) {
  const CounterRng rng(seed, "small-world");
  std::uint64_t drawn = 0;
  const auto below = [&](int bound) {
    return static_cast<int>(rng.below(drawn++, static_cast<std::uint64_t>(bound)));
  };
  SmallWorld world(3);
  const auto room = [&](int rank) { return world[static_cast<std::size_t>(rank)].size() < 4; };
  const auto short_of = [&](int rank) { return world[static_cast<std::size_t>(rank)].size() < 3; };
  for (int tries = 0; tries < 40 && (short_of(0) || short_of(1) || short_of(2)); ++tries) {
    const int comm = below(2);
    if (below(6) == 0 && room(0) && room(1) && room(2)) {
      for (auto& ops : world) ops.push_back({SmallKind::kAllReduce, comm, 0, false, false});
      continue;
    }
    const int from = below(3), to = (from + 1 + below(2)) % 3;
    if (!room(from) || !room(to)) continue;
    world[static_cast<std::size_t>(from)].push_back({SmallKind::kSend, comm, to, false, false});
    world[static_cast<std::size_t>(to)].push_back({SmallKind::kRecv, comm, from, false, false});
  }
  for (auto& ops : world) {
    if (ops.size() > 1 && below(2) == 0) {
      const auto at = static_cast<std::size_t>(below(static_cast<int>(ops.size()) - 1));
      std::swap(ops[at], ops[at + 1]);
    }
    for (std::size_t i = 0; i < ops.size(); ++i) ops[i].chained = i > 0 && below(3) == 0;
    for (std::size_t i = 0; i < ops.size(); ++i)
      ops[i].waited = (i + 1 == ops.size() || !ops[i + 1].chained) && below(5) == 0;
  }
  return world;
}

TEST(SmallWorlds, ThreeRanksAtRandom) {
  const std::int64_t programs = campaign() > 0 ? campaign() : 2000;
  Worlds worlds(3);
  Tally tally;
  for (std::int64_t seed = 0; seed < programs; ++seed) {
    compare(worlds, balanced(static_cast<std::uint64_t>(seed)), tally);
    if (HasFatalFailure()) return;
  }
  tally.print("three ranks, three or four operations, at random");
  EXPECT_GT(tally.certified, tally.programs / 20);
  EXPECT_GT(tally.by_default, tally.certified);
  EXPECT_LT(tally.by_default, tally.programs);
}

}  // namespace
}  // namespace plumbline::test

// The ordered pass against the general host pass: where it accepts a rank, both find the same facts, and the
// general pass finds nothing wrong.
#include "sim/verify/ordered_pass.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "engine/base/rng.h"
#include "engine/config/validate.h"
#include "engine/program/lower.h"
#include "engine/program/text.h"
#include "sim/verify/host_pass.h"
#include "tests/sim/verify/random_program.h"

namespace plumbline::verify {
namespace {

struct Tally {
  int accepted = 0, declined = 0, faulty = 0;
};

auto uses(const ScratchVector<FirstUse>& list) {
  std::vector<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, bool>> out;
  for (const FirstUse& use : list) out.emplace_back(use.item, use.group, use.need, use.overtakes);
  return out;
}

auto decisions(const ScratchVector<Decision>& list) {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> out;
  for (const Decision& decision : list) out.emplace_back(decision.item, decision.writer);
  return out;
}

auto tallies(const RangeFacts& facts) {
  auto out = facts.tallies;
  std::sort(out.begin(), out.end());
  return out;
}

auto events(const ScratchVector<SyncEvent>& list) {
  std::vector<std::tuple<SyncKind, std::uint16_t, std::uint32_t>> out;
  for (const SyncEvent& event : list) out.emplace_back(event.kind, event.slot, event.item);
  return out;
}

void expect_equal(const RangeFacts& ordered, const RangeFacts& general) {
  EXPECT_TRUE(general.findings.empty()) << general.findings.front().why;
  EXPECT_EQ(ordered.memory.peak, general.memory.peak);
  EXPECT_EQ(ordered.memory.peak_activations, general.memory.peak_activations);
  EXPECT_EQ(ordered.memory.peak_item, general.memory.peak_item);
  EXPECT_EQ(ordered.memory.live_stashes, general.memory.live_stashes);
  EXPECT_EQ(ordered.operations, general.operations);
  EXPECT_EQ(uses(ordered.first_uses[0]), uses(general.first_uses[0]));
  EXPECT_EQ(uses(ordered.first_uses[1]), uses(general.first_uses[1]));
  EXPECT_EQ(decisions(ordered.decisions), decisions(general.decisions));
  EXPECT_EQ(ordered.armed, general.armed);
  EXPECT_EQ(tallies(ordered), tallies(general));
  EXPECT_EQ(events(ordered.sync), events(general.sync));
  EXPECT_EQ(ordered.mixed_groups, general.mixed_groups);
  EXPECT_EQ(ordered.streams, general.streams);
}

void compare(const Program& program, Tally& tally) {
  const auto linked = link_program(program);
  if (!linked) return;
  const CheckWorld world = make_world(*linked);
  HostTables tables(world);
  OrderedPass ordered(tables);
  HostPass general(world, HostPass::Kind::kGeneral);
  for (std::size_t t = 0; t < world.threads(); ++t) {
    RangeFacts fast;
    RangeFacts slow;
    general.run(t, slow);
    tally.faulty += slow.findings.empty() ? 0 : 1;
    if (!ordered.run(t, fast)) {
      ++tally.declined;
      continue;
    }
    ++tally.accepted;
    expect_equal(fast, slow);
  }
}

Result<Program> lowered(ScheduleKind kind, int pp, int chunks, int dp, P2pStyle style, Precision precision) {
  RunConfig config;
  config.schedule.kind = kind;
  config.schedule.p2p = style;
  config.schedule.chunks = chunks;
  config.schedule.microbatches = 2 * pp;
  config.parallel.pp = pp;
  config.parallel.dp = dp;
  config.model.layers = pp * chunks;
  config.train.precision = precision;
  const Result<RunConfig> valid = validate(config, {}, Purpose::kCheck);
  if (!valid) return tl::unexpected(valid.error());
  return program_of(*valid, default_sizes(*valid));
}

std::vector<Program> programs() {
  std::vector<Program> out;
  for (const auto& [kind, chunks] :
       {std::pair{ScheduleKind::kGpipe, 1}, std::pair{ScheduleKind::kOneFOneB, 1},
        std::pair{ScheduleKind::kInterleaved, 2}}) {
    for (const int dp : {1, 2}) {
      for (const P2pStyle style : {P2pStyle::kBatched, P2pStyle::kSeparate}) {
        for (const Precision precision : {Precision::kFp32, Precision::kFp16}) {
          Result<Program> program = lowered(kind, 4, chunks, dp, style, precision);
          EXPECT_TRUE(program) << program.error().text();
          if (program) out.push_back(std::move(*program));
        }
      }
    }
  }
  return out;
}

TEST(OrderedPass, CombinedCallsAreAccepted) {
  for (const Precision precision : {Precision::kFp32, Precision::kFp16}) {
    const Result<Program> program = lowered(ScheduleKind::kOneFOneB, 4, 1, 2, P2pStyle::kBatched, precision);
    ASSERT_TRUE(program) << program.error().text();
    Tally tally;
    compare(*program, tally);
    EXPECT_EQ(tally.accepted, 8);
  }
}

// One item dropped, doubled, exchanged with another or given another microbatch: mostly faults.
TEST(OrderedPass, EqualsTheGeneralPassOnDisturbedPrograms) {
  Tally tally;
  const std::vector<Program> all = programs();
  ASSERT_EQ(all.size(), 24u);
  for (std::size_t which = 0; which < all.size(); ++which) {
    compare(all[which], tally);
    const CounterRng rng(which, "ordered-pass");
    std::uint64_t drawn = 0;
    const auto below = [&](std::size_t bound) { return static_cast<std::size_t>(rng.below(drawn++, bound)); };
    for (int trial = 0; trial < 150; ++trial) {
      Program program = all[which];
      const std::size_t a = below(program.items.size()), b = below(program.items.size());
      switch (below(4)) {
        case 0:
          std::swap(program.items[a], program.items[b]);
          break;
        case 1:
          program.items[a] = make_item(ItemOp::kMark, kNoMicrobatch, 0, 0, 0);
          program.marks.push_back("gone");
          break;
        case 2:
          program.items[a] = program.items[b];
          break;
        default:
          if (item_microbatch(program.items[a]) == kNoMicrobatch) break;
          program.items[a] = (program.items[a] & ~Item{0xFFFFF}) | below(8);
      }
      if (validate_program(program)) compare(program, tally);
    }
  }
  // The test would prove little if one of these were rare.
  EXPECT_GT(tally.accepted, 5000);
  EXPECT_GT(tally.declined, 1000);
  EXPECT_GT(tally.faulty, 500);
}

// A rank's items at random, mostly in order: kernels, releases, waits, and groups whose entries follow each other in
// any order, some of them twice; then perhaps a decision with both arms.
class RandomRank {
 public:
  explicit RandomRank(std::uint64_t seed) : draw_(seed), b_(2, kMicrobatches) {
    b_.family("pp", {{0, 1}});
    b_.family("other", {{0, 1}});
    slots_ = {b_.slot("x"), b_.slot("y", 256, SlotKind::kOther), b_.slot("z", 1024, SlotKind::kStash)};
    const auto flag = static_cast<std::uint16_t>(b_.slot("flag", 4, SlotKind::kFoundInf, false));
    const unsigned write_flag = b_.kernel({}, {}, {flag}), free_flag = b_.kernel({}, {flag}, {});
    b_.program().variables.push_back({"flag", flag});
    steps();
    if (draw_.one_in(2)) {
      b_.launch(0, write_flag, kNoMicrobatch);
      b_.add(0, make_item(ItemOp::kRead, kNoMicrobatch, 0, 0, 0));
      b_.add(0, make_item(ItemOp::kDecide, kNoMicrobatch, 0, 0, 0));
      const auto before = live_;
      for (const unsigned arm : {kArmYes, kArmNo}) {
        arm_ = arm;
        live_ = before;
        steps();
        release_all();
      }
      arm_ = 0;
      b_.launch(0, free_flag, kNoMicrobatch);
    } else {
      release_all();
    }
  }

  Program program() { return b_.build(); }

 private:
  static constexpr int kMicrobatches = 3;
  using Live = std::array<std::array<bool, kMicrobatches>, 3>;

  void steps() {
    for (int i = draw_.below(25); i > 0; --i) {
      if (draw_.one_in(8)) {
        b_.add(0, make_item(ItemOp::kSyncDevice, kNoMicrobatch, arm_, 0, 0));
      } else if (draw_.one_in(2)) {
        group();
      } else {
        launch();
      }
    }
  }

  void launch() {
    const std::size_t s = slot();
    const int m = draw_.below(kMicrobatches);
    const auto row = static_cast<std::uint16_t>(slots_[s]);
    bool& live = live_[s][static_cast<std::size_t>(m)];
    const bool right = !draw_.one_in(60);
    if (live != right) {
      live = true;
      b_.launch(0, b_.kernel({}, {}, {row}, KernelKind::kForward), m, 0, arm_);
    } else if (draw_.one_in(2)) {
      b_.launch(0, b_.kernel({row}, {}, {}), m, 0, arm_);
    } else {
      live = false;
      b_.add(0, make_item(ItemOp::kFree, m, arm_, slots_[s], 0));
    }
  }

  void group() {
    const int entries = 1 + draw_.below(4);
    const unsigned family = draw_.one_in(10) ? 1 : 0;
    std::vector<bool*> dying;
    for (int i = 0; i < entries; ++i) {
      const std::size_t s = slot();
      const int m = draw_.below(kMicrobatches);
      bool& live = live_[s][static_cast<std::size_t>(m)];
      const bool dies = draw_.one_in(3), sends = live == !draw_.one_in(60);
      const unsigned of = draw_.one_in(20) ? 1 - family : family;
      const unsigned last = kAfterCompute | (draw_.one_in(2) ? kComputeWaits : kHostWaits);
      const unsigned endpoint =
          b_.endpoint(sends ? EndpointKind::kSend : EndpointKind::kRecv, of, slots_[s], 1, dies);
      b_.add(0, make_item(ItemOp::kOp, m, arm_ | (i + 1 < entries ? unsigned{kMore} : last), endpoint,
                          1 + family));
      if (!sends) live = true;
      if (dies) dying.push_back(&live);
    }
    for (bool* const live : dying) *live = false;
  }

  void release_all() {
    for (std::size_t s = 0; s < live_.size(); ++s) {
      for (int m = 0; m < kMicrobatches; ++m) {
        if (live_[s][static_cast<std::size_t>(m)]) b_.add(0, make_item(ItemOp::kFree, m, arm_, slots_[s], 0));
      }
    }
  }

  std::size_t slot() { return static_cast<std::size_t>(draw_.below(3)); }

  test::Draw draw_;
  test::Builder b_;
  std::vector<unsigned> slots_;
  Live live_{};
  unsigned arm_ = 0;
};

TEST(OrderedPass, EqualsTheGeneralPassOnGroupsInAnyOrder) {
  Tally tally;
  for (std::uint64_t seed = 0; seed < 20000; ++seed) compare(RandomRank(seed).program(), tally);
  EXPECT_GT(tally.accepted, 25000);
  EXPECT_GT(tally.declined, 3000);
  EXPECT_GT(tally.faulty, 3000);
}

}  // namespace
}  // namespace plumbline::verify

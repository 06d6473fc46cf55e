#include "engine/program/text.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "engine/program/link.h"
#include "engine/program/lower.h"
#include "tests/engine/program/config.h"

namespace plumbline {
namespace {

void expect_round_trip(const Program& program) {
  const std::string text = print_program(program);
  const auto again = parse_program(text, "printed");
  ASSERT_TRUE(again.has_value()) << again.error().text();
  EXPECT_EQ(program_digest(*again), program_digest(program));
  EXPECT_EQ(print_program(*again), text);
}

TEST(ProgramText, RoundTripOfEverySchedule) {
  for (const ScheduleKind kind : {ScheduleKind::kGpipe, ScheduleKind::kOneFOneB, ScheduleKind::kInterleaved,
                                  ScheduleKind::kInterleaved2022, ScheduleKind::kForwardOnly}) {
    for (const CommMap map : {CommMap::kOne, CommMap::kPair, CommMap::kDirection, CommMap::kMegatron}) {
      for (const P2pStyle style : {P2pStyle::kBatched, P2pStyle::kSeparate}) {
        const int chunks =
            kind == ScheduleKind::kInterleaved || kind == ScheduleKind::kInterleaved2022 ? 2 : 1;
        RunConfig config = test::config_of(kind, 4, chunks, 8, 4, 2);
        config.schedule.comm_map = map;
        config.schedule.p2p = style;
        config.train.precision = Precision::kFp16;
        const auto program = program_of(config, default_sizes(config));
        ASSERT_TRUE(program.has_value()) << program.error().text();
        expect_round_trip(*program);
        EXPECT_TRUE(link_program(*program).has_value());
      }
    }
  }
}

TEST(ProgramText, ErrorsNameThePlace) {
  const struct {
    const char* text;
    const char* expected;
  } cases[] = {
      {"", "p:0"},
      {"hello", "starts with 'plumbline-program 1'"},
      {"plumbline-program 2", "version 1"},
      {"plumbline-program 1\ngrid pp=2\nstages x", "p:3:8: stages 'x' is not a number"},
      {"plumbline-program 1\nslots a", "'slots' begins no line"},
      {"plumbline-program 1\nslot a kind=activaton", "p:2:8: 'activaton' is not a slot kind"},
      {"plumbline-program 1\nslot a\nslot a", "p:3:6: slot 'a' is defined twice"},
      {"plumbline-program 1\nslot gradient.1\nkernel k reads=gradiant.1", "did you mean 'gradient.1'?"},
      {"plumbline-program 1\nstages 1\nplacement 0\nstream compute\nranks 0\n  fly",
       "'fly' is not a host operation"},
      {"plumbline-program 1\ngrid pp=2\nstages 1\nplacement 0\nstream compute\nranks 0\n  sync-device",
       "rank 1 has no block"},
      {"plumbline-program 1\ngrid pp=99999999", "is beyond"},
      // Found by fuzz_program: the checker asked the grid for it.
      {"plumbline-program 1\nstages 1\nplacement 7\nstream compute\nranks 0\n  sync-device",
       "stage 0 is placed at pipeline coordinate 7, pp is 1"},
  };
  for (const auto& c : cases) {
    const auto parsed = parse_program(c.text, "p");
    ASSERT_FALSE(parsed.has_value()) << c.text;
    if (std::string(c.expected) != "p:0") {
      EXPECT_NE(parsed.error().text().find(c.expected), std::string::npos) << parsed.error().text();
    }
  }
}

// Any damage to a printed Program is either read as another valid Program or refused with a place; it never crashes.
RC_GTEST_PROP(ProgramText, DamageIsRefusedOrHarmless, ()) {
  static const std::string text = [] {
    const RunConfig config = test::config_of(ScheduleKind::kOneFOneB, 2, 1, 2);
    return print_program(*program_of(config, default_sizes(config)));
  }();
  std::string damaged = text;
  const auto at = *rc::gen::inRange<std::size_t>(0, text.size());
  const auto what = *rc::gen::inRange(0, 3);
  if (what == 0) damaged.erase(at, *rc::gen::inRange<std::size_t>(1, 40));
  if (what == 1) damaged[at] = static_cast<char>(*rc::gen::inRange(1, 127));
  if (what == 2) damaged.insert(at, *rc::gen::arbitrary<std::string>());
  const auto parsed = parse_program(damaged, "damaged");
  if (!parsed) {
    RC_ASSERT(parsed.error().where.file == "damaged");
  } else {
    RC_ASSERT(validate_program(*parsed).has_value());
  }
}

}  // namespace
}  // namespace plumbline

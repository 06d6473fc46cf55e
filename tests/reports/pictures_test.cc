// SVG, DOT and terminal output of small records, byte for byte.
#include <gtest/gtest.h>

#include "reports/dot.h"
#include "reports/markup.h"
#include "reports/palette.h"
#include "reports/ring.h"
#include "reports/svg.h"
#include "reports/terminal.h"
#include "tests/reports/golden.h"
#include "tests/reports/sample_record.h"
#include "tests/reports/sample_verdict.h"

namespace plumbline {
namespace {

sample::Shape small(bool split) {
  sample::Shape shape;
  shape.ranks = 2;
  shape.microbatches = 3;
  shape.split = split;
  shape.latency = 100'000;
  shape.tail = true;
  return shape;
}

TEST(Svg, Golden) {
  const auto svg = timeline_svg(sample::record_of(small(true)));
  ASSERT_TRUE(svg) << svg.error().text();
  expect_golden("split.svg", *svg);
}

TEST(Svg, RowsAndRefusals) {
  sample::Shape shape;
  const RunRecord record = sample::record_of(shape);
  SvgOptions options;
  ASSERT_TRUE(parse_rows("1-2", options));
  const auto some = timeline_svg(record, options);
  ASSERT_TRUE(some);
  EXPECT_EQ(some->find(">rank 0<"), std::string::npos);
  EXPECT_NE(some->find(">rank 2<"), std::string::npos);
  ASSERT_TRUE(parse_rows("3", options));
  EXPECT_EQ(options.first_row, 3);
  EXPECT_EQ(options.last_row, 3);
  for (const char* bad : {"", "a", "3-1", "1-2-3", "-1"}) EXPECT_FALSE(parse_rows(bad, options)) << bad;
  ASSERT_TRUE(parse_rows("2-9", options));
  EXPECT_FALSE(timeline_svg(record, options)) << "rank 9 does not exist";
  options = {};
  options.step = 7;
  EXPECT_FALSE(timeline_svg(record, options));
  EXPECT_FALSE(timeline_svg(RunRecord{}));
}

TEST(Dot, Golden) {
  const auto dot = step_dot(sample::record_of(small(false)));
  ASSERT_TRUE(dot) << dot.error().text();
  expect_golden("step.dot", *dot);
  expect_golden("waits.dot", waits_dot(sample::deadlock_verdict().modes[0].findings[0]));
}

TEST(Dot, RefusesWhatNobodyCanRead) {
  sample::Shape shape;
  shape.ranks = 8;
  shape.microbatches = 64;
  const auto dot = step_dot(sample::record_of(shape));
  ASSERT_FALSE(dot);
  EXPECT_NE(dot.error().message.find("2000 at most"), std::string::npos);
}

TEST(Dot, Layout) {
  const auto svg = dot_to_svg(waits_dot(sample::deadlock_verdict().modes[0].findings[0]));
  if (!svg) {
    EXPECT_EQ(svg.error().code, ErrorCode::kMissing);
    GTEST_SKIP() << svg.error().message;
  }
  EXPECT_NE(svg->find("<svg"), std::string::npos);
  EXPECT_FALSE(dot_to_svg("not a graph"));
}

TEST(Terminal, Golden) {
  sample::Shape shape;
  const auto plain = terminal_timeline(sample::record_of(shape));
  ASSERT_TRUE(plain);
  expect_golden("1f1b.txt", *plain);
  shape.chunks = 2;
  TerminalOptions options;
  options.width = 100;
  const auto chunks = terminal_timeline(sample::record_of(shape), options);
  ASSERT_TRUE(chunks);
  expect_golden("interleaved.txt", *chunks);
  options.colour = TerminalColour::kTrueColour;
  const auto colours = terminal_timeline(sample::record_of(small(true)), options);
  ASSERT_TRUE(colours);
  expect_golden("split-truecolour.txt", *colours);
  options.colour = TerminalColour::kAnsi16;
  const auto sixteen = terminal_timeline(sample::record_of(small(true)), options);
  ASSERT_TRUE(sixteen);
  expect_golden("split-ansi16.txt", *sixteen);
}

TEST(Terminal, KeepsToItsWidth) {
  for (const int width : {40, 80, 133}) {
    TerminalOptions options;
    options.width = width;
    const auto text = terminal_timeline(sample::record_of({}), options);
    ASSERT_TRUE(text);
    for (const std::string_view line : split(*text, '\n'))
      EXPECT_LE(line.size(), static_cast<std::size_t>(width));
  }
}

TEST(Markup, AxisTicksAreRound) {
  EXPECT_EQ(axis_ticks(33, 8), (std::vector<Nanoseconds>{0, 5, 10, 15, 20, 25, 30}));
  EXPECT_EQ(axis_ticks(0, 8), (std::vector<Nanoseconds>{0}));
  EXPECT_EQ(axis_label(1'500'000, 500'000), "1.5 ms");
  EXPECT_EQ(axis_label(20'000, 10'000), "20 us");
  EXPECT_EQ(axis_label(0, 10), "0");
}

TEST(Palette, InkCanBeRead) {
  EXPECT_EQ(hex_colour(kind_colour(WorkKind::kForward)), "#0072b2");
  EXPECT_EQ(hex_colour(ink_on(kind_colour(WorkKind::kForward))), "#ffffff");
  EXPECT_EQ(hex_colour(ink_on(kind_colour(WorkKind::kBackward))), "#000000");
  EXPECT_NE(kind_colour(WorkKind::kForward, 1, 2), kind_colour(WorkKind::kForward, 0, 2));
}

TEST(Ring, DrawsAtMostSixteenBoxes) {
  std::vector<CycleHop> hops;
  for (int r = 0; r < 40; ++r) hops.push_back({r, (r + 1) % 40, "0SEND_F1", "1RECV_F1", "", ""});
  const std::string svg = ring_svg(hops);
  EXPECT_NE(svg.find("25 more ranks"), std::string::npos);
  EXPECT_EQ(ring_svg({}), "");
}

}  // namespace
}  // namespace plumbline

#include "reports/comparison.h"

#include <gtest/gtest.h>

#include "engine/schedule/generator.h"

namespace plumbline {
namespace {

ComparedSchedule made(const char* name, int chunks, Nanoseconds recompute = 0) {
  GeneratorArgs args;
  args.ranks = 2;
  args.chunks = chunks;
  args.microbatches = 4;
  ComparedSchedule one;
  one.name = name;
  one.schedule = find_generator(name).value()->make(args).value();
  StageCosts costs;
  costs.forward = {1'000'000};
  costs.input_grad = costs.weight_grad = {1'000'000};
  costs.recompute = {recompute};
  one.evaluation = evaluate(one.schedule, costs, &one.times).value();
  one.peak_bytes = peak_held(one.schedule, {{1 << 20}, {0}, {}});
  return one;
}

TEST(Comparison, TextHasOneAxisForAll) {
  const std::string text = comparison_text({made("1f1b", 1), made("zb-h1", 1)}, {});
  // 1F1B: (4 + 1) x 3 ms; ZB-H1: (p-1)(F+I-W) of bubble.
  EXPECT_NE(text.find("1f1b      15.00 ms"), std::string::npos) << text;
  EXPECT_NE(text.find("zb-h1     13.00 ms"), std::string::npos) << text;
  const std::size_t first = text.find("rank 0"), second = text.find("rank 0", first + 1);
  const std::string a = text.substr(first, text.find('\n', first) - first);
  const std::string b = text.substr(second, text.find('\n', second) - second);
  EXPECT_EQ(a.size(), b.size()) << text;
  EXPECT_NE(b.find('W'), std::string::npos);
  EXPECT_EQ(b.find("B"), std::string::npos) << b;
  EXPECT_EQ(b.back(), '.') << "the shorter one ends before the axis does";
}

TEST(Comparison, RecomputationAndPairsAreSeen) {
  EXPECT_NE(comparison_text({made("1f1b", 1, 500'000)}, {}).find("rB"), std::string::npos);
  EXPECT_NE(comparison_text({made("dualpipe-v", 2)}, {}).find('#'), std::string::npos);
  const std::string svg =
      comparison_svg({made("1f1b", 1, 500'000)}, {.width = 900, .costs = "a <b>"}).value();
  EXPECT_NE(svg.find("#f0e442"), std::string::npos);
  EXPECT_NE(svg.find("a &lt;b&gt;"), std::string::npos);
  EXPECT_EQ(comparison_svg({made("1f1b", 1)}, {.width = 900}).value().find("#f0e442"), std::string::npos);
}

TEST(Comparison, ManyRanksAreCutInTextAndTooManyBoxesRefused) {
  ComparisonOptions options;
  options.most_ranks = 1;
  EXPECT_NE(comparison_text({made("1f1b", 1)}, options).find("and 1 more ranks"), std::string::npos);
  GeneratorArgs args;
  args.ranks = 16;
  args.microbatches = 4096;
  ComparedSchedule large;
  large.schedule = find_generator("1f1b").value()->make(args).value();
  large.evaluation = evaluate(large.schedule, {}, &large.times).value();
  const Result<std::string> svg = comparison_svg({large}, {});
  ASSERT_FALSE(svg);
  EXPECT_NE(svg.error().message.find("131072 boxes"), std::string::npos) << svg.error().message;
}

TEST(Comparison, EqualInputGivesEqualBytes) {
  EXPECT_EQ(comparison_html({made("zb-h1", 1)}, {}).value(), comparison_html({made("zb-h1", 1)}, {}).value());
  EXPECT_EQ(comparison_json({made("zb-h1", 1)}), comparison_json({made("zb-h1", 1)}));
}

}  // namespace
}  // namespace plumbline

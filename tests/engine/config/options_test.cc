#include "engine/config/options.h"

#include <limits>
#include <set>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace plumbline {
namespace {

using namespace option_text;  // NOLINT: their names are the subject

TEST(Options, NamesFlagsAndVariablesAreUnique) {
  std::set<std::string> names;
  std::set<std::string> variables;
  std::set<std::string> flags;
  for (const Option& option : options()) {
    EXPECT_TRUE(names.insert(option.name()).second) << option.name();
    EXPECT_TRUE(variables.insert(option.environment()).second) << option.environment();
    EXPECT_FALSE(option.rule.empty()) << option.name();
    EXPECT_FALSE(option.flags.empty()) << option.name();
  }
  for (const std::string& flag : all_flags()) {
    EXPECT_TRUE(flags.insert(flag).second) << flag;
    EXPECT_EQ(flag.find('_'), std::string::npos) << flag;
  }
}

TEST(Options, SectionsAreContiguous) {
  const std::vector<std::string> sections = option_sections();
  EXPECT_EQ(std::set<std::string>(sections.begin(), sections.end()).size(), sections.size());
  EXPECT_EQ(sections,
            (std::vector<std::string>{"parallel", "schedule", "model", "train", "checkpoint", "optimizer",
                                      "loss_scale", "time", "memory", "sim", "faults"}));
}

TEST(Options, DefaultsReadBack) {
  for (const Option& option : options()) {
    RunConfig config;
    ASSERT_TRUE(option.set(config, option.default_text())) << option.name();
    EXPECT_EQ(option.get(config), option.default_text());
  }
}

TEST(Options, ARefusedTextChangesNothing) {
  for (const Option& option : options()) {
    if (option.type == OptionType::kText && option.name() != "sim.send") continue;
    RunConfig config;
    EXPECT_FALSE(option.set(config, "?!")) << option.name();
    EXPECT_EQ(option.get(config), option.default_text());
  }
}

TEST(Options, EveryMegatronSpellingOfTheSpecIsKnown) {
  for (const char* flag : {"--pipeline-model-parallel-size",
                           "--num-virtual-stages-per-pipeline-rank",
                           "--micro-batch-size",
                           "--global-batch-size",
                           "--microbatch-group-size-per-virtual-pipeline-stage",
                           "--num-microbatches",
                           "--loss-scale",
                           "--initial-loss-scale",
                           "--min-loss-scale",
                           "--loss-scale-window",
                           "--hysteresis",
                           "--lr",
                           "--min-lr",
                           "--lr-decay-style",
                           "--lr-warmup-iters",
                           "--weight-decay",
                           "--adam-beta1",
                           "--adam-beta2",
                           "--adam-eps",
                           "--clip-grad",
                           "--train-iters",
                           "--train-samples",
                           "--rampup-batch-size",
                           "--step-batch-size-schedule",
                           "--decrease-batch-size-if-needed",
                           "--optimizer",
                           "--use-distributed-optimizer",
                           "--overlap-grad-reduce",
                           "--overlap-param-gather",
                           "--align-grad-reduce",
                           "--align-param-gather",
                           "--ddp-bucket-size",
                           "--ddp-pad-buckets-for-high-nccl-busbw",
                           "--optimizer-cpu-offload",
                           "--optimizer-offload-fraction",
                           "--use-precision-aware-optimizer",
                           "--main-params-dtype",
                           "--exp-avg-dtype",
                           "--exp-avg-sq-dtype",
                           "--lr-decay-iters",
                           "--lr-decay-samples",
                           "--lr-warmup-samples",
                           "--lr-warmup-fraction",
                           "--lr-warmup-init",
                           "--lr-wsd-decay-style",
                           "--lr-wsd-decay-iters",
                           "--lr-wsd-decay-samples",
                           "--decoupled-lr",
                           "--decoupled-min-lr",
                           "--sgd-momentum",
                           "--start-weight-decay",
                           "--end-weight-decay",
                           "--weight-decay-incr-style",
                           "--log-num-zeros-in-grad",
                           "--check-for-nan-in-loss-and-grad",
                           "--override-opt_param-scheduler",
                           "--use-checkpoint-opt_param-scheduler",
                           "--eval-interval",
                           "--eval-iters",
                           "--seed",
                           "--num-layers",
                           "--hidden-size",
                           "--ffn-hidden-size",
                           "--num-attention-heads",
                           "--seq-length",
                           "--tensor-model-parallel-size",
                           "--context-parallel-size",
                           "--expert-model-parallel-size",
                           "--data-parallel-size",
                           "--pp",
                           "--vp",
                           "--dp",
                           "-m",
                           "--microbatches",
                           "--schedule",
                           "--p2p",
                           "--comm-map",
                           "--data",
                           "--slow",
                           "--link",
                           "--inject-overflow"}) {
    EXPECT_NE(find_option_by_flag(flag), nullptr) << flag;
  }
  for (const char* flag : {"--fp16", "--bf16", "--use-tp-pp-dp-mapping"})
    EXPECT_NE(find_switch_flag(flag), nullptr) << flag;
}

TEST(Options, SwitchFlagsNameValuesThatExist) {
  for (const SwitchFlag& entry : switch_flags()) {
    const Option* option = find_option(entry.option);
    ASSERT_NE(option, nullptr) << entry.option;
    RunConfig config;
    EXPECT_TRUE(option->set(config, entry.value));
    EXPECT_EQ(option->get(config), entry.value);
  }
}

TEST(Options, UnderscoresAndDashesAreTheSame) {
  EXPECT_EQ(find_option_by_flag("--micro_batch_size"), find_option("train.micro_batch_size"));
  EXPECT_EQ(find_option_by_flag("--micro_batch-size"), find_option("train.micro-batch-size"));
  EXPECT_EQ(find_option_by_flag("--micro batch-size"), nullptr);
}

TEST(Options, NearestNames) {
  EXPECT_EQ(unknown_section("shedule"), "unknown section [shedule] — did you mean 'schedule'?");
  EXPECT_EQ(unknown_option("schedule", "chunk"),
            "unknown option schedule.chunk — did you mean 'schedule.chunks'?");
  EXPECT_EQ(unknown_option("schedule", "pp"), "unknown option schedule.pp — did you mean 'parallel.pp'?");
  EXPECT_EQ(unknown_flag("--pipeline-model-paralel-size"),
            "unknown flag --pipeline-model-paralel-size — did you mean '--pipeline-model-parallel-size'?");
  EXPECT_EQ(unknown_flag("--layers"), "unknown flag --layers — did you mean '--num-layers'?");
  EXPECT_NE(unknown_flag("--use_megatron_fsdp").find("--use-distributed-optimizer"), std::string::npos);
}

TEST(OptionText, SendsAreOneText) {
  SimConfig sim;
  EXPECT_TRUE(SendText::read("eager:2MiB", sim));
  EXPECT_EQ(sim.send, SendCompletion::kEager);
  EXPECT_EQ(sim.eager_bytes, 2 << 20);
  EXPECT_EQ(SendText::print(sim), "eager:2MiB");
  EXPECT_FALSE(SendText::read("always-eager:5", sim));
  EXPECT_FALSE(SendText::read("eager:x", sim));
  EXPECT_EQ(SendText::print(sim), "eager:2MiB");
  EXPECT_TRUE(SendText::read("Always_Eager", sim));
  EXPECT_EQ(SendText::print(sim), "always-eager");
}

TEST(OptionText, LinksAreKeptByLowerRankFirst) {
  Links links;
  ASSERT_TRUE(LinksText::read("3-1:10GB/s, 0-1:900MB/s:5us", links));
  EXPECT_EQ(LinksText::print(links), "0-1:900MB/s:5us,1-3:10GB/s");
  for (const char* bad :
       {"0-1", "0:10GB/s", "0-1:fast", "0-1:1GB/s:5us:6", "0-1-2:1GB/s", "a-b:1GB/s", ",", "0-1:0GB/s"}) {
    EXPECT_FALSE(LinksText::read(bad, links)) << bad;
  }
}

TEST(OptionText, ARampIsThreeNumbersOrNothing) {
  std::vector<std::int64_t> ramp;
  ASSERT_TRUE(RampText::read("16, 8,300000000000", ramp));
  EXPECT_EQ(RampText::print(ramp), "16,8,300000000000");
  for (const char* bad : {"16", "16,8", "16,8,3,4", "16,8,x", ","}) {
    EXPECT_FALSE(RampText::read(bad, ramp)) << bad;
    EXPECT_EQ(ramp.size(), 3u) << bad;
  }
  ASSERT_TRUE(RampText::read("", ramp));
  EXPECT_TRUE(ramp.empty());
}

TEST(OptionText, WhatIfFormsAreStrict) {
  std::map<Rank, double> slow;
  ASSERT_TRUE(SlowText::read("rank=3:1.2,rank=3:2", slow));
  EXPECT_EQ(SlowText::print(slow), "rank=3:2");
  for (const char* bad : {"rank=3", "3:1.2", "rank=:1", "rank=3:", "rank=3:x", "rank3:1", "rang=3:1"}) {
    EXPECT_FALSE(SlowText::read(bad, slow)) << bad;
  }
  std::vector<OverflowFault> faults;
  ASSERT_TRUE(OverflowText::read("rank=2:step=5", faults));
  EXPECT_EQ(OverflowText::print(faults), "rank=2:step=5");
  for (const char* bad : {"rank=2", "rank=2:5", "step=5:rank=2", "rank=2:step=", "rank=2:step=1.5"}) {
    EXPECT_FALSE(OverflowText::read(bad, faults)) << bad;
  }
}

// read(print(value)) == value.
template <typename Text, typename Value>
void returns(const Value& value) {
  Value back{};
  const std::string text = Text::print(value);
  const Status status = Text::read(text, back);
  RC_LOG() << text << std::endl;
  RC_ASSERT(status.has_value());
  RC_ASSERT(back == value);
  RC_ASSERT(Text::print(back) == text);
}

// What the validator lets through; above 2^53 a size or duration has no exact text in a double.
rc::Gen<std::int64_t> whole() { return rc::gen::inRange<std::int64_t>(0, std::int64_t{1} << 50); }
// Values with few digits as well as any bit pattern.
rc::Gen<double> positive() {
  const auto raw = rc::gen::map(rc::gen::arbitrary<double>(), [](double x) { return std::abs(x); });
  return rc::gen::suchThat(raw, [](double x) { return x > 0.0 && x <= std::numeric_limits<double>::max(); });
}
rc::Gen<double> bandwidth() {
  return rc::gen::oneOf(rc::gen::map(rc::gen::inRange<std::int64_t>(1, 1'000'000'000'000),
                                     [](std::int64_t x) { return static_cast<double>(x); }),
                        rc::gen::map(rc::gen::inRange(1, 1000), [](int x) { return x * 1e8; }), positive());
}

RC_GTEST_PROP(OptionText, IntegersReturn, (int value)) { returns<IntegerText>(value); }
RC_GTEST_PROP(OptionText, LongsReturn, (std::int64_t value)) { returns<LongText>(value); }
RC_GTEST_PROP(OptionText, SeedsReturn, (std::uint64_t value)) { returns<SeedText>(value); }
RC_GTEST_PROP(OptionText, SwitchesReturn, (bool value)) { returns<SwitchText>(value); }
RC_GTEST_PROP(OptionText, NumbersReturn, ()) {
  const double value = *positive();
  returns<NumberText>(value);
  returns<NumberText>(-value);
}
RC_GTEST_PROP(OptionText, SizesReturn, ()) {
  returns<SizeText>(*whole());
  returns<SizeText>(*rc::gen::inRange<Bytes>(0, 4096) << *rc::gen::element(0, 10, 20, 30));
}
RC_GTEST_PROP(OptionText, DurationsReturn, ()) {
  returns<DurationText>(*whole());
  returns<DurationsText>(*rc::gen::nonEmpty(rc::gen::container<std::vector<Nanoseconds>>(whole())));
}
RC_GTEST_PROP(OptionText, BandwidthsReturn, ()) { returns<BandwidthText>(*bandwidth()); }

RC_GTEST_PROP(OptionText, ListsReturn, ()) {
  Links links;
  std::map<Rank, double> slow;
  std::vector<OverflowFault> faults;
  for (int i = *rc::gen::inRange(0, 5); i > 0; --i) {
    const Rank a = *rc::gen::inRange(0, 100);
    const Rank b = a + *rc::gen::inRange(1, 100);
    links[{a, b}] = {*rc::gen::oneOf(rc::gen::just<Nanoseconds>(-1), whole()), *bandwidth()};
    slow[a] = *positive();
    faults.push_back({b, *rc::gen::inRange(1, 1000)});
  }
  returns<LinksText>(links);
  returns<SlowText>(slow);
  returns<OverflowText>(faults);
}

RC_GTEST_PROP(OptionText, NoTextCrashes, (const std::string& text)) {
  for (const Option& option : options()) {
    RunConfig config;
    const std::string before = option.get(config);
    if (option.set(config, text)) {
      const std::string once = option.get(config);
      RC_ASSERT(option.set(config, once).has_value());
      RC_ASSERT(option.get(config) == once);
    } else {
      RC_ASSERT(option.get(config) == before);
    }
  }
}

}  // namespace
}  // namespace plumbline

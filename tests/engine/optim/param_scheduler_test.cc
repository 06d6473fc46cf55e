#include "engine/optim/param_scheduler.h"

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/optim/scheduler_names.h"
#include "tests/support/oracle.h"

namespace plumbline {
namespace {

using Json = nlohmann::json;

Result<ParamSchedulerOptions> options_of(const Json& args) {
  ParamSchedulerOptions o;
  o.init_lr = args["init_lr"].get<double>();
  o.max_lr = args["max_lr"].get<double>();
  o.min_lr = args["min_lr"].get<double>();
  o.lr_warmup_steps = args["lr_warmup_steps"].get<std::int64_t>();
  o.lr_decay_steps = args["lr_decay_steps"].get<std::int64_t>();
  o.start_wd = args["start_wd"].get<double>();
  o.end_wd = args["end_wd"].get<double>();
  o.wd_incr_steps = args["wd_incr_steps"].get<std::int64_t>();
  const Result<DecayStyle> decay = decay_style_of_name(args["lr_decay_style"].get<std::string>());
  PL_TRY(decay);
  o.lr_decay_style = *decay;
  const Result<WdStyle> wd = wd_style_of_name(args["wd_incr_style"].get<std::string>());
  PL_TRY(wd);
  o.wd_incr_style = *wd;
  o.wsd_decay_steps = args.value("wsd_decay_steps", std::int64_t{0});
  if (args.contains("lr_wsd_decay_style")) {
    const Json& style = args["lr_wsd_decay_style"];
    const Result<WsdStyle> wsd = wsd_style_of_name(style.is_null() ? "None" : style.get<std::string>());
    PL_TRY(wsd);
    o.wsd_decay_style = *wsd;
  }
  o.use_checkpoint = args.value("use_checkpoint_opt_param_scheduler", false);
  o.override_checkpoint = args.value("override_opt_param_scheduler", false);
  return o;
}

std::vector<ParamGroup> groups_of(const Json& line) {
  std::vector<ParamGroup> groups;
  for (const Json& entry : line["groups"]) {
    ParamGroup& group = groups.emplace_back();
    const std::map<std::string, std::optional<double>*> fields{{"max_lr", &group.max_lr},
                                                               {"min_lr", &group.min_lr},
                                                               {"start_wd", &group.start_wd},
                                                               {"end_wd", &group.end_wd},
                                                               {"wd_mult", &group.wd_mult}};
    for (const auto& [key, value] : entry.items()) *fields.at(key) = value.get<double>();
  }
  return groups;
}

std::vector<ParamGroup*> pointers(std::vector<ParamGroup>& groups) {
  std::vector<ParamGroup*> out;
  for (ParamGroup& group : groups) out.push_back(&group);
  return out;
}

StateDict state_of(const Json& saved) {
  StateDict state;
  for (const auto& [key, value] : saved.items()) {
    if (value.is_string())
      state[key] = value.get<std::string>();
    else if (value.is_number_integer())
      state[key] = value.get<std::int64_t>();
    else
      state[key] = value.get<double>();
  }
  return state;
}

// Every recorded key of the state, by value; ours has more keys.
void expect_state(const StateDict& state, const Json& recorded) {
  for (const auto& [key, value] : recorded.items()) {
    if (value.is_string())
      EXPECT_EQ(state.text(key).value(), value.get<std::string>()) << key;
    else
      EXPECT_EQ(state.number(key).value(), value.get<double>()) << key;
  }
}

struct Counts {
  int refused = 0, traces = 0, loads = 0;
};

// Exact, or one unit in the last place where the schedule has a cosine or a power: those are the C library's.
void expect_value(double got, const Json& text, bool slack, const std::string& what) {
  const double wanted = std::stod(text.get<std::string>());
  if (got == wanted) return;
  EXPECT_TRUE(slack && (got == std::nextafter(wanted, 1.0) || got == std::nextafter(wanted, -1.0)))
      << what << ": " << got << " instead of " << wanted;
}

void replay_trace(const Json& line, OptimizerParamScheduler& scheduler, std::vector<ParamGroup>& groups,
                  Counts& counts) {
  const ParamSchedulerOptions& o = scheduler.options();
  const bool lr_slack = o.lr_decay_style != DecayStyle::kConstant &&
                        o.lr_decay_style != DecayStyle::kLinear &&
                        !(o.lr_decay_style == DecayStyle::kWsd && o.wsd_decay_style == WsdStyle::kLinear);
  const bool wd_slack = o.wd_incr_style == WdStyle::kCosine;
  ASSERT_EQ(line["rows"].size(), line["increments"].size() + 1);
  for (std::size_t i = 0; i < line["rows"].size(); ++i) {
    const Json& row = line["rows"][i];
    if (i > 0) scheduler.step(line["increments"][i - 1].get<std::int64_t>());
    ASSERT_EQ(scheduler.num_steps(), row[0].get<std::int64_t>());
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const std::string what = row.dump() + " of " + line["args"].dump();
      expect_value(groups[g].lr, row[1 + g][0], lr_slack, what);
      expect_value(groups[g].weight_decay, row[1 + g][1], wd_slack, what);
    }
  }
  expect_state(scheduler.state_dict(), line["state_dict"]);
  ++counts.traces;
}

void replay_load(const Json& line, OptimizerParamScheduler& scheduler, std::vector<ParamGroup>& groups,
                 Counts& counts) {
  const Status loaded = scheduler.load_state_dict(state_of(line["state_dict"]));
  if (line.contains("error")) {
    EXPECT_FALSE(loaded) << line.dump();
    ++counts.refused;
    return;
  }
  ASSERT_TRUE(loaded) << loaded.error().text() << " for " << line.dump();
  expect_state(scheduler.state_dict(), line["after"]);
  expect_value(groups[0].lr, line["lr_wd"][0], true, line.dump());
  // The departure: upstream's weight decay is right only after the next step.
  expect_value(groups[0].weight_decay, line["lr_wd_after_step0"][1], false, line.dump());
  scheduler.step(0);
  expect_value(groups[0].lr, line["lr_wd_after_step0"][0], true, line.dump());
  expect_value(groups[0].weight_decay, line["lr_wd_after_step0"][1], false, line.dump());
  // And a second load of the same state changes nothing, where upstream counts twice.
  ASSERT_TRUE(scheduler.load_state_dict(state_of(line["state_dict"])));
  expect_state(scheduler.state_dict(), line["after"]);
  ++counts.loads;
}

TEST(ParamScheduler, EqualsMegatronOnEveryRecordedLine) {
  Counts counts;
  const auto replay = [&](const Json& line) {
    const Result<ParamSchedulerOptions> options = options_of(line["args"]);
    std::vector<ParamGroup> groups = groups_of(line);
    Result<OptimizerParamScheduler> scheduler =
        options ? OptimizerParamScheduler::create(*options) : tl::unexpected(options.error());
    if (line["kind"] != "load" && line.contains("error")) {
      EXPECT_FALSE(scheduler && scheduler->attach(pointers(groups))) << line.dump();
      ++counts.refused;
      return;
    }
    ASSERT_TRUE(scheduler) << scheduler.error().text() << " for " << line["args"].dump();
    ASSERT_TRUE(scheduler->attach(pointers(groups)));
    line["kind"] == "load" ? replay_load(line, *scheduler, groups, counts)
                           : replay_trace(line, *scheduler, groups, counts);
  };
  EXPECT_EQ(test::for_each_line("oracles/megatron/optimizer_param_scheduler.jsonl.gz", replay), 134);
  EXPECT_EQ(counts.refused, 52);
  EXPECT_EQ(counts.traces, 72);
  EXPECT_EQ(counts.loads, 10);
}

ParamSchedulerOptions linear_warmup() {
  ParamSchedulerOptions o;
  o.max_lr = 0.4;
  o.lr_warmup_steps = 4;
  o.lr_decay_steps = 100;
  return o;
}

TEST(ParamScheduler, RefusalsSayTheRule) {
  const auto refusal = [](auto change) {
    ParamSchedulerOptions o = linear_warmup();
    change(o);
    const auto made = OptimizerParamScheduler::create(o);
    return made ? std::string("accepted") : made.error().text();
  };
  EXPECT_EQ(refusal([](auto&) {}), "accepted");
  EXPECT_EQ(refusal([](auto& o) { o.min_lr = -1; }), "minimum learning rate is -1; it must be at least 0");
  EXPECT_EQ(refusal([](auto& o) { o.lr_warmup_steps = 100; }),
            "length of the warm-up is 100; it must be at least 0 and below the length of the decay, 100");
  EXPECT_EQ(refusal([](auto& o) { o.lr_decay_style = DecayStyle::kWsd; }),
            "length of the decay at the end of a WSD schedule is 0; it must be at least 1");
  EXPECT_EQ(
      refusal([](auto& o) { o.end_wd = 0.1; }),
      "weight decay goes from 0.01 to 0.1, but its style is constant; choose linear or cosine, or equal "
      "values");
  EXPECT_NE(refusal([](auto& o) { o.max_lr = std::nan(""); }), "accepted");
  EXPECT_NE(refusal([](auto& o) { o.wd_incr_style = WdStyle::kLinear, o.wd_incr_steps = 0; }), "accepted");
  EXPECT_EQ(decay_style_of_name("wsd").error().text(),
            "\"wsd\" is no learning-rate decay style; known are constant, linear, cosine, "
            "inverse-square-root, WSD");
}

TEST(ParamScheduler, AttachRefusesAGroupThatContradictsConstantDecay) {
  OptimizerParamScheduler scheduler = OptimizerParamScheduler::create(linear_warmup()).value();
  std::vector<ParamGroup> groups(2);
  groups[1].end_wd = 0.5;
  EXPECT_EQ(
      scheduler.attach(pointers(groups)).error().text(),
      "weight decay of parameter group 1 goes from 0.01 to 0.5, but the style is constant; choose linear or "
      "cosine, or equal values");
  groups[1].start_wd = 0.5;
  EXPECT_TRUE(scheduler.attach(pointers(groups)));
  EXPECT_EQ(groups[1].weight_decay, 0.5);
}

TEST(ParamScheduler, MultipliersOfAGroup) {
  OptimizerParamScheduler scheduler = OptimizerParamScheduler::create(linear_warmup()).value();
  std::vector<ParamGroup> groups(2);
  groups[1].lr_mult = 0.5;
  groups[1].wd_mult = 0.0;
  ASSERT_TRUE(scheduler.attach(pointers(groups)));
  scheduler.step(10);
  EXPECT_EQ(groups[0].lr, 0.4);
  EXPECT_EQ(groups[1].lr, 0.2);
  EXPECT_EQ(groups[1].weight_decay, 0.0);
}

// Public report L19: only a successful step moves the schedule.
TEST(ParamScheduler, ReportL19ASkippedStepDoesNotAdvance) {
  ParamSchedulerOptions o;
  o.init_lr = 0.1;
  o.max_lr = 1.1;
  o.lr_warmup_steps = 10;
  o.lr_decay_steps = 100;
  OptimizerParamScheduler scheduler = OptimizerParamScheduler::create(o).value();
  std::vector<ParamGroup> groups(1);
  ASSERT_TRUE(scheduler.attach(pointers(groups)));
  std::vector<double> used;
  for (const bool found_inf : {true, false, true, false, false}) {
    if (found_inf) continue;
    used.push_back(groups[0].lr);
    scheduler.step(1);
  }
  ASSERT_EQ(used.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_DOUBLE_EQ(used[i], 0.1 * static_cast<double>(i + 1));
  EXPECT_EQ(scheduler.num_steps(), 3);
}

// Public report L22: the rate of the first update is the warm-up's first value (convention A), and a
// resumed run does not mix conventions.
TEST(ParamScheduler, ReportL22TheFirstUpdateHasTheInitialRate) {
  OptimizerParamScheduler scheduler = OptimizerParamScheduler::create(linear_warmup()).value();
  std::vector<ParamGroup> groups(1);
  ASSERT_TRUE(scheduler.attach(pointers(groups)));
  double p = 0.0;
  std::vector<double> used;
  for (int i = 0; i < 6; ++i) {
    if (i == 3) {  // saved and resumed
      const StateDict state = scheduler.state_dict();
      scheduler = OptimizerParamScheduler::create(linear_warmup()).value();
      ASSERT_TRUE(scheduler.attach(pointers(groups)));
      ASSERT_TRUE(scheduler.load_state_dict(state));
    }
    used.push_back(groups[0].lr);
    p -= groups[0].lr;
    scheduler.step(1);
  }
  const std::vector<double> expected{0.0, 0.1, 0.2, 0.3, 0.4, 0.4};
  for (std::size_t i = 0; i < 6; ++i) EXPECT_DOUBLE_EQ(used[i], expected[i]);
  EXPECT_DOUBLE_EQ(p, -1.4);
}

TEST(ParamScheduler, LoadingSaysWhatItTookAndKeepsGroupOverrides) {
  ParamSchedulerOptions o = linear_warmup();
  StateDict state = OptimizerParamScheduler::create(o)->state_dict();
  o.max_lr = 0.8;
  o.use_checkpoint = true;
  OptimizerParamScheduler user = OptimizerParamScheduler::create(o).value();
  std::vector<ParamGroup> groups(2);
  groups[1].max_lr = 3.0;
  ASSERT_TRUE(user.attach(pointers(groups)));
  state["num_steps"] = 50;
  std::vector<std::string> notices;
  ASSERT_TRUE(user.load_state_dict(state, &notices));
  EXPECT_EQ(notices, (std::vector<std::string>{
                         "max_lr of the scheduler is 0.4: taken from the checkpoint (this run has 0.8)"}));
  EXPECT_EQ(groups[0].lr, 0.4);
  EXPECT_EQ(groups[1].max_lr, 3.0);
  EXPECT_EQ(groups[1].lr, 3.0);

  o.use_checkpoint = false;
  OptimizerParamScheduler strict = OptimizerParamScheduler::create(o).value();
  EXPECT_EQ(strict.load_state_dict(state).error().text(),
            "max_lr of the scheduler was saved as 0.4, this run has 0.8; make them equal, or choose with "
            "use_checkpoint_opt_param_scheduler or override_opt_param_scheduler");
  EXPECT_EQ(strict.num_steps(), 0);

  o.override_checkpoint = true;
  OptimizerParamScheduler overriding = OptimizerParamScheduler::create(o).value();
  notices.clear();
  ASSERT_TRUE(overriding.load_state_dict(state, &notices));
  EXPECT_EQ(
      notices,
      (std::vector<std::string>{"max_lr of the scheduler is 0.8: this run's (the checkpoint has 0.4)"}));
  EXPECT_EQ(overriding.num_steps(), 50);
  EXPECT_EQ(overriding.options().max_lr, 0.8);
}

TEST(ParamScheduler, LoadingRefusesWhatIsNoSchedule) {
  ParamSchedulerOptions o = linear_warmup();
  o.use_checkpoint = true;
  OptimizerParamScheduler scheduler = OptimizerParamScheduler::create(o).value();
  const StateDict before = scheduler.state_dict();
  const auto refusal = [&](auto key, StateValue value) {
    StateDict state = before;
    state[key] = std::move(value);
    const Status loaded = scheduler.load_state_dict(state);
    EXPECT_EQ(first_difference(scheduler.state_dict(), before), "") << key;
    return loaded ? std::string("accepted") : loaded.error().text();
  };
  EXPECT_EQ(refusal("num_steps", -1), "the scheduler was saved after -1 steps; the count cannot be negative");
  EXPECT_EQ(refusal("num_steps", 1.0), "\"num_steps\" of the state is float; it must be int");
  EXPECT_EQ(refusal("lr_warmup_steps", 500),
            "length of the warm-up is 500; it must be at least 0 and below the length of the decay, 100");
  EXPECT_NE(refusal("lr_decay_style", "bogus"), "accepted");
  EXPECT_NE(refusal("end_wd", 0.5), "accepted");
  StateDict state = before;
  state.erase("num_steps");
  EXPECT_EQ(scheduler.load_state_dict(state).error().text(),
            "the state has no \"num_steps\", which must be int");
}

}  // namespace
}  // namespace plumbline

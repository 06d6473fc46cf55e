// Faults of a step's gradients that every rank has alike, so that nothing hangs, leaks or carries a wrong label: each
// is planted in a lowered Program and found; without it nothing is.
#include <functional>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "engine/program/link.h"
#include "engine/program/lower.h"
#include "sim/verify/check.h"
#include "sim/verify/quotient.h"
#include "tests/engine/program/optimizer_programs.h"

namespace plumbline {
namespace {

using Items = std::vector<Item>;
using Edit = std::function<void(const Program&, Rank, Items&)>;

Program lowered(const RunConfig& config) {
  auto program = program_of(config, default_sizes(config));
  EXPECT_TRUE(program) << program.error().text();
  return program ? std::move(*program) : Program{};
}

// The same Program with the edited items of each rank.
Program with(const Program& program, const Edit& edit) {
  Program out = program;
  out.items.clear();
  for (std::size_t t = 0; t < program.threads.size(); ++t) {
    const auto given = program.thread_items(t);
    Items items(given.begin(), given.end());
    edit(program, program.threads[t].rank, items);
    out.threads[t].begin = static_cast<std::uint32_t>(out.items.size());
    out.items.insert(out.items.end(), items.begin(), items.end());
    out.threads[t].end = static_cast<std::uint32_t>(out.items.size());
  }
  return out;
}

std::string findings_of(const Program& program) {
  const Status valid = validate_program(program);
  EXPECT_TRUE(valid) << valid.error().text();
  const auto linked = link_program(program);
  EXPECT_TRUE(linked) << linked.error().text();
  CheckOptions options;
  options.makespan = false;
  const auto verdict = check_program(*linked, options);
  EXPECT_TRUE(verdict) << verdict.error().text();
  std::string text;
  for (const Finding& finding : verdict->findings) text += finding.why + "\n";
  for (const ModeVerdict& mode : verdict->modes) {
    if (!mode.completes) text += mode.mode + " hangs\n";
  }
  return text;
}

void expect_found(const Program& program, const Edit& edit, const std::string& words) {
  EXPECT_EQ(findings_of(program), "");
  const std::string found = findings_of(with(program, edit));
  EXPECT_NE(found.find(words), std::string::npos) << "no '" << words << "' in:\n" << found;
}

using Is = std::function<bool(const Program&, Item)>;

Is launches(KernelKind kind) {
  return [kind](const Program& program, Item item) {
    return item_op(item) == ItemOp::kLaunch && program.kernels[item_ref(item)].kind == kind;
  };
}
// A collective of this kind on a slot of this kind; `family` empty: of any.
Is collective(EndpointKind kind, SlotKind slot, const std::string& family = "") {
  return [=](const Program& program, Item item) {
    if (item_op(item) != ItemOp::kOp) return false;
    const Endpoint& endpoint = program.endpoints[item_ref(item)];
    return endpoint.kind == kind && program.slots[endpoint.slot].kind == slot &&
           (family.empty() || program.families[endpoint.family].name == family);
  };
}

Edit drop(const Is& is) {
  return [is](const Program& program, Rank, Items& items) {
    items.erase(std::remove_if(items.begin(), items.end(), [&](Item item) { return is(program, item); }),
                items.end());
  };
}
Edit drop_first(const Is& is, Rank only = -1) {
  return [is, only](const Program& program, Rank rank, Items& items) {
    if (only >= 0 && rank != only) return;
    const auto found = std::find_if(items.begin(), items.end(), [&](Item item) { return is(program, item); });
    if (found != items.end()) items.erase(found);
  };
}
Edit repeat(const Is& is) {
  return [is](const Program& program, Rank, Items& items) {
    Items out;
    for (const Item item : items) {
      out.push_back(item);
      if (is(program, item)) out.push_back(item);
    }
    items = out;
  };
}
// The last `what` moves before the first, or behind the last, `where`.
Edit move_last(const Is& what, const Is& where, bool behind) {
  return [=](const Program& program, Rank, Items& items) {
    const auto at = [&](const Is& is, bool last) {
      std::size_t found = items.size();
      for (std::size_t i = 0; i < items.size(); ++i) {
        if (is(program, items[i]) && (last || found == items.size())) found = i;
      }
      return found;
    };
    const std::size_t from = at(what, true);
    std::size_t to = at(where, behind);
    if (from == items.size() || to == items.size()) return;
    const Item item = items[from];
    items.erase(items.begin() + static_cast<std::ptrdiff_t>(from));
    if (from < to) --to;
    items.insert(items.begin() + static_cast<std::ptrdiff_t>(behind ? to + 1 : to), item);
  };
}

RunConfig replicated(int dp = 2) {
  RunConfig config = test::config_of(ScheduleKind::kOneFOneB, 2, 1, 4, 0, dp);
  config.train.precision = Precision::kFp16;
  return config;
}
RunConfig distributed() {
  RunConfig config = replicated();
  config.optimizer.distributed = true;
  config.optimizer.bucket_size = 10'000;
  return config;
}

// Replicas with the same items go on sharing them.
Program with_shared(const Program& program, const Edit& edit) {
  Program out = program;
  out.items.clear();
  std::map<std::uint32_t, std::pair<std::uint32_t, std::uint32_t>> known;
  for (std::size_t t = 0; t < program.threads.size(); ++t) {
    const auto [at, fresh] = known.try_emplace(program.threads[t].begin);
    if (fresh) {
      const auto given = program.thread_items(t);
      Items items(given.begin(), given.end());
      edit(program, program.threads[t].rank, items);
      at->second.first = static_cast<std::uint32_t>(out.items.size());
      out.items.insert(out.items.end(), items.begin(), items.end());
      at->second.second = static_cast<std::uint32_t>(out.items.size());
    }
    out.threads[t].begin = at->second.first;
    out.threads[t].end = at->second.second;
  }
  return out;
}

// The proof on one replica knows how many there are.
TEST(GradientSync, OneReplicaStandsForAll) {
  for (const bool shards : {false, true}) {
    RunConfig config = replicated(4);
    config.optimizer.distributed = shards;
    const Program good = lowered(config);
    const auto holds = check_quotient(good);
    ASSERT_TRUE(holds) << holds.error().text();
    EXPECT_TRUE(holds->holds());
    const Is reduction = collective(shards ? EndpointKind::kReduceScatter : EndpointKind::kAllReduce,
                                    SlotKind::kMainGrads, "dp");
    for (const auto& [edit, words] : {std::pair{drop(reduction), "the sum over 1 of the 4 ranks"},
                                      std::pair{repeat(reduction), "more than once"}}) {
      const auto found = check_quotient(with_shared(good, edit));
      ASSERT_TRUE(found) << found.error().text();
      EXPECT_FALSE(found->holds());
      ASSERT_FALSE(found->findings.empty());
      EXPECT_NE(found->findings.front().why.find(words), std::string::npos) << found->findings.front().why;
    }
  }
}

TEST(GradientSync, NoAlarmInAnyWayOfTheOptimizer) {
  for (const RunConfig& config : test::all_optimizer_variants())
    EXPECT_EQ(findings_of(lowered(config)), "") << test::describe(config);
}

TEST(GradientSync, LastStepsGradients) {
  expect_found(lowered(replicated()), drop(launches(KernelKind::kZeroGrad)), "the last step's are in them");
}

TEST(GradientSync, DroppedReduction) {
  expect_found(lowered(replicated()), drop(collective(EndpointKind::kAllReduce, SlotKind::kMainGrads)),
               "the sum over 1 of the 2 ranks that add to this stage's: a reduction is missing");
  expect_found(lowered(distributed()),
               drop_first(collective(EndpointKind::kReduceScatter, SlotKind::kMainGrads)), "are reduced");
}

TEST(GradientSync, DroppedSumOfCopies) {
  RunConfig config = test::config_of(ScheduleKind::kGenerator, 4, 1, 8, 0, 2);
  config.schedule.generator = "dualpipe";
  expect_found(lowered(config), drop(collective(EndpointKind::kAllReduce, SlotKind::kMainGrads, "copies")),
               "the sum over 2 of the 4 ranks that add to this stage's");
  expect_found(lowered(config), repeat(collective(EndpointKind::kAllReduce, SlotKind::kMainGrads, "copies")),
               "are reduced more than once");
}

TEST(GradientSync, DoubledReduction) {
  expect_found(lowered(replicated()), repeat(collective(EndpointKind::kAllReduce, SlotKind::kMainGrads)),
               "are reduced more than once");
}

TEST(GradientSync, EarlyReduction) {
  expect_found(lowered(replicated()),
               move_last(collective(EndpointKind::kAllReduce, SlotKind::kMainGrads),
                         launches(KernelKind::kBackward), false),
               "after their reduction has begun: other ranks do not get it");
}

TEST(GradientSync, LateReduction) {
  expect_found(lowered(replicated()),
               move_last(collective(EndpointKind::kAllReduce, SlotKind::kMainGrads),
                         launches(KernelKind::kUnscaleCheck), true),
               "are reduced after unscale_check.0 has used them");
}

TEST(GradientSync, StepBeforeTheLastGradient) {
  RunConfig config = test::config_of(ScheduleKind::kOneFOneB, 1, 1, 4, 0, 1);
  expect_found(lowered(config),
               move_last(launches(KernelKind::kBackward), launches(KernelKind::kOptimizerStep), true),
               "has used them: the step does not get it");
}

TEST(GradientSync, Unscaling) {
  expect_found(lowered(replicated(1)), repeat(launches(KernelKind::kUnscaleCheck)),
               "divided by the loss scale twice");
  // One replica forgets it: what it steps with differs by the scale.
  expect_found(lowered(replicated()), drop_first(launches(KernelKind::kUnscaleCheck), 1),
               "not divided by the loss scale, those on rank 0 are");
}

TEST(GradientSync, DroppedGather) {
  expect_found(lowered(distributed()), drop(collective(EndpointKind::kAllGather, SlotKind::kParameters)),
               "0 bytes of");
  expect_found(lowered(distributed()),
               drop_first(collective(EndpointKind::kAllGather, SlotKind::kParameters)),
               "are gathered before they are read again");
  RunConfig late = distributed();
  late.optimizer.overlap_grad_reduce = late.optimizer.overlap_param_gather = true;
  late.optimizer.bucket_size = 0;
  const Is gather = collective(EndpointKind::kAllGather, SlotKind::kParameters);
  EXPECT_EQ(findings_of(lowered(late)), "");
  const std::string found =
      findings_of(with(lowered(late), move_last(gather, launches(KernelKind::kForward), true)));
  EXPECT_NE(found.find("are gathered after 0F0 has read them"), std::string::npos) << found;
}

}  // namespace
}  // namespace plumbline

// A run that is saved and goes on, in whatever layout, is the run that was never interrupted: same losses, scales,
// parameters, moments, schedule and random draws, bit for bit.
//
// Short here; PLUMBLINE_RESUME_CASES=2000 is the campaign.
#include <cstdlib>
#include <numeric>

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "engine/config/explain.h"
#include "engine/train/reference.h"
#include "engine/train/run_arguments.h"
#include "engine/train/run_checkpoint.h"
#include "tests/engine/train/resume_support.h"

namespace plumbline::test {
namespace {

int cases(int in_ci) {
  const char* given = std::getenv("PLUMBLINE_RESUME_CASES");
  return given == nullptr ? in_ci : std::atoi(given);
}

struct Length {
  int before = 1, after = 1;
  int all() const { return before + after; }
};

// Overflows at random iterations, on rank 0, which every layout has.
void any_overflows(RunConfig& config, const Length& length) {
  if (config.train.precision != Precision::kFp16) return;
  for (int iteration = 1; iteration <= length.all(); ++iteration) {
    if (draw(0, 3) == 0) config.faults.overflow.push_back({0, iteration});
  }
}

RunConfig saved_in(RunConfig config, const std::string& directory, int interval) {
  config.checkpoint.save = directory;
  config.checkpoint.interval = interval;
  config.checkpoint.async_save = coin();
  return config;
}

RunConfig loaded_from(RunConfig config, const std::string& directory, int iteration) {
  config.checkpoint.load = directory;
  config.checkpoint.step = iteration;
  return config;
}

bool same_layout(const RunConfig& a, const RunConfig& b) {
  return a.parallel.pp == b.parallel.pp && a.parallel.dp == b.parallel.dp;
}

// What the disk has below a directory, under names from there on.
std::map<std::string, std::string> files_below(const SimulatedDisk& disk, const std::string& directory) {
  std::map<std::string, std::string> out;
  for (const auto& [path, content] : disk.tree()) {
    if (path.starts_with(directory + "/")) out[path.substr(directory.size())] = content;
  }
  return out;
}

// Saves what `trainer` was made with, before it does anything.
void save_again(SimulatedFiles& files, Trainer& trainer, const std::string& directory) {
  RunConfig config = trainer.config();
  config.checkpoint.save = directory;
  RunCheckpoint::Parts parts{
      &config, &files, in_this_process(), config.grid.world(), trainer.record().data_digest, {}};
  const auto checkpoint = RunCheckpoint::create(std::move(parts));
  RC_ASSERT(checkpoint.has_value());
  std::vector<RankState> ranks;
  for (std::size_t i = 0; i < trainer.workers().size(); ++i)
    ranks.push_back({trainer.workers()[i]->rank(), &trainer.workers()[i]->model(), &trainer.random(i)});
  const auto saved = (*checkpoint)->save(trainer.resume().counters, ranks);
  RC_ASSERT(saved.has_value());
  const auto rest = (*checkpoint)->finish();
  RC_ASSERT(rest.has_value());
}

// Saves in one layout on the way, goes on from there in another, and compares step by step and state by state.
void check_resumed(const RunConfig& saves, const RunConfig& goes_on, const Length& length) {
  RC_LOG() << "saved by\n" << config_toml(saves) << "\ngoes on as\n" << config_toml(goes_on);
  SimulatedDisk disk;
  SimulatedFiles files(disk);
  RunConfig first = saved_in(saves, "/a", length.before);
  first.train.iterations = length.all();
  const Ran whole = run_on(files, first);
  RC_ASSERT(whole.error == "");
  RC_ASSERT(static_cast<int>(whole.steps.size()) == length.all());

  RunConfig second = saved_in(loaded_from(goes_on, "/a", length.before), "/b", 0);
  second.train.iterations = length.all();
  const bool same = same_layout(saves, goes_on);
  const bool identical = first_difference(run_arguments(saves, ""), run_arguments(goes_on, "")).empty();
  const Ran rest = run_on(files, second, [&](Trainer& trainer) {
    RC_ASSERT(trainer.resume().found);
    RC_ASSERT(trainer.record().resumed_from == length.before);
    if (!identical) return;
    save_again(files, trainer, "/c");
    const std::string folder = iteration_name(length.before);
    RC_ASSERT(files_below(disk, "/a/" + folder) == files_below(disk, "/c/" + folder));
  });
  RC_ASSERT(rest.error == "");
  RC_ASSERT(static_cast<int>(rest.steps.size()) == length.after);
  for (int i = 0; i < length.after; ++i) {
    const Draws& expected = whole.steps[static_cast<std::size_t>(length.before + i)];
    const Draws& got = rest.steps[static_cast<std::size_t>(i)];
    RC_ASSERT(difference(expected.row, got.row) == "");
    if (same) RC_ASSERT(expected.draws == got.draws);
  }
  const std::string end = iteration_name(length.all());
  RC_ASSERT(difference(files, "/a/" + end, "/b/" + end) == "");
  RC_ASSERT(tensors_in(files, "/a/" + end) == tensors_in(files, "/b/" + end));
}

// Stages, chunks, schedule and every kind of optimizer; the replicas stay, since sums are in their order.
TEST(ResumeProperty, AnyPipelineAndOptimizer) {
  check_cases(cases(25), [] {
    const RunConfig common = any_common(false);
    const int replicas = draw(1, 2);
    const int entries = replicas * one_of<int>({2, 4});
    const Length length{draw(1, 3), draw(1, 2)};
    RunConfig saves = any_way(common, replicas, entries);
    any_overflows(saves, length);
    RunConfig goes_on = draw(0, 3) == 0 ? saves : any_way(common, replicas, entries);
    goes_on.faults = saves.faults;
    check_resumed(saves, goes_on, length);
  });
}

// The toy model's sums are exact in any order, so that the number of replicas may change too.
TEST(ResumeProperty, AnyNumberOfReplicas) {
  check_cases(cases(25), [] {
    const RunConfig common = any_common(true);
    const int entries = one_of<int>({4, 8});
    const Length length{draw(1, 3), draw(1, 2)};
    RunConfig saves = any_way(common, one_of<int>({1, 2, 4}), entries);
    any_overflows(saves, length);
    RunConfig goes_on = any_way(common, one_of<int>({1, 2, 4}), entries);
    goes_on.faults = saves.faults;
    // A step taken before the overflow is agreed looks at the gradient that was spoilt for it.
    if (!saves.faults.overflow.empty())
      saves.optimizer.post_validation = goes_on.optimizer.post_validation = false;
    check_resumed(saves, goes_on, length);
  });
}

// What a run that changes its number of replicas must compute: the sequential reference with the one number, and from
// there on that with the other, which got the state as a dictionary.
class Expected {
 public:
  explicit Expected(const Ran& like, int replicas, int entries) : config_(like.trainer->config()) {
    config_.parallel.dp = replicas;
    config_.schedule.microbatches = entries / replicas;
    auto batches = text_batches(config_, *like.trainer->text());
    RC_ASSERT(batches.has_value());
    batches_ = std::move(*batches);
    // Every schedule of these runs has the backwards of a stage in the order of the microbatches.
    std::vector<int> ascending(static_cast<std::size_t>(config_.schedule.microbatches));
    std::iota(ascending.begin(), ascending.end(), 0);
    auto made =
        SequentialReference::create(config_, **find_model(config_.model.name), *batches_,
                                    BackwardOrder(static_cast<std::size_t>(config_.stages()), {ascending}));
    RC_ASSERT(made.has_value());
    reference_.emplace(std::move(*made));
  }

  void take_over(const Expected& other) {
    const at::NoGradGuard no_grad;
    const RankModel &from = other.reference_->model(), &to = reference_->model();
    for (std::size_t i = 0; i < to.slices().size(); ++i) to.parameter(i).value.copy_(from.parameter(i).value);
    const StateValue state = clone(StateValue(from.optimizer().state_dict()));
    RC_ASSERT(to.optimizer().load_state_dict(*state.get<StateDict>()).has_value());
    RC_ASSERT(to.scheduler().load_state_dict(from.scheduler().state_dict()).has_value());
  }

  // Makes the step and compares what a run says of it.
  void check(const StepRow& row) {
    bool overflow = false;
    for (const OverflowFault& fault : config_.faults.overflow)
      overflow = overflow || fault.iteration == row.iteration;
    const std::int64_t samples = reference_->samples_of_step();
    const SequentialReference::Step step = reference_->step((row.iteration - 1) * samples, overflow);
    RC_ASSERT(row.loss == step.loss);
    RC_ASSERT(row.skipped == step.found_inf);
    RC_ASSERT(row.scale == static_cast<double>(step.scale));
    RC_ASSERT(row.params_digest == reference_->params_digest());
    RC_ASSERT(row.optimizer_digest == reference_->optimizer_digest());
  }

 private:
  RunConfig config_;
  std::unique_ptr<BatchSource> batches_;
  std::optional<SequentialReference> reference_;
};

TEST(ResumeProperty, AnyNumberOfReplicasOfARealModel) {
  check_cases(cases(20), [] {
    const RunConfig common = any_common(false);
    const Length length{draw(1, 3), draw(1, 2)};
    RunConfig saves = saved_in(any_way(common, one_of<int>({1, 2, 4}), 4), "/a", 0);
    any_overflows(saves, length);
    saves.train.iterations = length.all();
    saves.train.exit_interval = length.before;
    RunConfig goes_on = loaded_from(any_way(common, one_of<int>({1, 2, 4}), 4), "/a", -1);
    goes_on.faults = saves.faults;
    goes_on.train.iterations = length.all();
    RC_LOG() << "saved by\n" << config_toml(saves) << "\ngoes on as\n" << config_toml(goes_on);
    SimulatedDisk disk;
    SimulatedFiles files(disk);
    const Ran first = run_on(files, saves), rest = run_on(files, goes_on);
    RC_ASSERT(first.error == "");
    RC_ASSERT(rest.error == "");
    Expected before(first, saves.parallel.dp, 4), after(first, goes_on.parallel.dp, 4);
    for (const Draws& step : first.steps) before.check(step.row);
    after.take_over(before);
    RC_ASSERT(static_cast<int>(rest.steps.size()) == length.all() - static_cast<int>(first.steps.size()));
    for (const Draws& step : rest.steps) after.check(step.row);
  });
}

}  // namespace
}  // namespace plumbline::test

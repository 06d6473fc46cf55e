#include "engine/train/run_checkpoint.h"

#include <algorithm>
#include <set>
#include <thread>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "engine/base/assert.h"
#include "engine/checkpoint/sharded.h"
#include "engine/train/run_arguments.h"

namespace plumbline {
namespace {

constexpr const char* kRun = "run";
constexpr const char* kScheduler = "opt_param_scheduler";
constexpr const char* kGroups = "optimizer.param_groups";
constexpr const char* kScaler = "optimizer.grad_scaler";
constexpr const char* kCommonStep = "optimizer.state.common_step";

// In one process no member stays away, but one may have a large shard to write.
constexpr double kLongSave = 7 * 24 * 3600.0;

class Borrowed : public ControlChannel {
 public:
  explicit Borrowed(ControlChannel& channel) : channel_(channel) {}
  int rank() const override { return channel_.rank(); }
  int size() const override { return channel_.size(); }
  Result<std::vector<std::string>> exchange(const std::string& message) override {
    return channel_.exchange(message);
  }

 private:
  ControlChannel& channel_;
};

std::string random_key(Rank rank) { return fmt::format("rng.{}", rank); }

std::string layout_text(const RunConfig& config) {
  return fmt::format("pp {}, dp {}, {}", config.parallel.pp, config.parallel.dp, config.parallel.order);
}

StateDict counters_dict(const RunCounters& counters) {
  return {{"iteration", counters.iteration},
          {"consumed_train_samples", counters.consumed_train_samples},
          {"consumed_valid_samples", counters.consumed_valid_samples},
          {"updates", counters.updates},
          {"skipped", counters.skipped}};
}

// work(i) for every local rank, each on a thread of its own; the first rank's error, of which all have the same.
Status on_all(std::size_t ranks, const std::function<Status(std::size_t)>& work) {
  if (ranks == 1) return work(0);
  std::vector<Status> results(ranks);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < ranks; ++i) threads.emplace_back([&, i] { results[i] = work(i); });
  for (std::thread& thread : threads) thread.join();
  for (const Status& result : results) PL_TRY(result);
  return {};
}

}  // namespace

CheckpointGroups one_rank_a_process(ControlChannel& channel) {
  return [&channel, given = false](int local_ranks) mutable -> Result<CheckpointGroup> {
    PL_ASSERT(local_ranks == 1);
    if (std::exchange(given, true))
      return fail(ErrorCode::kUnsupported,
                  "--async-save needs a second group of all ranks, which this backend does not have");
    CheckpointGroup group;
    group.ranks.push_back(std::make_unique<Borrowed>(channel));
    group.process = std::make_unique<Borrowed>(channel);
    return group;
  };
}

CheckpointGroups in_this_process() {
  return [](int local_ranks) -> Result<CheckpointGroup> {
    CheckpointGroup group;
    for (auto& member : thread_group(local_ranks, kLongSave))
      group.ranks.push_back(collective_channel(std::move(member)));
    group.process = collective_channel(alone());
    return group;
  };
}

RngTracker random_states_of(const RunConfig& config, Rank rank) {
  // megatron/core/tensor_parallel/random.py and training/initialize.py: 100 apart by pipeline stage, 2718 by tracker.
  const std::uint64_t stage = static_cast<std::uint64_t>(config.grid.coordinate(rank, Axis::kPp));
  const std::uint64_t tensor = static_cast<std::uint64_t>(config.grid.coordinate(rank, Axis::kTp));
  const std::uint64_t seed = config.train.seed + 100 * stage;
  RngTracker tracker;
  const Status plain = tracker.add("data-parallel-rng", seed);
  const Status parallel = tracker.add("model-parallel-rng", seed + 2718 + tensor);
  PL_ASSERT(plain && parallel);
  return tracker;
}

RunCheckpoint::RunCheckpoint(Parts parts) : parts_(std::move(parts)) {}

Result<std::unique_ptr<RunCheckpoint>> RunCheckpoint::create(Parts parts) {
  std::unique_ptr<RunCheckpoint> made(new RunCheckpoint(std::move(parts)));
  const CheckpointConfig& options = made->parts_.config->checkpoint;
  Result<CheckpointGroup> group = made->parts_.groups(made->parts_.local_ranks);
  if (!group) return tl::unexpected(group.error());
  made->group_ = std::move(*group);
  if (options.save.empty() || !options.async_save) return made;
  Result<CheckpointGroup> beside = made->parts_.groups(made->parts_.local_ranks);
  if (!beside) return tl::unexpected(beside.error());
  for (auto& channel : beside->ranks)
    made->savers_.push_back(
        std::make_unique<AsyncSaver>(*made->parts_.files, std::move(channel), options.save));
  return made;
}

bool RunCheckpoint::fresh() const { return parts_.config->checkpoint.finetune || found_->tracker.release; }
bool RunCheckpoint::with_optim() const { return !fresh() && parts_.config->checkpoint.load_optim; }

Result<Resume> RunCheckpoint::open() {
  const CheckpointConfig& options = parts_.config->checkpoint;
  const std::optional<std::int64_t> step =
      options.step >= 0 ? std::optional<std::int64_t>(options.step) : std::nullopt;
  Result<std::optional<FoundCheckpoint>> found =
      find_checkpoint(*parts_.files, *group_.process, options.load, step);
  if (!found) return tl::unexpected(found.error());
  Resume resume;
  if (!*found) {
    const std::string nothing = fmt::format("{}: no {} in it", options.load, kTrackerName);
    if (options.exit_on_missing)
      return fail(ErrorCode::kState, nothing + "; --exit-on-missing-checkpoint makes that an error");
    resume.notices.push_back(nothing + ": nothing is loaded, and training starts at iteration 0");
    return resume;
  }
  found_ = std::move(*found);
  Result<CheckpointReader> reader =
      open_verified(*parts_.files, *group_.process, options.load, *found_, parts_.progress);
  if (!reader) return tl::unexpected(reader.error());
  reader_.emplace(std::move(*reader));
  // From here on every process reads the same verified manifest, and comes to the same end.
  PL_TRY(check(reader_->manifest()));
  Result<RunCounters> counters = counters_of(resume.notices);
  if (!counters) return tl::unexpected(counters.error());
  resume.found = true;
  resume.path = found_->path;
  resume.counters = *counters;
  return resume;
}

// Whether what is going to be loaded was saved.
Status RunCheckpoint::check(const Manifest& manifest) {
  const auto refuse = [&](const char* what, const char* fix) {
    return fail(ErrorCode::kState, fmt::format("{}: {}; {}", found_->path, what, fix));
  };
  if (!fresh() && manifest.find_object(kRun) == nullptr)
    return refuse("holds no state of a run", "load its weights alone with --finetune");
  if (with_optim() && manifest.find_object(kGroups) == nullptr)
    return refuse("was saved without the optimizer", "load with --no-load-optim or --finetune");
  const bool random =
      std::any_of(manifest.objects.begin(), manifest.objects.end(),
                  [](const ManifestObject& object) { return object.key.starts_with("rng."); });
  if (!fresh() && parts_.config->checkpoint.load_rng && !random)
    return refuse("was saved without random states", "load with --no-load-rng");
  return {};
}

Result<RunCounters> RunCheckpoint::counters_of(std::vector<std::string>& notices) const {
  if (fresh()) {
    notices.push_back(found_->path + ": weights alone are loaded; training starts at iteration 0");
    return RunCounters{};
  }
  const Result<StateValue> value = read_object(*reader_, kRun);
  if (!value) return tl::unexpected(value.error());
  const auto* run = value->get<StateDict>();
  const auto at = [&](const std::string& why) {
    return fail(ErrorCode::kState, fmt::format("{}, object '{}': {}", found_->path, kRun, why));
  };
  if (run == nullptr) return at("is " + describe(*value));
  RunCounters counters;
  for (const auto& [key, number] :
       {std::pair{"iteration", &counters.iteration},
        std::pair{"consumed_train_samples", &counters.consumed_train_samples},
        std::pair{"consumed_valid_samples", &counters.consumed_valid_samples},
        std::pair{"updates", &counters.updates}, std::pair{"skipped", &counters.skipped}}) {
    const Result<std::int64_t> read = run->integer(key);
    if (!read) return at(read.error().message);
    if (*read < 0) return at(fmt::format("{} is {}", key, *read));
    *number = *read;
  }
  if (counters.iteration != reader_->manifest().iteration)
    return at(
        fmt::format("iteration is {}, the manifest's {}", counters.iteration, reader_->manifest().iteration));
  const Result<const StateDict*> args = run->dict("args");
  if (!args) return at(args.error().message);
  const Status same = compare_arguments(**args, *parts_.config, parts_.data_digest, with_optim(), notices);
  if (!same) return fail(same.error().code, fmt::format("{}: {}", found_->path, same.error().message));
  return counters;
}

Result<ShardedStateDict> RunCheckpoint::state_of(const RunCounters& counters, const RankState& rank) const {
  const RunConfig& config = *parts_.config;
  ShardedStateDict state;
  state.tensors = rank.model->weights_to_save();
  if (config.checkpoint.save_optim) {
    Result<ShardedStateDict> optimizer =
        rank.model->optimizer().sharded_state_dict(false, rank.model->sharded_metadata());
    if (!optimizer) return tl::unexpected(optimizer.error());
    std::move(optimizer->tensors.begin(), optimizer->tensors.end(), std::back_inserter(state.tensors));
    std::move(optimizer->objects.begin(), optimizer->objects.end(), std::back_inserter(state.objects));
    state.objects.push_back({kScheduler, rank.model->scheduler().state_dict(), rank.rank});
  }
  if (config.checkpoint.save_rng) {
    state.objects.push_back({random_key(rank.rank),
                             StateDict{{"torch_rng_state", cpu_rng_state()},
                                       {"rng_tracker_states", rank.random->state_dict()},
                                       {"layout", layout_text(config)}},
                             0});
  }
  StateDict run = counters_dict(counters);
  run["args"] = run_arguments(config, parts_.data_digest);
  state.objects.push_back({kRun, std::move(run), rank.rank});
  return state;
}

Result<std::optional<Saved>> RunCheckpoint::save(const RunCounters& counters,
                                                 const std::vector<RankState>& ranks) {
  PL_ASSERT(ranks.size() == group_.ranks.size());
  const CheckpointConfig& options = parts_.config->checkpoint;
  SaveOptions how;
  how.keep_last = options.keep_last;
  std::vector<ShardedStateDict> states(ranks.size());
  std::vector<Saved> saved(ranks.size());
  const Status done = on_all(ranks.size(), [&](std::size_t i) -> Status {
    ControlChannel& channel = *group_.ranks[i];
    Result<ShardedStateDict> state = state_of(counters, ranks[i]);
    PL_TRY(agree(channel, state ? Status{} : tl::unexpected(state.error())));
    states[i] = std::move(*state);
    PL_TRY(choose_owners(channel, states[i]));
    if (!savers_.empty()) return {};
    SaveOptions own = how;
    if (i == 0) own.progress = parts_.progress;
    Result<Saved> written =
        save_sharded(*parts_.files, channel, options.save, counters.iteration, states[i], {}, own);
    if (!written) return tl::unexpected(written.error());
    saved[i] = std::move(*written);
    return {};
  });
  PL_TRY(done);
  if (savers_.empty()) return std::optional<Saved>(std::move(saved.front()));
  Result<std::optional<Saved>> before = finish();
  if (!before) return before;
  for (std::size_t i = 0; i < savers_.size(); ++i)
    PL_TRY(savers_[i]->start(counters.iteration, states[i], {}, how));
  return before;
}

Result<std::optional<Saved>> RunCheckpoint::finish() {
  Result<std::optional<Saved>> first = std::optional<Saved>{};
  for (std::size_t i = 0; i < savers_.size(); ++i) {
    Result<std::optional<Saved>> outcome = savers_[i]->wait();  // of all, also after one that failed
    if (i == 0 || (first && !outcome)) first = std::move(outcome);
  }
  return first;
}

bool RunCheckpoint::same_layout() const {
  const Result<StateValue> random = read_object(*reader_, random_key(0));
  const auto* states = random ? random->get<StateDict>() : nullptr;
  if (states == nullptr || !states->contains("layout")) return false;
  const Result<std::string> layout = states->text("layout");
  return layout && *layout == layout_text(*parts_.config);
}

// What the ranks of this process want, objects once.
Result<ShardedStateDict> RunCheckpoint::wanted(const std::vector<RankState>& ranks) const {
  ShardedStateDict all;
  std::set<std::string> objects;
  const auto add = [&](ShardedStateDict&& part) {
    std::move(part.tensors.begin(), part.tensors.end(), std::back_inserter(all.tensors));
    for (ShardedObject& object : part.objects) {
      if (objects.insert(object.key).second) all.objects.push_back(std::move(object));
    }
  };
  // An optimizer that had not updated anything yet has no states in the checkpoint, and gets none.
  const bool has_states = reader_->manifest().find_object(kCommonStep) != nullptr;
  const bool random = !fresh() && parts_.config->checkpoint.load_rng && same_layout();
  for (const RankState& rank : ranks) {
    add({rank.model->weights_to_load(), {}});
    if (with_optim()) {
      Result<ShardedStateDict> optimizer =
          rank.model->optimizer().sharded_state_dict(has_states, rank.model->sharded_metadata());
      if (!optimizer) return optimizer;
      add(std::move(*optimizer));
      if (has_states) add({{}, {{kCommonStep, {}, 1}}});
      add({{}, {{kScheduler, {}, 1}}});
      if (reader_->manifest().find_object(kScaler) != nullptr) add({{}, {{kScaler, {}, 1}}});
    }
    if (random) add({{}, {{random_key(rank.rank), {}, 1}}});
  }
  if (reader_->manifest().find_object(kRun) != nullptr) add({{}, {{kRun, {}, 1}}});
  return all;
}

Status RunCheckpoint::load(const std::vector<RankState>& ranks, std::vector<std::string>& notices) {
  PL_ASSERT(reader_.has_value());
  Result<ShardedStateDict> state = wanted(ranks);
  PL_TRY(agree(*group_.process, state ? Status{} : tl::unexpected(state.error())));
  LoadRules rules;
  rules.may_be_missing = {kScaler};  // told in a notice
  if (!with_optim()) rules.may_be_unused = {"optimizer.*", kScheduler};
  const bool random = !fresh() && parts_.config->checkpoint.load_rng;
  const bool random_fits = random && same_layout();
  if (!random_fits) rules.may_be_unused.emplace_back("rng.*");
  if (random && !random_fits)
    notices.push_back(
        fmt::format("random states are of another layout than {}: each rank begins with those of the seed",
                    layout_text(*parts_.config)));
  const Result<LoadedState> loaded = load_sharded(*reader_, *group_.process, *state, rules);
  if (!loaded) return tl::unexpected(loaded.error());
  const auto find = [&](const std::string& key) -> const StateDict* {
    for (const ShardedObject& object : loaded->objects) {
      if (object.key == key) return object.value.get<StateDict>();
    }
    return nullptr;
  };
  const auto finish_rank = [&](const RankState& rank) -> Status {
    ChainedOptimizer& optimizer = rank.model->optimizer();
    if (with_optim()) {
      PL_TRY(optimizer.load_sharded_objects(loaded->objects, rank.model->sharded_metadata()));
      const StateDict* scheduler = find(kScheduler);
      if (scheduler == nullptr)
        return fail(ErrorCode::kState, fmt::format("{}: '{}' is no dictionary", found_->path, kScheduler));
      std::vector<std::string> said;
      PL_TRY(rank.model->scheduler().load_state_dict(*scheduler, &said));
      const std::vector<std::string> more = optimizer.load_notices();
      said.insert(said.end(), more.begin(), more.end());
      for (std::string& text : said) {
        if (std::find(notices.begin(), notices.end(), text) == notices.end())
          notices.push_back(std::move(text));
      }
    } else {
      PL_TRY(optimizer.reload_model_params());
    }
    if (!random_fits) return {};
    const StateDict* states = find(random_key(rank.rank));
    if (states == nullptr)
      return fail(ErrorCode::kState, fmt::format("{}: no random states of rank {}", found_->path, rank.rank));
    const Result<const StateDict*> tracker = states->dict("rng_tracker_states");
    if (!tracker) return tl::unexpected(tracker.error());
    PL_TRY(rank.random->load_state_dict(**tracker));
    const Result<at::Tensor> generator = states->tensor("torch_rng_state");
    if (!generator) return tl::unexpected(generator.error());
    return set_cpu_rng_state(*generator);
  };
  Status own;
  for (const RankState& rank : ranks) {
    if (own) own = finish_rank(rank);
  }
  return agree(*group_.process, own);
}

}  // namespace plumbline

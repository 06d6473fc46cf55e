#include "engine/train/run_checkpoint.h"

#include <algorithm>
#include <set>
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

}  // namespace

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

RunCheckpoint::RunCheckpoint(Parts parts)
    : parts_(std::move(parts)), locals_(*parts_.files, *parts_.config) {}

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

std::string RunCheckpoint::directory_of(Kind kind, const std::string& beside) const {
  if (kind == Kind::kPersistent) return beside;
  const std::string& given = parts_.config->checkpoint.non_persistent_global;
  return given.empty() ? join_path(beside, "non_persistent") : given;
}

Status RunCheckpoint::find(std::vector<std::string>& notices) {
  const CheckpointConfig& options = parts_.config->checkpoint;
  const std::optional<std::int64_t> step =
      options.step >= 0 ? std::optional<std::int64_t>(options.step) : std::nullopt;
  Result<std::optional<FoundCheckpoint>> found =
      find_checkpoint(*parts_.files, *group_.process, options.load, step);
  if (!found) return tl::unexpected(found.error());
  found_ = std::move(*found);
  return step ? Status{} : find_non_persistent(notices);  // a step names a persistent one
}

// The newer one is what a run goes on from; of equal ones the one that is sooner read.
Status RunCheckpoint::find_non_persistent(std::vector<std::string>& notices) {
  const CheckpointConfig& options = parts_.config->checkpoint;
  std::optional<FoundCheckpoint> other;
  std::vector<CheckpointReader> readers;
  if (options.non_persistent == NonPersistent::kGlobal) {
    Result<std::optional<FoundCheckpoint>> found =
        find_checkpoint(*parts_.files, *group_.process, directory_of(Kind::kNonPersistent, options.load));
    if (!found) return tl::unexpected(found.error());
    other = std::move(*found);
    if (other && other->tracker.release)
      return fail(ErrorCode::kState, other->path + ": a non-persistent checkpoint cannot be a release");
  } else if (options.non_persistent == NonPersistent::kLocal) {
    std::vector<Rank> ranks;
    for (const auto& channel : group_.ranks) ranks.push_back(channel->rank());
    Result<LocalCheckpoints::Found> found = locals_.find(*group_.process, ranks, parts_.progress);
    if (!found) return tl::unexpected(found.error());
    notices.insert(notices.end(), found->notices.begin(), found->notices.end());
    if (found->iteration >= 0) other = {Tracker{false, found->iteration}, found->readers.front().path()};
    readers = std::move(found->readers);
  }
  if (!other) return {};
  if (found_ && other->tracker.iteration < found_->tracker.iteration) {
    notices.push_back(fmt::format("{}: older than {}, and not loaded", other->path, found_->path));
    return {};
  }
  found_ = std::move(other);
  found_kind_ = options.non_persistent;
  readers_ = std::move(readers);
  return {};
}

Status RunCheckpoint::open_found() {
  if (!readers_.empty()) return {};  // local ones are verified while they are looked for
  const bool other = found_kind_ != NonPersistent::kNone;
  const std::string directory =
      directory_of(other ? Kind::kNonPersistent : Kind::kPersistent, parts_.config->checkpoint.load);
  Result<CheckpointReader> reader =
      open_verified(*parts_.files, *group_.process, directory, *found_, parts_.progress);
  if (!reader && other)
    return fail(
        reader.error().code,
        reader.error().message + "; without --non-persistent-ckpt-type the persistent ones alone count");
  if (!reader) return tl::unexpected(reader.error());
  readers_.push_back(std::move(*reader));
  return {};
}

Result<RunCounters> RunCheckpoint::open_own(std::vector<std::string>& notices) {
  PL_TRY(open_found());
  // From here on every process reads the same verified manifest, or that of its own rank, and comes to the same end.
  PL_TRY(agree(*group_.process, check(reader().manifest())));
  Result<RunCounters> counters = counters_of(notices);
  PL_TRY(agree(*group_.process, counters ? Status{} : tl::unexpected(counters.error())));
  return counters;
}

Result<RunCounters> RunCheckpoint::open_legacy_files(std::vector<std::string>& notices) {
  legacy_.resize(group_.ranks.size());
  std::vector<std::vector<std::string>> said(group_.ranks.size());
  PL_TRY(on_all(group_.ranks.size(), [&](std::size_t i) -> Status {
    Result<LegacyState> state =
        open_legacy(*parts_.files, *group_.ranks[i], *parts_.config, parts_.data_digest, said[i]);
    if (!state) return tl::unexpected(state.error());
    legacy_[i] = std::move(*state);
    return {};
  }));
  notices.insert(notices.end(), said.front().begin(), said.front().end());
  return legacy_.front().counters;
}

Result<Resume> RunCheckpoint::open() {
  const CheckpointConfig& options = parts_.config->checkpoint;
  Resume resume;
  PL_TRY(find(resume.notices));
  if (!found_) {
    const std::string nothing = fmt::format("{}: no {} in it", options.load, kTrackerName);
    if (options.exit_on_missing)
      return fail(ErrorCode::kState, nothing + "; --exit-on-missing-checkpoint makes that an error");
    resume.notices.push_back(nothing + ": nothing is loaded, and training starts at iteration 0");
    return resume;
  }
  const Result<bool> legacy = is_legacy_checkpoint(*parts_.files, found_->path);
  PL_TRY(agree(*group_.process, legacy ? Status{} : tl::unexpected(legacy.error())));
  Result<RunCounters> counters = *legacy ? open_legacy_files(resume.notices) : open_own(resume.notices);
  if (!counters) return tl::unexpected(counters.error());
  resume.found = true;
  resume.path = found_->path;
  resume.non_persistent = found_kind_;
  resume.counters = *counters;
  begin_ = counters->iteration;
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
  const Result<StateValue> value = read_object(reader(), kRun);
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
  if (counters.iteration != reader().manifest().iteration)
    return at(
        fmt::format("iteration is {}, the manifest's {}", counters.iteration, reader().manifest().iteration));
  const Result<const StateDict*> args = run->dict("args");
  if (!args) return at(args.error().message);
  const Status same = compare_arguments(**args, *parts_.config, parts_.data_digest, with_optim(), notices);
  if (!same) return fail(same.error().code, fmt::format("{}: {}", found_->path, same.error().message));
  return counters;
}

// Of a local checkpoint: all that the rank has, not what it answers for.
Result<ShardedStateDict> RunCheckpoint::state_of(const RunCounters& counters, const RankState& rank,
                                                 bool local) const {
  const RunConfig& config = *parts_.config;
  ShardedStateDict state;
  if (local && rank.model->sharded())
    return fail(
        ErrorCode::kUnsupported,
        "parameters are sharded, so no rank has those that it loads; use --non-persistent-ckpt-type global");
  state.tensors = local ? rank.model->weights_to_load() : rank.model->weights_to_save();
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

SaveOptions RunCheckpoint::how_to_save(Kind kind) const {
  SaveOptions how;
  how.keep_last = kind == Kind::kPersistent ? parts_.config->checkpoint.keep_last : 1;
  return how;
}

// Before the first save: non-persistent checkpoints of after where this run began are of a run that was set back, and
// must not be taken for newer than what is saved now.
Status RunCheckpoint::forget_later(const std::vector<RankState>& ranks) {
  const CheckpointConfig& options = parts_.config->checkpoint;
  if (forgotten_ || options.non_persistent == NonPersistent::kNone) return {};
  forgotten_ = true;
  const std::string directory = directory_of(Kind::kNonPersistent, options.save);
  return on_all(ranks.size(), [&](std::size_t i) {
    ControlChannel& channel = *group_.ranks[i];
    Status done;
    if (options.non_persistent == NonPersistent::kLocal) {
      done = locals_.forget_later(ranks[i].rank, begin_);
    } else if (channel.rank() == 0) {
      done = plumbline::forget_later(*parts_.files, directory, begin_);
    }
    return agree(channel, done);
  });
}

// A rank's part in a save, on a thread of its own. Asynchronous ones are only prepared.
Result<Saved> RunCheckpoint::save_rank(std::size_t i, const RunCounters& counters, const RankState& rank,
                                       Kind kind, ShardedStateDict& state) {
  const CheckpointConfig& options = parts_.config->checkpoint;
  ControlChannel& channel = *group_.ranks[i];
  const bool local = kind == Kind::kNonPersistent && options.non_persistent == NonPersistent::kLocal;
  SaveOptions how = how_to_save(kind);
  if (i == 0) how.progress = parts_.progress;
  if (kind == Kind::kPersistent && options.format == CheckpointFormat::kTorch) {
    Result<std::string> path =
        save_legacy(*parts_.files, channel, *parts_.config, parts_.data_digest, counters, rank);
    if (!path) return tl::unexpected(path.error());
    return Saved{*path, 0, {}};
  }
  Result<ShardedStateDict> own = state_of(counters, rank, local);
  PL_TRY(agree(channel, own ? Status{} : tl::unexpected(own.error())));
  state = std::move(*own);
  if (local) return locals_.save(channel, counters.iteration, state, how.progress);
  PL_TRY(choose_owners(channel, state));
  if (!savers_.empty()) return Saved{};
  return save_sharded(*parts_.files, channel, directory_of(kind, options.save), counters.iteration, state, {},
                      how);
}

Result<std::optional<Saved>> RunCheckpoint::save(const RunCounters& counters,
                                                 const std::vector<RankState>& ranks, Kind kind) {
  PL_ASSERT(ranks.size() == group_.ranks.size());
  const CheckpointConfig& options = parts_.config->checkpoint;
  PL_TRY(forget_later(ranks));
  std::vector<ShardedStateDict> states(ranks.size());
  std::vector<Saved> saved(ranks.size());
  PL_TRY(on_all(ranks.size(), [&](std::size_t i) -> Status {
    Result<Saved> written = save_rank(i, counters, ranks[i], kind, states[i]);
    if (!written) return tl::unexpected(written.error());
    saved[i] = std::move(*written);
    return {};
  }));
  const bool local = kind == Kind::kNonPersistent && options.non_persistent == NonPersistent::kLocal;
  if (savers_.empty() || local) {
    for (std::size_t i = 1; i < saved.size(); ++i)
      std::move(saved[i].notices.begin(), saved[i].notices.end(), std::back_inserter(saved.front().notices));
    return std::optional<Saved>(std::move(saved.front()));
  }
  Result<std::optional<Saved>> before = finish();
  if (!before) return before;
  for (std::size_t i = 0; i < savers_.size(); ++i)
    PL_TRY(savers_[i]->start(counters.iteration, states[i], {}, how_to_save(kind),
                             directory_of(kind, options.save)));
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

bool RunCheckpoint::same_layout(const CheckpointReader& reader, Rank rank) const {
  const Result<StateValue> random = read_object(reader, random_key(rank));
  const auto* states = random ? random->get<StateDict>() : nullptr;
  if (states == nullptr || !states->contains("layout")) return false;
  const Result<std::string> layout = states->text("layout");
  return layout && *layout == layout_text(*parts_.config);
}

// What these ranks want of it, objects once.
Result<ShardedStateDict> RunCheckpoint::wanted(const CheckpointReader& reader,
                                               const std::vector<RankState>& ranks) const {
  ShardedStateDict all;
  std::set<std::string> objects;
  const auto add = [&](ShardedStateDict&& part) {
    std::move(part.tensors.begin(), part.tensors.end(), std::back_inserter(all.tensors));
    for (ShardedObject& object : part.objects) {
      if (objects.insert(object.key).second) all.objects.push_back(std::move(object));
    }
  };
  // An optimizer that had not updated anything yet has no states in the checkpoint, and gets none.
  const bool has_states = reader.manifest().find_object(kCommonStep) != nullptr;
  const Rank first = found_kind_ == NonPersistent::kLocal ? ranks.front().rank : 0;
  const bool random = !fresh() && parts_.config->checkpoint.load_rng && same_layout(reader, first);
  for (const RankState& rank : ranks) {
    add({rank.model->weights_to_load(), {}});
    if (with_optim()) {
      Result<ShardedStateDict> optimizer =
          rank.model->optimizer().sharded_state_dict(has_states, rank.model->sharded_metadata());
      if (!optimizer) return optimizer;
      add(std::move(*optimizer));
      if (has_states) add({{}, {{kCommonStep, {}, 1}}});
      add({{}, {{kScheduler, {}, 1}}});
      if (reader.manifest().find_object(kScaler) != nullptr) add({{}, {{kScaler, {}, 1}}});
    }
    if (random) add({{}, {{random_key(rank.rank), {}, 1}}});
  }
  if (reader.manifest().find_object(kRun) != nullptr) add({{}, {{kRun, {}, 1}}});
  return found_kind_ == NonPersistent::kLocal ? localized(all, true) : std::move(all);
}

Status RunCheckpoint::load(const std::vector<RankState>& ranks, std::vector<std::string>& notices) {
  PL_ASSERT(!readers_.empty() || !legacy_.empty());
  if (!legacy_.empty()) {
    Status own;
    for (std::size_t i = 0; i < ranks.size() && own; ++i) own = load_legacy(legacy_[i], ranks[i], notices);
    legacy_.clear();
    if (!own) own = fail(own.error().code, fmt::format("{}: {}", found_->path, own.error().message));
    return agree(*group_.process, own);
  }
  if (found_kind_ != NonPersistent::kLocal) {
    PL_TRY(load_from(reader(), *group_.process, ranks, notices));
  } else {
    Status own;
    for (std::size_t i = 0; i < ranks.size() && own; ++i)
      own = load_from(readers_[i], lone_channel(), {ranks[i]}, notices);
    PL_TRY(agree(*group_.process, own));
  }
  readers_.clear();  // files, and what they keep of them
  return {};
}

Status RunCheckpoint::load_from(const CheckpointReader& reader, ControlChannel& channel,
                                const std::vector<RankState>& ranks, std::vector<std::string>& notices) {
  Result<ShardedStateDict> state = wanted(reader, ranks);
  PL_TRY(agree(channel, state ? Status{} : tl::unexpected(state.error())));
  LoadRules rules;
  rules.may_be_missing = {kScaler};  // told in a notice
  rules.may_be_unused = {kLocalPart};
  if (!with_optim()) rules.may_be_unused.insert(rules.may_be_unused.end(), {"optimizer.*", kScheduler});
  const bool random = !fresh() && parts_.config->checkpoint.load_rng;
  const Rank first = found_kind_ == NonPersistent::kLocal ? ranks.front().rank : 0;
  const bool random_fits = random && same_layout(reader, first);
  if (!random_fits) rules.may_be_unused.emplace_back("rng.*");
  if (random && !random_fits)
    notices.push_back(
        fmt::format("random states are of another layout than {}: each rank begins with those of the seed",
                    layout_text(*parts_.config)));
  const Result<LoadedState> loaded = load_sharded(reader, channel, *state, rules);
  if (!loaded) return tl::unexpected(loaded.error());
  Status own;
  for (const RankState& rank : ranks) {
    if (own) own = finish_rank(rank, loaded->objects, random_fits, notices);
  }
  return agree(channel, own);
}

// What is no tensor.
Status RunCheckpoint::finish_rank(const RankState& rank, const std::vector<ShardedObject>& objects,
                                  bool random, std::vector<std::string>& notices) const {
  const auto find = [&](const std::string& key) -> const StateDict* {
    for (const ShardedObject& object : objects) {
      if (object.key == key) return object.value.get<StateDict>();
    }
    return nullptr;
  };
  ChainedOptimizer& optimizer = rank.model->optimizer();
  if (with_optim()) {
    PL_TRY(optimizer.load_sharded_objects(objects, rank.model->sharded_metadata()));
    const StateDict* scheduler = find(kScheduler);
    if (scheduler == nullptr)
      return fail(ErrorCode::kState, fmt::format("{}: '{}' is no dictionary", found_->path, kScheduler));
    PL_TRY(load_scheduler(rank, *scheduler, notices));
  } else {
    PL_TRY(optimizer.reload_model_params());
  }
  if (!random) return {};
  const StateDict* states = find(random_key(rank.rank));
  if (states == nullptr)
    return fail(ErrorCode::kState, fmt::format("{}: no random states of rank {}", found_->path, rank.rank));
  return load_random(rank, *states);
}

}  // namespace plumbline

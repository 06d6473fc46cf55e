#include "engine/train/trainer.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "engine/base/assert.h"
#include "engine/base/hash.h"
#include "engine/config/batch_schedule.h"
#include "engine/config/explain.h"
#include "engine/model/precision.h"
#include "engine/program/run_plan.h"
#include "engine/train/held_stages.h"
#include "engine/train/model_groups.h"
#include "engine/train/model_support.h"
#include "engine/train/model_table.h"
#include "engine/train/skip_notes.h"
#include "engine/train/step_report.h"

namespace plumbline {

struct Trainer::Impl {
  RunConfig config;
  Options options;
  Text text;
  std::unique_ptr<BatchSource> batches;
  RunPlan plan;
  std::vector<LinkedProgram> train_linked;  // by plan.train
  std::optional<LinkedProgram> evaluation_linked, sync_linked;
  std::vector<std::unique_ptr<StageWorker>> owned;
  std::vector<std::unique_ptr<Worker>> wrappers;
  std::vector<StageWorker*> workers;
  int parameters = 0;
  bool evaluates_only = false;  // a forward-only schedule: one evaluation is all of the run
  std::unique_ptr<StepDriver> driver;
  const LinkedProgram* current = nullptr;  // the driver's
  RunRecord record;
  std::int64_t consumed = 0;
  int iteration = 0;
  int steps = 0;
  TrainOutcome outcome;
  std::unique_ptr<RunCheckpoint> checkpoint;  // null: nothing is saved or loaded
  Resume resume;
  std::vector<RngTracker> random;  // by rank
  std::int64_t validated = 0;      // samples of evaluations
  int saved_iteration = -1;        // of the newest checkpoint

  bool toy() const { return config.model.name == "toy"; }
  void use(const LinkedProgram& linked) {
    if (current != &linked) driver->set_program(linked);
    current = &linked;
  }
  Status make_batches();
  Status make_programs(const ModelFamily& family);
  Status make_workers(const ModelFamily& family);
  Result<bool> step(const StepInput& input);
  bool here(Rank rank) const { return options.channel == nullptr || options.channel->rank() == rank; }
  StepRow row_of(const StepInput& input, const std::vector<StepReport>& reports) const;
  Result<std::vector<StepReport>> reports(const ReportWishes& wishes, const SimStep* step);
  Result<bool> sync_parameters();
  void stop(const SimStep& step);
  Result<bool> train();
  Result<bool> evaluate();
  Status open_checkpoint();
  Status load_checkpoint();
  Result<bool> save_checkpoint(bool ends);
  void saved(const std::optional<Saved>& done) const;
  std::vector<RankState> rank_states();
};

Status Trainer::Impl::make_batches() {
  Result<std::unique_ptr<BatchSource>> source = toy_batches(config);
  if (!toy()) {
    Result<Text> loaded = load_text(config.train.data);
    if (!loaded) return tl::unexpected(loaded.error());
    text = std::move(*loaded);
    source = text_batches(config, text);
  }
  if (!source) return tl::unexpected(source.error());
  batches = std::move(*source);
  return {};
}

Status Trainer::Impl::make_programs(const ModelFamily& family) {
  const Result<Schedule> schedule = schedule_of(config);
  if (!schedule) return tl::unexpected(schedule.error());
  evaluates_only = schedule->forward_only;
  if (evaluates_only && config.train.eval_iterations == 0)
    return fail(
        ErrorCode::kConfig,
        "schedule: forward-only trains nothing, and train.eval_iterations=0 leaves nothing to evaluate; "
        "give --eval-iters, or choose another schedule");
  PL_TRY(check_model_support(config, family, schedule->slices));
  const ModelSizes sizes = family.sizes(config);
  RunPlanOptions wanted;
  wanted.evaluation = config.train.eval_iterations > 0;
  wanted.iteration = iteration;
  wanted.consumed = consumed;
  Result<RunPlan> made = plan_run(config, sizes, wanted);
  if (!made) return tl::unexpected(made.error());
  plan = std::move(*made);
  if (toy() && plan.train.size() > 1) {
    return fail(ErrorCode::kConfig,
                "model.name=toy has one parameter element a microbatch; give it a constant batch size");
  }
  const auto link = [](const Program& program) { return link_program(program); };
  for (const Program& program : plan.train) {
    Result<LinkedProgram> linked = link(program);
    if (!linked) return tl::unexpected(linked.error());
    train_linked.push_back(std::move(*linked));
  }
  for (const auto& [program, linked] :
       {std::pair{&plan.evaluation, &evaluation_linked}, std::pair{&plan.param_sync, &sync_linked}}) {
    if (!*program) continue;
    Result<LinkedProgram> made_link = link(**program);
    if (!made_link) return tl::unexpected(made_link.error());
    *linked = std::move(*made_link);
  }
  return {};
}

Status Trainer::Impl::make_workers(const ModelFamily& family) {
  const ModelSizes sizes = family.sizes(config);
  const std::size_t stages = static_cast<std::size_t>(config.stages());
  ModelTable table;
  std::vector<GroupKey> keys;
  for (int replica = 0; replica < config.parallel.dp; ++replica) {
    // The first replica's stages also tell what the model is.
    const bool of_others =
        options.channel != nullptr && config.grid.coordinate(options.channel->rank(), Axis::kDp) != replica;
    if (replica != 0 && of_others) continue;
    std::vector<std::unique_ptr<Stage>> made;
    std::vector<Stage*> pointers;
    for (std::size_t stage = 0; stage < stages; ++stage) {
      made.push_back(family.make_stage({static_cast<int>(stage), static_cast<int>(stages), &config}));
      pointers.push_back(made.back().get());
    }
    if (replica == 0) {
      Result<ModelTable> described = describe_model(pointers, sizes);
      if (!described) return tl::unexpected(described.error());
      table = std::move(*described);
      parameters = table.parameters;
      owned.resize(static_cast<std::size_t>(config.grid.world()));
      Result<std::vector<GroupKey>> found = group_keys_of_model(family, config);
      if (!found) return tl::unexpected(found.error());
      keys = std::move(*found);
    }
    for (Rank rank = 0; rank < config.grid.world(); ++rank) {
      if (config.grid.coordinate(rank, Axis::kDp) != replica || !here(rank)) continue;
      StageWorker::Parts parts{&config, batches.get(), rank, {}, {}, keys, {}};
      if (options.place) parts.place = options.place(rank);
      parts.stages.resize(stages);
      const int coordinate = config.grid.coordinate(rank, Axis::kPp);
      const std::vector<int> held = stages_held(plan.main(), coordinate);
      for (const int stage : held) {
        std::unique_ptr<Stage>& first =
            made[static_cast<std::size_t>(stage)];  // the others are further copies
        parts.stages[static_cast<std::size_t>(stage)] =
            first != nullptr ? std::move(first)
                             : family.make_stage({stage, static_cast<int>(stages), &config});
      }
      parts.slices = slices_held(plan.main(), table, coordinate, held);
      Result<std::unique_ptr<StageWorker>> worker = StageWorker::create(std::move(parts));
      if (!worker) return tl::unexpected(worker.error());
      owned[static_cast<std::size_t>(rank)] = std::move(*worker);
    }
  }
  for (const std::unique_ptr<StageWorker>& worker : owned) {
    if (worker == nullptr) continue;
    workers.push_back(worker.get());
    if (!toy()) continue;
    worker->observe_gradients([this](const StageWorker& by) {
      std::vector<ToyFinding> found = toy_findings(by, config, consumed / samples_per_step(config));
      std::move(found.begin(), found.end(), std::back_inserter(outcome.toy));
    });
  }
  return {};
}

// The accounts of all ranks, wherever they are. `step` is what the driver said of the ranks in this process; null:
// no step has run.
Result<std::vector<StepReport>> Trainer::Impl::reports(const ReportWishes& wishes, const SimStep* step) {
  std::vector<StepReport> out;
  for (const StageWorker* worker : workers) {
    out.push_back(report_of(*worker, config, wishes));
    if (step == nullptr) continue;
    out.back().begin = step->begin;
    out.back().end = step->end;
  }
  if (options.channel == nullptr) return out;
  if (step != nullptr) out.front().findings = step->findings;
  out.front().toy = std::exchange(outcome.toy, {});
  const Result<std::vector<std::string>> all = options.channel->exchange(report_bytes(out.front()));
  if (!all) return tl::unexpected(all.error());
  out.clear();
  for (const std::string& bytes : *all) {
    Result<StepReport> report = parse_report(bytes);
    if (!report) return tl::unexpected(report.error());
    std::move(report->toy.begin(), report->toy.end(), std::back_inserter(outcome.toy));
    out.push_back(std::move(*report));
  }
  return out;
}

StepRow Trainer::Impl::row_of(const StepInput& input, const std::vector<StepReport>& reports) const {
  const StepResult& result = reports.front().result;
  StepRow row;
  row.step = steps;
  row.iteration = iteration;
  row.evaluation = input.evaluation;
  row.skipped = result.skipped;
  row.loss = loss_of(reports);
  row.scale = static_cast<double>(result.scale);
  row.scale_after = static_cast<double>(reports.front().scale_after);
  row.grad_norm = result.norm;
  row.zeros = result.zeros;
  row.lr = input.evaluation ? 0.0 : result.lr;
  row.consumed_samples = consumed;
  row.begin = reports.front().begin;
  row.end = reports.front().end;
  for (const StepReport& report : reports) {
    row.begin = std::min(row.begin, report.begin);
    row.end = std::max(row.end, report.end);
  }
  if (!input.evaluation) {
    const ModelDigests digests = digests_of(reports, parameters);
    row.params_digest = digests.parameters;
    row.optimizer_digest = digests.optimizer;
  }
  return row;
}

void Trainer::Impl::stop(const SimStep& step) {
  outcome.completed = step.completed;
  outcome.findings = step.findings;
  outcome.exit_code = exit_code_of(step);
  Verdict verdict;
  verdict.program = plan.main().name;
  verdict.modes.push_back({driver->mode(), step.completed, step.findings, step.end});
  record.verdict_json = verdict_json(verdict);
}

// False: the run is over.
Result<bool> Trainer::Impl::step(const StepInput& input) {
  for (StageWorker* worker : workers) worker->begin_step(input);
  Result<SimStep> done = driver->run_step(steps, record);
  if (!done) return tl::unexpected(done.error());
  if (!done->completed) {
    stop(*done);
    return false;
  }
  for (StageWorker* worker : workers) worker->end_step();
  if (!input.evaluation) consumed += input.samples;
  // An evaluation begins with the gathers that were still open, and changes nothing else.
  const bool gathers_late = config.optimizer.overlap_param_gather;
  const bool changed = input.evaluation ? gathers_late && input.evaluation_step == 0 : true;
  // Sharded parameters are nowhere whole.
  const bool whole = !workers.front()->model().sharded() && (input.evaluation || !gathers_late);
  const ReportWishes wishes{changed && whole, changed, !input.evaluation};
  const Result<std::vector<StepReport>> all = reports(wishes, &*done);
  if (!all) return tl::unexpected(all.error());
  if (options.channel != nullptr) done->findings.clear();  // they are in the reports
  for (const StepReport& report : *all)
    done->findings.insert(done->findings.end(), report.findings.begin(), report.findings.end());
  if (!done->findings.empty()) stop(*done);
  if (done->findings.empty()) PL_TRY(compare_replicas(*all, iteration));
  const StepRow row = row_of(input, *all);
  record.steps.push_back(row);
  ++steps;
  if (!input.evaluation) ++(row.skipped ? outcome.skipped : outcome.updates);
  if (options.on_step) PL_TRY(options.on_step(record));
  if (!outcome.toy.empty()) outcome.exit_code = 4;
  return outcome.exit_code == 0;
}

Result<bool> Trainer::Impl::train() {
  const RunPlan::Stretch& stretch = plan.stretch_of(iteration);
  use(train_linked[stretch.program]);
  ++iteration;
  StepInput input;
  input.iteration = iteration;
  input.consumed = consumed;
  input.samples = stretch.batch.running;
  return step(input);
}

Result<bool> Trainer::Impl::evaluate() {
  if (config.train.eval_iterations == 0) return true;
  use(*evaluation_linked);
  double total = 0.0;
  for (int i = 0; i < config.train.eval_iterations; ++i) {
    StepInput input;
    input.evaluation = true;
    input.iteration = iteration;
    input.consumed = consumed;
    input.evaluation_step = i;
    const Result<bool> go_on = step(input);
    if (!go_on || !*go_on) return go_on;
    total += record.steps.back().loss;
    validated += samples_per_step(config);
  }
  outcome.validation_loss = total / config.train.eval_iterations;
  return true;
}

// The gathers that the last step left to the next one; no step of the record.
Result<bool> Trainer::Impl::sync_parameters() {
  if (!sync_linked) return true;
  use(*sync_linked);
  RunRecord scratch = record_for(*plan.param_sync);
  const Result<SimStep> done = driver->run_step(steps, scratch);
  if (!done) return tl::unexpected(done.error());
  if (!done->completed || !done->findings.empty()) {
    stop(*done);
    return false;
  }
  const Result<std::vector<StepReport>> all = reports({true, true, false}, nullptr);
  if (!all) return tl::unexpected(all.error());
  PL_TRY(compare_replicas(*all, iteration));
  return true;
}

// What the run goes on from, before anything is made: how many steps there are and of which size depends on it.
Status Trainer::Impl::open_checkpoint() {
  if (config.checkpoint.save.empty() && config.checkpoint.load.empty()) return {};
  RunCheckpoint::Parts parts;
  parts.config = &config;
  parts.files = options.files != nullptr ? options.files : &posix_files();
  parts.groups = in_this_process();
  if (options.channel != nullptr) parts.groups = one_rank_a_process(*options.channel, options.save_channel);
  if (options.groups) parts.groups = options.groups;
  parts.local_ranks = options.channel != nullptr ? 1 : config.grid.world();
  if (!toy()) parts.data_digest = hex64(text.digest);
  parts.progress = options.progress;
  Result<std::unique_ptr<RunCheckpoint>> made = RunCheckpoint::create(std::move(parts));
  if (!made) return tl::unexpected(made.error());
  checkpoint = std::move(*made);
  at::manual_seed(config.train.seed);  // as Megatron does; else it is noise that is saved
  if (config.checkpoint.load.empty()) return {};
  Result<Resume> opened = checkpoint->open();
  if (!opened) return tl::unexpected(opened.error());
  resume = std::move(*opened);
  iteration = static_cast<int>(resume.counters.iteration);
  consumed = resume.counters.consumed_train_samples;
  validated = resume.counters.consumed_valid_samples;
  if (resume.found && config.train.samples > 0) {
    const Result<NumMicrobatches> sizes = num_microbatches_of(config);
    if (!sizes) return tl::unexpected(sizes.error());
    const Result<std::int64_t> left = sizes->iterations_between(consumed, config.train.samples);
    if (!left) return tl::unexpected(left.error());
    config.train.iterations = iteration + static_cast<int>(*left);
  }
  return {};
}

Status Trainer::Impl::load_checkpoint() {
  for (const StageWorker* worker : workers) random.push_back(random_states_of(config, worker->rank()));
  if (!resume.found) return {};
  PL_TRY(checkpoint->load(rank_states(), resume.notices));
  const bool there = config.checkpoint.save == config.checkpoint.load;
  saved_iteration = there && resume.non_persistent == NonPersistent::kNone ? iteration : -1;
  const Result<std::vector<StepReport>> all =
      reports({!workers.front()->model().sharded(), true, false}, nullptr);
  if (!all) return tl::unexpected(all.error());
  return compare_replicas(*all, iteration);
}

std::vector<RankState> Trainer::Impl::rank_states() {
  std::vector<RankState> states;
  for (std::size_t i = 0; i < workers.size(); ++i)
    states.push_back({workers[i]->rank(), &workers[i]->model(), &random[i]});
  return states;
}

void Trainer::Impl::saved(const std::optional<Saved>& done) const {
  if (done && options.on_saved) options.on_saved(*done);
}

// False: the run is over.
Result<bool> Trainer::Impl::save_checkpoint(bool ends) {
  const CheckpointConfig& wanted = config.checkpoint;
  const auto due = [&](int interval) { return interval > 0 && iteration % interval == 0; };
  const bool persistent = due(wanted.interval) || ends;
  if (wanted.save.empty() || !(persistent || due(wanted.non_persistent_interval)) ||
      saved_iteration == iteration)
    return true;
  // A rank that saves all it holds needs the gathers that the next step would begin with.
  if (!persistent && wanted.non_persistent == NonPersistent::kLocal) {
    const Result<bool> go_on = sync_parameters();
    if (!go_on || !*go_on) return go_on;
  }
  RunCounters counters{iteration, consumed, validated, resume.counters.updates + outcome.updates,
                       resume.counters.skipped + outcome.skipped};
  using Kind = RunCheckpoint::Kind;
  const Result<std::optional<Saved>> done =
      checkpoint->save(counters, rank_states(), persistent ? Kind::kPersistent : Kind::kNonPersistent);
  if (!done) return tl::unexpected(done.error());
  if (persistent) saved_iteration = iteration;
  saved(*done);
  return true;
}

Trainer::Trainer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Trainer::~Trainer() = default;

Result<std::unique_ptr<Trainer>> Trainer::create(RunConfig config, Options options) {
  auto impl = std::make_unique<Impl>();
  impl->config = std::move(config);
  impl->options = std::move(options);
  impl->outcome.validation_loss = std::numeric_limits<double>::quiet_NaN();
  const Result<const ModelFamily*> family = find_model(impl->config.model.name);
  if (!family) return tl::unexpected(family.error());
  PL_TRY(impl->make_batches());
  PL_TRY(impl->open_checkpoint());
  PL_TRY(impl->make_programs(**family));
  PL_TRY(impl->make_workers(**family));
  PL_TRY(impl->load_checkpoint());

  std::vector<Worker*> run_by_driver(impl->workers.begin(), impl->workers.end());
  for (std::size_t i = 0; impl->options.wrap && i < run_by_driver.size(); ++i) {
    impl->wrappers.push_back(impl->options.wrap(*impl->workers[i]));
    run_by_driver[i] = impl->wrappers.back().get();
  }
  const RunPlan& plan = impl->plan;
  impl->driver =
      impl->options.driver(impl->config, impl->train_linked[plan.main_program], std::move(run_by_driver));
  impl->record = record_for(plan.main());
  for (const Program* program : plan.programs())
    label_base(impl->record, *program);  // before a writer's header
  impl->record.backend = impl->driver->name();
  impl->record.schedule = plan.main().name;
  impl->record.config = config_toml(impl->config);
  impl->record.seed = impl->config.train.seed;
  impl->record.resumed_from = impl->iteration;
  if (!impl->toy()) impl->record.data_digest = hex64(impl->text.digest);
  return std::unique_ptr<Trainer>(new Trainer(std::move(impl)));
}

Result<TrainOutcome> Trainer::run() {
  Impl& self = *impl_;
  const TrainConfig& train = self.config.train;
  Result<bool> go_on = true;
  const bool trains = !self.evaluates_only && self.iteration < train.iterations;
  if (!trains) go_on = self.evaluate();  // nothing is left to train
  while (trains && go_on && *go_on && self.iteration < train.iterations) {
    go_on = self.train();
    const bool last = self.iteration == train.iterations;
    const bool stops = !last && train.exit_interval > 0 && self.iteration % train.exit_interval == 0;
    const bool due = last || (train.eval_interval > 0 && self.iteration % train.eval_interval == 0);
    if (go_on && *go_on && due) go_on = self.evaluate();
    if (go_on && *go_on && (last || stops)) go_on = self.sync_parameters();
    if (go_on && *go_on) go_on = self.save_checkpoint(last || stops);
    self.outcome.stopped = stops;
    if (stops) break;
  }
  if (!go_on) return tl::unexpected(go_on.error());
  if (self.checkpoint != nullptr) {
    const Result<std::optional<Saved>> done = self.checkpoint->finish();
    if (!done) return tl::unexpected(done.error());
    self.saved(*done);
  }
  self.outcome.iteration = self.iteration;
  const LossScaler* scaler = self.workers.front()->model().scaler();
  if (scaler != nullptr) note_skips(*scaler, self.resume.counters.updates, self.outcome);
  return self.outcome;
}

Result<TrainOutcome> Trainer::train_step() {
  PL_ASSERT_MSG(!impl_->evaluates_only, "a forward-only schedule has no training step");
  const Result<bool> go_on = impl_->train();
  if (!go_on) return tl::unexpected(go_on.error());
  return impl_->outcome;
}

const RunConfig& Trainer::config() const { return impl_->config; }
const RunRecord& Trainer::record() const { return impl_->record; }
RunRecord& Trainer::record() { return impl_->record; }
const Program& Trainer::program() const { return impl_->plan.main(); }
const std::vector<StageWorker*>& Trainer::workers() const { return impl_->workers; }
const Resume& Trainer::resume() const { return impl_->resume; }
RngTracker& Trainer::random(std::size_t worker) { return impl_->random[worker]; }
bool Trainer::evaluates_only() const { return impl_->evaluates_only; }
const Text* Trainer::text() const { return impl_->toy() ? nullptr : &impl_->text; }

}  // namespace plumbline

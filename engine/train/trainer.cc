#include "engine/train/trainer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "engine/base/assert.h"
#include "engine/config/explain.h"
#include "engine/model/precision.h"
#include "engine/program/lower.h"
#include "engine/train/digests.h"
#include "engine/train/model_table.h"

namespace plumbline {

struct Trainer::Impl {
  RunConfig config;
  Options options;
  Text text;
  std::unique_ptr<BatchSource> batches;
  Program train_program, evaluation_program;
  LinkedProgram train_linked, evaluation_linked;
  std::vector<std::unique_ptr<StageWorker>> owned;
  std::vector<std::unique_ptr<Worker>> wrappers;
  std::vector<StageWorker*> workers;
  int parameters = 0;
  std::unique_ptr<StepDriver> driver;
  RunRecord record;
  std::int64_t consumed = 0;
  int iteration = 0;
  int steps = 0;
  TrainOutcome outcome;

  bool toy() const { return config.model.name == "toy"; }
  Status make_batches();
  Status make_programs(const ModelSizes& sizes);
  Status make_workers(const ModelFamily& family);
  void check_toy(const StageWorker& worker, std::span<const float> gradients);
  Result<bool> step(const StepInput& input);
  StepRow row_of(const StepInput& input, const SimStep& step) const;
  double loss_of_step() const;
  Status check_replicas() const;
  void digest(StepRow& row) const;
  void stop(const SimStep& step);
  Result<bool> train();
  Result<bool> evaluate();
};

namespace {

// Kept by rank; the order of replicas is that of their ranks.
std::vector<int> stages_held(const Program& program, Rank rank) {
  std::vector<int> held;
  const int coordinate = program.grid.coordinate(rank, Axis::kPp);
  for (int stage = 0; stage < program.stages; ++stage) {
    if (program.rank_of_stage[static_cast<std::size_t>(stage)] == coordinate) held.push_back(stage);
  }
  return held;
}

int exit_code_of(const SimStep& step) {
  const auto deadlocked = [](const Finding& finding) {
    return finding.kind == FindingKind::kDeadlock || finding.kind == FindingKind::kCrossWired;
  };
  if (std::any_of(step.findings.begin(), step.findings.end(), deadlocked)) return 3;
  return step.completed && step.findings.empty() ? 0 : 4;
}

}  // namespace

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

Status Trainer::Impl::make_programs(const ModelSizes& sizes) {
  const Result<Schedule> schedule = schedule_of(config);
  if (!schedule) return tl::unexpected(schedule.error());
  if (schedule->forward_only)
    return fail(ErrorCode::kConfig, "schedule: forward-only has nothing to train; choose another one");
  Result<Program> train = lower(config, *schedule, sizes);
  if (!train) return tl::unexpected(train.error());
  train_program = std::move(*train);
  Result<LinkedProgram> linked = link_program(train_program);
  if (!linked) return tl::unexpected(linked.error());
  train_linked = std::move(*linked);
  if (config.train.eval_iterations == 0) return {};

  const Result<Schedule> forward = evaluation_schedule_of(config);
  if (!forward) return tl::unexpected(forward.error());
  LowerOptions lowering;
  lowering.tail = StepTail::kSchedule;
  Result<Program> evaluation = lower(config, *forward, sizes, lowering);
  if (!evaluation) return tl::unexpected(evaluation.error());
  evaluation_program = std::move(*evaluation);
  linked = link_program(evaluation_program);
  if (!linked) return tl::unexpected(linked.error());
  evaluation_linked = std::move(*linked);
  return {};
}

Status Trainer::Impl::make_workers(const ModelFamily& family) {
  const ModelSizes sizes = family.sizes(config);
  const std::size_t stages = static_cast<std::size_t>(config.stages());
  ModelTable table;
  for (int replica = 0; replica < config.parallel.dp; ++replica) {
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
    }
    for (Rank rank = 0; rank < config.grid.world(); ++rank) {
      if (config.grid.coordinate(rank, Axis::kDp) != replica) continue;
      StageWorker::Parts parts{&config, batches.get(), rank, {}, {}};
      parts.stages.resize(stages);
      const std::vector<int> held = stages_held(train_program, rank);
      for (const int stage : held)
        parts.stages[static_cast<std::size_t>(stage)] = std::move(made[static_cast<std::size_t>(stage)]);
      parts.slices = table.slices(held);
      Result<std::unique_ptr<StageWorker>> worker = StageWorker::create(std::move(parts));
      if (!worker) return tl::unexpected(worker.error());
      owned[static_cast<std::size_t>(rank)] = std::move(*worker);
    }
  }
  for (const std::unique_ptr<StageWorker>& worker : owned) {
    workers.push_back(worker.get());
    if (toy())
      worker->observe_gradients(
          [this](const StageWorker& by, std::span<const float> values) { check_toy(by, values); });
  }
  return {};
}

void Trainer::Impl::check_toy(const StageWorker& worker, std::span<const float> gradients) {
  ToyStep step;
  step.dtype = dtype_of(config.train.precision);
  step.microbatches = config.schedule.microbatches;
  step.replicas = config.parallel.dp;
  step.step = consumed / samples_per_step(config);
  const float scale = worker.result().scale;
  step.factor = static_cast<float>(static_cast<double>(scale) / step.entries());
  step.inverse = worker.optimizer().scaler().checks() ? worker.optimizer().scaler().inverse() : 1.0f;
  for (const ParameterSlice& slice : worker.optimizer().slices()) {
    auto found =
        check_toy_gradient(step, worker.rank(), slice.stage, gradients.subspan(slice.offset, slice.size));
    std::move(found.begin(), found.end(), std::back_inserter(outcome.toy));
  }
}

double Trainer::Impl::loss_of_step() const {
  double total = 0.0;
  int replicas = 0;
  for (const StageWorker* worker : workers) {
    const std::vector<double>& losses = worker->result().losses;
    if (losses.empty()) continue;
    double sum = 0.0;
    for (const double loss : losses) sum += loss;
    total += sum / static_cast<double>(losses.size());
    ++replicas;
  }
  return replicas == 0 ? std::numeric_limits<double>::quiet_NaN() : total / replicas;
}

StepRow Trainer::Impl::row_of(const StepInput& input, const SimStep& step) const {
  const StepResult& result = workers.front()->result();
  StepRow row;
  row.step = steps;
  row.iteration = iteration;
  row.evaluation = input.evaluation;
  row.skipped = result.skipped;
  row.loss = loss_of_step();
  row.scale = static_cast<double>(result.scale);
  row.scale_after = static_cast<double>(workers.front()->optimizer().scaler().scale());
  row.grad_norm = result.norm;
  row.lr = input.evaluation ? 0.0 : result.lr;
  row.consumed_samples = consumed;
  row.begin = step.begin;
  row.end = step.end;
  return row;
}

void Trainer::Impl::digest(StepRow& row) const {
  ModelDigest params(parameters), state(parameters);
  for (const StageWorker* worker : workers) {
    if (config.grid.coordinate(worker->rank(), Axis::kDp) != 0) continue;
    for (const ParameterSlice& slice : worker->optimizer().slices()) {
      if (!slice.counted) continue;
      params.set(slice.global, worker->parameter_digest(slice));
      state.set(slice.global, worker->optimizer().state_digest(slice));
    }
  }
  row.params_digest = params.value();
  row.optimizer_digest = state.value();
}

Status Trainer::Impl::check_replicas() const {
  struct Seen {
    Rank rank = -1;
    std::uint64_t parameter = 0, state = 0;
  };
  std::vector<Seen> seen(static_cast<std::size_t>(parameters));
  for (const StageWorker* worker : workers) {
    if (worker->optimizer().scaler() != workers.front()->optimizer().scaler()) {
      return fail(ErrorCode::kState,
                  fmt::format("the loss scalers of ranks 0 and {} differ after iteration {}", worker->rank(),
                              iteration));
    }
    for (const ParameterSlice& slice : worker->optimizer().slices()) {
      const Seen now{worker->rank(), worker->parameter_digest(slice),
                     worker->optimizer().state_digest(slice)};
      Seen& before = seen[static_cast<std::size_t>(slice.global)];
      if (before.rank < 0) {
        before = now;
      } else if (before.parameter != now.parameter || before.state != now.state) {
        return fail(ErrorCode::kState,
                    fmt::format("{} of {} differs between ranks {} and {} after iteration {}",
                                before.parameter != now.parameter ? "the value" : "the optimizer state",
                                slice.name, before.rank, now.rank, iteration));
      }
    }
  }
  return {};
}

void Trainer::Impl::stop(const SimStep& step) {
  outcome.completed = step.completed;
  outcome.findings = step.findings;
  outcome.exit_code = exit_code_of(step);
  Verdict verdict;
  verdict.program = train_program.name;
  verdict.modes.push_back({driver->mode(), step.completed, step.findings, step.end});
  record.verdict_json = verdict_json(verdict);
}

// False: the run is over.
Result<bool> Trainer::Impl::step(const StepInput& input) {
  for (StageWorker* worker : workers) worker->begin_step(input);
  Result<SimStep> done = driver->run_step(steps, record);
  if (!done) return tl::unexpected(done.error());
  if (!done->completed || !done->findings.empty()) stop(*done);
  if (!done->completed) return false;
  if (!input.evaluation) consumed += samples_per_step(config);
  StepRow row = row_of(input, *done);
  if (!input.evaluation) {
    if (done->findings.empty()) PL_TRY(check_replicas());
    digest(row);
  }
  record.steps.push_back(row);
  ++steps;
  if (options.on_step) PL_TRY(options.on_step(record));
  if (!outcome.toy.empty()) outcome.exit_code = 4;
  return outcome.exit_code == 0;
}

Result<bool> Trainer::Impl::train() {
  ++iteration;
  StepInput input;
  input.iteration = iteration;
  input.consumed = consumed;
  return step(input);
}

Result<bool> Trainer::Impl::evaluate() {
  if (config.train.eval_iterations == 0) return true;
  driver->set_program(evaluation_linked);
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
  }
  outcome.validation_loss = total / config.train.eval_iterations;
  driver->set_program(train_linked);
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
  PL_TRY(impl->make_programs((*family)->sizes(impl->config)));
  PL_TRY(impl->make_workers(**family));

  std::vector<Worker*> run_by_driver(impl->workers.begin(), impl->workers.end());
  for (std::size_t i = 0; impl->options.wrap && i < run_by_driver.size(); ++i) {
    impl->wrappers.push_back(impl->options.wrap(*impl->workers[i]));
    run_by_driver[i] = impl->wrappers.back().get();
  }
  impl->driver = impl->options.driver(impl->config, impl->train_linked, std::move(run_by_driver));
  impl->record = record_for(impl->train_program);
  label_base(impl->record, impl->evaluation_program);  // before a writer puts the header down
  impl->record.backend = impl->driver->name();
  impl->record.schedule = impl->train_program.name;
  impl->record.config = config_toml(impl->config);
  impl->record.seed = impl->config.train.seed;
  if (!impl->toy()) impl->record.data_digest = hex64(impl->text.digest);
  return std::unique_ptr<Trainer>(new Trainer(std::move(impl)));
}

Result<TrainOutcome> Trainer::run() {
  Impl& self = *impl_;
  const int interval = self.config.train.eval_interval;
  while (self.iteration < self.config.train.iterations) {
    Result<bool> go_on = self.train();
    const bool due =
        self.iteration == self.config.train.iterations || (interval > 0 && self.iteration % interval == 0);
    if (go_on && *go_on && due) go_on = self.evaluate();
    if (!go_on) return tl::unexpected(go_on.error());
    if (!*go_on) break;
  }
  return self.outcome;
}

Result<TrainOutcome> Trainer::train_step() {
  const Result<bool> go_on = impl_->train();
  if (!go_on) return tl::unexpected(go_on.error());
  return impl_->outcome;
}

const RunConfig& Trainer::config() const { return impl_->config; }
const RunRecord& Trainer::record() const { return impl_->record; }
RunRecord& Trainer::record() { return impl_->record; }
const Program& Trainer::program() const { return impl_->train_program; }
const std::vector<StageWorker*>& Trainer::workers() const { return impl_->workers; }
const Text* Trainer::text() const { return impl_->toy() ? nullptr : &impl_->text; }

}  // namespace plumbline

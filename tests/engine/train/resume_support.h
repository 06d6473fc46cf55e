// Random runs that are saved in one layout and go on in another, for resume_test.cc.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <rapidcheck.h>

#include "engine/checkpoint/sharded.h"
#include "engine/storage/simulated_disk.h"
#include "tests/engine/train/small_run.h"
#include "tests/support/property.h"

namespace plumbline::test {

inline int draw(int least, int most) { return *between(least, most); }
inline bool coin() { return draw(0, 1) == 1; }
template <typename T>
T one_of(const std::vector<T>& from) {
  return from[static_cast<std::size_t>(draw(0, static_cast<int>(from.size()) - 1))];
}

// What all layouts of a case have in common.
inline RunConfig any_common(bool toy) {
  const Precision precision = one_of<Precision>({Precision::kFp32, Precision::kFp16, Precision::kBf16});
  RunConfig config = toy ? toy_config({}, precision) : small_config({}, precision);
  config.model.layers = one_of<int>({2, 4, 4});
  if (!toy) {
    config.model.heads = draw(1, 2);
    config.model.hidden = 4 * config.model.heads;
    config.model.seq_length = draw(2, 5);
    config.train.micro_batch_size = draw(1, 2);
    if (coin()) config.optimizer.decoupled_lr = 1e-3;
  }
  config.train.seed = static_cast<std::uint64_t>(draw(0, 1000));
  config.train.eval_iterations = 0;
  config.optimizer.rule = draw(0, 3) == 0 ? OptimizerRule::kSgd : OptimizerRule::kAdam;
  if (config.optimizer.rule == OptimizerRule::kSgd && coin()) config.optimizer.momentum = 0.0;
  config.optimizer.decay = one_of<DecayStyle>({DecayStyle::kConstant, DecayStyle::kCosine});
  config.optimizer.clip_grad = toy || coin() ? 0.0 : 0.5;
  config.loss_scale.window = draw(1, 3);
  config.loss_scale.hysteresis = draw(1, 2);
  if (precision == Precision::kBf16 && coin()) config.loss_scale.constant = 8.0;
  return config;
}

// One way to run it: `replicas` times so many microbatches that a step has `entries` of them.
inline RunConfig any_way(RunConfig config, int replicas, int entries) {
  config.parallel.dp = replicas;
  config.schedule.microbatches = entries / replicas;
  std::vector<std::pair<int, int>> fitting;  // pp, vp
  for (const auto& [pp, vp] : {std::pair{1, 1}, std::pair{2, 1}, std::pair{4, 1}, std::pair{2, 2}}) {
    // The toy model's parameters are its stages'.
    const bool fits =
        config.model.name == "toy" ? config.model.layers == pp * vp : config.model.layers % (pp * vp) == 0;
    if (fits && (vp == 1 || config.schedule.microbatches % pp == 0)) fitting.emplace_back(pp, vp);
  }
  std::tie(config.parallel.pp, config.schedule.chunks) = one_of(fitting);
  config.schedule.kind = config.schedule.chunks > 1 ? ScheduleKind::kInterleaved
                         : coin()                   ? ScheduleKind::kGpipe
                                                    : ScheduleKind::kOneFOneB;
  // Two ranks with several chunks and batched calls mix up their messages (engine/config/validate.h).
  if (config.schedule.chunks > 1) config.schedule.p2p = P2pStyle::kSeparate;
  OptimizerConfig& optimizer = config.optimizer;
  optimizer.distributed = coin();
  optimizer.overlap_grad_reduce = coin();
  optimizer.overlap_param_gather = optimizer.distributed && optimizer.overlap_grad_reduce && coin();
  optimizer.post_validation = draw(0, 3) == 0;
  optimizer.bucket_size = optimizer.overlap_grad_reduce && coin() ? draw(20, 400) : 0;
  optimizer.cpu_offload = optimizer.distributed && !optimizer.post_validation && draw(0, 2) == 0;
  optimizer.offload_fraction = optimizer.cpu_offload ? 0.5 : 1.0;
  return config;
}

// A step of a run, and what its ranks and the process drew from their random states after it.
struct Draws {
  StepRow row;
  std::vector<std::vector<double>> draws;
};

inline std::vector<double> three() {
  const at::Tensor values = at::rand({3}, at::kDouble);
  return {values[0].item<double>(), values[1].item<double>(), values[2].item<double>()};
}

struct Ran {
  std::unique_ptr<Trainer> trainer;  // null: refused
  std::string error;
  std::vector<Draws> steps;  // training steps
  std::vector<std::string> saved;
};

// `before` sees the trainer before its first step.
inline Ran run_on(SimulatedFiles& files, RunConfig config, const std::function<void(Trainer&)>& before = {}) {
  Ran ran;
  Trainer::Options options;
  options.files = &files;
  options.on_saved = [&ran](const Saved& saved) { ran.saved.push_back(saved.path); };
  Trainer* trainer = nullptr;
  options.on_step = [&](const RunRecord& record) -> Status {
    if (record.steps.back().evaluation) return {};
    Draws step{record.steps.back(), {}};
    for (std::size_t i = 0; i < trainer->workers().size(); ++i) {
      step.draws.emplace_back();
      for (const char* name : {"data-parallel-rng", "model-parallel-rng"})
        PL_TRY(trainer->random(i).fork(name, [&] { step.draws.back() = three(); }));
    }
    step.draws.push_back(three());
    ran.steps.push_back(std::move(step));
    return {};
  };
  const Result<RunConfig> valid = validate(std::move(config), {}, Purpose::kRun);
  RC_ASSERT(valid.has_value());
  Result<std::unique_ptr<Trainer>> made = Trainer::create(*valid, std::move(options));
  if (!made) {
    ran.error = made.error().text();
    return ran;
  }
  ran.trainer = std::move(*made);
  trainer = ran.trainer.get();
  if (before) before(*trainer);
  const Result<TrainOutcome> outcome = trainer->run();
  if (!outcome) ran.error = outcome.error().text();
  if (outcome && !outcome->toy.empty()) ran.error = outcome->toy.front().text;
  if (outcome && !outcome->findings.empty()) ran.error = outcome->findings.front().why;
  return ran;
}

// Everything but the times, which differ between layouts.
inline std::string difference(const StepRow& a, const StepRow& b) {
  const auto text = [](const StepRow& row) {
    return fmt::format(
        "iteration {}, skipped {}, loss {:a}, scale {:a} then {:a}, norm {:a}, lr {:a}, samples {}, "
        "parameters {:x}, optimizer {:x}",
        row.iteration, row.skipped, row.loss, row.scale, row.scale_after, row.grad_norm, row.lr,
        row.consumed_samples, row.params_digest, row.optimizer_digest);
  };
  return text(a) == text(b) ? "" : fmt::format("{}\n  is not\n  {}", text(a), text(b));
}

// Where the states of two checkpoints differ: tensors by their elements, objects by their values; empty: nowhere.
// Settings of groups have the step of those optimizers alone that keep it there.
inline std::string difference(SimulatedFiles& files, const std::string& left, const std::string& right) {
  const auto a = CheckpointReader::open(files, left), b = CheckpointReader::open(files, right);
  if (!a || !b) return a ? b.error().text() : a.error().text();
  for (const ManifestTensor& tensor : a->manifest().tensors) {
    if (tensor.key.starts_with(kObjectTensor)) continue;
    const auto one = read_tensor(*a, tensor.key), two = read_tensor(*b, tensor.key);
    if (!one || !two) return (one ? two : one).error().text();
    if (std::string text = first_difference(StateValue(*one), StateValue(*two)); !text.empty())
      return tensor.key + ": " + text;
  }
  for (const ManifestObject& object : a->manifest().objects) {
    if (object.key.starts_with("rng.")) continue;
    auto one = read_object(*a, object.key), two = read_object(*b, object.key);
    if (!one || !two) return (one ? two : one).error().text();
    for (StateValue* value : {&*one, &*two}) {
      if (auto* run = value->get<StateDict>(); run != nullptr && object.key == "run") run->erase("args");
      if (auto* groups = value->get<StateList>();
          groups != nullptr && object.key == "optimizer.param_groups") {
        for (StateValue& group : *groups) group.get<StateDict>()->erase("step");
      }
    }
    if (std::string text = first_difference(*one, *two); !text.empty()) return object.key + ": " + text;
  }
  return {};
}

inline int tensors_in(SimulatedFiles& files, const std::string& path) {
  const auto reader = CheckpointReader::open(files, path);
  int count = 0;
  if (!reader) return -1;
  for (const ManifestTensor& tensor : reader->manifest().tensors)
    count += tensor.key.starts_with(kObjectTensor) ? 0 : 1;
  return count;
}

}  // namespace plumbline::test

#include "engine/train/worker.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <limits>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include "engine/base/assert.h"
#include "engine/base/exact_sum.h"
#include "engine/model/deferred.h"
#include "engine/model/precision.h"
#include "engine/model/tensors.h"
#include "engine/optim/tensor_ops.h"

namespace plumbline {

struct StageWorker::Live {
  at::Tensor input;   // undefined on the first stage
  at::Tensor output;  // the loss on the last stage
  // Between I and W: what I could not put off, by slice, and what it did.
  std::vector<at::Tensor> gradients;
  DeferredGradients deferred;
  bool has_input_grad = false;
};

struct StageWorker::Call {
  const KernelCall* kernel_call;
  const Kernel* kernel;
  SlotStore* slots;

  int stage() const { return kernel->stage; }
  int microbatch() const { return kernel_call->microbatch; }

  // The slot of this kind (and stage, for the kinds that have one) among those the kernel touches; no data
  // when it has none.
  SlotMemory slot(SlotKind kind, int of_stage = -1) const {
    for (const auto* list : {&kernel->reads, &kernel->frees, &kernel->writes}) {
      for (const std::uint16_t row : *list) {
        const SlotClass& slot_class = kernel_call->program->slots[row];
        if (slot_class.kind != kind || (of_stage >= 0 && slot_class.stage != of_stage)) continue;
        return slots->slot({row, slot_class.per_microbatch ? microbatch() : kNoMicrobatch});
      }
    }
    return {};
  }
};

namespace {

template <typename T>
std::span<T> values_of(const SlotMemory& memory) {
  return {reinterpret_cast<T*>(memory.data), static_cast<std::size_t>(memory.bytes) / sizeof(T)};
}

// Megatron's pseudo-deallocation: the graph stays, the data goes. A view shares its data with something else
// and keeps it.
void drop_data(at::Tensor& tensor) {
  if (!tensor.is_view()) tensor.set_data(at::empty({0}, tensor.options()));
}

}  // namespace

StageWorker::StageWorker(Parts parts)
    : parts_(std::move(parts)),
      passes_(parts_.config->model.name == "toy" ? 1 : parts_.config->schedule.slices) {}

StageWorker::~StageWorker() = default;

Result<std::unique_ptr<StageWorker>> StageWorker::create(Parts parts) {
  std::unique_ptr<StageWorker> worker(new StageWorker(std::move(parts)));
  RankModel::Parts model;
  model.config = worker->parts_.config;
  model.rank = worker->parts_.rank;
  for (const std::unique_ptr<Stage>& stage : worker->parts_.stages) model.stages.push_back(stage.get());
  model.slices = worker->parts_.slices;
  model.known_keys = worker->parts_.known_keys;
  if (worker->parts_.place) {
    model.place = &*worker->parts_.place;
    Result<at::Tensor> losses = shared_tensor(*model.place, {worker->parts_.config->passes()}, at::kFloat);
    if (!losses) return tl::unexpected(losses.error());
    worker->losses_ = std::move(*losses);
  }
  Result<std::unique_ptr<RankModel>> made = RankModel::create(std::move(model));
  if (!made) return tl::unexpected(made.error());
  worker->model_ = std::move(*made);
  return worker;
}

void StageWorker::begin_step(const StepInput& input) {
  input_ = input;
  result_ = {};
  result_.scale = model_->scale();
  live_.clear();
  passes_.clear();
  batches_.clear();
  snapshot_.reset();
}

Status StageWorker::bind(const SlotClass& slot, const SlotMemory& memory) {
  if (slot.kind == SlotKind::kMainGrads) model_->bind_gradients(slot.stage, memory.data);
  if (slot.kind == SlotKind::kParameters) model_->bind_parameters(slot.stage, memory.data);
  if (slot.kind == SlotKind::kParameterShard) {
    if (parts_.place)
      return fail(ErrorCode::kUnsupported,
                  "sharded parameters, which are put together before each use, are not there for stages on a "
                  "device; --compute host has them");
    model_->bind_shard(slot.stage, memory.data);
  }
  return {};
}

Status StageWorker::launch(const KernelCall& call, SlotStore& slots) {
  const Kernel& kernel = call.program->kernels[call.kernel];
  try {
    return run({&call, &kernel, &slots});
  } catch (const std::exception& error) {
    const std::string text = error.what();
    return fail(ErrorCode::kState,
                fmt::format("rank {}, {}: {}", call.rank, kernel.name, text.substr(0, text.find('\n'))));
  }
}

Status StageWorker::run(const Call& call) {
  switch (call.kernel->kind) {
    case KernelKind::kForward:
      return forward(call);
    case KernelKind::kBackward:
      return backward(call);
    case KernelKind::kInputGrad:
      return input_grad(call);
    case KernelKind::kWeightGrad:
      return weight_grad(call);
    case KernelKind::kRecompute:  // the stage does it within its backward (ops::checkpoint)
      return {};
    case KernelKind::kUnshard:
      model_->unshard(call.stage(), call.slot(SlotKind::kParameters, call.stage()).data);
      return {};
    case KernelKind::kReshard:
      model_->reshard(call.stage());
      return {};
    case KernelKind::kOther:
      return fail(ErrorCode::kUnsupported, fmt::format("no computation for kernel {}", call.kernel->name));
    default:
      return tail(call);
  }
}

Result<const Batch*> StageWorker::batch_of(int microbatch) {
  const auto found = batches_.find(microbatch);
  if (found != batches_.end()) return &found->second;
  const int replica = parts_.config->grid.coordinate(parts_.rank, Axis::kDp);
  Batch batch = input_.evaluation ? parts_.batches->evaluation(input_.evaluation_step, replica, microbatch)
                                  : parts_.batches->training(input_.consumed, replica, microbatch);
  if (parts_.place) PL_TRY(move_batch(batch, microbatch));
  return &batches_.emplace(microbatch, std::move(batch)).first->second;
}

Status StageWorker::forward(const Call& call) {
  const int stage = call.stage();
  const at::AutoGradMode grad_mode(!input_.evaluation);
  const Result<const Batch*> batch = batch_of(call.microbatch());
  if (!batch) return tl::unexpected(batch.error());
  model_->follow_parameters(stage);
  Live live;
  if (stage > 0) {
    live.input = view(call.slot(SlotKind::kActivation, stage), **batch);
    live.input.requires_grad_(!input_.evaluation);
  }
  live.output = passes_.forward(*parts_.stages[static_cast<std::size_t>(stage)], stage, call.microbatch(),
                                live.input, **batch);
  if (!input_.evaluation && !live.output.grad_fn()) {
    return fail(ErrorCode::kState, fmt::format("stage {} returned a tensor without a graph", stage));
  }
  if (stage + 1 == call.kernel_call->program->stages) {
    PL_TRY(keep_loss(live.output, call.microbatch(), call.kernel_call->program->microbatches));
  } else {
    PL_TRY(copy_out(live.output, call.slot(SlotKind::kActivation, stage + 1),
                    fmt::format("the output of stage {}", stage)));
    write_shape(call, stage + 1, live.output);
    if (!input_.evaluation) drop_data(live.output);
  }
  if (!input_.evaluation) live_.insert_or_assign({stage, call.microbatch()}, std::move(live));
  return {};
}

// For the ranks that exchange shapes before tensors: three sizes.
void StageWorker::write_shape(const Call& call, int stage, const at::Tensor& tensor) const {
  const SlotMemory memory = call.slot(SlotKind::kShape, stage);
  if (memory.data == nullptr) return;
  const std::int64_t count = memory.bytes / dtype_bytes(memory.dtype);
  const at::Tensor sizes = memory_view(memory.data, {count}, at::kLong, device());
  for (std::int64_t i = 0; i < count; ++i) sizes.select(0, i).fill_(tensor.size(i));
}

Result<StageWorker::Live*> StageWorker::find_live(const Call& call) {
  const auto found = live_.find({call.stage(), call.microbatch()});
  if (found != live_.end()) return &found->second;
  return fail(ErrorCode::kState, fmt::format("{} of stage {}, microbatch {} without its forward",
                                             call.kernel->kind == KernelKind::kWeightGrad ? "W" : "backward",
                                             call.stage(), call.microbatch()));
}

// Runs the graph backwards and hands the input's gradient on; the weights' stay at the leaves, or where the caller
// has them put off to.
Status StageWorker::propagate(const Call& call, Live& live) {
  const int stage = call.stage();
  at::Tensor gradient;
  if (stage + 1 == call.kernel_call->program->stages) {
    const double share =
        static_cast<double>(call.kernel_call->program->microbatches) * parts_.config->parallel.dp;
    // The optimizer remembers the scale that its gradients come with.
    const at::TensorOptions fp32 = at::TensorOptions().dtype(at::kFloat);
    const double scale = model_->optimizer().scale_loss(at::ones({}, fp32)).item<double>();
    gradient = at::full({}, scale / share, fp32.device(device()));
  } else {
    const Result<const Batch*> batch = batch_of(call.microbatch());
    if (!batch) return tl::unexpected(batch.error());
    gradient = view(call.slot(SlotKind::kGradient, stage + 1), **batch);
  }
  std::vector<at::Tensor> roots{live.output}, gradients{gradient};
  passes_.begin_backward(stage, call.microbatch(), roots, gradients);
  torch::autograd::backward(roots, gradients);
  if (stage == 0) return {};
  at::Tensor passed = live.input.grad();
  if (!passed.defined()) passed = at::zeros_like(live.input);
  write_shape(call, stage, passed);
  return copy_out(passed, call.slot(SlotKind::kGradient, stage),
                  fmt::format("the input gradient of stage {}", stage));
}

Status StageWorker::backward(const Call& call) {
  Result<Live*> live = find_live(call);
  if (!live) return tl::unexpected(live.error());
  PL_TRY(propagate(call, **live));
  live_.erase({call.stage(), call.microbatch()});
  return model_->collect_leaf_gradients(call.stage());
}

Status StageWorker::input_grad(const Call& call) {
  Result<Live*> found = find_live(call);
  if (!found) return tl::unexpected(found.error());
  Live& live = **found;
  {
    const DeferScope scope(live.deferred);
    PL_TRY(propagate(call, live));
  }
  live.gradients = model_->take_leaf_gradients(call.stage());
  live.has_input_grad = true;
  live.input.reset();
  live.output.reset();
  return {};
}

Status StageWorker::weight_grad(const Call& call) {
  Result<Live*> found = find_live(call);
  if (!found) return tl::unexpected(found.error());
  Live& live = **found;
  if (!live.has_input_grad) {
    return fail(ErrorCode::kState,
                fmt::format("W of stage {}, microbatch {} without its I", call.stage(), call.microbatch()));
  }
  model_->put_leaf_gradients(std::move(live.gradients));
  live.deferred.run();
  live_.erase({call.stage(), call.microbatch()});
  return model_->collect_leaf_gradients(call.stage());
}

Status StageWorker::tail(const Call& call) {
  switch (call.kernel->kind) {
    case KernelKind::kZeroGrad:
      model_->zero_gradients();
      return {};
    case KernelKind::kCollectTied:
      return collect_tied(call);
    case KernelKind::kMergeTied:
      return merge_tied(call);
    case KernelKind::kUnscaleCheck:
      return unscale(call);
    case KernelKind::kNormSums:
      return norm(call);
    case KernelKind::kOptimizerStep:
      return step(call);
    case KernelKind::kSkipStep:
      skip();
      return {};
    case KernelKind::kSpeculativeStep:
      return speculate(call);
    case KernelKind::kValidateStep:
      return validate_step(call);
    default:
      return fail(ErrorCode::kUnsupported, fmt::format("no computation for kernel {}", call.kernel->name));
  }
}

Status StageWorker::collect_tied(const Call& call) const {
  const std::vector<std::size_t> tied = model_->tied_slices();
  if (tied.size() != 1) return fail(ErrorCode::kState, "no tied parameter to send, or both uses are here");
  return copy_out(model_->tied_gradient(tied.front()), call.slot(SlotKind::kTiedGrad), "the tied gradient");
}

Status StageWorker::merge_tied(const Call& call) const {
  const at::NoGradGuard no_grad;
  const std::vector<std::size_t> tied = model_->tied_slices();
  const SlotMemory memory = call.slot(SlotKind::kTiedGrad);
  if (memory.data != nullptr) {
    for (const std::size_t slice : tied) {
      at::Tensor gradient = model_->tied_gradient(slice);
      if (static_cast<Bytes>(gradient.nbytes()) != memory.bytes)
        return fail(ErrorCode::kState, "the tied gradient's slot is not of its size");
      std::memcpy(gradient.data_ptr(), memory.data, static_cast<std::size_t>(memory.bytes));
    }
    return {};
  }
  if (tied.size() != 2) return fail(ErrorCode::kState, "one use of the tied parameter is on another rank");
  at::Tensor first = model_->tied_gradient(tied[0]), last = model_->tied_gradient(tied[1]);
  first.add_(last);
  last.copy_(first);
  return {};
}

// As if the backward had made it: the update would be spoilt if nobody looked. A rank that owns padding only has
// nothing to spoil.
void StageWorker::inject_overflow() const {
  for (at::Tensor& gradient : model_->optimizer().main_gradients()) {
    if (gradient.numel() == 0) continue;
    gradient.view({-1})[0].fill_(std::numeric_limits<float>::infinity());
    return;
  }
}

Status StageWorker::unscale(const Call& call) {
  bool injected = false;
  for (const OverflowFault& fault : parts_.config->faults.overflow)
    injected = injected || (fault.rank == parts_.rank && fault.iteration == input_.iteration);
  ChainedOptimizer& optimizer = model_->optimizer();
  optimizer.copy_model_grads_to_main_grads();
  if (injected) inject_overflow();
  const Result<bool> found = optimizer.unscale_local();
  if (!found) return tl::unexpected(found.error());
  for (const SlotKind kind : {SlotKind::kFoundInf, SlotKind::kLocalFoundInf}) {
    const SlotMemory memory = call.slot(kind);
    if (memory.data != nullptr) values_of<float>(memory)[0] = *found || injected ? 1.0f : 0.0f;
  }
  return {};
}

Status StageWorker::norm(const Call& call) {
  ChainedOptimizer& optimizer = model_->optimizer();
  if (optimizer.scaler() == nullptr) {
    optimizer.copy_model_grads_to_main_grads();
    PL_TRY(optimizer.check_for_nan_local());
  }
  if (observer_) observer_(*this);
  const std::span<std::int64_t> words = values_of<std::int64_t>(call.slot(SlotKind::kNormSums));
  const LocalNorm local = optimizer.norm_local();
  const auto own = local.squares.words();
  std::copy(own.begin(), own.end(), words.begin());
  if (words.size() > own.size()) words[own.size()] = optimizer.count_zeros_local();
  return {};
}

double StageWorker::agreed_norm(const Call& call) {
  const std::span<std::int64_t> words = values_of<std::int64_t>(call.slot(SlotKind::kNormSums));
  if (words.size() > static_cast<std::size_t>(ExactSum::kWords)) result_.zeros = words.back();
  LocalNorm all;
  all.squares = ExactSum::of(words.first<ExactSum::kWords>());
  return norm_of(all);
}

Status StageWorker::step(const Call& call) {
  const double norm = agreed_norm(call);
  model_->optimizer().update_scaler(false);
  PL_TRY(model_->optimizer().finish_step(norm));
  updated(norm);
  return {};
}

void StageWorker::updated(double norm) {
  result_.updated = true;
  result_.norm = norm;
  result_.lr = model_->lr();
  model_->scheduler().step(input_.samples);
}

void StageWorker::skip() {
  result_.skipped = true;
  result_.lr = model_->lr();
  model_->optimizer().update_scaler(true);
}

Status StageWorker::speculate(const Call& call) {
  const SlotMemory local = call.slot(SlotKind::kLocalFoundInf);
  if (local.data != nullptr && values_of<float>(local)[0] != 0.0f) return {};
  Result<StepSnapshot> snapshot =
      StepSnapshot::take(model_->optimizer(), values_of<std::byte>(call.slot(SlotKind::kSnapshot)));
  if (!snapshot) return tl::unexpected(snapshot.error());
  snapshot_ = std::move(*snapshot);
  return model_->optimizer().finish_step(0.0);  // a norm of 0 clips nothing
}

Status StageWorker::validate_step(const Call& call) {
  const SlotMemory agreed = call.slot(SlotKind::kFoundInf);
  const bool found = agreed.data != nullptr && values_of<float>(agreed)[0] != 0.0f;
  const double norm = agreed_norm(call);
  ChainedOptimizer& optimizer = model_->optimizer();
  const bool wrong = found || clip_coefficient(norm, parts_.config->optimizer.clip_grad) != 1.0f;
  if (wrong && snapshot_) {
    snapshot_->restore();
    result_.rolled_back = true;
  }
  if (found) {
    snapshot_.reset();
    skip();
    return {};
  }
  if (!snapshot_) return fail(ErrorCode::kState, "an overflow of this rank's own was not agreed on");
  optimizer.update_scaler(false);
  if (wrong) PL_TRY(optimizer.finish_step(norm));
  snapshot_.reset();
  updated(norm);
  return {};
}

}  // namespace plumbline

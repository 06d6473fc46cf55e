#include "engine/train/worker.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <limits>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include "engine/base/assert.h"
#include "engine/base/hash.h"
#include "engine/model/precision.h"
#include "engine/model/tensors.h"
#include "engine/optim/adamw.h"
#include "engine/train/model_table.h"

namespace plumbline {

struct StageWorker::Live {
  at::Tensor input;   // undefined on the first stage
  at::Tensor output;  // the loss on the last stage
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

// A slot as a tensor [micro_batch_size, seq_length, rest].
at::Tensor view_of(const SlotMemory& memory, const RunConfig& config) {
  const std::int64_t rows = config.train.micro_batch_size, columns = config.model.seq_length;
  const std::int64_t count = memory.bytes / dtype_bytes(memory.dtype);
  return at::from_blob(memory.data, {rows, columns, count / (rows * columns)},
                       at::TensorOptions().dtype(scalar_type_of(memory.dtype)));
}

// Copies a tensor into its slot; the slot says what it must be.
Status copy_out(const at::Tensor& tensor, const SlotMemory& memory, const std::string& what) {
  const at::Tensor dense = tensor.detach().contiguous();
  if (dense.scalar_type() != scalar_type_of(memory.dtype) ||
      static_cast<Bytes>(dense.nbytes()) != memory.bytes) {
    return fail(ErrorCode::kState, fmt::format("{} has {} bytes of {}; its slot has {} of {}", what,
                                               dense.nbytes(), dtype_name(dtype_of(dense.scalar_type())),
                                               memory.bytes, dtype_name(memory.dtype)));
  }
  std::memcpy(memory.data, dense.data_ptr(), static_cast<std::size_t>(memory.bytes));
  return {};
}

// Megatron's pseudo-deallocation: the graph stays, the data goes. A view shares its data with something else
// and keeps it.
void drop_data(at::Tensor& tensor) {
  if (!tensor.is_view()) tensor.set_data(at::empty({0}, tensor.options()));
}

}  // namespace

Result<std::unique_ptr<StageWorker>> StageWorker::create(Parts parts) {
  std::vector<Stage*> stages;
  for (const std::unique_ptr<Stage>& stage : parts.stages) stages.push_back(stage.get());
  std::vector<float> initial = flat_values(parts.slices, stages);
  Result<RankOptimizer> optimizer = RankOptimizer::create(*parts.config, parts.slices, std::move(initial));
  if (!optimizer) return tl::unexpected(optimizer.error());
  return std::unique_ptr<StageWorker>(new StageWorker(std::move(parts), std::move(*optimizer)));
}

StageWorker::StageWorker(Parts parts, RankOptimizer optimizer)
    : parts_(std::move(parts)), optimizer_(std::move(optimizer)), sums_(optimizer_.size(), 0.0f) {}

StageWorker::~StageWorker() = default;

void StageWorker::begin_step(const StepInput& input) {
  input_ = input;
  result_ = {};
  result_.scale = optimizer_.scaler().scale();
  live_.clear();
  batches_.clear();
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
    case KernelKind::kWeightGrad:
      return fail(ErrorCode::kUnsupported,
                  "backwards in two parts (I and W) are not trained yet; use a schedule with B");
    case KernelKind::kOther:
      return fail(ErrorCode::kUnsupported, fmt::format("no computation for kernel {}", call.kernel->name));
    default:
      return tail(call);
  }
}

const Batch& StageWorker::batch_of(int microbatch) {
  const auto found = batches_.find(microbatch);
  if (found != batches_.end()) return found->second;
  const int replica = parts_.config->grid.coordinate(parts_.rank, Axis::kDp);
  Batch batch = input_.evaluation ? parts_.batches->evaluation(input_.evaluation_step, replica, microbatch)
                                  : parts_.batches->training(input_.consumed, replica, microbatch);
  return batches_.emplace(microbatch, std::move(batch)).first->second;
}

Status StageWorker::forward(const Call& call) {
  const int stage = call.stage();
  const at::AutoGradMode grad_mode(!input_.evaluation);
  Live live;
  if (stage > 0) {
    live.input = view_of(call.slot(SlotKind::kActivation, stage), *parts_.config);
    live.input.requires_grad_(!input_.evaluation);
  }
  live.output =
      parts_.stages[static_cast<std::size_t>(stage)]->forward(live.input, batch_of(call.microbatch()));
  if (!input_.evaluation && !live.output.grad_fn()) {
    return fail(ErrorCode::kState, fmt::format("stage {} returned a tensor without a graph", stage));
  }
  if (stage + 1 == call.kernel_call->program->stages) {
    result_.losses.resize(static_cast<std::size_t>(call.kernel_call->program->microbatches),
                          std::numeric_limits<double>::quiet_NaN());
    result_.losses[static_cast<std::size_t>(call.microbatch())] =
        static_cast<double>(live.output.item<float>());
  } else {
    PL_TRY(copy_out(live.output, call.slot(SlotKind::kActivation, stage + 1),
                    fmt::format("the output of stage {}", stage)));
    if (!input_.evaluation) drop_data(live.output);
  }
  if (!input_.evaluation) live_.insert_or_assign({stage, call.microbatch()}, std::move(live));
  return {};
}

Status StageWorker::backward(const Call& call) {
  const int stage = call.stage();
  const auto found = live_.find({stage, call.microbatch()});
  if (found == live_.end()) {
    return fail(ErrorCode::kState, fmt::format("backward of stage {}, microbatch {} without its forward",
                                               stage, call.microbatch()));
  }
  Live live = std::move(found->second);
  live_.erase(found);
  at::Tensor gradient;
  if (stage + 1 == call.kernel_call->program->stages) {
    const double share =
        static_cast<double>(call.kernel_call->program->microbatches) * parts_.config->parallel.dp;
    gradient =
        at::full({}, static_cast<double>(result_.scale) / share, at::TensorOptions().dtype(at::kFloat));
  } else {
    gradient = view_of(call.slot(SlotKind::kGradient, stage + 1), *parts_.config);
  }
  torch::autograd::backward({live.output}, {gradient});
  collect_leaf_gradients(stage);
  if (stage == 0) return {};
  at::Tensor passed = live.input.grad();
  if (!passed.defined()) passed = at::zeros_like(live.input);
  return copy_out(passed, call.slot(SlotKind::kGradient, stage),
                  fmt::format("the input gradient of stage {}", stage));
}

void StageWorker::collect_leaf_gradients(int stage) {
  for (const ParameterSlice& slice : optimizer_.slices()) {
    if (slice.stage != stage) continue;
    at::Tensor& value = tensor_of(slice);
    const at::Tensor gradient = value.grad();
    if (!gradient.defined()) continue;
    const at::Tensor dense = gradient.contiguous();
    accumulate(dense.data_ptr(), dtype_of(dense.scalar_type()), sums_.data() + slice.offset, slice.size);
    value.mutable_grad().reset();
  }
}

Status StageWorker::tail(const Call& call) {
  const std::span<float> gradients = values_of<float>(call.slot(SlotKind::kMainGrads));
  if (call.kernel->kind != KernelKind::kZeroGrad && gradients.size() != sums_.size()) {
    return fail(ErrorCode::kState, fmt::format("rank {} has {} gradients, its slot {}", parts_.rank,
                                               sums_.size(), gradients.size()));
  }
  switch (call.kernel->kind) {
    case KernelKind::kZeroGrad:
      std::fill(sums_.begin(), sums_.end(), 0.0f);
      return {};
    case KernelKind::kCollectGrads:
      std::copy(sums_.begin(), sums_.end(), gradients.begin());
      return {};
    case KernelKind::kCollectTied: {
      const ParameterSlice* slice = tied_slice(true) != nullptr ? tied_slice(true) : tied_slice(false);
      const std::span<float> tied = values_of<float>(call.slot(SlotKind::kTiedGrad));
      if (slice == nullptr || slice->size != tied.size())
        return fail(ErrorCode::kState, "no tied parameter of the slot's size");
      std::copy_n(gradients.begin() + static_cast<std::ptrdiff_t>(slice->offset), slice->size, tied.begin());
      return {};
    }
    case KernelKind::kMergeTied:
      return merge_tied(call, gradients);
    case KernelKind::kUnscaleCheck:
      return unscale(call, gradients);
    case KernelKind::kNormSums:
      if (observer_) observer_(*this, gradients);
      optimizer_.norm_sums(gradients, values_of<double>(call.slot(SlotKind::kNormSums)));
      return {};
    case KernelKind::kOptimizerStep:
      step(gradients, values_of<double>(call.slot(SlotKind::kNormSums)));
      return {};
    case KernelKind::kSkipStep:
      result_.skipped = true;
      result_.lr = optimizer_.lr();
      optimizer_.skip();
      return {};
    default:
      return fail(ErrorCode::kUnsupported, fmt::format("no computation for kernel {}", call.kernel->name));
  }
}

Status StageWorker::merge_tied(const Call& call, std::span<float> gradients) const {
  const SlotMemory memory = call.slot(SlotKind::kTiedGrad);
  const ParameterSlice* first = tied_slice(true);
  const ParameterSlice* last = tied_slice(false);
  const auto at = [&](const ParameterSlice* slice) { return gradients.data() + slice->offset; };
  if (memory.data != nullptr) {
    const std::span<float> sum = values_of<float>(memory);
    for (const ParameterSlice* slice : {first, last}) {
      if (slice != nullptr) std::copy(sum.begin(), sum.end(), at(slice));
    }
    return {};
  }
  if (first == nullptr || last == nullptr)
    return fail(ErrorCode::kState, "one use of the tied parameter is on another rank");
  for (std::size_t i = 0; i < first->size; ++i) at(first)[i] = at(last)[i] = at(first)[i] + at(last)[i];
  return {};
}

Status StageWorker::unscale(const Call& call, std::span<float> gradients) {
  for (const OverflowFault& fault : parts_.config->faults.overflow) {
    if (fault.rank == parts_.rank && fault.iteration == input_.iteration && !gradients.empty()) {
      gradients[0] = std::numeric_limits<float>::infinity();
    }
  }
  // The scale has not changed since the step's backwards; it changes in the step's last kernel only.
  const bool finite = scale_and_check(gradients, optimizer_.scaler().inverse());
  values_of<float>(call.slot(SlotKind::kFoundInf))[0] = finite ? 0.0f : 1.0f;
  return {};
}

void StageWorker::step(std::span<const float> gradients, std::span<const double> sums) {
  const RankOptimizer::Outcome outcome = optimizer_.step(gradients, sums);
  result_.updated = true;
  result_.norm = outcome.norm;
  result_.lr = outcome.lr;
  for (const ParameterSlice& slice : optimizer_.slices()) {
    const at::Tensor& value = tensor_of(slice);
    narrow(optimizer_.main().data() + slice.offset, dtype_of(value.scalar_type()), value.data_ptr(),
           slice.size);
  }
}

const ParameterSlice* StageWorker::tied_slice(bool counted) const {
  for (const ParameterSlice& slice : optimizer_.slices()) {
    if (slice.tied && slice.counted == counted) return &slice;
  }
  return nullptr;
}

at::Tensor& StageWorker::tensor_of(const ParameterSlice& slice) const {
  return parts_.stages[static_cast<std::size_t>(slice.stage)]
      ->parameters()[static_cast<std::size_t>(slice.index)]
      .value;
}

std::uint64_t StageWorker::parameter_digest(const ParameterSlice& slice) const {
  const at::Tensor& value = tensor_of(slice);
  Hasher hasher;
  hasher.text(slice.name);
  hasher.bytes(value.data_ptr(), value.nbytes());
  return hasher.digest();
}

}  // namespace plumbline

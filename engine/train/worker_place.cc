// What of a worker depends on where its stages compute: views of slots, tokens, losses, and the first use of a device.
#include <cstring>
#include <limits>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include "engine/model/tensors.h"
#include "engine/train/worker.h"

namespace plumbline {

// A slot as a tensor of a batch's rows and columns: [micro_batch_size, seq_length or a slice of it, rest].
at::Tensor StageWorker::view(const SlotMemory& memory, const Batch& batch) const {
  const std::int64_t rows = batch.tokens.size(0), columns = batch.tokens.size(1);
  const std::int64_t count = memory.bytes / dtype_bytes(memory.dtype);
  return memory_view(memory.data, {rows, columns, count / (rows * columns)}, scalar_type_of(memory.dtype),
                     device());
}

// Copies a tensor into its slot; the slot says what it must be.
Status StageWorker::copy_out(const at::Tensor& tensor, const SlotMemory& memory,
                             const std::string& what) const {
  const at::Tensor dense = tensor.detach().contiguous();
  if (dense.scalar_type() != scalar_type_of(memory.dtype) ||
      static_cast<Bytes>(dense.nbytes()) != memory.bytes) {
    return fail(ErrorCode::kState, fmt::format("{} has {} bytes of {}; its slot has {} of {}", what,
                                               dense.nbytes(), dtype_name(dtype_of(dense.scalar_type())),
                                               memory.bytes, dtype_name(memory.dtype)));
  }
  if (dense.device().is_cpu()) {
    std::memcpy(memory.data, dense.data_ptr(), static_cast<std::size_t>(memory.bytes));
  } else {
    memory_view(memory.data, dense.sizes(), dense.scalar_type(), dense.device()).copy_(dense, true);
  }
  return {};
}

void StageWorker::end_step() {
  if (!parts_.place) return;
  const float* const losses = losses_.data_ptr<float>();
  for (std::size_t i = 0; i < result_.losses.size(); ++i) result_.losses[i] = static_cast<double>(losses[i]);
}

bool StageWorker::on_device(KernelKind kind) {
  switch (kind) {
    case KernelKind::kForward:
    case KernelKind::kBackward:
    case KernelKind::kInputGrad:
    case KernelKind::kWeightGrad:
    case KernelKind::kRecompute:
      return true;
    default:
      return false;
  }
}

Status StageWorker::warm_up(const Program& program) {
  begin_step(StepInput{});
  for (std::size_t stage = 0; stage < parts_.stages.size(); ++stage) {
    if (parts_.stages[stage] == nullptr) continue;
    const int number = static_cast<int>(stage);
    const Result<const Batch*> batch = batch_of(0);
    if (!batch) return tl::unexpected(batch.error());
    model_->follow_parameters(number);
    at::Tensor input;
    for (const SlotClass& slot : program.slots) {
      if (slot.kind != SlotKind::kActivation || slot.stage != number || number == 0) continue;
      const std::int64_t rows = (*batch)->tokens.size(0), columns = (*batch)->tokens.size(1);
      const std::int64_t count = slot.bytes / dtype_bytes(slot.dtype);
      input = at::zeros({rows, columns, count / (rows * columns)},
                        at::TensorOptions().dtype(scalar_type_of(slot.dtype)).device(device()));
      input.requires_grad_(true);
    }
    const at::AutoGradMode records(true);
    const at::Tensor output = passes_.forward(*parts_.stages[stage], number, 0, input, **batch);
    torch::autograd::backward({output}, {at::zeros_like(output)});
    for (const at::Tensor& gradient : model_->take_leaf_gradients(number)) {
      if (gradient.defined()) at::zeros_like(gradient, at::kFloat).add_(gradient.to(at::kFloat));
    }
  }
  begin_step(StepInput{});
  return {};
}

// Tokens and targets into memory that the device reads, one place a microbatch: the last step's are read no more.
Status StageWorker::move_batch(Batch& batch, int microbatch) {
  auto& [tokens, targets] = inputs_[microbatch];
  for (const auto& [kept, given] : {std::pair{&tokens, &batch.tokens}, std::pair{&targets, &batch.targets}}) {
    if (!given->defined()) continue;
    if (!kept->defined() || kept->sizes() != given->sizes()) {
      Result<at::Tensor> made = shared_tensor(*parts_.place, given->sizes(), given->scalar_type());
      if (!made) return tl::unexpected(made.error());
      *kept = std::move(*made);
    }
    kept->copy_(*given);
    *given = seen_from(device(), *kept);
  }
  return {};
}

// On a device the host does not wait for it: end_step() looks.
Status StageWorker::keep_loss(const at::Tensor& loss, int microbatch, int microbatches) {
  result_.losses.resize(static_cast<std::size_t>(microbatches), std::numeric_limits<double>::quiet_NaN());
  if (!parts_.place) {
    result_.losses[static_cast<std::size_t>(microbatch)] = static_cast<double>(loss.item<float>());
    return {};
  }
  if (losses_.numel() < microbatches) {  // the first of a step that has more than any before
    Result<at::Tensor> more = shared_tensor(*parts_.place, {microbatches}, at::kFloat);
    if (!more) return tl::unexpected(more.error());
    losses_ = std::move(*more);
  }
  seen_from(device(), losses_).select(0, microbatch).copy_(loss.detach(), true);
  return {};
}

}  // namespace plumbline

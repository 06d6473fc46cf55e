#include "engine/optim/grad_buffer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "engine/base/assert.h"
#include "engine/model/precision.h"
#include "engine/model/tensors.h"

namespace plumbline {
namespace {

constexpr std::int64_t kBlock = 1024;  // elements widened at a time, on the stack

void release_tensor(void* tensor) { delete static_cast<at::Tensor*>(tensor); }

// A flat tensor whose storage has no memory yet; point() gives it some.
at::Tensor without_memory(std::int64_t numel, const at::TensorOptions& options) {
  return at::from_blob(nullptr, {numel}, options);
}

void point(const at::Tensor& tensor, std::byte* memory) {
  tensor.storage().set_data_ptr_noswap(at::DataPtr(memory, tensor.device()));
}

// Memory that lives as long as a view does.
void point_to_own(const at::Tensor& tensor) {
  auto owner = std::make_unique<at::Tensor>(at::zeros({tensor.numel()}, tensor.options()));
  void* const data = owner->data_ptr();
  tensor.storage().set_data_ptr_noswap(at::DataPtr(data, owner.release(), &release_tensor, tensor.device()));
}

std::span<std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), static_cast<std::size_t>(tensor.nbytes())};
}

bool on_cpu(const at::Tensor& tensor) { return tensor.device().is_cpu(); }

bool is_precision(const at::Tensor& tensor) {
  const at::ScalarType type = tensor.scalar_type();
  return type == at::kFloat || type == at::kHalf || type == at::kBFloat16;
}

const std::byte* element(const at::Tensor& tensor, std::int64_t index) {
  return static_cast<const std::byte*>(tensor.data_ptr()) + index * tensor.element_size();
}

// Place of the first element that is not finite; -1 when there is none.
std::int64_t first_not_finite(const at::Tensor& flat) {
  if (!on_cpu(flat)) {
    const at::Tensor found = at::nonzero(at::isfinite(flat).logical_not());
    return found.numel() == 0 ? -1 : found.flatten()[0].item<std::int64_t>();
  }
  const DType type = dtype_of(flat.scalar_type());
  float block[kBlock];
  for (std::int64_t at = 0; at < flat.numel(); at += kBlock) {
    const std::int64_t part = std::min(kBlock, flat.numel() - at);
    widen(element(flat, at), type, block, static_cast<std::size_t>(part));
    const auto found = std::find_if(block, block + part, [](float value) { return !std::isfinite(value); });
    if (found != block + part) return at + (found - block);
  }
  return -1;
}

std::string number_text(double value) {
  return std::isnan(value) ? "NaN" : fmt::format("{}", value);  // without the sign of a NaN
}

// sums[i] = round(sums[i] + values[i]) where sums are 16 bits wide.
void accumulate_rounding(const at::Tensor& values, const at::Tensor& sums) {
  float added[kBlock], sum[kBlock];
  for (std::int64_t at = 0; at < sums.numel(); at += kBlock) {
    const auto part = static_cast<std::size_t>(std::min(kBlock, sums.numel() - at));
    widen(element(values, at), dtype_of(values.scalar_type()), added, part);
    widen(element(sums, at), dtype_of(sums.scalar_type()), sum, part);
    for (std::size_t i = 0; i < part; ++i) sum[i] += added[i];
    narrow(sum, dtype_of(sums.scalar_type()), const_cast<std::byte*>(element(sums, at)), part);
  }
}

GradBuffer::Key key_of(const Parameter& parameter, const GradBufferOptions& options) {
  const DType type = dtype_of(parameter.value.scalar_type());
  return {type, options.grad_reduce_in_fp32 ? DType::kF32 : type, parameter.expert};
}

Status check(const std::vector<ParameterPtr>& params, const GradBufferOptions& options) {
  if (options.shard < 0 || options.shard >= options.layout.shards) {
    return fail(ErrorCode::kConfig, fmt::format("gradient buffer: shard {} of {}; shards count from 0",
                                                options.shard, options.layout.shards));
  }
  if (params.empty()) return fail(ErrorCode::kConfig, "gradient buffer: no parameters");
  for (const ParameterPtr& parameter : params) {
    const at::Tensor& value = parameter->value;
    if (!value.defined() || !is_precision(value)) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("gradient buffer: parameter {} is not fp32, fp16 or bf16", parameter->name));
    }
    if (!(key_of(*parameter, options) == key_of(*params.front(), options)) ||
        value.device() != params.front()->value.device()) {
      return fail(
          ErrorCode::kConfig,
          fmt::format("gradient buffer: {} and {} differ in precision, device or reduction group; they "
                      "need buffers of their own",
                      params.front()->name, parameter->name));
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<GradBuffer>> GradBuffer::create(std::vector<ParameterPtr> params,
                                                       const GradBufferOptions& options) {
  PL_TRY(check(params, options));
  std::vector<ParamSize> sizes;
  for (const ParameterPtr& parameter : params) {
    sizes.push_back({parameter->numel(), parameter->shared_embedding});
  }
  Result<ParamLayout> layout = ParamLayout::create(sizes, options.layout);
  if (!layout) return tl::unexpected(layout.error());
  const Key key = key_of(*params.front(), options);
  return std::unique_ptr<GradBuffer>(new GradBuffer(std::move(params), options, key, std::move(*layout)));
}

GradBuffer::GradBuffer(std::vector<ParameterPtr> params, const GradBufferOptions& options, Key key,
                       ParamLayout layout)
    : options_(options), key_(key), layout_(std::move(layout)), params_(std::move(params)) {
  const at::NoGradGuard no_grad;
  place_gradients();
  if (distributed()) place_parameters();
}

GradBuffer::~GradBuffer() = default;

void GradBuffer::place_gradients() {
  const at::TensorOptions options =
      at::TensorOptions().dtype(scalar_type_of(key_.gradient)).device(params_.front()->value.device());
  for (int bucket = 0; bucket < buckets(); ++bucket) {
    gradients_.push_back(without_memory(bucket_numel(bucket), options));
    if (options_.own_memory) point_to_own(gradients_.back());
  }
  for (const ParamPlace& place : layout_.places()) {
    Parameter& parameter = *params_[static_cast<std::size_t>(place.param)];
    const auto bucket = static_cast<std::size_t>(place.bucket);
    parameter.bucket = place.bucket;
    parameter.main_grad =
        gradients_[bucket]
            .narrow(0, place.begin - layout_.buckets()[bucket].begin, place.end - place.begin)
            .view(parameter.value.sizes());
  }
}

void GradBuffer::place_parameters() {
  const at::TensorOptions options =
      at::TensorOptions().dtype(scalar_type_of(key_.parameter)).device(params_.front()->value.device());
  for (int bucket = 0; bucket < buckets(); ++bucket) {
    parameters_.push_back(without_memory(bucket_numel(bucket), options));
    point_to_own(parameters_.back());
  }
  for (const ParamPlace& place : layout_.places()) {
    Parameter& parameter = *params_[static_cast<std::size_t>(place.param)];
    const auto bucket = static_cast<std::size_t>(place.bucket);
    const at::Tensor view =
        parameters_[bucket]
            .narrow(0, place.begin - layout_.buckets()[bucket].begin, place.end - place.begin)
            .view(parameter.value.sizes());
    view.copy_(parameter.value);
    parameter.value.set_data(view);
  }
}

std::int64_t GradBuffer::bucket_numel(int bucket) const {
  PL_ASSERT(bucket >= 0 && bucket < buckets());
  const BucketRange& range = layout_.buckets()[static_cast<std::size_t>(bucket)];
  return range.end - range.begin;
}

std::int64_t GradBuffer::numel_unpadded() const {
  std::int64_t numel = 0;
  for (const BucketRange& bucket : layout_.buckets()) numel += bucket.unpadded;
  return numel;
}

void GradBuffer::bind_gradients(int bucket, std::byte* memory) {
  PL_ASSERT(memory != nullptr || bucket_numel(bucket) == 0);
  point(gradients(bucket), memory);
}

const at::Tensor& GradBuffer::gradients(int bucket) const {
  PL_ASSERT(bucket >= 0 && bucket < buckets());
  return gradients_[static_cast<std::size_t>(bucket)];
}

at::Tensor GradBuffer::shard_gradients(int bucket) const {
  const std::int64_t numel = layout_.shard_numel(bucket);
  const at::NoGradGuard no_grad;
  return gradients(bucket).narrow(0, options_.shard * numel, numel);
}

std::span<std::byte> GradBuffer::gradient_bytes(int bucket) const { return bytes_of(gradients(bucket)); }

void GradBuffer::zero() {
  for (int bucket = 0; bucket < buckets(); ++bucket) zero(bucket);
}

void GradBuffer::zero(int bucket) { gradients_[static_cast<std::size_t>(bucket)].zero_(); }

void GradBuffer::scale(int bucket, float factor) {
  if (factor == 1.0f) return;
  at::Tensor& flat = gradients_[static_cast<std::size_t>(bucket)];
  if (flat.scalar_type() == at::kFloat) {
    flat.mul_(factor);
  } else {  // LibTorch would round the factor to 16 bits first
    flat.copy_(flat.to(at::kFloat).mul_(factor));
  }
}

Status GradBuffer::check_for_nan(int bucket) const {
  for (const ParamPlace& place : layout_.places()) {
    if (place.bucket != bucket) continue;
    const Parameter& parameter = *params_[static_cast<std::size_t>(place.param)];
    const at::Tensor flat = parameter.main_grad.view({-1});
    const std::int64_t found = first_not_finite(flat);
    if (found < 0) continue;
    return fail(
        ErrorCode::kState,
        fmt::format("rank {}, bucket {}: the gradient of {} is {} at element {}; gradients must be "
                    "finite (a loss scaler would skip this step)",
                    options_.rank, bucket, parameter.name, number_text(flat[found].item<double>()), found));
  }
  return {};
}

void GradBuffer::bind_parameters(int bucket, std::byte* memory) {
  PL_ASSERT(distributed());
  const std::span<std::byte> old = parameter_bytes(bucket);
  PL_ASSERT(memory != nullptr || old.empty());
  const at::NoGradGuard no_grad;
  const at::Tensor& tensor = parameters(bucket);
  const at::Tensor moved = without_memory(tensor.numel(), tensor.options());
  point(moved, memory);
  moved.copy_(tensor);
  point(tensor, memory);
}

void GradBuffer::point_parameters(int bucket, std::byte* memory) {
  PL_ASSERT(distributed());
  point(parameters(bucket), memory);
}

const at::Tensor& GradBuffer::parameters(int bucket) const {
  PL_ASSERT(distributed() && bucket >= 0 && bucket < buckets());
  return parameters_[static_cast<std::size_t>(bucket)];
}

std::span<std::byte> GradBuffer::parameter_bytes(int bucket) const { return bytes_of(parameters(bucket)); }

Result<std::vector<std::shared_ptr<GradBuffer>>> make_grad_buffers(const std::vector<ParameterPtr>& params,
                                                                   const GradBufferOptions& dense,
                                                                   const GradBufferOptions& expert) {
  std::vector<std::pair<GradBuffer::Key, std::vector<ParameterPtr>>> by_key;
  for (const ParameterPtr& parameter : params) {
    if (!parameter->value.defined() || !is_precision(parameter->value)) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("gradient buffer: parameter {} is not fp32, fp16 or bf16", parameter->name));
    }
    const GradBuffer::Key key = key_of(*parameter, parameter->expert ? expert : dense);
    auto found =
        std::find_if(by_key.begin(), by_key.end(), [&](const auto& entry) { return entry.first == key; });
    if (found == by_key.end()) found = by_key.insert(by_key.end(), {key, {}});
    found->second.push_back(parameter);
  }
  std::vector<std::shared_ptr<GradBuffer>> buffers;
  for (auto& [key, members] : by_key) {
    auto buffer = GradBuffer::create(std::move(members), key.expert ? expert : dense);
    if (!buffer) return tl::unexpected(buffer.error());
    buffers.push_back(std::move(*buffer));
  }
  return buffers;
}

Status accumulate_main_grad(Parameter& parameter, const at::Tensor& gradient) {
  const at::Tensor& sums = parameter.main_grad;
  PL_ASSERT(sums.defined() && sums.is_contiguous());
  if (gradient.numel() != sums.numel() || !is_precision(gradient)) {
    return fail(
        ErrorCode::kState,
        fmt::format("gradient of {}: {} elements of {}; wanted {} elements of fp32, fp16 or bf16",
                    parameter.name, gradient.numel(), c10::toString(gradient.scalar_type()), sums.numel()));
  }
  const at::NoGradGuard no_grad;
  if (!on_cpu(sums) || !on_cpu(gradient)) {
    const at::Tensor added = gradient.to(sums.device(), at::kFloat).reshape(sums.sizes());
    if (sums.scalar_type() == at::kFloat) {
      sums.add_(added);
    } else {
      sums.copy_(sums.to(at::kFloat) + added);
    }
    return {};
  }
  const at::Tensor dense = gradient.contiguous();
  if (sums.scalar_type() == at::kFloat) {
    accumulate(dense.data_ptr(), dtype_of(dense.scalar_type()), sums.data_ptr<float>(),
               static_cast<std::size_t>(sums.numel()));
  } else {
    accumulate_rounding(dense, sums);
  }
  return {};
}

}  // namespace plumbline

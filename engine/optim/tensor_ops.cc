#include "engine/optim/tensor_ops.h"

#include <cmath>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "engine/base/assert.h"
#include "engine/optim/kernels.h"

namespace plumbline {
namespace {

bool plain_forced = false;

std::optional<DType> kernel_type(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return DType::kF32;
    case at::kHalf:
      return DType::kF16;
    case at::kBFloat16:
      return DType::kBF16;
    default:
      return std::nullopt;
  }
}

// Whether the kernels may work on the tensor's memory as one array, in memory order.
bool dense_fp32(const at::Tensor& tensor) {
  return !plain_forced && tensor.is_cpu() && tensor.scalar_type() == at::kFloat &&
         tensor.is_non_overlapping_and_dense();
}

float* floats(const at::Tensor& tensor) { return tensor.data_ptr<float>(); }
std::size_t size(const at::Tensor& tensor) { return static_cast<std::size_t>(tensor.numel()); }

bool all_finite(const at::Tensor& tensor) {
  if (!tensor.is_floating_point()) return true;
  return at::isfinite(tensor).all().item<bool>();
}

// The values as one fp32 array in host memory, in logical order; a copy unless they are that already.
at::Tensor host_floats(const at::Tensor& tensor) {
  return tensor.detach().to(at::kCPU, at::kFloat).contiguous();
}

void add_squares(const at::Tensor& tensor, ExactSum& norm) {
  if (dense_fp32(tensor)) return kernels::add_squares(floats(tensor), size(tensor), norm);
  const at::Tensor values = host_floats(tensor);
  for (std::size_t i = 0; i < size(values); ++i) norm.add_square(floats(values)[i]);
}

double largest(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return 0.0;
  if (dense_fp32(tensor)) return static_cast<double>(kernels::abs_max(floats(tensor), size(tensor)));
  return tensor.abs().max().item<double>();
}

// Element order is logical order, so that layout does not show in the bits.
double powers(const at::Tensor& tensor, double p) {
  const at::Tensor values = host_floats(tensor);
  if (!plain_forced) return kernels::sum_of_powers(floats(values), size(values), p);
  double sum = 0.0;
  for (std::size_t i = 0; i < size(values); ++i) {
    sum += std::pow(std::fabs(static_cast<double>(floats(values)[i])), p);
  }
  return sum;
}

Status check_pairs(const std::vector<at::Tensor>& source, const std::vector<at::Tensor>& target) {
  if (source.size() != target.size()) {
    return fail(ErrorCode::kState,
                fmt::format("multi-tensor copy of {} tensors into {}: the lists must have one length",
                            source.size(), target.size()));
  }
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i].sizes() == target[i].sizes()) continue;
    return fail(ErrorCode::kState,
                fmt::format("multi-tensor copy, pair {}: sizes [{}] into [{}]; they must be equal", i,
                            fmt::join(source[i].sizes(), ", "), fmt::join(target[i].sizes(), ", ")));
  }
  return {};
}

// Whether all copied values are finite.
bool copy_one(const at::Tensor& source, const at::Tensor& target, bool wanted) {
  const auto from = kernel_type(source), to = kernel_type(target);
  if (!plain_forced && from && to && source.is_cpu() && target.is_cpu() && source.is_contiguous() &&
      target.is_contiguous()) {
    return kernels::convert(source.data_ptr(), *from, target.data_ptr(), *to, size(source));
  }
  target.copy_(source);
  return !wanted || all_finite(target);
}

}  // namespace

bool unscale_and_check(const std::vector<at::Tensor>& gradients, float inv_scale, ExactSum* norm) {
  const at::NoGradGuard no_grad;
  bool finite = true;
  for (const at::Tensor& gradient : gradients) {
    if (dense_fp32(gradient)) {
      finite &= kernels::unscale_check_norm(floats(gradient), size(gradient), inv_scale, norm);
      continue;
    }
    finite &= all_finite(gradient);
    gradient.mul_(inv_scale);
    if (norm != nullptr) add_squares(gradient, *norm);
  }
  return !finite;
}

Status multi_tensor_copy_this_to_that(const std::vector<at::Tensor>& source,
                                      const std::vector<at::Tensor>& target, std::int32_t* overflow) {
  PL_TRY(check_pairs(source, target));
  const at::NoGradGuard no_grad;
  bool finite = true;
  for (std::size_t i = 0; i < source.size(); ++i) {
    finite &= copy_one(source[i], target[i], overflow != nullptr);
  }
  if (!finite && overflow != nullptr) *overflow = 1;
  return {};
}

Result<LocalNorm> local_norm(const std::vector<at::Tensor>& gradients, double p) {
  if (!(p > 0.0)) {
    return fail(ErrorCode::kConfig, fmt::format("gradient norm of order {}: the order must be above 0", p));
  }
  const at::NoGradGuard no_grad;
  LocalNorm norm;
  norm.p = p;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const at::Tensor& gradient = gradients[i];
    if (gradient.scalar_type() != at::kFloat) {
      return fail(ErrorCode::kState,
                  fmt::format("gradient norm: gradient {} is {}; norms are taken of fp32 main "
                              "gradients, so copy it to one first",
                              i, at::toString(gradient.scalar_type())));
    }
    if (p == 2.0) {
      add_squares(gradient, norm.squares);
    } else if (std::isinf(p)) {
      const double here = largest(gradient);
      if (std::isnan(here) || here > norm.other) norm.other = here;
    } else {
      norm.other += powers(gradient, p);
    }
  }
  return norm;
}

double norm_of(const LocalNorm& combined) {
  if (combined.p == 2.0) return std::sqrt(combined.squares.value());
  return std::isinf(combined.p) ? combined.other : std::pow(combined.other, 1.0 / combined.p);
}

float clip_coefficient(double norm, double max_norm) {
  if (!(max_norm > 0.0)) return 1.0f;
  const double coefficient = max_norm / (norm + 1e-6);
  return coefficient < 1.0 ? static_cast<float>(coefficient) : 1.0f;
}

void scale_gradients(const std::vector<at::Tensor>& gradients, float factor) {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& gradient : gradients) {
    if (dense_fp32(gradient)) {
      kernels::unscale_check_norm(floats(gradient), size(gradient), factor, nullptr);
    } else {
      gradient.mul_(factor);
    }
  }
}

std::int64_t count_zeros(const std::vector<at::Tensor>& gradients) {
  std::int64_t zeros = 0;
  for (const at::Tensor& gradient : gradients) {
    zeros += dense_fp32(gradient) ? kernels::count_zeros(floats(gradient), size(gradient))
                                  : gradient.numel() - at::count_nonzero(gradient).item<std::int64_t>();
  }
  return zeros;
}

void force_plain_tensor_ops(bool on) { plain_forced = on; }

}  // namespace plumbline

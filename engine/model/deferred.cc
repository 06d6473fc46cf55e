#include "engine/model/deferred.h"

#include <memory>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace plumbline {
namespace {

// Of the kinds that LibTorch knows, one that it uses itself in its own tests alone.
constexpr auto kKind = c10::DebugInfoKind::TEST_INFO_2;

struct Target : c10::DebugInfoBase {
  explicit Target(DeferredGradients& target) : into(&target) {}
  DeferredGradients* into;
};

}  // namespace

DeferredGradients* DeferredGradients::current() {
  const auto* const target = static_cast<Target*>(c10::ThreadLocalDebugInfo::get(kKind));
  return target == nullptr ? nullptr : target->into;
}

void DeferredGradients::run() {
  const at::NoGradGuard no_grad;
  for (Entry& entry : entries_) {
    const at::Tensor gradient = entry.compute();
    at::Tensor& sum = entry.leaf.mutable_grad();
    if (sum.defined()) {
      sum.add_(gradient);
    } else {
      sum = gradient;
    }
    entry = {};  // what it held goes at once
  }
  entries_.clear();
}

DeferScope::DeferScope(DeferredGradients& into) : guard_(kKind, std::make_shared<Target>(into)) {}

DeferScope::~DeferScope() = default;

at::Tensor weight_gradient(const at::Tensor& weight, DeferredGradients::Compute compute) {
  DeferredGradients* const put_off = DeferredGradients::current();
  if (put_off == nullptr || !weight.is_leaf() || !weight.requires_grad()) return compute();
  put_off->add(weight, std::move(compute));
  return {};
}

}  // namespace plumbline

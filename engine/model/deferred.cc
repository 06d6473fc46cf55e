#include "engine/model/deferred.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace plumbline {
namespace {

thread_local DeferredGradients* t_current = nullptr;

}  // namespace

DeferredGradients* DeferredGradients::current() { return t_current; }

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

DeferScope::DeferScope(DeferredGradients& into) : before_(t_current) { t_current = &into; }

DeferScope::~DeferScope() { t_current = before_; }

at::Tensor weight_gradient(const at::Tensor& weight, DeferredGradients::Compute compute) {
  DeferredGradients* const put_off = DeferredGradients::current();
  if (put_off == nullptr || !weight.is_leaf() || !weight.requires_grad()) return compute();
  put_off->add(weight, std::move(compute));
  return {};
}

}  // namespace plumbline

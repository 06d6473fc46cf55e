// DeferredGradients: weight gradients that a backward in two parts leaves for its second part (I, then W, as the
// zero-bubble schedules have it; Qi et al. 2024). The first part runs the whole backward while operations put off what
// only weights need: they leave the tensors and the computation here. The second part computes and adds it up in the
// order of the first, so that both together give the bits of one backward.
//
// An operation that does not know of this computes its weights' gradients in the first part; that is right as well,
// and all that a small weight (a norm's) is worth.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/ThreadLocalDebugInfo.h>

namespace plumbline {

class DeferredGradients {
 public:
  using Compute = std::function<at::Tensor()>;

  bool empty() const { return entries_.empty(); }
  std::size_t size() const { return entries_.size(); }
  void add(at::Tensor leaf, Compute compute) { entries_.push_back({std::move(leaf), std::move(compute)}); }
  // Adds all to the leaves' gradients, oldest first, and forgets them.
  void run();

  // What this thread's backwards put off to, or those that LibTorch runs for it on a device's thread; null: nothing,
  // they compute all at once.
  static DeferredGradients* current();

 private:
  struct Entry {
    at::Tensor leaf;
    Compute compute;
  };
  std::vector<Entry> entries_;
};

// While it lives, backwards begun by this thread put off to `into`. LibTorch runs the backward of tensors on a device
// in a thread of its own and hands that the caller's debug information along, so this is a piece of that.
class DeferScope {
 public:
  explicit DeferScope(DeferredGradients& into);
  ~DeferScope();
  DeferScope(const DeferScope&) = delete;
  DeferScope& operator=(const DeferScope&) = delete;

 private:
  c10::DebugInfoGuard guard_;
};

// For an operation's backward: the gradient of `weight`, or nothing where it is put off. Only a leaf's can be; what
// `compute` needs it must hold.
at::Tensor weight_gradient(const at::Tensor& weight, DeferredGradients::Compute compute);

}  // namespace plumbline

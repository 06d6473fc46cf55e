#include "engine/optim/aliases.h"

#include <set>

#include <ATen/ATen.h>

#include "engine/base/assert.h"

namespace plumbline {

std::vector<at::Tensor> separate_aliases(std::vector<at::Tensor> sources,
                                         const std::vector<at::Tensor>& targets) {
  PL_ASSERT(sources.size() == targets.size());
  std::set<const void*> storages;  // for membership only
  for (const at::Tensor& target : targets) {
    if (target.defined()) storages.insert(target.storage().unsafeGetStorageImpl());
  }
  for (std::size_t i = 0; i < sources.size(); ++i) {
    at::Tensor& source = sources[i];
    if (!source.defined() || source.is_same(targets[i])) continue;
    if (storages.contains(source.storage().unsafeGetStorageImpl())) source = source.clone();
  }
  return sources;
}

}  // namespace plumbline

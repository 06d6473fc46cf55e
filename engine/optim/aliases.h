// Copying tensors into tensors when some of the sources may be storage of other targets: a permuted
// dictionary of an optimizer's own handles must not be read while it is overwritten.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace plumbline {

// sources[i] is going to be copied into targets[i]; either may be undefined. Sources that share storage
// with a target they are not themselves come back as copies, others as they are.
std::vector<at::Tensor> separate_aliases(std::vector<at::Tensor> sources,
                                         const std::vector<at::Tensor>& targets);

}  // namespace plumbline

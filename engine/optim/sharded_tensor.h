// ShardedTensor: one rank's part of a tensor that is global to the run. The key names the tensor whatever the
// layout; offsets say which part this is; of parts with equal place the one with replica 0 is saved. Flattened
// ranges (the distributed optimizer's shards) are 1-D parts of the flattened tensor.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>

#include "engine/optim/state_dict.h"

namespace plumbline {

struct ShardedTensor {
  std::string key;  // "optimizer.state.exp_avg.layers.3.mlp.w1"
  at::Tensor data;  // local values; a view of the live tensor, loads write into it
  std::vector<std::int64_t> global_shape;
  std::vector<std::int64_t> offset;  // of the local part in the global tensor, one a dimension
  // With flattened: data is 1-D, elements [flat_begin, flat_begin + numel) of the flattened part of shape
  // `local_shape` at `offset`.
  bool flattened = false;
  std::int64_t flat_begin = 0;
  std::vector<std::int64_t> local_shape;  // of the unflattened part; equals data's shape otherwise
  int replica = 0;                        // 0: the copy that is saved
};

// A value that is not a tensor, saved by one rank (replica 0) and read by all.
struct ShardedObject {
  std::string key;
  StateValue value;
  int replica = 0;
};

struct ShardedStateDict {
  std::vector<ShardedTensor> tensors;
  std::vector<ShardedObject> objects;
};

}  // namespace plumbline

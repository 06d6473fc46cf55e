// One transformer layer of a ModelShape, as one rank of its tensor, context and expert parallel groups holds it: its
// parameter tensors, and what its forward keeps. Only for model_shape.cc.
#pragma once

#include <vector>

#include "engine/program/model_shape.h"

namespace plumbline::detail {

// Tensors of the attention, of the feed-forward that is no expert's, and of norms, in registration order; then of the
// experts.
void add_layer(const ModelShape& shape, bool experts, std::vector<ParamSize>& tensors);
void add_experts(const ModelShape& shape, std::vector<ParamSize>& tensors);

// Score matrix, its softmax and dropout.
Bytes scores_bytes(const ModelShape& shape);
// All that a layer keeps, its scores included; nothing of it recomputed.
Bytes layer_bytes(const ModelShape& shape, bool experts);
// Of a layer's multiplications, those of its scores and their product with the values.
double scores_share(const ModelShape& shape, bool experts);

}  // namespace plumbline::detail

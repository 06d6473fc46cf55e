// numpy's arrays and scalars in pickles, as far as checkpoints have them (RNG states, counters).
#pragma once

#include <optional>

#include "engine/optim/state_dict.h"
#include "engine/storage/pickle.h"

namespace plumbline {

// numpy.core.multiarray.scalar(dtype, bytes): an integer, a number or a bool. Absent when `node` is none of a
// known type.
std::optional<StateValue> numpy_scalar(const Pickle& pickle, const PickleNode& node);

// numpy.core.multiarray._reconstruct(...) with its state: a tensor, in row-major order, of the same type;
// uint16 and uint32, which LibTorch may lack, become int64. Absent when it is none, or of another type.
std::optional<StateValue> numpy_array(const Pickle& pickle, const PickleNode& node);

}  // namespace plumbline

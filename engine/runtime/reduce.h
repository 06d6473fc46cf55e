// Collectives on raw memory: the arithmetic that simulator and Gloo backend share. Contributions are combined
// in member order, whatever order they arrive in, so the result is the same bits on every member, run and
// backend. What NCCL would make of them instead: engine/runtime/reduce_nccl.h.
//
// f16 and bf16 are accumulated in float and rounded once at the end; f32, f64 and the integers in their own
// type (integers wrap around). A NaN is never lost: it survives kMax and kMin as well as kSum, so an overflow
// check stays true through a reduction. kAvg divides the sum once, integers towards zero.
#pragma once

#include <cstddef>
#include <span>

#include "engine/base/dtype.h"
#include "engine/program/program.h"

namespace plumbline {

// out[i] = sources[0][i] op sources[1][i] op ... for `count` elements. `out` may be one of the sources; other
// overlap is not allowed. At least one source.
void reduce_ordered(DType dtype, ReduceOp op, std::span<const std::byte* const> sources, std::byte* out,
                    std::size_t count);

// The first element of a slot as a number: what a host variable reads.
double first_element(DType dtype, const std::byte* data);

}  // namespace plumbline

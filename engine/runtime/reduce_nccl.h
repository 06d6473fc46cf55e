// Reductions as NCCL does them (rules N66, N88-N99 of docs/nccl-rules.md): which values are added in which
// order, where results are rounded, and what becomes of a NaN. For comparing a run with one on GPUs, and for
// seeing what a bucket's size or a rank's place does to the last bits; our own order is reduce_ordered.
//
//   kRing   Element by element in a ring of the members, in the element type: f16 and bf16 are rounded after
//           every addition. A buffer is walked in loops of channels * members * chunk; the part of a loop that
//           ends at member d starts with d + 1's contribution, to which d + 2's ... and at last d's are added.
//           So the order depends on where in the buffer an element lies (N91, N94).
//   kTree   A binary tree of the nodes, within each a chain of its members: from the leaves up, own + chain +
//           first child + second child, in the element type (N92). Odd channels use the mirrored (odd number of
//           nodes: the shifted) tree.
//   kNvls   f16 and bf16 are accumulated in float, the 8-bit types in f16, in member order, and rounded once
//           (N89, N90).
//
// In all of them an average of floats is the sum of contributions that were multiplied by 1/n before, both
// rounded to the element type (N95); of integers, the sum divided, towards zero. Max and min drop a NaN where
// there is a number (N97). Results are the same on all members (N66). The 8-bit types are combined in f16, rounded, and
// never overflow: what is too large is their largest number (N88).
//
// A sum may have a factor a member (ncclRedOpCreatePreMulSum, N96): each contribution is multiplied with its member's,
// both rounded to the element type, before it is added. An average of floats is such a sum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/config/run_config.h"
#include "engine/program/program.h"

namespace plumbline {

struct CollectiveNumerics {
  Numerics kind = Numerics::kOrdered;
  int channels = 1;
  std::size_t chunk_bytes = std::size_t{128} << 10;  // that a member adds at a time, in one channel
  int ranks_per_node = 1;                            // kTree: members of one node, in a row

  bool operator==(const CollectiveNumerics&) const = default;
};

// Members in the order in which the contributions to element `index` of an all-reduce are added in a ring.
std::vector<std::size_t> ring_order(const CollectiveNumerics& numerics, std::size_t index, std::size_t count,
                                    std::size_t element_bytes, std::size_t members);

// A tree's parent and children by node, for `nodes` nodes; -1: none. `mirrored` is the second tree's.
struct TreeNode {
  int parent = -1;
  std::vector<int> children;
};
std::vector<TreeNode> reduction_tree(int nodes, bool mirrored);

// All-reduce: the one result for all members. `out` may be one of the sources. `factors`: none, or of a sum one a
// member; with kOrdered, products are rounded and added in member order, and the sum rounded once.
void all_reduce_as(const CollectiveNumerics& numerics, DType dtype, ReduceOp op,
                   std::span<const std::byte* const> sources, std::byte* out, std::size_t count,
                   std::span<const double> factors = {});
// Reduce to `root`, and the part of a reduce-scatter that ends at member `root`: `sources` point to that part.
void reduce_as(const CollectiveNumerics& numerics, DType dtype, ReduceOp op, std::size_t root,
               std::span<const std::byte* const> sources, std::byte* out, std::size_t count,
               std::span<const double> factors = {});

}  // namespace plumbline

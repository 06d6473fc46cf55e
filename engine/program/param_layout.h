// ParamLayout: where parameters lie in the contiguous buffers of the data-parallel wrapper, how a buffer is cut
// into buckets, and which part of each parameter a data-parallel rank owns under the distributed optimizer
// (megatron/core/distributed/param_and_grad_buffer.py, core/optimizer/param_layout.py).
// The one layout function: the lowering sizes reductions with it, the optimizer places tensors with it.
//
// Walk in reverse registration order. A parameter starts at a multiple of 64 elements; a shared embedding gets a
// bucket of its own; a bucket closes once it holds bucket_size elements and is padded to a multiple of
// lcm(shards, 128) (with `pad_busbw` also 2^16). Without `distributed` nothing is padded or aligned.
// Units: elements.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/result.h"

namespace plumbline {

struct ParamSize {
  std::int64_t numel = 0;
  bool shared_embedding = false;
};

struct ParamLayoutOptions {
  bool distributed = true;
  int shards = 1;                // data-parallel size
  std::int64_t bucket_size = 0;  // 0: one bucket
  bool pad_busbw = false;
};

struct ParamPlace {
  int param = 0;                    // index in registration order
  std::int64_t begin = 0, end = 0;  // in the buffer
  int bucket = 0;
};

struct BucketRange {
  std::int64_t begin = 0, end = 0;  // padded; next begins at end
  std::int64_t unpadded = 0;        // elements before padding
};

// The part of one parameter that one shard owns; empty ranges are not listed.
struct ParamShard {
  int param = 0;
  std::int64_t world_begin = 0, world_end = 0;    // in the buffer
  std::int64_t bucket_begin = 0, bucket_end = 0;  // in the bucket
  std::int64_t local_begin = 0, local_end = 0;    // in the shard of the bucket
  std::int64_t param_begin = 0, param_end = 0;    // in the flattened parameter
};

class ParamLayout {
 public:
  // Refuses shards < 1, negative sizes, a total beyond 2^40 elements.
  static Result<ParamLayout> create(std::span<const ParamSize> params, const ParamLayoutOptions& options);

  const ParamLayoutOptions& options() const { return options_; }
  const std::vector<ParamPlace>& places() const {
    return places_;
  }                                          // in walking order (reverse registration)
  const ParamPlace& place(int param) const;  // by registration order
  const std::vector<BucketRange>& buckets() const { return buckets_; }
  std::int64_t numel() const { return buckets_.empty() ? 0 : buckets_.back().end; }
  // Elements of bucket `bucket` that one shard owns.
  std::int64_t shard_numel(int bucket) const;
  // What shard `shard` owns of bucket `bucket`, in the buffer's order.
  std::vector<ParamShard> shard(int bucket, int shard) const;

 private:
  ParamLayoutOptions options_;
  std::vector<ParamPlace> places_;
  std::vector<int> place_of_param_;
  std::vector<BucketRange> buckets_;
};

// Megatron's default: max(40 M, 1 M * shards) elements when gradient reduction overlaps, on pipeline rank 0 and
// chunk 0; otherwise one bucket (0).
std::int64_t default_bucket_size(int shards, bool overlap_grad_reduce, int pipeline_rank, int chunk);

}  // namespace plumbline

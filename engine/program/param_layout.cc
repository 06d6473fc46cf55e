#include "engine/program/param_layout.h"

#include <algorithm>
#include <numeric>
#include <string>

#include <fmt/format.h>

#include "engine/base/assert.h"

namespace plumbline {

namespace {

constexpr std::int64_t kParamAlignment = 64;       // elements; a parameter starts at a multiple
constexpr std::int64_t kBucketAlignment = 128;     // with the number of shards: what a bucket is padded to
constexpr std::int64_t kBusBandwidth = 1 << 16;    // further factor of the padding for long collectives
constexpr std::int64_t kMostElements = 1LL << 40;  // far above any rank's memory, far below overflow

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

std::int64_t bucket_alignment(const ParamLayoutOptions& options) {
  if (!options.distributed) return 1;
  const std::int64_t alignment = std::lcm<std::int64_t>(options.shards, kBucketAlignment);
  return options.pad_busbw ? std::lcm(alignment, kBusBandwidth) : alignment;
}

// The walk: where the next parameter would start, and the bucket that is open.
struct Walk {
  std::int64_t at = 0;
  std::int64_t bucket_begin = 0;
  bool bucket_has_params = false;

  BucketRange close_bucket(std::int64_t alignment) {
    const BucketRange bucket{bucket_begin, round_up(at, alignment), at - bucket_begin};
    at = bucket_begin = bucket.end;
    bucket_has_params = false;
    return bucket;
  }
};

Status check(std::span<const ParamSize> params, const ParamLayoutOptions& options) {
  if (options.shards < 1) {
    return fail(ErrorCode::kConfig,
                fmt::format("parameter layout: {} shards; a buffer has at least 1", options.shards));
  }
  if (options.bucket_size < 0) {
    return fail(ErrorCode::kConfig,
                fmt::format("parameter layout: bucket size {} is negative; give a number of "
                            "elements, or 0 for one bucket",
                            options.bucket_size));
  }
  std::int64_t total = 0;
  for (std::size_t i = 0; i < params.size(); ++i) {
    if (params[i].numel < 0) {
      return fail(ErrorCode::kConfig,
                  fmt::format("parameter layout: parameter {} has {} elements", i, params[i].numel));
    }
    total += std::min(params[i].numel, kMostElements + 1) + kParamAlignment;
    if (total > kMostElements) {
      return fail(ErrorCode::kConfig,
                  fmt::format("parameter layout: more than 2^40 elements up to parameter {}", i));
    }
  }
  return {};
}

}  // namespace

Result<ParamLayout> ParamLayout::create(std::span<const ParamSize> params,
                                        const ParamLayoutOptions& options) {
  PL_TRY(check(params, options));
  const std::int64_t alignment = bucket_alignment(options);
  ParamLayout layout;
  layout.options_ = options;
  layout.places_.reserve(params.size());
  layout.place_of_param_.resize(params.size());
  Walk walk;
  for (std::size_t i = params.size(); i-- > 0;) {
    const ParamSize& param = params[i];
    // Reduce-scatter leaves a rank with its own part only, so an embedding used on two stages can be added up
    // between them only if it lies at the same place in a bucket on both: alone.
    const bool own_bucket = options.distributed && param.shared_embedding;
    if (options.distributed) walk.at = round_up(walk.at, kParamAlignment);
    if (own_bucket && walk.bucket_has_params) layout.buckets_.push_back(walk.close_bucket(alignment));
    layout.place_of_param_[i] = static_cast<int>(layout.places_.size());
    layout.places_.push_back(
        {static_cast<int>(i), walk.at, walk.at + param.numel, static_cast<int>(layout.buckets_.size())});
    walk.at += param.numel;
    walk.bucket_has_params = true;
    const bool full = options.bucket_size > 0 && walk.at - walk.bucket_begin >= options.bucket_size;
    if (full || own_bucket) layout.buckets_.push_back(walk.close_bucket(alignment));
    if (walk.at > kMostElements) break;  // padding for very many shards
  }
  if (walk.bucket_has_params) layout.buckets_.push_back(walk.close_bucket(alignment));
  if (layout.numel() > kMostElements) {
    return fail(
        ErrorCode::kConfig,
        fmt::format("parameter layout: more than 2^40 elements with buckets padded to multiples of {}",
                    alignment));
  }
  return layout;
}

const ParamPlace& ParamLayout::place(int param) const {
  PL_ASSERT(param >= 0 && static_cast<std::size_t>(param) < place_of_param_.size());
  return places_[static_cast<std::size_t>(place_of_param_[static_cast<std::size_t>(param)])];
}

std::int64_t ParamLayout::shard_numel(int bucket) const {
  PL_ASSERT(options_.distributed);
  PL_ASSERT(bucket >= 0 && static_cast<std::size_t>(bucket) < buckets_.size());
  const BucketRange& range = buckets_[static_cast<std::size_t>(bucket)];
  PL_ASSERT((range.end - range.begin) % options_.shards == 0);
  return (range.end - range.begin) / options_.shards;
}

std::vector<ParamShard> ParamLayout::shard(int bucket, int shard) const {
  PL_ASSERT(shard >= 0 && shard < options_.shards);
  const std::int64_t numel = shard_numel(bucket);
  const BucketRange& range = buckets_[static_cast<std::size_t>(bucket)];
  const std::int64_t shard_begin = range.begin + shard * numel;
  const auto first = std::partition_point(places_.begin(), places_.end(),
                                          [&](const ParamPlace& place) { return place.bucket < bucket; });
  std::vector<ParamShard> result;
  for (auto place = first; place != places_.end() && place->bucket == bucket; ++place) {
    const std::int64_t begin = std::max(place->begin, shard_begin);
    const std::int64_t end = std::min(place->end, shard_begin + numel);
    if (begin >= end) continue;
    result.push_back({place->param, begin, end, begin - range.begin, end - range.begin, begin - shard_begin,
                      end - shard_begin, begin - place->begin, end - place->begin});
  }
  return result;
}

std::int64_t default_bucket_size(int shards, bool overlap_grad_reduce, int pipeline_rank, int chunk) {
  if (!overlap_grad_reduce || pipeline_rank > 0 || chunk > 0) return 0;
  return std::max<std::int64_t>(40'000'000, std::int64_t{1'000'000} * shards);
}

}  // namespace plumbline

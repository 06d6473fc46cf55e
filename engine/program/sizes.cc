// Sizes from the configuration alone, for checks of a schedule without a model: those of its shape (model_shape.h),
// and [memory] values where they are given.
#include <algorithm>

#include "engine/program/lower.h"
#include "engine/program/model_shape.h"

namespace plumbline {

ModelSizes default_sizes(const RunConfig& config) {
  ModelSizes sizes = sizes_of(model_shape(config));
  if (config.memory.activation > 0) sizes.activation = config.memory.activation;
  if (config.memory.stash > 0) std::fill(sizes.stash.begin(), sizes.stash.end(), config.memory.stash);
  return sizes;
}

ParamLayoutOptions param_layout_options(const OptimizerConfig& config, int data_parallel_size,
                                        int pipeline_rank, int chunk) {
  ParamLayoutOptions options;
  options.distributed = config.distributed;
  options.shards = data_parallel_size;
  options.bucket_size =
      config.bucket_size > 0
          ? config.bucket_size
          : default_bucket_size(data_parallel_size, config.overlap_grad_reduce, pipeline_rank, chunk);
  options.pad_busbw = config.pad_buckets;
  return options;
}

}  // namespace plumbline

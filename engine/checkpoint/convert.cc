#include <algorithm>
#include <thread>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "engine/checkpoint/any_checkpoint.h"
#include "engine/checkpoint/dcp.h"
#include "engine/checkpoint/sharded.h"
#include "engine/checkpoint/tensor_types.h"
#include "engine/checkpoint/torch_file.h"
#include "engine/storage/huggingface.h"

namespace plumbline {
namespace {

struct Everything {
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  std::vector<std::pair<std::string, StateValue>> objects;
};

Result<Everything> read_all(const AnyCheckpoint& from) {
  Everything all;
  for (const AnyCheckpoint::Tensor& row : from.tensors()) {
    Result<at::Tensor> tensor = from.tensor(row.key);
    if (!tensor) return tl::unexpected(tensor.error());
    all.tensors.emplace_back(row.key, plain_tensor(*tensor));
  }
  for (const std::string& key : from.objects()) {
    Result<StateValue> object = from.object(key);
    if (!object) return tl::unexpected(object.error());
    all.objects.emplace_back(key, std::move(*object));
  }
  return all;
}

// Rank r of n gets rows [size * r / n, size * (r + 1) / n) of every tensor.
ShardedStateDict part_of(const Everything& all, int rank, int ranks) {
  ShardedStateDict state;
  for (const auto& [key, tensor] : all.tensors) {
    ShardedTensor part;
    part.key = key;
    part.global_shape = tensor.sizes().vec();
    part.offset.assign(part.global_shape.size(), 0);
    part.data = tensor;
    if (tensor.dim() == 0) {
      if (rank != 0) continue;
    } else {
      const std::int64_t begin = tensor.size(0) * rank / ranks, end = tensor.size(0) * (rank + 1) / ranks;
      if (begin == end && (rank != 0 || tensor.numel() > 0)) continue;
      part.offset[0] = begin;
      part.data = tensor.narrow(0, begin, end - begin);
    }
    part.local_shape = part.data.sizes().vec();
    state.tensors.push_back(std::move(part));
  }
  if (rank == 0) {
    for (const auto& [key, value] : all.objects) state.objects.push_back({key, value, 0});
  }
  return state;
}

Status to_native(FileLayer& files, const Everything& all, const std::string& path,
                 const ConvertOptions& options) {
  if (options.ranks == 1) {
    const Result<Saved> saved =
        save_sharded(files, lone_channel(), path, options.iteration, part_of(all, 0, 1));
    if (!saved) return tl::unexpected(saved.error());
    return {};
  }
  const std::vector<std::shared_ptr<Collective>> group = thread_group(options.ranks, 3600.0);
  std::vector<Status> outcomes(static_cast<std::size_t>(options.ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < options.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto at = static_cast<std::size_t>(rank);
      const std::unique_ptr<ControlChannel> channel = collective_channel(group[at]);
      const Result<Saved> saved =
          save_sharded(files, *channel, path, options.iteration, part_of(all, rank, options.ranks));
      if (!saved) outcomes[at] = tl::unexpected(saved.error());
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes.front();
}

Status to_huggingface(FileLayer& files, const Everything& all, const std::string& path,
                      const ConvertOptions& options) {
  if (!all.objects.empty() && !options.drop_objects)
    return fail(ErrorCode::kUsage, fmt::format("{} objects, '{}' the first, have no place in safetensors "
                                               "files; leave them out by --drop-objects",
                                               all.objects.size(), all.objects.front().first));
  PL_TRY(make_directories(files, path));
  std::vector<SafetensorsTensor> tensors;
  for (const auto& [key, tensor] : all.tensors) {
    const Result<ElementType> type = element_type_of(tensor.scalar_type());
    if (!type) return tl::unexpected(type.error());
    tensors.push_back({key, *type, tensor.sizes().vec(), tensor.data_ptr()});
  }
  return write_huggingface(files, path, tensors);
}

}  // namespace

Status convert(FileLayer& files, const AnyCheckpoint& from, const std::string& path,
               const ConvertOptions& options) {
  if (options.ranks < 1 || options.ranks > 1024)
    return fail(ErrorCode::kUsage, fmt::format("{} ranks; 1 to 1024 are possible", options.ranks));
  const Result<Everything> all = read_all(from);
  if (!all) return tl::unexpected(all.error());
  switch (options.to) {
    case CheckpointFormat::kNative:
      return to_native(files, *all, path, options);
    case CheckpointFormat::kHuggingface:
      return to_huggingface(files, *all, path, options);
    case CheckpointFormat::kDcp: {
      std::vector<ShardedStateDict> ranks;
      for (int rank = 0; rank < options.ranks; ++rank) ranks.push_back(part_of(*all, rank, options.ranks));
      return write_dcp(files, path, ranks);
    }
    case CheckpointFormat::kTorch: {
      StateDict dict;
      for (const auto& [key, tensor] : all->tensors) dict[key] = tensor;
      for (const auto& [key, value] : all->objects) dict[key] = value;
      return write_torch_file(files, path, dict);
    }
  }
  return {};
}

}  // namespace plumbline

// Megatron's parameter state on one rank (distrib_optim.pt) as pieces.
//
// A buffer's tensors are flat and hold the parameters where ParamLayout has them, buckets one after the other with
// the padding at their ends left out - but with the gaps inside a bucket, where a parameter begins at a multiple of
// 64. Neither depends on the number of data-parallel ranks, so only bucket size and parameters must agree; the
// length tells whether they do.
#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "engine/optim/distributed_optimizer.h"

namespace plumbline {
namespace {

struct LegacyKey {
  const char* saved;
  const char* ours;
};
constexpr std::array<LegacyKey, 3> kKeys = {
    {{"param", "fp32_param"}, {"exp_avg", "exp_avg"}, {"exp_avg_sq", "exp_avg_sq"}}};

tl::unexpected<Error> wrong(int buffer, const std::string& what) {
  return fail(ErrorCode::kState, fmt::format("legacy parameter state, buffer {}: {}", buffer, what));
}

Result<at::Tensor> flat_tensor(const StateDict& state, const char* key, int buffer) {
  const Result<at::Tensor> tensor = state.tensor(key);
  if (!tensor) return wrong(buffer, tensor.error().message);
  if (tensor->dim() != 1 || !at::isFloatingType(tensor->scalar_type())) {
    return wrong(buffer,
                 fmt::format("{} is {}; it must be flat numbers", key, describe(StateValue(*tensor))));
  }
  return tensor;
}

// One dictionary for the whole buffer.
Result<std::array<at::Tensor, 3>> coalesced(const StateDict& state, const GradBuffer& buffer, int index) {
  const Result<std::int64_t> unpadded = state.integer("numel_unpadded");
  if (!unpadded) return wrong(index, unpadded.error().message);
  if (*unpadded != buffer.numel_unpadded()) {
    return wrong(index,
                 fmt::format("{} elements without padding were saved, this buffer has {}; parameters and "
                             "bucket size must be those of the saving run",
                             *unpadded, buffer.numel_unpadded()));
  }
  std::array<at::Tensor, 3> tensors;
  for (std::size_t k = 0; k < kKeys.size(); ++k) {
    Result<at::Tensor> tensor = flat_tensor(state, kKeys[k].saved, index);
    if (!tensor) return tl::unexpected(tensor.error());
    if (tensor->numel() != *unpadded) {
      return wrong(index, fmt::format("{} has {} elements; numel_unpadded is {}", kKeys[k].saved,
                                      tensor->numel(), *unpadded));
    }
    tensors[k] = *tensor;
  }
  return tensors;
}

// The form before: a dictionary for each bucket, whose tensors may still have their padding.
Result<std::array<at::Tensor, 3>> by_bucket(const StateList& buckets, const GradBuffer& buffer, int index) {
  if (static_cast<int>(buckets.size()) != buffer.buckets()) {
    return wrong(index,
                 fmt::format("{} buckets were saved, this buffer has {}; parameters and bucket size must be "
                             "those of the saving run",
                             buckets.size(), buffer.buckets()));
  }
  std::array<std::vector<at::Tensor>, 3> parts;
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const auto* state = buckets[b].get<StateDict>();
    if (state == nullptr) return wrong(index, fmt::format("bucket {} is {}", b, describe(buckets[b])));
    const std::int64_t unpadded = buffer.layout().buckets()[b].unpadded;
    for (std::size_t k = 0; k < kKeys.size(); ++k) {
      const Result<at::Tensor> tensor = flat_tensor(*state, kKeys[k].saved, index);
      if (!tensor) return tl::unexpected(tensor.error());
      if (tensor->numel() < unpadded) {
        return wrong(index, fmt::format("{} of bucket {} has {} elements, the bucket {} without padding",
                                        kKeys[k].saved, b, tensor->numel(), unpadded));
      }
      parts[k].push_back(tensor->narrow(0, 0, unpadded));
    }
  }
  std::array<at::Tensor, 3> tensors;
  for (std::size_t k = 0; k < kKeys.size(); ++k) tensors[k] = at::cat(parts[k]);
  return tensors;
}

// {"<types>": ...} with one entry: a buffer has one pair of precisions.
Result<std::array<at::Tensor, 3>> tensors_of(const StateDict& state, bool is_coalesced,
                                             const GradBuffer& buffer, int index) {
  const Result<const StateDict*> types = state.dict(std::to_string(index));
  if (!types) return tl::unexpected(types.error());
  if ((*types)->size() != 1) {
    return wrong(index, fmt::format("{} precisions; a buffer has one", (*types)->size()));
  }
  const StateValue& value = (*types)->begin()->second;
  if (is_coalesced) {
    const auto* dict = value.get<StateDict>();
    return dict != nullptr ? coalesced(*dict, buffer, index) : wrong(index, "is " + describe(value));
  }
  const auto* list = value.get<StateList>();
  return list != nullptr ? by_bucket(*list, buffer, index) : wrong(index, "is " + describe(value));
}

}  // namespace

Result<std::vector<StatePiece>> pieces_of_legacy(const StateDict& state,
                                                 const std::vector<std::shared_ptr<GradBuffer>>& buffers,
                                                 std::int64_t step) {
  bool is_coalesced = false;
  if (const StateValue* flag = state.find("buckets_coalesced")) {
    is_coalesced = flag->get<bool>() != nullptr && *flag->get<bool>();
  }
  std::vector<StatePiece> pieces;
  for (int index = 0; index < static_cast<int>(buffers.size()); ++index) {
    const GradBuffer& buffer = *buffers[static_cast<std::size_t>(index)];
    const Result<std::array<at::Tensor, 3>> tensors = tensors_of(state, is_coalesced, buffer, index);
    if (!tensors) return tl::unexpected(tensors.error());
    std::vector<std::int64_t> bucket_at{0};
    for (const BucketRange& bucket : buffer.layout().buckets()) {
      bucket_at.push_back(bucket_at.back() + bucket.unpadded);
    }
    for (const ParamPlace& place : buffer.layout().places()) {
      if (place.begin == place.end) continue;
      const auto bucket = static_cast<std::size_t>(place.bucket);
      const std::int64_t at = bucket_at[bucket] + place.begin - buffer.layout().buckets()[bucket].begin;
      StatePiece piece;
      piece.numel = place.end - place.begin;
      piece.range = {piece_name(*buffer.params()[static_cast<std::size_t>(place.param)]), 0, piece.numel};
      piece.step = step;
      for (std::size_t k = 0; k < kKeys.size(); ++k) {
        piece.tensors.emplace_back(kKeys[k].ours, (*tensors)[k].narrow(0, at, piece.numel));
      }
      pieces.push_back(std::move(piece));
    }
  }
  return pieces;
}

}  // namespace plumbline

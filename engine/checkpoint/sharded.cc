#include "engine/checkpoint/sharded.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string_view>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "engine/checkpoint/state_json.h"
#include "engine/checkpoint/tensor_types.h"
#include "engine/storage/parallel.h"
#include "engine/storage/save_plan.h"

namespace plumbline {
namespace {

Result<Place> place_of(const ShardedTensor& tensor) {
  Place place;
  place.offset = tensor.offset;
  place.flattened = tensor.flattened;
  if (!tensor.data.defined())
    return fail(ErrorCode::kState, fmt::format("tensor '{}' is not defined", tensor.key));
  if (tensor.flattened) {
    if (tensor.data.dim() != 1)
      return fail(ErrorCode::kState, fmt::format("tensor '{}': a flattened range has {} dimensions",
                                                 tensor.key, tensor.data.dim()));
    place.shape = tensor.local_shape;
    place.begin = tensor.flat_begin;
    place.count = tensor.data.numel();
  } else {
    place.shape = tensor.data.sizes().vec();
  }
  return place;
}

Status add_piece(const ShardedTensor& tensor, PreparedState& prepared) {
  Result<Place> place = place_of(tensor);
  if (!place) return tl::unexpected(place.error());
  const Result<ElementType> type = element_type_of(tensor.data.scalar_type());
  if (!type) return fail(type.error().code, fmt::format("tensor '{}': {}", tensor.key, type.error().message));
  prepared.held.push_back(plain_tensor(tensor.data));
  prepared.request.pieces.push_back({tensor.key, *type, tensor.global_shape, std::move(*place),
                                     tensor.replica, prepared.held.back().data_ptr()});
  return {};
}

ShardedTensor whole(const std::string& key, const at::Tensor& data, int replica) {
  ShardedTensor tensor;
  tensor.key = key;
  tensor.data = data;
  tensor.global_shape = data.sizes().vec();
  tensor.offset.assign(tensor.global_shape.size(), 0);
  tensor.local_shape = tensor.global_shape;
  tensor.replica = replica;
  return tensor;
}

class CollectiveChannel : public ControlChannel {
 public:
  explicit CollectiveChannel(std::shared_ptr<Collective> group) : group_(std::move(group)) {}
  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  Result<std::vector<std::string>> exchange(const std::string& message) override {
    const auto ranks = static_cast<std::size_t>(size()), own = static_cast<std::size_t>(rank());
    std::vector<std::int64_t> sizes(ranks);
    sizes[own] = static_cast<std::int64_t>(message.size());
    PL_TRY(group_->all_gather(DType::kI64, reinterpret_cast<std::byte*>(sizes.data()), 1));
    const auto part = static_cast<std::size_t>(*std::max_element(sizes.begin(), sizes.end()));
    std::vector<std::byte> bytes(part * ranks);
    std::copy_n(reinterpret_cast<const std::byte*>(message.data()), message.size(),
                bytes.begin() + static_cast<std::ptrdiff_t>(own * part));
    PL_TRY(group_->all_gather(DType::kU8, bytes.data(), part));
    std::vector<std::string> all;
    for (std::size_t i = 0; i < ranks; ++i)
      all.emplace_back(reinterpret_cast<const char*>(bytes.data()) + i * part,
                       static_cast<std::size_t>(sizes[i]));
    return all;
  }

 private:
  std::shared_ptr<Collective> group_;
};

Status fill(const CheckpointReader& reader, const ShardedTensor& target) {
  const ManifestTensor* tensor = reader.manifest().find(target.key);
  if (tensor == nullptr || target.data.numel() == 0) return {};  // waived by the plan
  const Result<Place> place = place_of(target);
  if (!place) return tl::unexpected(place.error());
  at::Tensor flat = target.data.detach();
  const bool direct = flat.is_contiguous() && flat.device().is_cpu();
  if (!direct) flat = plain_tensor(flat).clone();  // with what is there: rows beyond the file's keep it
  PL_TRY(reader.read_place(*tensor, *place, target.global_shape, flat.data_ptr()));
  if (!direct) target.data.detach().copy_(flat);
  return {};
}

}  // namespace

Result<PreparedState> prepare_state(std::int64_t iteration, const ShardedStateDict& state,
                                    const AliasTable& aliases) {
  PreparedState prepared;
  prepared.request.iteration = iteration;
  prepared.request.aliases = aliases;
  for (const ShardedTensor& tensor : state.tensors) {
    if (tensor.key.starts_with(kObjectTensor))
      return fail(ErrorCode::kState,
                  fmt::format("tensor '{}': keys that begin with '{}' are taken", tensor.key, kObjectTensor));
    PL_TRY(add_piece(tensor, prepared));
  }
  for (const ShardedObject& object : state.objects) {
    NamedTensors tensors;
    Result<JsonValue> json = state_to_json(object.key, object.value, tensors);
    if (!json) return tl::unexpected(json.error());
    for (const auto& [key, tensor] : tensors) PL_TRY(add_piece(whole(key, tensor, object.replica), prepared));
    prepared.request.objects.push_back({object.key, std::move(*json), object.replica});
  }
  return prepared;
}

ShardedStateDict localized(const ShardedStateDict& state, bool is_loading) {
  ShardedStateDict own;
  std::set<std::string> seen;
  for (const ShardedTensor& tensor : state.tensors) {
    if (!tensor.data.defined() || tensor.data.numel() == 0) continue;  // a part of padding alone
    const Result<Place> place = place_of(tensor);
    if (!place) {
      own.tensors.push_back(tensor);  // refused by name where it is prepared
      continue;
    }
    ShardedTensor part = whole(tensor.key + place_suffix(*place, tensor.global_shape), tensor.data, 0);
    if (seen.insert(part.key).second || is_loading) own.tensors.push_back(std::move(part));
  }
  for (const ShardedObject& object : state.objects) own.objects.push_back({object.key, object.value, 0});
  return own;
}

Status choose_owners(ControlChannel& channel, ShardedStateDict& state) {
  std::string own;  // keys hold no line ends: they are names of parameters and of what is kept of them
  for (const ShardedObject& object : state.objects) own += object.key + "\n";
  const Result<std::vector<std::string>> all = channel.exchange(own);
  if (!all) return tl::unexpected(all.error());
  std::set<std::string, std::less<>> below;  // of the ranks below this one
  for (int rank = 0; rank < channel.rank(); ++rank) {
    std::string_view rest = (*all)[static_cast<std::size_t>(rank)];
    while (!rest.empty()) {
      const std::size_t end = rest.find('\n');
      below.emplace(rest.substr(0, end));
      rest.remove_prefix(end + 1);
    }
  }
  for (ShardedObject& object : state.objects) object.replica = below.contains(object.key) ? 1 : 0;
  return {};
}

Result<Saved> save_sharded(FileLayer& files, ControlChannel& channel, const std::string& directory,
                           std::int64_t iteration, const ShardedStateDict& state, const AliasTable& aliases,
                           const SaveOptions& options) {
  const Result<PreparedState> prepared = prepare_state(iteration, state, aliases);
  PL_TRY(agree(channel, prepared ? Status{} : tl::unexpected(prepared.error())));
  return save_checkpoint(files, channel, directory, prepared->request, options);
}

Result<LoadedState> load_sharded(const CheckpointReader& reader, ControlChannel& channel,
                                 ShardedStateDict& state, const LoadRules& rules) {
  CheckpointToSave wanted;
  Status own;
  for (const ShardedTensor& tensor : state.tensors) {
    Result<Place> place = place_of(tensor);
    const Result<ElementType> type = place ? element_type_of(tensor.data.scalar_type())
                                           : Result<ElementType>(tl::unexpected(place.error()));
    if (!type) {
      own = tl::unexpected(type.error());
      break;
    }
    wanted.pieces.push_back({tensor.key, *type, tensor.global_shape, std::move(*place), 1, nullptr});
  }
  for (const ShardedObject& object : state.objects) wanted.objects.push_back({object.key, JsonValue(), 1});
  PL_TRY(agree(channel, own));
  const Result<std::vector<std::string>> requests = channel.exchange(print_offer(wanted));
  if (!requests) return tl::unexpected(requests.error());
  Result<LoadPlan> plan = plan_load(*requests, reader.manifest(), rules);
  if (!plan) return fail(plan.error().code, fmt::format("{}: {}", reader.path(), plan.error().message));
  LoadedState loaded;
  loaded.iteration = reader.manifest().iteration;
  loaded.plan = std::move(*plan);
  const auto read = [&]() -> Status {
    // Objects first: they can still be refused, and the tensors are not touched yet.
    for (const ShardedObject& object : state.objects) {
      if (reader.manifest().find_object(object.key) == nullptr) continue;
      Result<StateValue> value = read_object(reader, object.key);
      if (!value) return tl::unexpected(value.error());
      loaded.objects.push_back({object.key, std::move(*value), object.replica});
    }
    std::uint64_t bytes = 0;
    for (const ShardedTensor& tensor : state.tensors) bytes += tensor.data.nbytes();
    return for_each_at_once(state.tensors.size(), bytes, [&](std::size_t i) {
      const at::NoGradGuard no_grad;
      return fill(reader, state.tensors[i]);
    });
  };
  PL_TRY(agree(channel, read()));
  return loaded;
}

Result<at::Tensor> read_tensor(const CheckpointReader& reader, const std::string& key) {
  const ManifestTensor* tensor = reader.manifest().find(key);
  if (tensor == nullptr)
    return fail(ErrorCode::kState, fmt::format("{}: no tensor '{}'", reader.path(), key));
  const Result<at::ScalarType> type = scalar_type_of(tensor->type);
  if (!type) return tl::unexpected(type.error());
  at::Tensor out = at::empty(tensor->shape, at::TensorOptions(*type));
  PL_TRY(reader.read_place(*tensor, whole_place(tensor->shape), out.data_ptr()));
  return out;
}

Result<StateValue> read_object(const CheckpointReader& reader, const std::string& key) {
  const ManifestObject* object = reader.manifest().find_object(key);
  if (object == nullptr)
    return fail(ErrorCode::kState, fmt::format("{}: no object '{}'", reader.path(), key));
  return state_from_json(key, object->value,
                         [&](const std::string& name) { return read_tensor(reader, name); });
}

std::unique_ptr<ControlChannel> collective_channel(std::shared_ptr<Collective> group) {
  return std::make_unique<CollectiveChannel>(std::move(group));
}

}  // namespace plumbline

#include <map>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "engine/checkpoint/dcp.h"
#include "engine/checkpoint/dcp_names.h"
#include "engine/checkpoint/python_names.h"
#include "engine/checkpoint/tensor_types.h"
#include "engine/checkpoint/torch_file.h"

namespace plumbline {
namespace {

constexpr std::pair<const char*, at::ScalarType> kTypes[] = {{"torch.float32", at::kFloat},
                                                             {"torch.float64", at::kDouble},
                                                             {"torch.float16", at::kHalf},
                                                             {"torch.bfloat16", at::kBFloat16},
                                                             {"torch.int64", at::kLong},
                                                             {"torch.int32", at::kInt},
                                                             {"torch.int16", at::kShort},
                                                             {"torch.int8", at::kChar},
                                                             {"torch.uint8", at::kByte},
                                                             {"torch.bool", at::kBool},
                                                             {"torch.complex64", at::kComplexFloat}};

StateValue tuple(StateList items) { return StateDict{{kPythonKey, "tuple"}, {"items", std::move(items)}}; }

StateValue size_of(const Shape& shape) {
  StateList items(shape.begin(), shape.end());
  return StateDict{{kPythonKey, "torch.Size"}, {"args", StateList{tuple(std::move(items))}}};
}

StateValue object(const std::string& name, StateValue state) {
  return StateDict{{kPythonKey, name}, {"args", StateList{}}, {"new", true}, {"state", std::move(state)}};
}

struct Names {  // modules of the classes
  std::string metadata, filesystem, properties;
};

Names names_of(DcpDialect dialect) {
  if (dialect == DcpDialect::kTorch1)
    return {"torch.distributed._shard.checkpoint.metadata", "torch.distributed._shard.checkpoint.filesystem",
            "torch.distributed._shard.sharded_tensor.metadata"};
  return {"torch.distributed.checkpoint.metadata", "torch.distributed.checkpoint.filesystem",
          "torch.distributed.checkpoint.metadata"};
}

struct Entry {  // of state_dict_metadata
  bool tensor = false;
  at::ScalarType type = at::kFloat;
  Shape shape;
  std::vector<Place> places;
};

class Writer {
 public:
  Writer(FileLayer& files, const std::string& directory, DcpDialect dialect)
      : files_(files), directory_(directory), names_(names_of(dialect)) {}

  Status write_rank(std::size_t rank, const ShardedStateDict& state) {
    const std::string name = fmt::format("__{}_0.distcp", rank);
    Result<std::unique_ptr<FileForWriting>> file = files_.create(join_path(directory_, name));
    if (!file) return tl::unexpected(file.error());
    std::uint64_t at = 0;
    const auto put = [&](const StateValue& value, const std::string& key, StateValue offset,
                         StateValue index) -> Status {
      const Result<std::string> bytes = torch_file_bytes(value);
      if (!bytes) return tl::unexpected(bytes.error());
      PL_TRY(write_all(**file, bytes->data(), bytes->size()));
      StateDict fqn{{"fqn", key}, {"index", std::move(index)}};
      if (!offset.none()) fqn["offset"] = std::move(offset);
      const StateDict info{{"relative_path", name},
                           {"offset", static_cast<std::int64_t>(at)},
                           {"length", static_cast<std::int64_t>(bytes->size())}};
      storage_.push_back(StateList{object(names_.metadata + ".MetadataIndex", std::move(fqn)),
                                   object(names_.filesystem + "._StorageInfo", info)});
      at += bytes->size();
      return {};
    };
    for (const ShardedObject& one : state.objects) {
      if (one.replica != 0) continue;
      if (!entries_.try_emplace(one.key).second)
        return fail(ErrorCode::kState, fmt::format("object '{}' comes twice", one.key));
      PL_TRY(put(one.value, one.key, {}, {}));
    }
    for (const ShardedTensor& tensor : state.tensors) {
      if (tensor.replica != 0) continue;
      if (tensor.flattened)
        return fail(ErrorCode::kUnsupported,
                    fmt::format("tensor '{}': a distributed checkpoint has no ranges of flattened parts",
                                tensor.key));
      Entry& entry = entries_[tensor.key];
      if (entry.places.empty()) entry = {true, tensor.data.scalar_type(), tensor.global_shape, {}};
      if (!entry.tensor || entry.type != tensor.data.scalar_type() || entry.shape != tensor.global_shape)
        return fail(ErrorCode::kState,
                    fmt::format("tensor '{}' differs between ranks in shape or type", tensor.key));
      const auto index = static_cast<std::int64_t>(entry.places.size());
      entry.places.push_back({tensor.offset, tensor.data.sizes().vec(), false, 0, 0});
      PL_TRY(put(plain_tensor(tensor.data), tensor.key, size_of(tensor.offset), index));
    }
    PL_TRY((*file)->sync());
    return (*file)->close();
  }

  Status finish() {
    StateDict state;
    for (const auto& [key, entry] : entries_) {
      if (!entry.tensor) {
        state[key] = StateDict{
            {kPythonKey, names_.metadata + ".BytesStorageMetadata"}, {"args", StateList{}}, {"new", true}};
        continue;
      }
      const auto name = [](std::size_t i) { return fmt::format("part {}", i); };
      PL_TRY(check_cover(entry.shape, entry.places, name, fmt::format("tensor '{}'", key)));
      state[key] = tensor_entry(entry);
    }
    const StateValue metadata =
        object(names_.metadata + ".Metadata",
               StateDict{{"state_dict_metadata", std::move(state)},
                         {"planner_data", {}},
                         {"storage_data", StateDict{{kPythonKey, "dict"}, {"pairs", std::move(storage_)}}}});
    const Result<Pickle> pickle =
        pickle_from_state(metadata, [](const at::Tensor&) { return std::string(); });
    if (!pickle) return tl::unexpected(pickle.error());
    const Result<std::string> bytes = print_pickle(*pickle);
    if (!bytes) return tl::unexpected(bytes.error());
    PL_TRY(files_.sync_directory(directory_));
    return replace_file(files_, join_path(directory_, ".metadata"), *bytes);
  }

 private:
  StateValue tensor_entry(const Entry& entry) const {
    StateList chunks;
    for (const Place& place : entry.places)
      chunks.push_back(
          object(names_.metadata + ".ChunkStorageMetadata",
                 StateDict{{"offsets", size_of(place.offset)}, {"sizes", size_of(place.shape)}}));
    const StateValue format =
        StateDict{{kPythonKey, "__builtin__.getattr"},
                  {"args", StateList{StateDict{{kPythonKey, names_.properties + ".MEM_FORMAT_ENCODING"}},
                                     "TORCH_CONTIGUOUS_FORMAT"}},
                  {"new", false}};
    // torch.strided has no name of its own in pickles of old:
    // torch.serialization._get_layout('torch.strided').
    const StateValue layout = StateDict{{kPythonKey, "torch.serialization._get_layout"},
                                        {"args", StateList{"torch.strided"}},
                                        {"new", false}};
    const StateValue properties =
        object(names_.properties + ".TensorProperties",
               tuple({StateDict{{kPythonKey, dtype_global(entry.type)}}, layout, false, format, false}));
    return object(
        names_.metadata + ".TensorStorageMetadata",
        StateDict{{"properties", properties}, {"size", size_of(entry.shape)}, {"chunks", std::move(chunks)}});
  }

  FileLayer& files_;
  const std::string& directory_;
  Names names_;
  std::map<std::string, Entry> entries_;
  StateList storage_;
};

}  // namespace

std::string dtype_global(at::ScalarType type) {
  for (const auto& [name, known] : kTypes) {
    if (known == type) return name;
  }
  return "";
}

std::optional<at::ScalarType> dcp_type(const StateValue& properties) {
  const auto* dict = properties.get<StateDict>();
  const StateValue* state = dict == nullptr ? nullptr : dict->find("state");
  const auto* tagged = state == nullptr ? nullptr : state->get<StateDict>();
  const StateValue* items = tagged == nullptr ? nullptr : tagged->find("items");
  const auto* list = items == nullptr ? nullptr : items->get<StateList>();
  if (list == nullptr || list->empty()) return std::nullopt;
  const auto* dtype = (*list)[0].get<StateDict>();
  if (dtype == nullptr) return std::nullopt;
  const Result<std::string> name = dtype->text(kPythonKey);
  for (const auto& [known, type] : kTypes) {
    if (name && *name == known) return type;
  }
  return std::nullopt;
}

Status write_dcp(FileLayer& files, const std::string& directory, const std::vector<ShardedStateDict>& ranks,
                 DcpDialect dialect) {
  PL_TRY(make_directories(files, directory));
  Writer writer(files, directory, dialect);
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) PL_TRY(writer.write_rank(rank, ranks[rank]));
  return writer.finish();
}

}  // namespace plumbline

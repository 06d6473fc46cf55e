#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "engine/base/assert.h"
#include "engine/checkpoint/dcp.h"
#include "engine/checkpoint/dcp_names.h"
#include "engine/checkpoint/python_names.h"
#include "engine/checkpoint/tensor_types.h"
#include "engine/checkpoint/torch_file.h"
#include "engine/storage/manifest.h"

namespace plumbline {
namespace {

constexpr std::uint64_t kMaxMetadata = std::uint64_t{1} << 30;

tl::unexpected<Error> refuse(const std::string& path, const std::string& why) {
  return fail(ErrorCode::kParse, fmt::format("{}: {}", path, why));
}

// The attributes of an object of a class of that name, wherever torch keeps it; null when it is no such
// object.
const StateDict* object_of(const StateValue& value, std::string_view name) {
  const auto* dict = value.get<StateDict>();
  const StateValue* python = dict == nullptr ? nullptr : dict->find(kPythonKey);
  const auto* text = python == nullptr ? nullptr : python->get<std::string>();
  if (text == nullptr || !text->ends_with(name) || !text->starts_with("torch.distributed")) return nullptr;
  const StateValue* state = dict->find("state");
  static const StateDict kNoAttributes;
  if (state == nullptr) return &kNoAttributes;
  return state->get<StateDict>();
}

// Items of a list, a tuple, or a torch.Size.
const StateList* items_of(const StateValue& value) {
  if (const auto* list = value.get<StateList>()) return list;
  const auto* dict = value.get<StateDict>();
  if (dict == nullptr) return nullptr;
  if (const StateValue* items = dict->find("items")) return items->get<StateList>();
  const StateValue* args = dict->find("args");
  const auto* list = args == nullptr ? nullptr : args->get<StateList>();
  return list == nullptr || list->size() != 1 ? nullptr : items_of((*list)[0]);
}

bool shape_of(const StateDict& dict, const char* key, Shape& out) {
  const StateValue* value = dict.find(key);
  const StateList* items = value == nullptr ? nullptr : items_of(*value);
  if (items == nullptr) return false;
  out.clear();
  for (const StateValue& item : *items) {
    const auto* number = item.get<std::int64_t>();
    if (number == nullptr || *number < 0) return false;
    out.push_back(*number);
  }
  return true;
}

// Keys and values of a dictionary, whatever its keys are.
std::vector<std::pair<StateValue, const StateValue*>> entries_of(const StateValue& value) {
  std::vector<std::pair<StateValue, const StateValue*>> out;
  const auto* dict = value.get<StateDict>();
  if (dict == nullptr) return out;
  const StateValue* pairs = dict->contains(kPythonKey) ? dict->find("pairs") : nullptr;
  if (pairs != nullptr && pairs->get<StateList>() != nullptr) {
    for (const StateValue& pair : *pairs->get<StateList>()) {
      const auto* two = pair.get<StateList>();
      if (two != nullptr && two->size() == 2) out.emplace_back((*two)[0], &(*two)[1]);
    }
  } else if (!dict->contains(kPythonKey)) {
    for (const auto& [key, entry] : *dict) out.emplace_back(StateValue(key), &entry);
  }
  return out;
}

using BlobTable = std::map<std::pair<std::string, Shape>, DcpBlob>;  // by key and offset; objects have none

Result<BlobTable> read_blobs(const StateValue& storage, const std::string& path) {
  BlobTable table;
  for (const auto& [index, info] : entries_of(storage)) {
    const StateDict* key = object_of(index, ".MetadataIndex");
    const StateDict* where = object_of(*info, "._StorageInfo");
    if (key == nullptr || where == nullptr) return refuse(path, "storage_data of no known form");
    const Result<std::string> name = key->text("fqn"), file = where->text("relative_path");
    const Result<std::int64_t> offset = where->integer("offset"), length = where->integer("length");
    if (!name || !file || !offset || !length || *offset < 0 || *length < 0)
      return refuse(path, "storage_data of no known form");
    const StateValue* transforms = where->find("transform_descriptors");
    if (transforms != nullptr && !transforms->none())
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{}: '{}' is compressed or encrypted by an extension", path, *name));
    Shape place;
    (void)shape_of(*key, "offset", place);
    if (!table
             .emplace(std::pair(*name, place), DcpBlob{*file, static_cast<std::uint64_t>(*offset),
                                                       static_cast<std::uint64_t>(*length)})
             .second)
      return refuse(path, fmt::format("'{}' at {} is stored twice", *name, shape_text(place)));
  }
  return table;
}

Result<DcpTensor> read_tensor_entry(const std::string& key, const StateDict& entry, const BlobTable& blobs,
                                    const std::string& path) {
  DcpTensor tensor;
  tensor.key = key;
  const StateValue* properties = entry.find("properties");
  const std::optional<at::ScalarType> type = properties == nullptr ? std::nullopt : dcp_type(*properties);
  if (!type) return refuse(path, fmt::format("tensor '{}': its type is not known", key));
  tensor.type = *type;
  const StateValue* chunks = entry.find("chunks");
  const StateList* list = chunks == nullptr ? nullptr : items_of(*chunks);
  if (!shape_of(entry, "size", tensor.shape) || list == nullptr)
    return refuse(path, fmt::format("tensor '{}': no known form", key));
  std::vector<Place> places;
  for (const StateValue& chunk : *list) {
    const StateDict* part = object_of(chunk, ".ChunkStorageMetadata");
    DcpChunk out;
    if (part == nullptr || !shape_of(*part, "offsets", out.place.offset) ||
        !shape_of(*part, "sizes", out.place.shape))
      return refuse(path, fmt::format("tensor '{}': a chunk of no known form", key));
    const auto blob = blobs.find({key, out.place.offset});
    if (blob == blobs.end())
      return refuse(
          path, fmt::format("tensor '{}': the chunk at {} is nowhere", key, shape_text(out.place.offset)));
    out.blob = blob->second;
    places.push_back(out.place);
    tensor.chunks.push_back(std::move(out));
  }
  const auto name = [](std::size_t i) { return fmt::format("chunk {}", i); };
  if (const Status covered = check_cover(tensor.shape, places, name, fmt::format("tensor '{}'", key));
      !covered)
    return refuse(path, covered.error().message);
  return tensor;
}

}  // namespace

Status DcpReader::check_blob(const DcpBlob& blob, const std::string& what) {
  if (!plain_file_name(blob.file))
    return refuse(directory_, fmt::format("{}: '{}' is no plain file name", what, blob.file));
  const std::string path = join_path(directory_, blob.file);
  const auto known =
      std::find_if(open_.begin(), open_.end(), [&](const auto& one) { return one->path() == path; });
  const FileForReading* opened = known == open_.end() ? nullptr : known->get();
  if (opened == nullptr) {
    Result<std::unique_ptr<FileForReading>> fresh = files_->open(path);
    if (!fresh) return tl::unexpected(fresh.error());
    open_.push_back(std::move(*fresh));
    opened = open_.back().get();
  }
  if (blob.offset > opened->size() || blob.length > opened->size() - blob.offset)
    return refuse(path, fmt::format("{}: bytes {} to {} are wanted, the file has {}", what, blob.offset,
                                    blob.offset + blob.length, opened->size()));
  return {};
}

const FileForReading& DcpReader::file(const DcpBlob& blob) const {
  const std::string path = join_path(directory_, blob.file);
  const auto known =
      std::find_if(open_.begin(), open_.end(), [&](const auto& one) { return one->path() == path; });
  PL_ASSERT(known != open_.end());
  return **known;
}

Result<DcpReader> DcpReader::open(FileLayer& files, const std::string& directory) {
  DcpReader reader;
  reader.files_ = &files;
  reader.directory_ = directory;
  const std::string path = join_path(directory, ".metadata");
  const Result<std::string> bytes = read_small_file(files, path, kMaxMetadata);
  if (!bytes) return tl::unexpected(bytes.error());
  const Result<Pickle> pickle = parse_pickle(*bytes, path);
  if (!pickle) return tl::unexpected(pickle.error());
  const auto no_storages = [](const StorageRequest&) -> Result<at::Tensor> {
    return fail(ErrorCode::kParse, "a tensor in the metadata");
  };
  const Result<StateValue> root = state_from_pickle(*pickle, path, no_storages, {.keep_python = true});
  if (!root) return tl::unexpected(root.error());
  const StateDict* metadata = object_of(*root, ".Metadata");
  const StateValue* state = metadata == nullptr ? nullptr : metadata->find("state_dict_metadata");
  const StateValue* storage = metadata == nullptr ? nullptr : metadata->find("storage_data");
  if (state == nullptr || storage == nullptr) return refuse(path, "no metadata of a distributed checkpoint");
  const Result<BlobTable> blobs = read_blobs(*storage, path);
  if (!blobs) return tl::unexpected(blobs.error());
  for (const auto& [name, entry] : entries_of(*state)) {
    const auto* key = name.get<std::string>();
    if (key == nullptr) return refuse(path, "a key that is no text");
    if (const StateDict* tensor = object_of(*entry, ".TensorStorageMetadata")) {
      Result<DcpTensor> read = read_tensor_entry(*key, *tensor, *blobs, path);
      if (!read) return tl::unexpected(read.error());
      for (const DcpChunk& chunk : read->chunks) PL_TRY(reader.check_blob(chunk.blob, "'" + *key + "'"));
      reader.tensors_.push_back(std::move(*read));
    } else if (object_of(*entry, ".BytesStorageMetadata") != nullptr) {
      const auto blob = blobs->find({*key, {}});
      if (blob == blobs->end()) return refuse(path, fmt::format("'{}' is nowhere", *key));
      PL_TRY(reader.check_blob(blob->second, "'" + *key + "'"));
      reader.objects_.push_back({*key, blob->second});
    } else {
      return refuse(path, fmt::format("'{}' is of no known kind", *key));
    }
  }
  const auto by_key = [](const auto& a, const auto& b) { return a.key < b.key; };
  std::sort(reader.tensors_.begin(), reader.tensors_.end(), by_key);
  std::sort(reader.objects_.begin(), reader.objects_.end(), by_key);
  return reader;
}

Status DcpReader::read(const ShardedTensor& target) const {
  const auto found =
      std::find_if(tensors_.begin(), tensors_.end(), [&](const DcpTensor& t) { return t.key == target.key; });
  if (found == tensors_.end())
    return fail(ErrorCode::kState, fmt::format("{}: no tensor '{}'", directory_, target.key));
  if (found->shape != target.global_shape || found->type != target.data.scalar_type())
    return fail(ErrorCode::kState,
                fmt::format("{}: tensor '{}' is {} {}, {} {} is wanted", directory_, target.key,
                            at::toString(found->type), shape_text(found->shape),
                            at::toString(target.data.scalar_type()), shape_text(target.global_shape)));
  Place place{target.offset, target.flattened ? target.local_shape : target.data.sizes().vec(),
              target.flattened, target.flat_begin, target.data.numel()};
  PL_TRY(check_place(place, found->shape, fmt::format("'{}'", target.key)));
  const std::vector<Run> wanted = runs_of(place, found->shape);
  at::Tensor flat = plain_tensor(target.data).clone();
  const auto width = static_cast<std::size_t>(flat.element_size());
  for (const DcpChunk& chunk : found->chunks) {
    const std::vector<Run> held = runs_of(chunk.place, found->shape);
    bool any = false;
    for_each_common(held, wanted, [&](auto, auto, auto) { any = true; });
    if (!any) continue;
    const Result<StateValue> value = read_torch_slice(file(chunk.blob), chunk.blob.offset, chunk.blob.length);
    if (!value) return tl::unexpected(value.error());
    const auto* tensor = value->get<at::Tensor>();
    if (tensor == nullptr || tensor->scalar_type() != found->type ||
        tensor->sizes().vec() != chunk.place.shape)
      return refuse(join_path(directory_, chunk.blob.file),
                    fmt::format("byte {}: holds {}, not the chunk of '{}'", chunk.blob.offset,
                                describe(*value), target.key));
    const at::Tensor whole = tensor->contiguous();
    for_each_common(held, wanted, [&](std::int64_t from, std::int64_t to, std::int64_t count) {
      std::memcpy(static_cast<char*>(flat.data_ptr()) + static_cast<std::size_t>(to) * width,
                  static_cast<const char*>(whole.data_ptr()) + static_cast<std::size_t>(from) * width,
                  static_cast<std::size_t>(count) * width);
    });
  }
  target.data.detach().copy_(flat);
  return {};
}

Result<at::Tensor> DcpReader::read_tensor(const std::string& key) const {
  const auto found =
      std::find_if(tensors_.begin(), tensors_.end(), [&](const DcpTensor& t) { return t.key == key; });
  if (found == tensors_.end())
    return fail(ErrorCode::kState, fmt::format("{}: no tensor '{}'", directory_, key));
  ShardedTensor target;
  target.key = key;
  target.global_shape = target.local_shape = found->shape;
  target.offset.assign(found->shape.size(), 0);
  target.data = at::zeros(found->shape, at::TensorOptions(found->type));
  PL_TRY(read(target));
  return target.data;
}

Result<StateValue> DcpReader::read_object(const std::string& key) const {
  const auto found =
      std::find_if(objects_.begin(), objects_.end(), [&](const DcpObject& o) { return o.key == key; });
  if (found == objects_.end())
    return fail(ErrorCode::kState, fmt::format("{}: no object '{}'", directory_, key));
  return read_torch_slice(file(found->blob), found->blob.offset, found->blob.length);
}

}  // namespace plumbline

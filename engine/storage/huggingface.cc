#include "engine/storage/huggingface.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "engine/base/json_writer.h"
#include "engine/storage/manifest.h"
#include "engine/storage/strict_json.h"

namespace plumbline {
namespace {

tl::unexpected<Error> refuse(const std::string& path, const std::string& why) {
  return fail(ErrorCode::kParse, fmt::format("{}: {}", path, why));
}

}  // namespace

Result<HuggingfaceIndex> parse_huggingface_index(std::string_view text, const std::string& path) {
  const Result<JsonValue> root = parse_json(text, path);
  if (!root) return tl::unexpected(root.error());
  HuggingfaceIndex index;
  if (const JsonValue* metadata = root->find("metadata");
      metadata != nullptr && metadata->find("total_size") != nullptr) {
    const JsonValue* size = metadata->find("total_size");
    // Some writers put a float here; only whole ones are believed.
    const double* real = size->get<double>();
    const auto* whole = size->get<std::int64_t>();
    if ((whole == nullptr && real == nullptr) || (whole != nullptr && *whole < 0) ||
        (real != nullptr && !(*real >= 0 && *real < 9e15)))
      return refuse(path, "total_size must be a number of bytes");
    index.total_size =
        whole != nullptr ? static_cast<std::uint64_t>(*whole) : static_cast<std::uint64_t>(*real);
  }
  const Result<const JsonObject*> map = json_object(*root, "weight_map", path);
  if (!map) return tl::unexpected(map.error());
  for (const auto& [name, file] : **map) {
    const auto* value = file.get<std::string>();
    if (value == nullptr || !plain_file_name(*value))
      return refuse(path, fmt::format("'{}': must be the name of a file beside the index, it is {}", name,
                                      file.describe()));
    index.weight_map.emplace_back(name, *value);
  }
  return index;
}

std::string print_huggingface_index(const HuggingfaceIndex& index) {
  JsonWriter json;
  json.begin_object().key("metadata").begin_object().field("total_size", index.total_size).end_object();
  json.key("weight_map").begin_object();
  for (const auto& [name, file] : index.weight_map) json.field(name, file);
  json.end_object().end_object();
  return json.text() + "\n";
}

Result<HuggingfaceReader> HuggingfaceReader::open(FileLayer& files, const std::string& directory) {
  HuggingfaceReader reader;
  const std::string path = join_path(directory, kHuggingfaceIndex);
  const Result<PathKind> kind = files.kind(path);
  if (!kind) return tl::unexpected(kind.error());
  std::map<std::string, std::string> wanted;
  std::vector<std::string> names;
  if (*kind == PathKind::kAbsent) {
    names.push_back("model.safetensors");
  } else {
    const Result<std::string> text = read_small_file(files, path, 256u << 20);
    if (!text) return tl::unexpected(text.error());
    const Result<HuggingfaceIndex> index = parse_huggingface_index(*text, path);
    if (!index) return tl::unexpected(index.error());
    for (const auto& [name, file] : index->weight_map) {
      wanted[name] = file;
      if (std::find(names.begin(), names.end(), file) == names.end()) names.push_back(file);
    }
  }
  std::map<std::string, std::string> seen;
  for (const std::string& name : names) {
    const std::string shard = join_path(directory, name);
    Result<std::unique_ptr<FileForReading>> file = files.open(shard);
    if (!file) return tl::unexpected(file.error());
    const Result<SafetensorsHeader> header = read_safetensors_header(**file);
    if (!header) return tl::unexpected(header.error());
    for (const SafetensorsEntry& entry : header->tensors) {
      if (const auto [at, fresh] = seen.emplace(entry.name, name); !fresh)
        return refuse(shard, fmt::format("tensor '{}' is in '{}' too", entry.name, at->second));
      if (*kind != PathKind::kAbsent && (wanted.count(entry.name) == 0 || wanted[entry.name] != name))
        return refuse(shard, fmt::format("tensor '{}' is not what the index says of it", entry.name));
      reader.tensors_.push_back({entry, reader.files_.size(), header->data_begin});
    }
    reader.files_.push_back(std::move(*file));
  }
  for (const auto& [name, file] : wanted) {
    if (seen.count(name) == 0)
      return refuse(join_path(directory, file), fmt::format("has no tensor '{}', the index says so", name));
  }
  std::sort(reader.tensors_.begin(), reader.tensors_.end(),
            [](const Row& a, const Row& b) { return a.entry.name < b.entry.name; });
  return reader;
}

const HuggingfaceReader::Row* HuggingfaceReader::find(std::string_view name) const {
  for (const Row& row : tensors_) {
    if (row.entry.name == name) return &row;
  }
  return nullptr;
}

Status HuggingfaceReader::read(const Row& row, void* data) const {
  return files_[row.file]->read_at(row.data_begin + row.entry.begin, data,
                                   static_cast<std::size_t>(row.entry.end - row.entry.begin));
}

Status write_huggingface(FileLayer& files, const std::string& directory,
                         const std::vector<SafetensorsTensor>& tensors, std::uint64_t shard_bytes) {
  std::vector<std::vector<SafetensorsTensor>> shards(1);
  std::uint64_t held = 0;
  HuggingfaceIndex index;
  std::map<std::string, int> seen;
  for (const SafetensorsTensor& tensor : tensors) {
    const std::optional<std::uint64_t> bytes = byte_count(tensor.type, tensor.shape);
    if (!bytes) return refuse(directory, fmt::format("tensor '{}' has no size", tensor.name));
    if (++seen[tensor.name] > 1)
      return refuse(directory, fmt::format("two tensors are called '{}'", tensor.name));
    if (!shards.back().empty() && held + *bytes > shard_bytes) {
      shards.emplace_back();
      held = 0;
    }
    shards.back().push_back(tensor);
    held += *bytes;
    index.total_size += *bytes;
  }
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string name = shards.size() == 1
                                 ? "model.safetensors"
                                 : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    for (const SafetensorsTensor& tensor : shards[i]) index.weight_map.emplace_back(tensor.name, name);
    const Result<WrittenFile> written =
        write_safetensors(files, join_path(directory, name), std::move(shards[i]), {{"format", "pt"}});
    if (!written) return tl::unexpected(written.error());
  }
  PL_TRY(files.sync_directory(directory));
  if (shards.size() == 1) return {};
  std::sort(index.weight_map.begin(), index.weight_map.end());
  return replace_file(files, join_path(directory, kHuggingfaceIndex), print_huggingface_index(index));
}

}  // namespace plumbline

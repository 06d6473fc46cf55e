#include "engine/storage/safetensors.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include <fmt/format.h>

#include "engine/base/json_writer.h"
#include "engine/storage/strict_json.h"
#include "engine/storage/utf8.h"

namespace plumbline {
namespace {

// Hashed and written while it is in the processor's cache.
constexpr std::uint64_t kWriteBlock = 1u << 20;

tl::unexpected<Error> refuse(const std::string& path, const std::string& why) {
  return fail(ErrorCode::kParse, fmt::format("{}: {}", path, why));
}

Result<SafetensorsEntry> parse_entry(const std::string& name, const JsonValue& value,
                                     const std::string& path) {
  const std::string what = fmt::format("{}: tensor '{}'", path, name);
  PL_TRY(json_only_keys(value, {"dtype", "shape", "data_offsets"}, what));
  const Result<std::string> type_name = json_text(value, "dtype", what);
  if (!type_name) return tl::unexpected(type_name.error());
  Result<std::vector<std::int64_t>> shape = json_integers(value, "shape", what);
  if (!shape) return tl::unexpected(shape.error());
  const Result<std::vector<std::int64_t>> offsets = json_integers(value, "data_offsets", what);
  if (!offsets) return tl::unexpected(offsets.error());
  if (offsets->size() != 2)
    return refuse(path, fmt::format("tensor '{}': {} data offsets, they are two", name, offsets->size()));
  const std::optional<ElementType> type = element_type_from_name(*type_name);
  if (!type) return refuse(path, fmt::format("tensor '{}': unknown dtype '{}'", name, *type_name));
  SafetensorsEntry entry{name, *type, std::move(*shape), static_cast<std::uint64_t>((*offsets)[0]),
                         static_cast<std::uint64_t>((*offsets)[1])};
  const std::optional<std::uint64_t> bytes = byte_count(entry.type, entry.shape);
  if (!bytes)
    return refuse(path, fmt::format("tensor '{}': shape {} of {} has no size in bytes", name,
                                    shape_text(entry.shape), *type_name));
  if (entry.end < entry.begin || entry.end - entry.begin != *bytes)
    return refuse(path, fmt::format("tensor '{}': offsets {} to {}, but {} of {} takes {} bytes", name,
                                    entry.begin, entry.end, shape_text(entry.shape), *type_name, *bytes));
  return entry;
}

Status parse_metadata(const JsonValue& value, const std::string& path, SafetensorsHeader& header) {
  const auto* entries = value.get<JsonObject>();
  if (entries == nullptr) return refuse(path, "__metadata__ must be an object, it is " + value.describe());
  for (const auto& [key, text] : *entries) {
    if (text.get<std::string>() == nullptr)
      return refuse(path, fmt::format("__metadata__: '{}' must be a text, it is {}", key, text.describe()));
    header.metadata.emplace_back(key, *text.get<std::string>());
  }
  return {};
}

// One after the other from 0 to the file's end.
Status check_tiling(const SafetensorsHeader& header, std::uint64_t file_bytes, const std::string& path) {
  std::uint64_t at = 0;
  for (const SafetensorsEntry& entry : header.tensors) {
    if (entry.begin != at)
      return refuse(path, fmt::format("tensor '{}' begins at data offset {}, the one before ends at {}: "
                                      "tensors must follow each other without overlap or hole",
                                      entry.name, entry.begin, at));
    at = entry.end;
  }
  if (at != file_bytes - header.data_begin)
    return refuse(path,
                  fmt::format("tensors end at byte {}, the file at {}: it is {}", header.data_begin + at,
                              file_bytes, at > file_bytes - header.data_begin ? "truncated" : "longer"));
  return {};
}

std::string header_text(const std::vector<SafetensorsTensor>& tensors,
                        const std::vector<std::pair<std::string, std::string>>& metadata,
                        const std::vector<std::uint64_t>& bytes) {
  JsonWriter json;
  json.begin_object();
  if (!metadata.empty()) {
    json.key("__metadata__").begin_object();
    for (const auto& [key, text] : metadata) json.field(key, text);
    json.end_object();
  }
  std::uint64_t at = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    json.key(tensors[i].name).begin_object().field("dtype", element_name(tensors[i].type));
    json.key("shape").begin_array();
    for (const std::int64_t size : tensors[i].shape) json.value(size);
    json.end_array()
        .key("data_offsets")
        .begin_array()
        .value(at)
        .value(at + bytes[i])
        .end_array()
        .end_object();
    at += bytes[i];
  }
  json.end_object();
  std::string text = json.text();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

Status check_tensors(const std::vector<SafetensorsTensor>& tensors,
                     const std::vector<std::pair<std::string, std::string>>& metadata,
                     const std::string& path, std::vector<std::uint64_t>& bytes) {
  std::vector<std::string_view> names;
  for (const SafetensorsTensor& tensor : tensors) {
    names.push_back(tensor.name);
    if (tensor.name == "__metadata__") return refuse(path, "no tensor may be called __metadata__");
    const std::optional<std::uint64_t> size = byte_count(tensor.type, tensor.shape);
    if (!size)
      return refuse(path,
                    fmt::format("tensor '{}': shape {} has no size", tensor.name, shape_text(tensor.shape)));
    bytes.push_back(*size);
  }
  for (const auto& [key, text] : metadata) {
    if (!valid_utf8(key) || !valid_utf8(text)) return refuse(path, "metadata that is not UTF-8");
  }
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end())
    return refuse(path, fmt::format("two tensors are called '{}'", *twice));
  for (const std::string_view name : names) {
    if (!valid_utf8(name)) return refuse(path, "a tensor's name is not UTF-8");
  }
  return {};
}

}  // namespace

const SafetensorsEntry* SafetensorsHeader::find(std::string_view name) const {
  const auto at = std::lower_bound(
      by_name.begin(), by_name.end(), name,
      [&](std::uint32_t place, std::string_view wanted) { return tensors[place].name < wanted; });
  return at != by_name.end() && tensors[*at].name == name ? &tensors[*at] : nullptr;
}

Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, std::uint64_t file_bytes,
                                                   const std::string& path) {
  if (json.size() > kMaxSafetensorsHeader)
    return refuse(path,
                  fmt::format("header of {} bytes, the limit is {}", json.size(), kMaxSafetensorsHeader));
  if (file_bytes < 8 || json.size() > file_bytes - 8)
    return refuse(path, fmt::format("header of {} bytes in a file of {}", json.size(), file_bytes));
  const Result<JsonValue> root =
      parse_json(json, path + ": header", {.bytes = kMaxSafetensorsHeader, .depth = 4});
  if (!root) return tl::unexpected(root.error());
  const auto* entries = root->get<JsonObject>();
  if (entries == nullptr) return refuse(path, "header must be an object, it is " + root->describe());
  SafetensorsHeader header;
  header.data_begin = 8 + json.size();
  for (const auto& [name, value] : *entries) {
    if (name == "__metadata__") {
      PL_TRY(parse_metadata(value, path, header));
      continue;
    }
    Result<SafetensorsEntry> entry = parse_entry(name, value, path);
    if (!entry) return tl::unexpected(entry.error());
    header.tensors.push_back(std::move(*entry));
  }
  // Empty tensors share their place with the one that begins there.
  std::stable_sort(header.tensors.begin(), header.tensors.end(), [](const auto& a, const auto& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  PL_TRY(check_tiling(header, file_bytes, path));
  header.by_name.resize(header.tensors.size());  // fewer than 2^32: each takes bytes of a bounded header
  std::iota(header.by_name.begin(), header.by_name.end(), 0u);
  std::sort(header.by_name.begin(), header.by_name.end(), [&](std::uint32_t a, std::uint32_t b) {
    return header.tensors[a].name < header.tensors[b].name;
  });
  return header;
}

Result<SafetensorsHeader> read_safetensors_header(const FileForReading& file) {
  if (file.size() < 8) return refuse(file.path(), fmt::format("{} bytes, no safetensors file", file.size()));
  unsigned char raw[8];
  PL_TRY(file.read_at(0, raw, sizeof raw));
  std::uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | raw[i];
  if (length > kMaxSafetensorsHeader)
    return refuse(file.path(),
                  fmt::format("byte 0: header of {} bytes, the limit is {}", length, kMaxSafetensorsHeader));
  if (length > file.size() - 8)
    return refuse(file.path(),
                  fmt::format("byte 0: header of {} bytes in a file of {}", length, file.size()));
  std::string json(length, '\0');
  PL_TRY(file.read_at(8, json.data(), json.size()));
  return parse_safetensors_header(json, file.size(), file.path());
}

Result<WrittenFile> write_safetensors(FileLayer& files, const std::string& path,
                                      std::vector<SafetensorsTensor> tensors,
                                      const std::vector<std::pair<std::string, std::string>>& metadata,
                                      const StorageProgress& progress) {
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    const int left = element_bits(a.type), right = element_bits(b.type);
    return left != right ? left > right : a.name < b.name;
  });
  std::vector<std::uint64_t> bytes;
  PL_TRY(check_tensors(tensors, metadata, path, bytes));
  const std::string json = header_text(tensors, metadata, bytes);
  if (json.size() > kMaxSafetensorsHeader)
    return refuse(path,
                  fmt::format("header of {} bytes, the limit is {}", json.size(), kMaxSafetensorsHeader));
  Result<std::unique_ptr<FileForWriting>> file = files.create(path);
  if (!file) return tl::unexpected(file.error());
  std::string head(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) head[i] = static_cast<char>(json.size() >> (8 * i) & 0xFF);
  head += json;
  WrittenFile written;
  const std::uint64_t total = std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{head.size()});
  const auto put = [&](const void* data, std::size_t size) -> Status {
    written.bytes += size;
    return write_all(**file, data, size);
  };
  PL_TRY(put(head.data(), head.size()));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    WrittenTensor row{tensors[i].name, written.bytes, bytes[i], 0};
    const auto* data = static_cast<const std::byte*>(tensors[i].data);
    Hasher part;
    for (std::uint64_t at = 0; at < bytes[i]; at += kWriteBlock) {
      const auto size = static_cast<std::size_t>(std::min(kWriteBlock, bytes[i] - at));
      part.bytes(data + at, size);
      PL_TRY(put(data + at, size));
      if (progress) progress(written.bytes, total, tensors[i].name);
    }
    row.digest = part.digest();
    written.tensors.push_back(std::move(row));
  }
  written.header_digest = hash64(head);
  PL_TRY((*file)->sync());
  PL_TRY((*file)->close());
  return written;
}

}  // namespace plumbline

#include "engine/storage/manifest.h"

#include <algorithm>

#include <fmt/format.h>

#include "engine/base/hash.h"
#include "engine/base/json_writer.h"

namespace plumbline {
namespace {

constexpr std::string_view kTail = ",\n\"digest\":\"";

tl::unexpected<Error> refuse(const std::string& path, const std::string& why) {
  return fail(ErrorCode::kParse, fmt::format("{}: {}", path, why));
}

std::string numbers(const Shape& values) {
  std::string text = "[";
  for (const std::int64_t value : values) text += fmt::format("{}{}", text.size() == 1 ? "" : ",", value);
  return text + "]";
}

std::string quoted(const std::string& text) {
  JsonWriter json;
  json.value(text);
  return json.text();
}

Result<std::uint64_t> hex_field(const JsonValue& object, const std::string& what) {
  const Result<std::string> text = json_text(object, "digest", what);
  if (!text) return tl::unexpected(text.error());
  const bool hex = text->size() == 16 && text->find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!hex) return refuse(what, fmt::format("digest '{}' is not 16 hexadecimal digits", *text));
  return std::stoull(*text, nullptr, 16);
}

template <typename T>
Status take(Result<T> result, T& into) {
  if (!result) return tl::unexpected(result.error());
  into = std::move(*result);
  return {};
}

Status parse_files(const JsonArray& entries, const std::string& path, Manifest& manifest) {
  for (const JsonValue& entry : entries) {
    const std::string what = fmt::format("{}: file {}", path, manifest.files.size());
    PL_TRY(json_only_keys(entry, {"name", "bytes", "digest"}, what));
    ManifestFile file;
    PL_TRY(take(json_text(entry, "name", what), file.name));
    std::int64_t bytes = 0;
    PL_TRY(take(json_integer(entry, "bytes", what), bytes));
    file.bytes = static_cast<std::uint64_t>(bytes);
    PL_TRY(take(hex_field(entry, what), file.digest));
    if (!plain_file_name(file.name))
      return refuse(what, fmt::format("'{}' is no plain file name", file.name));
    for (const ManifestFile& other : manifest.files) {
      if (other.name == file.name) return refuse(what, fmt::format("'{}' is listed twice", file.name));
    }
    manifest.files.push_back(std::move(file));
  }
  return {};
}

Status parse_piece(const JsonValue& entry, const std::string& what, const Manifest& manifest,
                   ManifestTensor& tensor) {
  PL_TRY(json_only_keys(entry, {"file", "tensor", "offset", "shape", "range", "digest"}, what));
  ManifestPiece piece;
  std::int64_t file = 0;
  PL_TRY(take(json_integer(entry, "file", what), file));
  if (file >= static_cast<std::int64_t>(manifest.files.size()))
    return refuse(what, fmt::format("file {} of {}", file, manifest.files.size()));
  piece.file = static_cast<int>(file);
  PL_TRY(take(json_text(entry, "tensor", what), piece.tensor));
  PL_TRY(take(json_integers(entry, "offset", what), piece.place.offset));
  PL_TRY(take(json_integers(entry, "shape", what), piece.place.shape));
  if (entry.find("range") != nullptr) {
    Shape range;
    PL_TRY(take(json_integers(entry, "range", what), range));
    if (range.size() != 2 || range[1] < range[0]) return refuse(what, "range must be two ascending numbers");
    piece.place.flattened = true;
    piece.place.begin = range[0];
    piece.place.count = range[1] - range[0];
  }
  PL_TRY(take(hex_field(entry, what), piece.digest));
  tensor.pieces.push_back(std::move(piece));
  return {};
}

Status parse_tensors(const JsonArray& entries, const std::string& path, Manifest& manifest) {
  for (const JsonValue& entry : entries) {
    std::string what = fmt::format("{}: tensor {}", path, manifest.tensors.size());
    PL_TRY(json_only_keys(entry, {"key", "dtype", "shape", "pieces"}, what));
    ManifestTensor tensor;
    PL_TRY(take(json_text(entry, "key", what), tensor.key));
    what = fmt::format("{}: tensor '{}'", path, tensor.key);
    if (!manifest.tensors.empty() && !(manifest.tensors.back().key < tensor.key))
      return refuse(what, "keys must be in order, each one once");
    std::string type;
    PL_TRY(take(json_text(entry, "dtype", what), type));
    const std::optional<ElementType> known = element_type_from_name(type);
    if (!known) return refuse(what, fmt::format("unknown dtype '{}'", type));
    tensor.type = *known;
    PL_TRY(take(json_integers(entry, "shape", what), tensor.shape));
    if (!byte_count(tensor.type, tensor.shape))
      return refuse(what, fmt::format("shape {} has no size", shape_text(tensor.shape)));
    const Result<const JsonArray*> pieces = json_array(entry, "pieces", what);
    if (!pieces) return tl::unexpected(pieces.error());
    for (const JsonValue& piece : **pieces) PL_TRY(parse_piece(piece, what, manifest, tensor));
    std::vector<Place> places;
    for (const ManifestPiece& piece : tensor.pieces) places.push_back(piece.place);
    const auto name = [&](std::size_t i) { return "piece '" + tensor.pieces[i].tensor + "'"; };
    if (const Status covered = check_cover(tensor.shape, places, name, what); !covered)
      return fail(ErrorCode::kParse, covered.error().message);
    manifest.tensors.push_back(std::move(tensor));
  }
  return {};
}

Status parse_objects(const JsonArray& entries, const std::string& path, Manifest& manifest) {
  for (const JsonValue& entry : entries) {
    const std::string what = fmt::format("{}: object {}", path, manifest.objects.size());
    PL_TRY(json_only_keys(entry, {"key", "value"}, what));
    ManifestObject object;
    PL_TRY(take(json_text(entry, "key", what), object.key));
    if (!manifest.objects.empty() && !(manifest.objects.back().key < object.key))
      return refuse(what, fmt::format("'{}': keys must be in order, each one once", object.key));
    const JsonValue* value = entry.find("value");
    if (value == nullptr) return refuse(what, fmt::format("'{}' has no value", object.key));
    object.value = *value;
    manifest.objects.push_back(std::move(object));
  }
  return {};
}

Status parse_aliases(const JsonObject& entries, const std::string& path, Manifest& manifest) {
  for (const auto& [name, target] : entries) {
    const auto* key = target.get<std::string>();
    if (key == nullptr || (!manifest.aliases.empty() && !(manifest.aliases.back().first < name)))
      return refuse(path, fmt::format("alias '{}': must be a text, in order of names", name));
    manifest.aliases.emplace_back(name, *key);
  }
  for (const auto& [name, key] : manifest.aliases) {
    const auto has = [&](const std::string& wanted) {
      return std::any_of(manifest.tensors.begin(), manifest.tensors.end(),
                         [&](const ManifestTensor& tensor) { return tensor.key == wanted; });
    };
    if (has(name) || !has(key))
      return refuse(
          path, fmt::format("alias '{}' of '{}': the second must be a tensor and the first none", name, key));
  }
  return {};
}

Status check_format(const JsonValue& root, std::string_view text, const std::string& path) {
  std::string format;
  std::int64_t version = 0;
  PL_TRY(take(json_text(root, "format", path), format));
  if (format != kManifestFormat)
    return refuse(path, fmt::format("format '{}', a manifest has '{}'", format, kManifestFormat));
  PL_TRY(take(json_integer(root, "version", path), version));
  if (version != kManifestVersion)
    return refuse(path,
                  fmt::format("version {}, this plumbline reads version {}", version, kManifestVersion));
  std::uint64_t digest = 0;
  PL_TRY(take(hex_field(root, path), digest));
  const std::size_t tail = text.rfind(kTail);
  if (tail == std::string_view::npos || text.substr(tail + kTail.size() + 16) != "\"}\n")
    return refuse(path, "the digest must stand at the end");
  if (hash64(text.substr(0, tail)) != digest)
    return refuse(path, fmt::format("damaged: its digest is {}, it should be {}",
                                    hex64(hash64(text.substr(0, tail))), hex64(digest)));
  return {};
}

}  // namespace

const ManifestTensor* Manifest::find(std::string_view key) const {
  const auto by_key = [](const ManifestTensor& tensor, std::string_view wanted) {
    return tensor.key < wanted;
  };
  const auto at = std::lower_bound(tensors.begin(), tensors.end(), key, by_key);
  if (at != tensors.end() && at->key == key) return &*at;
  for (const auto& [name, target] : aliases) {
    if (name == key && target != key) return find(target);
  }
  return nullptr;
}

const ManifestObject* Manifest::find_object(std::string_view key) const {
  for (const ManifestObject& object : objects) {
    if (object.key == key) return &object;
  }
  return nullptr;
}

std::string print_manifest(const Manifest& manifest) {
  std::string out =
      fmt::format("{{\"format\":\"{}\",\"version\":{},\"iteration\":{},\"ranks\":{},\n\"files\":[",
                  kManifestFormat, kManifestVersion, manifest.iteration, manifest.ranks);
  const char* comma = "";
  for (const ManifestFile& file : manifest.files) {
    out += fmt::format("{}\n {{\"name\":{},\"bytes\":{},\"digest\":\"{}\"}}", comma, quoted(file.name),
                       file.bytes, hex64(file.digest));
    comma = ",";
  }
  out += "],\n\"tensors\":[";
  comma = "";
  for (const ManifestTensor& tensor : manifest.tensors) {
    out += fmt::format("{}\n {{\"key\":{},\"dtype\":\"{}\",\"shape\":{},\"pieces\":[", comma,
                       quoted(tensor.key), element_name(tensor.type), numbers(tensor.shape));
    comma = ",";
    const char* between = "";
    for (const ManifestPiece& piece : tensor.pieces) {
      out += fmt::format("{}\n  {{\"file\":{},\"tensor\":{},\"offset\":{},\"shape\":{},", between, piece.file,
                         quoted(piece.tensor), numbers(piece.place.offset), numbers(piece.place.shape));
      if (piece.place.flattened)
        out += fmt::format("\"range\":[{},{}],", piece.place.begin, piece.place.begin + piece.place.count);
      out += fmt::format("\"digest\":\"{}\"}}", hex64(piece.digest));
      between = ",";
    }
    out += "]}";
  }
  out += "],\n\"objects\":[";
  comma = "";
  for (const ManifestObject& object : manifest.objects) {
    out +=
        fmt::format("{}\n {{\"key\":{},\"value\":{}}}", comma, quoted(object.key), print_json(object.value));
    comma = ",";
  }
  out += "],\n\"aliases\":{";
  comma = "";
  for (const auto& [name, key] : manifest.aliases) {
    out += fmt::format("{}{}:{}", comma, quoted(name), quoted(key));
    comma = ",";
  }
  out += "}";
  const std::uint64_t digest = hash64(out);
  return out + fmt::format("{}{}\"}}\n", kTail, hex64(digest));
}

Result<Manifest> parse_manifest(std::string_view text, const std::string& path) {
  const Result<JsonValue> root = parse_json(text, path);
  if (!root) return tl::unexpected(root.error());
  PL_TRY(check_format(*root, text, path));
  PL_TRY(json_only_keys(
      *root, {"format", "version", "iteration", "ranks", "files", "tensors", "objects", "aliases", "digest"},
      path));
  Manifest manifest;
  std::int64_t ranks = 0;
  PL_TRY(take(json_integer(*root, "iteration", path), manifest.iteration));
  PL_TRY(take(json_integer(*root, "ranks", path, 1), ranks));
  if (ranks > 1 << 24) return refuse(path, fmt::format("{} ranks", ranks));
  manifest.ranks = static_cast<int>(ranks);
  const JsonArray* array = nullptr;
  const JsonObject* object = nullptr;
  PL_TRY(take(json_array(*root, "files", path), array));
  PL_TRY(parse_files(*array, path, manifest));
  PL_TRY(take(json_array(*root, "tensors", path), array));
  PL_TRY(parse_tensors(*array, path, manifest));
  PL_TRY(take(json_array(*root, "objects", path), array));
  PL_TRY(parse_objects(*array, path, manifest));
  PL_TRY(take(json_object(*root, "aliases", path), object));
  PL_TRY(parse_aliases(*object, path, manifest));
  return manifest;
}

bool plain_file_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name.front() != '.' &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

}  // namespace plumbline

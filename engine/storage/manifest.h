// The manifest of a checkpoint in plumbline's own format: which tensors there are, where their pieces lie,
// with a digest of each piece and each file, and all state that is not a tensor. docs/checkpoint-format.md
// has the grammar. The manifest ends in a digest of itself; a checkpoint without a whole manifest is none.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/result.h"
#include "engine/storage/element_type.h"
#include "engine/storage/place.h"
#include "engine/storage/strict_json.h"

namespace plumbline {

inline constexpr std::string_view kManifestFormat = "plumbline-checkpoint";
inline constexpr int kManifestVersion = 1;
inline constexpr std::string_view kManifestName = "manifest.json";

// Tensors inside an object are stored under this, the object's key, '#' and a number.
inline constexpr std::string_view kObjectTensor = "object:";

struct ManifestFile {
  std::string name;  // beside the manifest
  std::uint64_t bytes = 0;
  std::uint64_t digest = 0;  // of its header; the pieces have those of everything else
};

struct ManifestPiece {
  int file = 0;        // index into Manifest::files
  std::string tensor;  // its name in that file
  Place place;
  std::uint64_t digest = 0;
};

struct ManifestTensor {
  std::string key;
  ElementType type = ElementType::kF32;
  Shape shape;
  std::vector<ManifestPiece> pieces;  // cover it exactly; none for a tensor without elements
};

struct ManifestObject {
  std::string key;
  JsonValue value;
};

struct Manifest {
  std::int64_t iteration = 0;
  int ranks = 0;  // that saved
  std::vector<ManifestFile> files;
  std::vector<ManifestTensor> tensors;                       // by key
  std::vector<ManifestObject> objects;                       // by key
  std::vector<std::pair<std::string, std::string>> aliases;  // second name -> key of a tensor; by name

  const ManifestTensor* find(std::string_view key) const;  // aliases are followed
  const ManifestObject* find_object(std::string_view key) const;
};

// Same manifest, same text.
std::string print_manifest(const Manifest& manifest);

// Refuses (kParse, with `path`) other formats, other versions, a digest that does not match, and anything the
// grammar does not allow: unknown keys, keys that come twice, tensors that are not covered exactly.
Result<Manifest> parse_manifest(std::string_view text, const std::string& path);

// One path component, no hidden file: what may be a file's name in a manifest.
bool plain_file_name(std::string_view name);

}  // namespace plumbline

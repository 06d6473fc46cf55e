// safetensors files: 8 bytes of length N (little endian), N bytes of JSON, then the tensors' bytes without a
// gap. The reader refuses whatever the format forbids, before any memory of a tensor's size is spent: headers
// over 100 MB or longer than the file, keys that come twice, offsets that overlap, leave holes or run
// backwards, sizes that do not match shape and type or overflow, trailing bytes, truncation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/hash.h"
#include "engine/base/result.h"
#include "engine/storage/element_type.h"
#include "engine/storage/file_layer.h"

namespace plumbline {

// Called while a file is written or read, with bytes done and to do.
using StorageProgress = std::function<void(std::uint64_t done, std::uint64_t total, std::string_view what)>;

inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;

struct SafetensorsEntry {
  std::string name;
  ElementType type = ElementType::kF32;
  Shape shape;
  std::uint64_t begin = 0;  // in the file's data part
  std::uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<std::pair<std::string, std::string>> metadata;
  std::vector<SafetensorsEntry> tensors;  // by begin
  std::uint64_t data_begin = 0;           // in the file
  std::vector<std::uint32_t> by_name;     // places in `tensors`, ascending by name; the parser fills it

  // In logarithmic time, of what the parser has read: files of models hold thousands of tensors. Null when absent.
  const SafetensorsEntry* find(std::string_view name) const;
};

// From the header's text and the whole file's size. Errors (kParse) name `path` and the tensor or byte
// offset.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, std::uint64_t file_bytes,
                                                   const std::string& path);
// From the file; only the header is read.
Result<SafetensorsHeader> read_safetensors_header(const FileForReading& file);

struct SafetensorsTensor {
  std::string name;
  ElementType type = ElementType::kF32;
  Shape shape;
  const void* data = nullptr;  // as many bytes as type and shape say
};

struct WrittenTensor {
  std::string name;
  std::uint64_t begin = 0;  // in the file
  std::uint64_t bytes = 0;
  std::uint64_t digest = 0;
};

struct WrittenFile {
  std::uint64_t bytes = 0;
  std::uint64_t header_digest = 0;     // of the bytes before the first tensor
  std::vector<WrittenTensor> tensors;  // in the file's order
};

// Writes a file that does not exist yet, and syncs it. Tensors are put in order: larger elements first, then
// by name, so that each one is aligned to its element; the header is padded with blanks to a multiple of 8.
// Same tensors, same bytes. Refuses names that come twice and a header the reader would refuse.
Result<WrittenFile> write_safetensors(FileLayer& files, const std::string& path,
                                      std::vector<SafetensorsTensor> tensors,
                                      const std::vector<std::pair<std::string, std::string>>& metadata = {},
                                      const StorageProgress& progress = {});

}  // namespace plumbline

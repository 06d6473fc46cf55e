// Models as Hugging Face keeps them: one model.safetensors, or shards and model.safetensors.index.json, which
// says which tensor is in which file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/result.h"
#include "engine/storage/file_layer.h"
#include "engine/storage/safetensors.h"

namespace plumbline {

inline constexpr std::string_view kHuggingfaceIndex = "model.safetensors.index.json";

struct HuggingfaceIndex {
  std::uint64_t total_size = 0;
  std::vector<std::pair<std::string, std::string>> weight_map;  // tensor -> file, as listed
};

// Refuses (kParse) file names with a path, names that come twice.
Result<HuggingfaceIndex> parse_huggingface_index(std::string_view text, const std::string& path);
std::string print_huggingface_index(const HuggingfaceIndex& index);

class HuggingfaceReader {
 public:
  // Index and shards must agree: every tensor is in the file that the index says and in no other.
  static Result<HuggingfaceReader> open(FileLayer& files, const std::string& directory);

  struct Row {
    SafetensorsEntry entry;
    std::size_t file = 0;
    std::uint64_t data_begin = 0;
  };
  const std::vector<Row>& tensors() const { return tensors_; }  // by name
  const Row* find(std::string_view name) const;
  Status read(const Row& row, void* data) const;

 private:
  std::vector<std::unique_ptr<FileForReading>> files_;
  std::vector<Row> tensors_;
};

// Shards of at most `shard_bytes` (more only for a single tensor that is larger), tensors in the order given;
// the index comes last. Everything is synced. The directory must exist.
Status write_huggingface(FileLayer& files, const std::string& directory,
                         const std::vector<SafetensorsTensor>& tensors,
                         std::uint64_t shard_bytes = std::uint64_t{5} << 30);

}  // namespace plumbline

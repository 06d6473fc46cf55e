// Zip containers as torch.save writes them, and no more: entries stored or deflated, zip64, one disk. The
// reader works on a slice of a file, because a .distcp file holds one container behind the other. It refuses
// what a container of tensors never has: names that come twice or leave the folder, entries that overlap
// (bombs), sizes the file cannot hold, encryption.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "engine/storage/file_layer.h"

namespace plumbline {

struct ZipEntry {
  std::string name;
  std::uint64_t begin = 0;       // of the bytes, in the file
  std::uint64_t compressed = 0;  // as they stand in the file
  std::uint64_t size = 0;
  std::uint32_t crc = 0;
  bool deflated = false;
};

class ZipReader {
 public:
  // Bytes [begin, begin + size) of the file, which must outlive the reader.
  static Result<ZipReader> open(const FileForReading& file, std::uint64_t begin, std::uint64_t size);
  static Result<ZipReader> open(const FileForReading& file) { return open(file, 0, file.size()); }

  const std::vector<ZipEntry>& entries() const { return entries_; }
  const ZipEntry* find(std::string_view name) const;
  // The content, checksum verified; more than `limit` bytes are refused before they are read.
  Result<std::string> read(const ZipEntry& entry, std::uint64_t limit) const;
  // Of a stored or deflated entry into memory of entry.size bytes.
  Status read_into(const ZipEntry& entry, void* data) const;

 private:
  Status parse(std::uint64_t begin, std::uint64_t size);
  Status locate(ZipEntry& entry, std::uint64_t header, std::uint64_t begin, std::uint64_t size) const;
  const FileForReading* file_ = nullptr;
  std::vector<ZipEntry> entries_;
};

// Entries stored, each one's bytes at a multiple of 64 in the container, as torch's reader likes them. No
// times: same content, same bytes.
class ZipWriter {
 public:
  explicit ZipWriter(FileForWriting& file) : file_(file) {}
  Status add(const std::string& name, const void* data, std::uint64_t size);
  Status finish();  // the directory; nothing may be added after it
  std::uint64_t bytes() const { return at_; }

 private:
  Status put(std::string_view bytes);
  struct Row {
    std::string name;
    std::uint64_t header = 0, size = 0;
    std::uint32_t crc = 0;
  };
  FileForWriting& file_;
  std::uint64_t at_ = 0;
  std::vector<Row> rows_;
};

}  // namespace plumbline

// libFuzzer target: no bytes break the safetensors reader; headers it accepts tile the file exactly, and the
// zip reader gets the same bytes. Built by preset fuzz; started by hand: fuzz_safetensors -max_total_time=600
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "engine/base/assert.h"
#include "engine/storage/safetensors.h"
#include "engine/storage/zip.h"

namespace plumbline {
namespace {

class Memory : public FileForReading {
 public:
  Memory(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  std::uint64_t size() const override { return size_; }
  Status read_at(std::uint64_t offset, void* into, std::size_t size) const override {
    if (offset > size_ || size > size_ - offset) return fail(ErrorCode::kIo, "outside");
    if (size > 0) std::memcpy(into, data_ + offset, size);
    return {};
  }
  bool unchanged() const override { return true; }
  const std::string& path() const override { return path_; }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
  std::string path_ = "fuzz";
};

void check(const Memory& file) {
  const Result<SafetensorsHeader> header = read_safetensors_header(file);
  if (!header) return;
  std::uint64_t at = header->data_begin;
  for (const SafetensorsEntry& entry : header->tensors) {
    PL_ASSERT(header->data_begin + entry.begin == at && entry.end >= entry.begin);
    PL_ASSERT(byte_count(entry.type, entry.shape) == entry.end - entry.begin);
    at = header->data_begin + entry.end;
  }
  PL_ASSERT(at == file.size());
}

void unzip(const Memory& file) {
  const Result<ZipReader> zip = ZipReader::open(file);
  if (!zip) return;
  for (const ZipEntry& entry : zip->entries()) (void)zip->read(entry, 1u << 20);
}

}  // namespace
}  // namespace plumbline

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const plumbline::Memory file(data, size);
  plumbline::check(file);
  plumbline::unzip(file);
  return 0;
}

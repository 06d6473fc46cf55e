// Variable-length integers of run record columns: seven bits a byte, low ones first, the top bit set on all
// but the last. Signed values are folded so that small ones of either sign are short (0, -1, 1, -2, ...
// become 0, 1, 2, 3, ...).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace plumbline {

constexpr std::uint64_t fold_sign(std::int64_t value) {
  return (static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63);
}
constexpr std::int64_t unfold_sign(std::uint64_t value) {
  return static_cast<std::int64_t>((value >> 1) ^ (~(value & 1) + 1));
}

class VarintWriter {
 public:
  explicit VarintWriter(std::string& out) : out_(&out) {}
  void put(std::uint64_t value) {
    while (value >= 0x80) {
      out_->push_back(static_cast<char>(value | 0x80));
      value >>= 7;
    }
    out_->push_back(static_cast<char>(value));
  }
  void put_signed(std::int64_t value) { put(fold_sign(value)); }
  void put_fixed64(std::uint64_t value) {
    for (int i = 0; i < 8; ++i) out_->push_back(static_cast<char>(value >> (8 * i)));
  }

 private:
  std::string* out_;
};

// Reads what VarintWriter wrote. After a fault (the end, or a value above 64 bits) everything reads as 0 and
// ok() is false.
class VarintReader {
 public:
  explicit VarintReader(std::string_view bytes) : bytes_(bytes) {}
  std::uint64_t get() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (at_ >= bytes_.size()) break;
      const auto byte = static_cast<std::uint8_t>(bytes_[at_++]);
      if (shift == 63 && byte > 1) break;
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    return stop();
  }
  std::int64_t get_signed() { return unfold_sign(get()); }
  std::uint64_t get_fixed64() {
    if (remaining() < 8) return stop();
    std::uint64_t value = 0;
    for (int i = 0; i < 8; ++i)
      value |= static_cast<std::uint64_t>(static_cast<std::uint8_t>(bytes_[at_++])) << (8 * i);
    return value;
  }
  bool ok() const { return ok_; }
  std::size_t position() const { return at_; }
  std::size_t remaining() const { return bytes_.size() - at_; }

 private:
  std::uint64_t stop() {
    ok_ = false;
    at_ = bytes_.size();
    return 0;
  }
  std::string_view bytes_;
  std::size_t at_ = 0;
  bool ok_ = true;
};

}  // namespace plumbline

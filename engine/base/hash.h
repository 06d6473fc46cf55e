// Digests: XXH3 of bytes, streamed in a fixed order. Equal inputs give equal digests on every machine (xxHash is
// endian-neutral for byte input; we feed integers in little-endian order).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace plumbline {

std::uint64_t hash64(const void* data, std::size_t size, std::uint64_t seed = 0);
inline std::uint64_t hash64(std::string_view text, std::uint64_t seed = 0) {
  return hash64(text.data(), text.size(), seed);
}
// The digest of a Hasher that was given these words one by one.
std::uint64_t hash64(std::span<const std::uint64_t> words);

// Accumulates values into one 64-bit digest. Order matters; nothing about addresses or time enters it.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(Hasher&&) noexcept;
  Hasher& operator=(Hasher&&) noexcept;
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;

  void bytes(const void* data, std::size_t size);
  void text(std::string_view value);  // length first, so that "ab","c" differs from "a","bc"
  void u64(std::uint64_t value);
  void i64(std::int64_t value) { u64(static_cast<std::uint64_t>(value)); }
  void f64(double value);  // by bit pattern

  std::uint64_t digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// 16 lower-case hexadecimal digits.
std::string hex64(std::uint64_t value);

}  // namespace plumbline

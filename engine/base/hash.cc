#include "engine/base/hash.h"

#include <array>
#include <bit>

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace plumbline {

struct Hasher::State {
  XXH3_state_t xxh;
};

std::uint64_t hash64(const void* data, std::size_t size, std::uint64_t seed) {
  return XXH3_64bits_withSeed(data, size, seed);
}

std::uint64_t hash64(std::span<const std::uint64_t> words) {
  if constexpr (std::endian::native == std::endian::little)
    return hash64(words.data(), words.size_bytes());  // streamed or not, XXH3 gives one digest
  Hasher hasher;
  for (const std::uint64_t word : words) hasher.u64(word);
  return hasher.digest();
}

Hasher::Hasher() : state_(std::make_unique<State>()) { XXH3_64bits_reset(&state_->xxh); }
Hasher::~Hasher() = default;
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher& Hasher::operator=(Hasher&&) noexcept = default;

void Hasher::bytes(const void* data, std::size_t size) { XXH3_64bits_update(&state_->xxh, data, size); }

void Hasher::text(std::string_view value) {
  u64(value.size());
  bytes(value.data(), value.size());
}

void Hasher::u64(std::uint64_t value) {
  std::array<unsigned char, 8> little{};
  for (std::size_t i = 0; i < little.size(); ++i) little[i] = static_cast<unsigned char>(value >> (8 * i));
  bytes(little.data(), little.size());
}

void Hasher::f64(double value) { u64(std::bit_cast<std::uint64_t>(value)); }

std::uint64_t Hasher::digest() const { return XXH3_64bits_digest(&state_->xxh); }

std::string hex64(std::uint64_t value) { return fmt::format("{:016x}", value); }

}  // namespace plumbline

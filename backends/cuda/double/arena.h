// Arena: memory that several processes reach at one address, from which the doubles' blocks come when a server plays
// the devices (server.h). It is a file without a name, mapped in every process at the address that the server chose,
// so that pointers mean the same everywhere. Pages exist once they are written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "engine/base/result.h"

namespace plumbline::cuda {

// Where the arena lies: clear of where Linux places programs, heaps and libraries (x86-64 and AArch64 with 47 bits or
// more), and within what a sanitizer lets a program have.
#if defined(__SANITIZE_THREAD__)
inline constexpr std::uintptr_t kArenaAddress = 0x7e8100000000;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
inline constexpr std::uintptr_t kArenaAddress = 0x7e8100000000;
#else
inline constexpr std::uintptr_t kArenaAddress = 0x200000000000;
#endif
#else
inline constexpr std::uintptr_t kArenaAddress = 0x200000000000;
#endif
inline constexpr std::size_t kArenaBytes = std::size_t{16} << 30;

class Arena {
 public:
  static Result<std::unique_ptr<Arena>> create();
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  int file() const { return file_; }
  // Null: there is no room. Aligned as cudaMalloc aligns.
  std::byte* allocate(std::size_t bytes);
  void release(std::byte* block);

 private:
  Arena() = default;
  int file_ = -1;
  std::byte* base_ = nullptr;
  std::map<std::size_t, std::size_t> free_;  // offset -> bytes; neighbours are joined
  std::map<std::size_t, std::size_t> lent_;
};

// Maps the arena of a server's file into this process, once: a child of fork has its parent's.
Status map_arena(int file, std::uintptr_t address, std::size_t bytes);

}  // namespace plumbline::cuda

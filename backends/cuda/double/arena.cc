#include "backends/cuda/double/arena.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace plumbline::cuda {
namespace {

constexpr std::size_t kAlignment = 256;

// Never in place of something else; an old kernel takes the address for a wish, hence the comparison.
Status map_at(int file, std::uintptr_t address, std::size_t bytes) {
  void* const wanted = reinterpret_cast<void*>(address);
  void* const got = ::mmap(wanted, bytes, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_NORESERVE | MAP_FIXED_NOREPLACE, file, 0);
  if (got == wanted) return {};
  const std::string why = got == MAP_FAILED ? std::strerror(errno) : "something lies there";
  if (got != MAP_FAILED) ::munmap(got, bytes);
  return fail(
      ErrorCode::kState,
      fmt::format("the memory of the doubles' devices, {} GiB of addresses from {:#x} on, cannot be had in "
                  "process {} ({}); a limit on its address space (ulimit -v), or a sanitizer that the server "
                  "was not built with, does that",
                  bytes >> 30, address, ::getpid(), why));
}

}  // namespace

Result<std::unique_ptr<Arena>> Arena::create() {
  std::unique_ptr<Arena> arena(new Arena);
  arena->file_ = ::memfd_create("plumbline-doubles", MFD_CLOEXEC);
  if (arena->file_ < 0 || ::ftruncate(arena->file_, static_cast<off_t>(kArenaBytes)) != 0)
    return fail(ErrorCode::kIo,
                fmt::format("no shared memory for the doubles' devices: {}", std::strerror(errno)));
  PL_TRY(map_at(arena->file_, kArenaAddress, kArenaBytes));
  arena->base_ = reinterpret_cast<std::byte*>(kArenaAddress);
  arena->free_[0] = kArenaBytes;
  return arena;
}

Arena::~Arena() {
  if (base_ != nullptr) ::munmap(base_, kArenaBytes);
  if (file_ >= 0) ::close(file_);
}

std::byte* Arena::allocate(std::size_t bytes) {
  if (bytes > kArenaBytes) return nullptr;
  const std::size_t size = std::max(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  const auto hole =
      std::find_if(free_.begin(), free_.end(), [&](const auto& at) { return at.second >= size; });
  if (hole == free_.end()) return nullptr;
  const auto [offset, room] = *hole;
  free_.erase(hole);
  if (room > size) free_[offset + size] = room - size;
  lent_[offset] = size;
  return base_ + offset;
}

void Arena::release(std::byte* block) {
  const auto lent = lent_.find(static_cast<std::size_t>(block - base_));
  auto hole = free_.insert(*lent).first;
  lent_.erase(lent);
  if (const auto next = std::next(hole); next != free_.end() && hole->first + hole->second == next->first) {
    hole->second += next->second;
    free_.erase(next);
  }
  if (hole == free_.begin()) return;
  if (const auto before = std::prev(hole); before->first + before->second == hole->first) {
    before->second += hole->second;
    free_.erase(hole);
  }
}

Status map_arena(int file, std::uintptr_t address, std::size_t bytes) {
  struct Mapped {
    std::uintptr_t address = 0;
    std::size_t bytes = 0;
    ino_t file = 0;
  };
  static Mapped mapped;
  struct stat about {};
  if (::fstat(file, &about) != 0)
    return fail(ErrorCode::kIo, fmt::format("the memory of the doubles' devices: {}", std::strerror(errno)));
  if (mapped.address == address && mapped.bytes == bytes && mapped.file == about.st_ino) return {};
  if (mapped.bytes > 0) ::munmap(reinterpret_cast<void*>(mapped.address), mapped.bytes);
  mapped = {};
  PL_TRY(map_at(file, address, bytes));
  mapped = {address, bytes, about.st_ino};
  return {};
}

}  // namespace plumbline::cuda

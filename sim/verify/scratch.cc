#include "sim/verify/scratch.h"

#include <cstdlib>

// A sanitizer sees a list's end only where the heap has made the list.
#if defined(__SANITIZE_ADDRESS__)
#define PL_SCRATCH_FROM_HEAP 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PL_SCRATCH_FROM_HEAP 1
#endif
#endif

namespace plumbline::verify {
namespace scratch {

constinit thread_local Block block{};

namespace {

// Gives the block back when the thread ends.
struct Owner {
  std::byte* memory = nullptr;
  Owner() = default;
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;
  ~Owner() { std::free(memory); }
};
thread_local Owner owner;

}  // namespace

}  // namespace scratch

ScratchScope::ScratchScope() {
#ifndef PL_SCRATCH_FROM_HEAP
  scratch::Block& block = scratch::block;
  if (block.begin == nullptr) {
    block.begin = static_cast<std::byte*>(std::aligned_alloc(scratch::kAlignment, scratch::kSize));
    scratch::owner.memory = block.begin;
    block.next = block.begin;
    block.end = block.begin == nullptr ? nullptr : block.begin + scratch::kSize;
  }
  block.limit = block.end;
  ++block.scopes;
#endif
}

ScratchScope::~ScratchScope() {
#ifndef PL_SCRATCH_FROM_HEAP
  scratch::Block& block = scratch::block;
  if (--block.scopes == 0) block.next = block.limit = block.begin;
#endif
}

}  // namespace plumbline::verify

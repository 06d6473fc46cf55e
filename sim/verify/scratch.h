// Scratch: memory for what a check needs and nobody keeps. Many small Programs are checked in turn, each with some
// hundred short lists; from one block a thread, which every check starts from its beginning, they cost nothing to ask
// for and lie where the last check's have left the cache warm.
//
// ScratchVector is std::vector over that block. Outside a ScratchScope, for lists that are long, and when the block is
// full it asks the heap as usual, so it is right everywhere; but a vector filled inside a scope is not to be used after
// it, nor on another thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>
#include <vector>

namespace plumbline::verify {

class ScratchScope {
 public:
  ScratchScope();
  ~ScratchScope();  // of the outermost: all blocks taken on this thread are free again
  ScratchScope(const ScratchScope&) = delete;
  ScratchScope& operator=(const ScratchScope&) = delete;
};

namespace scratch {

// Plain, and known when the thread begins, so that asking for memory does not ask first whether it is there.
struct Block {
  std::byte* begin;
  std::byte* next;   // aligned for every type
  std::byte* limit;  // `end` inside of a scope, else no more than `next`: there is nothing to take
  std::byte* end;
  int scopes;
};
extern constinit thread_local Block block;

// What a step of eight ranks takes several times over; a core's second-level cache holds it.
constexpr std::size_t kSize = std::size_t{256} << 10;
// Longer lists than this belong to large Programs, which would only lose what vectors leave behind as they grow.
constexpr std::size_t kMost = std::size_t{16} << 10;

// What is taken begins and ends at a multiple of this.
constexpr std::size_t kAlignment = 64;
constexpr std::size_t padded(std::size_t bytes) { return (bytes + kAlignment - 1) & ~(kAlignment - 1); }

// Null: the heap is to be asked.
inline void* take(std::size_t bytes) {
  Block& from = block;
  std::byte* const taken = from.next;
  if (bytes > kMost || padded(bytes) > static_cast<std::size_t>(from.limit - taken)) return nullptr;
  from.next = taken + padded(bytes);
  return taken;
}

// False: it is the heap's.
inline bool give_back(void* memory, std::size_t bytes) {
  Block& to = block;
  auto* const at = static_cast<std::byte*>(memory);
  if (reinterpret_cast<std::uintptr_t>(at) - reinterpret_cast<std::uintptr_t>(to.begin) >= kSize)
    return false;
  if (at + padded(bytes) == to.next) to.next = at;  // the last one taken
  return true;
}

template <typename T>
struct Allocator {
  using value_type = T;
  Allocator() = default;
  template <typename U>
  Allocator(const Allocator<U>&) {}  // NOLINT: allocators convert

  T* allocate(std::size_t count) {
    static_assert(alignof(T) <= kAlignment);
    if (void* taken = take(count * sizeof(T))) return static_cast<T*>(taken);
    return std::allocator<T>().allocate(count);
  }
  void deallocate(T* memory, std::size_t count) {
    if (!give_back(memory, count * sizeof(T))) std::allocator<T>().deallocate(memory, count);
  }
  bool operator==(const Allocator&) const { return true; }
};

// Elements that nobody gives a value are left as the memory is.
template <typename T>
struct RawAllocator : Allocator<T> {
  RawAllocator() = default;
  template <typename U>
  RawAllocator(const RawAllocator<U>&) {}  // NOLINT: allocators convert
  template <typename U>
  struct rebind {
    using other = RawAllocator<U>;
  };

  template <typename U>
  void construct(U* at) {
    ::new (static_cast<void*>(at)) U;
  }
  template <typename U, typename... Arguments>
  void construct(U* at, Arguments&&... arguments) {
    ::new (static_cast<void*>(at)) U(std::forward<Arguments>(arguments)...);
  }
};

}  // namespace scratch

template <typename T>
using ScratchVector = std::vector<T, scratch::Allocator<T>>;
// For tables whose rows are written before they are read: making one costs nothing a row.
template <typename T>
using RawVector = std::vector<T, scratch::RawAllocator<T>>;

// A stack of plain values for inner loops: push() is a store where std::vector's is a call.
template <typename T>
class ScratchStack {
 public:
  explicit ScratchStack(std::size_t room) : values_(room + 1), room_(room + 1) {}

  void push(T value) {
    if (size_ == room_) grow();
    values_[size_++] = value;
  }
  // push() of who knows that there is room.
  void push_within(T value) { values_[size_++] = value; }
  // push() where `wanted`, without a branch: for what no processor can guess.
  void push_if(bool wanted, T value) {
    if (size_ == room_) grow();
    values_[size_] = value;
    size_ += wanted ? 1 : 0;
  }
  T pop() { return values_[--size_]; }
  void clear() { size_ = 0; }
  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  const T& operator[](std::size_t i) const { return values_[i]; }
  const T* begin() const { return values_.data(); }
  const T* end() const { return values_.data() + size_; }

 private:
  [[gnu::noinline]] void grow() {
    room_ *= 2;
    values_.resize(room_);
  }

  RawVector<T> values_;
  std::size_t size_ = 0, room_;
};

}  // namespace plumbline::verify

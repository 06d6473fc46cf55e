// How a call of another process travels to the server that plays the devices (server.h), and its answer back. One round
// trip a call: a length, then
//   call: the Function, the thread's number in its process, the arguments;
//   answer: the result, what the function has written, host functions whose turn has come.
// Both ends are one build of one library, so that values travel as they lie in memory. Addresses and handles are the
// server's and mean the same everywhere, the first because of the arena, the second because nobody looks into them.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "backends/cuda/cuda_api.h"
#include "backends/cuda/nccl_api.h"

namespace plumbline::cuda {

enum class Function : std::uint32_t {
#define X(name, parameters) k_##name,
  PLUMBLINE_CUDA_RUNTIME(X) PLUMBLINE_NCCL(X)
#undef X
      k_cuStreamWriteValue32_v2,
  k_cuStreamWaitValue32_v2,
  kShrink,
  kHostFunctionDone,
  // Control (control.h)
  kStep,
  kPollsStep,
  kNow,
  kNextTakes,
  kEndProcess,
  kIncomplete,
  kVerdict,
  kCalls,
  kPeak,
};

// What a server says first, together with the arena's file.
struct Hello {
  std::uint64_t magic = 0x706c756d62646f75;
  std::uint64_t functions = static_cast<std::uint64_t>(Function::kPeak) + 1;  // another number: another build
  std::uint64_t arena_address = 0;
  std::uint64_t arena_bytes = 0;
};

using RankList = std::vector<int>;

class Writer {
 public:
  template <typename T>
  requires std::is_trivially_copyable_v<T>
  void put(const T& value) {
    const auto* first = reinterpret_cast<const std::byte*>(&value);
    bytes.insert(bytes.end(), first, first + sizeof value);
  }
  void put(const std::string& text) { put_all(text.data(), text.size()); }
  void put(const RankList& ranks) { put_all(ranks.data(), ranks.size()); }
  std::vector<std::byte> bytes;

 private:
  template <typename T>
  void put_all(const T* values, std::size_t count) {
    put(count);
    const auto* first = reinterpret_cast<const std::byte*>(values);
    bytes.insert(bytes.end(), first, first + count * sizeof *values);
  }
};

// Reading beyond the end gives zeros, and broken() says so.
class Reader {
 public:
  explicit Reader(const std::vector<std::byte>& bytes) : bytes_(bytes) {}
  bool broken() const { return broken_; }

  template <typename T>
  T get() {
    if constexpr (std::is_trivially_copyable_v<T>) {
      T value{};
      copy(&value, sizeof value);
      return value;
    } else {
      T values;
      const auto count = get<std::size_t>();
      if (count > bytes_.size() - at_) {
        broken_ = true;
        return values;
      }
      values.resize(count);
      copy(values.data(), count * sizeof values[0]);
      return values;
    }
  }

 private:
  void copy(void* to, std::size_t count) {
    if (count > bytes_.size() - at_) {
      broken_ = true;
      return;
    }
    if (count > 0) std::memcpy(to, bytes_.data() + at_, count);
    at_ += count;
  }

  const std::vector<std::byte>& bytes_;
  std::size_t at_ = 0;
  bool broken_ = false;
};

// A parameter that points to where the function writes.
template <typename T>
concept Written = std::same_as<T, int> || std::same_as<T, std::size_t> || std::same_as<T, float> ||
    std::same_as<T, void*> || std::same_as<T, StreamHandle> || std::same_as<T, EventHandle> ||
    std::same_as<T, CommHandle> || std::same_as<T, GraphHandle> || std::same_as<T, GraphExecHandle> ||
    std::same_as<T, UniqueId>;

// Parcel: a parameter of type P. The caller sends it and then receives what was written; the server makes the argument
// of what it received and answers.
template <typename P>
struct Parcel {
  static void send(Writer& out, const P& value) { out.put(value); }
  static void receive(Reader& /*in*/, const P& /*value*/) {}

  explicit Parcel(Reader& in) : value_(in.get<P>()) {}
  const P& argument() const { return value_; }
  void answer(Writer& /*out*/) const {}

 private:
  P value_;
};

template <Written T>
struct Parcel<T*> {
  static void send(Writer& out, T* const& to) { out.put(to != nullptr); }
  static void receive(Reader& in, T* const& to) {
    if (to != nullptr) *to = in.get<T>();
  }

  explicit Parcel(Reader& in) : there_(in.get<bool>()) {}
  T* argument() { return there_ ? &value_ : nullptr; }
  void answer(Writer& out) const {
    if (there_) out.put(value_);
  }

 private:
  bool there_;
  T value_{};
};

// Of a newer NCCL's configuration the part that this one knows; names of networks stay behind.
template <>
struct Parcel<CommConfig*> {
  static void send(Writer& out, CommConfig* const& from) {
    out.put(from != nullptr);
    if (from == nullptr) return;
    CommConfig known;
    known.size = from->size;
    if (from->size >= sizeof known) std::memcpy(&known, from, sizeof known);
    known.netName = nullptr;
    out.put(known);
  }
  static void receive(Reader& /*in*/, CommConfig* const& /*from*/) {}

  explicit Parcel(Reader& in) : there_(in.get<bool>()) {
    if (there_) value_ = in.get<CommConfig>();
  }
  CommConfig* argument() { return there_ ? &value_ : nullptr; }
  void answer(Writer& /*out*/) const {}

 private:
  bool there_;
  CommConfig value_;
};

}  // namespace plumbline::cuda

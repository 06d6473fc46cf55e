// RowList: a few row numbers in order, such as the slots that a kernel reads. Up to kInside of them lie in the list
// itself: who goes through a table of rows with lists has them in the lines that it has read anyway, where vectors
// would be one more place in memory each.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

namespace plumbline {

class RowList {
 public:
  static constexpr std::uint32_t kInside = 6;

  RowList() = default;
  RowList(std::initializer_list<std::uint16_t> rows) { append(rows.begin(), rows.size()); }
  RowList(const std::vector<std::uint16_t>& rows) { append(rows.data(), rows.size()); }  // NOLINT: converts
  RowList(const RowList& other) { append(other.rows_, other.size_); }
  RowList(RowList&& other) noexcept { take(other); }
  RowList& operator=(const RowList& other) {
    if (this != &other) *this = RowList(other);
    return *this;
  }
  RowList& operator=(RowList&& other) noexcept {
    if (this == &other) return *this;
    release();
    take(other);
    return *this;
  }
  ~RowList() { release(); }

  void push_back(std::uint16_t row) { append(&row, 1); }

  const std::uint16_t* begin() const { return rows_; }
  const std::uint16_t* end() const { return rows_ + size_; }
  const std::uint16_t* data() const { return rows_; }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::uint16_t operator[](std::size_t i) const { return rows_[i]; }
  bool operator==(const RowList& other) const {
    return std::equal(begin(), end(), other.begin(), other.end());
  }

 private:
  // What there is room for once a list has that many.
  static std::size_t room(std::size_t size) { return size <= kInside ? kInside : std::bit_ceil(size); }

  void append(const std::uint16_t* rows, std::size_t count) {
    const std::size_t size = size_ + count;
    if (room(size) != room(size_)) {
      auto* const larger = new std::uint16_t[room(size)];
      std::copy_n(rows_, size_, larger);
      release();
      rows_ = larger;
    }
    std::copy_n(rows, count, rows_ + size_);
    size_ = static_cast<std::uint32_t>(size);
  }
  void take(RowList& other) {
    const bool inside = other.size_ <= kInside;
    std::copy_n(other.few_, kInside, few_);
    rows_ = inside ? few_ : other.rows_;
    size_ = std::exchange(other.size_, 0u);
    other.rows_ = other.few_;
  }
  void release() {
    if (size_ > kInside) delete[] rows_;
  }

  std::uint16_t* rows_ = few_;
  std::uint32_t size_ = 0;
  std::uint16_t few_[kInside] = {};
};

}  // namespace plumbline

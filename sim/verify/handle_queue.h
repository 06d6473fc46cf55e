// HandleQueue: what is kept of the operations of one handle queue, first in, first out, in rows of one width. Its
// memory is about what is outstanding, not what has ever been kept: a step keeps thousands and has few at a time.
#pragma once

#include <cstddef>

#include "sim/verify/scratch.h"

namespace plumbline::verify {

template <typename T>
class HandleQueue {
 public:
  void push(const T* row, std::size_t width) {
    // What is taken makes room once it is the larger part, so that every row is moved once at most on average.
    if (head_ > 0 && head_ * 2 >= rows_.size()) {
      rows_.erase(rows_.begin(), rows_.begin() + static_cast<std::ptrdiff_t>(head_));
      head_ = 0;
    }
    rows_.insert(rows_.end(), row, row + width);
  }
  // The oldest row, or null when the queue is empty. Valid until the next push.
  const T* pop(std::size_t width) {
    if (head_ + width > rows_.size()) return nullptr;
    head_ += width;
    return rows_.data() + head_ - width;
  }
  std::size_t room() const { return rows_.capacity(); }  // in elements

 private:
  ScratchVector<T> rows_;
  std::size_t head_ = 0;
};

}  // namespace plumbline::verify

// StreamClocks: what one rank's streams and its host know to be complete, as vector clocks over item
// positions. Row s says for each stream up to which of its items everything is complete before work enqueued
// on s from now on starts; the row after the streams' is the host's. The column after the streams' is the
// last communication group among them, which is all that matters in strict host order, where groups complete
// one after another.
//
// Positions are item indices + 1, so that 0 means "nothing".
#pragma once

#include <cstdint>

#include "sim/verify/scratch.h"

namespace plumbline::verify {

class StreamClocks {
 public:
  explicit StreamClocks(int streams)
      : streams_(streams),
        width_(stride_for(streams)),
        rows_(width_ * (static_cast<std::size_t>(streams) + 1)) {}

  int streams() const { return streams_; }
  int host() const { return streams_; }
  std::size_t width() const { return width_; }

  void enqueue(int stream, std::uint32_t position) { at(stream, stream) = position; }
  void enqueue_group(int stream, std::uint32_t position) {
    at(stream, stream) = position;
    at(stream, streams_) = position;
    last_group_ = position;
  }
  // Work of `stream` at `position` is complete before what is enqueued on `actor` next.
  bool ordered(int actor, int stream, std::uint32_t position) const {
    return at(actor, stream) >= position || position <= all_over_ || at(host(), stream) >= position;
  }

  void join(int waiter, int stream) { join(waiter, row(stream)); }
  void join(int waiter, const std::uint32_t* row_of_clock) {
    std::uint32_t* own = &rows_[static_cast<std::size_t>(waiter) * width_];
    // A multiple of four columns, mostly eight: the compiler makes a few vector instructions of it.
    for (std::size_t i = 0; i < width_; i += 4) {
      for (std::size_t j = i; j < i + 4; ++j) own[j] = own[j] < row_of_clock[j] ? row_of_clock[j] : own[j];
    }
  }
  // The waiter waits for one group, not for what its stream was given later. What the stream knew by then is
  // forgotten unless the group is its last work, so that the answer errs towards "not ordered".
  void join_group(int waiter, int stream, std::uint32_t position) {
    if (at(stream, stream) == position) return join(waiter, stream);
    for (const int column : {stream, streams_}) {
      if (at(waiter, column) < position) at(waiter, column) = position;
    }
  }
  // The host waits: whatever it enqueues later, on any stream, comes after. The streams' rows need not say
  // so, since ordered() asks the host's row as well.
  void host_join(const std::uint32_t* row_of_clock) { join(host(), row_of_clock); }
  void host_join(int stream) { host_join(row(stream)); }
  void host_join_group(int stream, std::uint32_t position) { join_group(host(), stream, position); }
  // The host waits for all its device was given so far, which is what lies before `position`.
  void host_join_all(std::uint32_t position) {
    all_over_ = position;
    at(host(), streams_) = last_group_;
  }

  const std::uint32_t* row(int stream) const { return &rows_[static_cast<std::size_t>(stream) * width_]; }
  // The last group the host has waited for; 0: none.
  std::uint32_t host_group() const { return at(host(), streams_); }
  std::uint32_t last_group() const { return last_group_; }

 private:
  // Columns of a row: one a stream, the last group's, and unused ones up to a multiple of four.
  static std::size_t stride_for(int streams) { return (static_cast<std::size_t>(streams) + 1 + 3) / 4 * 4; }
  std::uint32_t& at(int row, int column) {
    return rows_[static_cast<std::size_t>(row) * width_ + static_cast<std::size_t>(column)];
  }
  std::uint32_t at(int row, int column) const {
    return rows_[static_cast<std::size_t>(row) * width_ + static_cast<std::size_t>(column)];
  }

  int streams_;
  std::size_t width_;
  ScratchVector<std::uint32_t> rows_;
  std::uint32_t all_over_ = 0;    // everything up to here is complete for whatever the host enqueues now
  std::uint32_t last_group_ = 0;  // the last group enqueued, on any stream
};

}  // namespace plumbline::verify

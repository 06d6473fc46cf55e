#include "engine/optim/collective.h"

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "engine/base/assert.h"
#include "engine/runtime/reduce.h"

namespace plumbline {
namespace {

enum class Kind { kAllReduce, kReduceScatter, kAllGather };

// What a member asks for; the same on all members of one call.
struct Call {
  Kind kind = Kind::kAllReduce;
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  std::size_t count = 0;  // elements in all (all-reduce), or of a part
  bool operator==(const Call&) const = default;
};

std::string text_of(const Call& call) {
  const char* name = call.kind == Kind::kAllReduce       ? "all-reduce"
                     : call.kind == Kind::kReduceScatter ? "reduce-scatter"
                                                         : "all-gather";
  if (call.kind == Kind::kAllGather)
    return fmt::format("{} of {} {}", name, call.count, dtype_name(call.dtype));
  return fmt::format("{} ({}) of {} {}", name, call.op == ReduceOp::kSum ? "sum" : "max", call.count,
                     dtype_name(call.dtype));
}

// Where the members of a group meet. The last one to arrive does the work for all, under the lock, so that
// nobody leaves while its memory is in use. A group that has failed once stays failed: its members no longer
// agree on which call comes next.
class Meeting {
 public:
  Meeting(int members, double seconds) : seats_(static_cast<std::size_t>(members)), seconds_(seconds) {}

  int size() const { return static_cast<int>(seats_.size()); }

  Status meet(int rank, const Call& call, std::byte* data) {
    std::unique_lock lock(mutex_);
    if (failure_) return tl::unexpected(*failure_);
    Seat& seat = seats_[static_cast<std::size_t>(rank)];
    PL_ASSERT_MSG(!seat.taken, "one membership was used by two threads at once");
    seat = {true, call, data};
    if (++arrived_ == seats_.size()) {
      finish();
    } else {
      const std::uint64_t round = round_;
      const auto limit = std::chrono::duration<double>(seconds_);
      if (!changed_.wait_for(lock, limit, [&] { return round_ != round || failure_.has_value(); })) {
        give_up();
      }
      if (round_ != round) return {};  // done, even if a later call has failed since
    }
    if (failure_) return tl::unexpected(*failure_);
    return {};
  }

 private:
  struct Seat {
    bool taken = false;
    Call call;
    std::byte* data = nullptr;
  };

  void finish() {
    const Call& first = seats_[0].call;
    for (std::size_t rank = 1; rank < seats_.size(); ++rank) {
      if (seats_[rank].call == first) continue;
      failure_ = Error{ErrorCode::kState,
                       fmt::format("members of a group of {} make different calls: rank 0 {}, rank {} {}; "
                                   "collectives must come in the same order on every member",
                                   size(), text_of(first), rank, text_of(seats_[rank].call)),
                       {}};
      changed_.notify_all();
      return;
    }
    work(first);
    for (Seat& seat : seats_) seat.taken = false;
    arrived_ = 0;
    ++round_;
    changed_.notify_all();
  }

  void give_up() {
    std::string missing;
    for (std::size_t rank = 0; rank < seats_.size(); ++rank) {
      if (!seats_[rank].taken) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", rank);
    }
    failure_ =
        Error{ErrorCode::kTimeout,
              fmt::format("collective in a group of {}: rank(s) {} did not come within {} s; every member "
                          "must make every call",
                          size(), missing, seconds_),
              {}};
    changed_.notify_all();
  }

  void work(const Call& call) {
    const auto width = static_cast<std::size_t>(dtype_bytes(call.dtype));
    const std::size_t bytes = call.count * width;
    if (bytes == 0) return;
    if (call.kind == Kind::kAllGather) {
      for (const Seat& to : seats_) {
        for (std::size_t from = 0; from < seats_.size(); ++from) {
          if (to.data != seats_[from].data) {
            std::memcpy(to.data + from * bytes, seats_[from].data + from * bytes, bytes);
          }
        }
      }
      return;
    }
    if (call.kind == Kind::kAllReduce) {
      result_.resize(bytes);
      reduce(call, 0);
      for (const Seat& seat : seats_) std::memcpy(seat.data, result_.data(), bytes);
      return;
    }
    // Every part is reduced before one is overwritten: a part that another member owns is input here.
    result_.resize(bytes * seats_.size());
    for (std::size_t part = 0; part < seats_.size(); ++part) reduce(call, part * bytes);
    for (std::size_t part = 0; part < seats_.size(); ++part) {
      std::memcpy(seats_[part].data + part * bytes, result_.data() + part * bytes, bytes);
    }
  }

  // All members' elements from byte `offset` on, into the same place of the result.
  void reduce(const Call& call, std::size_t offset) {
    std::vector<const std::byte*> sources;
    sources.reserve(seats_.size());
    for (const Seat& seat : seats_) sources.push_back(seat.data + offset);
    reduce_ordered(call.dtype, call.op, sources, result_.data() + offset, call.count);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Seat> seats_;
  std::vector<std::byte> result_;
  std::size_t arrived_ = 0;
  std::uint64_t round_ = 0;  // calls completed
  std::optional<Error> failure_;
  const double seconds_;
};

class Member final : public Collective {
 public:
  Member(std::shared_ptr<Meeting> meeting, int rank) : meeting_(std::move(meeting)), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return meeting_->size(); }
  Status all_reduce(DType dtype, ReduceOp op, std::byte* data, std::size_t count) override {
    return meeting_->meet(rank_, {Kind::kAllReduce, dtype, op, count}, data);
  }
  Status reduce_scatter(DType dtype, ReduceOp op, std::byte* data, std::size_t part) override {
    return meeting_->meet(rank_, {Kind::kReduceScatter, dtype, op, part}, data);
  }
  Status all_gather(DType dtype, std::byte* data, std::size_t part) override {
    return meeting_->meet(rank_, {Kind::kAllGather, dtype, ReduceOp::kSum, part}, data);
  }

 private:
  std::shared_ptr<Meeting> meeting_;
  int rank_;
};

class Alone final : public Collective {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  Status all_reduce(DType, ReduceOp, std::byte*, std::size_t) override { return {}; }
  Status reduce_scatter(DType, ReduceOp, std::byte*, std::size_t) override { return {}; }
  Status all_gather(DType, std::byte*, std::size_t) override { return {}; }
};

template <typename T>
std::byte* bytes_of(std::span<T> values) {
  return std::as_writable_bytes(values).data();
}

}  // namespace

Status Collective::max(std::span<float> values) {
  return all_reduce(DType::kF32, ReduceOp::kMax, bytes_of(values), values.size());
}

Status Collective::sum(std::span<double> values) {
  return all_reduce(DType::kF64, ReduceOp::kSum, bytes_of(values), values.size());
}

Status Collective::sum(std::span<std::int64_t> values) {
  return all_reduce(DType::kI64, ReduceOp::kSum, bytes_of(values), values.size());
}

std::shared_ptr<Collective> alone() { return std::make_shared<Alone>(); }

std::vector<std::shared_ptr<Collective>> thread_group(int members, double seconds) {
  PL_ASSERT(members >= 1 && seconds >= 0.0);
  const auto meeting = std::make_shared<Meeting>(members, seconds);
  std::vector<std::shared_ptr<Collective>> group;
  for (int rank = 0; rank < members; ++rank) group.push_back(std::make_shared<Member>(meeting, rank));
  return group;
}

}  // namespace plumbline

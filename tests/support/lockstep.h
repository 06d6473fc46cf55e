// Ranks as threads of which one runs at a time: a rank runs until it waits in exchange() or yields, then a
// drawn one goes on. Same seed, same interleaving, no clock. A rank that has gone makes every exchange fail.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "engine/base/rng.h"
#include "engine/storage/control_channel.h"

namespace plumbline::test {

class Lockstep {
 public:
  Lockstep(int ranks, std::uint64_t seed) : rng_(seed, "lockstep"), seats_(static_cast<std::size_t>(ranks)) {
    for (int rank = 0; rank < ranks; ++rank) channels_.push_back(std::make_unique<Channel>(*this, rank));
  }

  ControlChannel& channel(int rank) { return *channels_[static_cast<std::size_t>(rank)]; }
  // Asked before an exchange: a rank whose process is gone cannot send.
  void set_gone(std::function<bool(int rank)> gone) { gone_ = std::move(gone); }
  int exchanges(int rank) const { return seats_[static_cast<std::size_t>(rank)].exchanges; }

  void yield(int rank) {
    std::unique_lock lock(mutex_);
    pass_on();
    wait_for_turn(lock, rank);
  }

  // body(rank) on a thread each; returns when all are done.
  void run(const std::function<void(int)>& body) {
    std::vector<std::thread> threads;
    {
      const std::scoped_lock lock(mutex_);
      for (Seat& seat : seats_) seat.state = State::kReady;
      pass_on();
    }
    for (int rank = 0; rank < static_cast<int>(seats_.size()); ++rank) {
      threads.emplace_back([this, rank, &body] {
        {
          std::unique_lock lock(mutex_);
          wait_for_turn(lock, rank);
        }
        body(rank);
        const std::scoped_lock lock(mutex_);
        seats_[static_cast<std::size_t>(rank)].state = State::kDone;
        settle();
        pass_on();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  enum class State { kReady, kWaiting, kDone };
  struct Seat {
    State state = State::kReady;
    std::string message;
    std::vector<std::string> received;
    std::string error;
    int exchanges = 0;
  };
  struct Channel : ControlChannel {
    Channel(Lockstep& group, int own) : group_(group), rank_(own) {}
    int rank() const override { return rank_; }
    int size() const override { return static_cast<int>(group_.seats_.size()); }
    Result<std::vector<std::string>> exchange(const std::string& message) override {
      return group_.exchange(rank_, message);
    }
    Lockstep& group_;
    int rank_;
  };

  Result<std::vector<std::string>> exchange(int rank, const std::string& message) {
    std::unique_lock lock(mutex_);
    Seat& seat = seats_[static_cast<std::size_t>(rank)];
    ++seat.exchanges;
    if (gone_ && gone_(rank)) return fail(ErrorCode::kTimeout, "this process is gone");
    seat.state = State::kWaiting;
    seat.message = message;
    settle();
    pass_on();
    wait_for_turn(lock, rank);
    if (!seat.error.empty()) return fail(ErrorCode::kTimeout, seat.error);
    return seat.received;
  }

  // Finishes the exchange when nobody is left who could still come.
  void settle() {
    std::string missing;
    for (std::size_t rank = 0; rank < seats_.size(); ++rank) {
      if (seats_[rank].state == State::kReady) return;
      if (seats_[rank].state == State::kDone)
        missing += fmt::format("{}{}", missing.empty() ? "" : ", ", rank);
    }
    std::vector<std::string> all;
    for (const Seat& seat : seats_) all.push_back(seat.message);
    for (Seat& seat : seats_) {
      if (seat.state != State::kWaiting) continue;
      seat.state = State::kReady;
      seat.received = all;
      seat.error = missing.empty() ? "" : "rank(s) " + missing + " did not come";
    }
  }

  void pass_on() {
    std::vector<int> ready;
    for (std::size_t rank = 0; rank < seats_.size(); ++rank) {
      if (seats_[rank].state == State::kReady) ready.push_back(static_cast<int>(rank));
    }
    turn_ = ready.empty() ? -1 : ready[static_cast<std::size_t>(rng_.below(draws_++, ready.size()))];
    changed_.notify_all();
  }

  void wait_for_turn(std::unique_lock<std::mutex>& lock, int rank) {
    changed_.wait(lock, [&] { return turn_ == rank; });
  }

  CounterRng rng_;
  std::uint64_t draws_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Seat> seats_;
  std::vector<std::unique_ptr<Channel>> channels_;
  std::function<bool(int)> gone_;
  int turn_ = -1;
};

}  // namespace plumbline::test

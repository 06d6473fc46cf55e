#include "backends/processes/channel.h"

#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace plumbline::processes {
namespace {

constexpr double kNever = 30.0 * 24 * 3600;  // seconds; the watchdog ends what hangs
constexpr std::chrono::seconds kGiveWay(2);

// Each message behind its length, in rank order.
std::string pack(const std::vector<std::string>& messages) {
  std::string out;
  for (const std::string& message : messages) {
    const std::uint64_t size = message.size();
    out.append(reinterpret_cast<const char*>(&size), sizeof size);
    out += message;
  }
  return out;
}

Result<std::vector<std::string>> unpack(const std::string& text, int world) {
  std::vector<std::string> out;
  std::size_t at = 0;
  for (int rank = 0; rank < world; ++rank) {
    std::uint64_t size = 0;
    if (text.size() - at < sizeof size) break;
    std::memcpy(&size, text.data() + at, sizeof size);
    at += sizeof size;
    if (text.size() - at < size) break;
    out.push_back(text.substr(at, size));
    at += size;
  }
  if (out.size() != static_cast<std::size_t>(world) || at != text.size())
    return fail(ErrorCode::kState, "what rank 0 has published is not a message of each rank");
  return out;
}

class StoreChannel final : public ControlChannel {
 public:
  StoreChannel(std::unique_ptr<Store> store, std::string name, Rank rank, int world, RankStatus* status)
      : store_(std::move(store)), name_(std::move(name)), rank_(rank), world_(world), status_(status) {}

  int rank() const override { return rank_; }
  int size() const override { return world_; }

  Result<std::vector<std::string>> exchange(const std::string& message) override {
    if (status_ != nullptr) status_->watch_exchange(true);
    Result<std::vector<std::string>> all = rank_ == 0 ? gather(message) : follow(message);
    if (status_ != nullptr) status_->watch_exchange(false);
    ++count_;
    if (all) return all;
    // The store is gone, and with it whoever served it; that one has the error to show.
    std::this_thread::sleep_for(kGiveWay);
    return fail(ErrorCode::kState, fmt::format("rank {} cannot exchange what it knows with the others: {}",
                                               rank_, all.error().message));
  }

 private:
  std::string key_of(Rank rank) const { return fmt::format("channel/{}/{}/{}", name_, count_, rank); }
  std::string all_key(std::uint64_t count) const { return fmt::format("channel/{}/{}/all", name_, count); }

  Result<std::vector<std::string>> gather(const std::string& own) {
    std::vector<std::string> all{own};
    for (Rank rank = 1; rank < world_; ++rank) {
      Result<std::string> message = store_->wait_for(key_of(rank), kNever);
      if (!message) return tl::unexpected(message.error());
      PL_TRY(store_->remove(key_of(rank)));
      all.push_back(std::move(*message));
    }
    // Whoever has sent this message has read the last publication.
    if (count_ > 0) PL_TRY(store_->remove(all_key(count_ - 1)));
    PL_TRY(store_->set(all_key(count_), pack(all)));
    return all;
  }

  Result<std::vector<std::string>> follow(const std::string& own) {
    PL_TRY(store_->set(key_of(rank_), own));
    const Result<std::string> all = store_->wait_for(all_key(count_), kNever);
    if (!all) return tl::unexpected(all.error());
    return unpack(*all, world_);
  }

  std::unique_ptr<Store> store_;
  std::string name_;
  Rank rank_;
  int world_;
  RankStatus* status_;
  std::uint64_t count_ = 0;  // of exchanges
};

}  // namespace

std::unique_ptr<ControlChannel> store_channel(std::unique_ptr<Store> store, const std::string& name,
                                              Rank rank, int world, RankStatus* status) {
  return std::make_unique<StoreChannel>(std::move(store), name, rank, world, status);
}

}  // namespace plumbline::processes

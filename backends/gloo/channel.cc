#include "backends/gloo/channel.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "backends/gloo/collectives.h"
#include "engine/base/assert.h"

namespace plumbline::gloo {
namespace {

class GlooChannel final : public ControlChannel {
 public:
  GlooChannel(Transport& transport, RankStatus* status, std::uint32_t lane)
      : transport_(transport), status_(status), lane_(lane) {}

  int rank() const override { return transport_.rank(); }
  int size() const override { return transport_.size(); }

  // Sizes first, then what has them.
  Result<std::vector<std::string>> exchange(const std::string& message) override {
    if (status_ != nullptr) status_->watch_exchange(true);
    Result<std::vector<std::string>> all = exchange_all(message);
    if (status_ != nullptr) status_->watch_exchange(false);
    return all;
  }

 private:
  Result<std::vector<std::string>> exchange_all(const std::string& message) {
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(size()), 0);
    std::int64_t own_size = static_cast<std::int64_t>(message.size());
    sizes[static_cast<std::size_t>(rank())] = own_size;
    PL_TRY(all_to_all(reinterpret_cast<std::byte*>(&own_size), sizeof own_size, [&](std::size_t r) {
      return std::pair(reinterpret_cast<std::byte*>(&sizes[r]), static_cast<Bytes>(sizeof own_size));
    }));
    std::vector<std::string> all(static_cast<std::size_t>(size()));
    for (std::size_t r = 0; r < all.size(); ++r) all[r].resize(static_cast<std::size_t>(sizes[r]));
    std::string own = message;
    PL_TRY(all_to_all(reinterpret_cast<std::byte*>(own.data()), own_size, [&](std::size_t r) {
      return std::pair(reinterpret_cast<std::byte*>(all[r].data()), static_cast<Bytes>(all[r].size()));
    }));
    all[static_cast<std::size_t>(rank())] = std::move(own);
    return all;
  }

  template <typename Into>
  Status all_to_all(std::byte* own, Bytes bytes, Into into) {
    std::vector<Message> messages;
    const std::uint32_t tag = tag_of(lane_, count_++);
    for (Rank r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      const auto [data, expected] = into(static_cast<std::size_t>(r));
      messages.push_back({true, r, tag, own, bytes, 0});
      messages.push_back({false, r, tag, data, expected, 0});
    }
    return transport_.exchange(messages);
  }

  Transport& transport_;
  RankStatus* status_;
  std::uint32_t lane_;
  std::uint32_t count_ = 0;
};

class GlooCollective final : public Collective {
 public:
  GlooCollective(Transport& transport, std::vector<Rank> members, std::uint32_t lane)
      : transport_(transport) {
    const auto own = std::find(members.begin(), members.end(), transport.rank());
    PL_ASSERT(own != members.end());
    own_.position = static_cast<std::int32_t>(own - members.begin());
    own_.members = std::move(members);
    own_.lane = lane;
  }

  int rank() const override { return own_.position; }
  int size() const override { return static_cast<int>(own_.members.size()); }
  Status all_reduce(DType dtype, ReduceOp op, std::byte* data, std::size_t count) override {
    return run(EndpointKind::kAllReduce, dtype, op, data, count);
  }
  Status reduce_scatter(DType dtype, ReduceOp op, std::byte* data, std::size_t part) override {
    return run(EndpointKind::kReduceScatter, dtype, op, data, part * own_.members.size());
  }
  Status all_gather(DType dtype, std::byte* data, std::size_t part) override {
    return run(EndpointKind::kAllGather, dtype, ReduceOp::kSum, data, part * own_.members.size());
  }

 private:
  Status run(EndpointKind kind, DType dtype, ReduceOp op, std::byte* data, std::size_t count) {
    return run_collective(transport_, own_,
                          {kind, dtype, op, 0, data, static_cast<Bytes>(count) * dtype_bytes(dtype)});
  }

  Transport& transport_;
  Membership own_;
};

}  // namespace

std::unique_ptr<ControlChannel> control_channel(Transport& transport, RankStatus* status) {
  return std::make_unique<GlooChannel>(transport, status, kChannelLane);
}

std::unique_ptr<ControlChannel> save_channel(Transport& transport) {
  return std::make_unique<GlooChannel>(transport, nullptr, kSaveLane);
}

std::shared_ptr<Collective> collective(Transport& transport, std::vector<Rank> members, int number) {
  PL_ASSERT(number >= 0 && number < 8);
  return std::make_shared<GlooCollective>(transport, std::move(members),
                                          kGroupLane + static_cast<std::uint32_t>(number));
}

}  // namespace plumbline::gloo

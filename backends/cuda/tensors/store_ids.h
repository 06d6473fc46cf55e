// StoreIds: NCCL's ids travel over the store where the ranks of a run meet. Drivers ask again and again for one that is
// not there; the store is asked every few milliseconds. Needs backends/processes.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "backends/cuda/nccl_transport.h"
#include "backends/processes/store.h"

namespace plumbline::cuda {

class StoreIds final : public IdExchange {
 public:
  // `store` outlives this.
  explicit StoreIds(processes::Store& store) : store_(&store) {}

  Status publish(const std::string& key, const UniqueId& id) override {
    missed_ = {};
    return store_->set("nccl/" + key, std::string(id.internal, sizeof id.internal));
  }
  Result<std::optional<UniqueId>> look_up(const std::string& key) override {
    const Clock::time_point now = Clock::now();
    if (now - missed_ < kPause) return std::optional<UniqueId>();
    const Result<std::optional<std::string>> text = store_->get("nccl/" + key);
    if (!text) return tl::unexpected(text.error());
    if (!*text) {
      missed_ = now;
      return std::optional<UniqueId>();
    }
    UniqueId id{};
    if ((*text)->size() != sizeof id.internal)
      return fail(ErrorCode::kState,
                  fmt::format("communicator {}: what the store has for it is {} bytes, and an id has {}", key,
                              (*text)->size(), sizeof id.internal));
    std::copy((*text)->begin(), (*text)->end(), id.internal);
    return std::optional<UniqueId>(id);
  }
  Status retire(const std::string& key) override { return store_->remove("nccl/" + key); }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kPause{2};

  processes::Store* store_;
  Clock::time_point missed_;
};

}  // namespace plumbline::cuda

// StoreIds: NCCL's ids travel over the store where the ranks of a run meet. Needs backends/processes.
#pragma once

#include <algorithm>
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
    return store_->set("nccl/" + key, std::string(id.internal, sizeof id.internal));
  }
  Result<std::optional<UniqueId>> look_up(const std::string& key) override {
    const Result<std::optional<std::string>> text = store_->get("nccl/" + key);
    if (!text) return tl::unexpected(text.error());
    if (!*text) return std::optional<UniqueId>();
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
  processes::Store* store_;
};

}  // namespace plumbline::cuda

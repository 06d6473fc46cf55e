#include "engine/train/checkpoint_groups.h"

#include <thread>
#include <utility>

#include "engine/base/assert.h"
#include "engine/checkpoint/sharded.h"
#include "engine/optim/collective.h"

namespace plumbline {
namespace {

// In one process no member stays away, but one may have a large shard to write.
constexpr double kLongSave = 7 * 24 * 3600.0;

class Borrowed : public ControlChannel {
 public:
  explicit Borrowed(ControlChannel& channel) : channel_(channel) {}
  int rank() const override { return channel_.rank(); }
  int size() const override { return channel_.size(); }
  Result<std::vector<std::string>> exchange(const std::string& message) override {
    return channel_.exchange(message);
  }

 private:
  ControlChannel& channel_;
};

}  // namespace

CheckpointGroups one_rank_a_process(ControlChannel& channel, ControlChannel* beside) {
  return [next = &channel, beside](int local_ranks) mutable -> Result<CheckpointGroup> {
    PL_ASSERT(local_ranks == 1);
    if (next == nullptr)
      return fail(ErrorCode::kUnsupported,
                  "--async-save needs a second group of all ranks, which this backend does not have");
    ControlChannel& own = *std::exchange(next, std::exchange(beside, nullptr));
    CheckpointGroup group;
    group.ranks.push_back(std::make_unique<Borrowed>(own));
    group.process = std::make_unique<Borrowed>(own);
    return group;
  };
}

CheckpointGroups in_this_process() {
  return [](int local_ranks) -> Result<CheckpointGroup> {
    CheckpointGroup group;
    for (auto& member : thread_group(local_ranks, kLongSave))
      group.ranks.push_back(collective_channel(std::move(member)));
    group.process = collective_channel(alone());
    return group;
  };
}

Status on_all(std::size_t ranks, const std::function<Status(std::size_t)>& work) {
  if (ranks == 1) return work(0);
  std::vector<Status> results(ranks);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < ranks; ++i) threads.emplace_back([&, i] { results[i] = work(i); });
  for (std::thread& thread : threads) thread.join();
  for (const Status& result : results) PL_TRY(result);
  return {};
}

}  // namespace plumbline

#include "engine/program/overlap.h"

#include <algorithm>
#include <utility>

namespace plumbline::lowering {
namespace {

constexpr int kMostHandlesAWait = 0xFFFF;

void wait(unsigned queue, int count, std::vector<Item>& items) {
  while (count > 0) {
    const int now = std::min(count, kMostHandlesAWait);
    items.push_back(make_item(ItemOp::kWait, kNoMicrobatch, 0, queue, static_cast<unsigned>(now)));
    count -= now;
  }
}

}  // namespace

std::vector<Overlap::Pass> passes_of(const Script& script, StepKind kind, int ranks, int rank) {
  std::vector<Overlap::Pass> out;
  for (const ScriptStep& step : script) {
    if (step.kind == kind) out.push_back({step.unit.chunk * ranks + rank, step.unit.microbatch});
  }
  return out;
}

Overlap::Overlap(const ModelBuffers& buffers, Plan plan)
    : buffers_(&buffers),
      plan_(std::move(plan)),
      last_backward_(plan_.stages.size()),
      reduced_(plan_.stages.size(), !plan_.reduces && !plan_.listed_reductions),
      gathered_(plan_.stages.size(), !plan_.gathers) {
  for (std::size_t i = 0; i < plan_.backwards.size(); ++i)
    last_backward_[static_cast<std::size_t>(chunk_of(plan_.backwards[i].stage))] = i;
}

int Overlap::chunk_of(int stage) const {
  return static_cast<int>(std::find(plan_.stages.begin(), plan_.stages.end(), stage) - plan_.stages.begin());
}

bool Overlap::is_last_backward(std::size_t index) const {
  return last_backward_[static_cast<std::size_t>(chunk_of(plan_.backwards[index].stage))] == index;
}

void Overlap::reduce(int chunk, std::vector<Item>& items) {
  if (reduced_[static_cast<std::size_t>(chunk)]) return;
  reduced_[static_cast<std::size_t>(chunk)] = true;
  reductions_ +=
      buffers_->reduce_all(plan_.stages[static_cast<std::size_t>(chunk)], kHandle, kReduceQueue, items);
}

void Overlap::gather(int chunk, std::vector<Item>& items) {
  if (gathered_[static_cast<std::size_t>(chunk)]) return;
  gathered_[static_cast<std::size_t>(chunk)] = true;
  const int handles =
      buffers_->gather(plan_.stages[static_cast<std::size_t>(chunk)], kHandle, kGatherQueue, items);
  if (handles > 0) awaited_.emplace_back(chunk, handles);
}

// Handles come back oldest first, so waiting for a chunk is waiting for all that began before it.
void Overlap::wait_for_gathers(int chunk, std::vector<Item>& items) {
  const auto own = std::find_if(awaited_.begin(), awaited_.end(),
                                [&](const std::pair<int, int>& entry) { return entry.first == chunk; });
  if (own == awaited_.end()) return;
  int handles = 0;
  for (auto entry = awaited_.begin(); entry != own + 1; ++entry) handles += entry->second;
  awaited_.erase(awaited_.begin(), own + 1);
  wait(kGatherQueue, handles, items);
}

void Overlap::begin(std::vector<Item>& items) {
  if (!plan_.gathers) return;
  if (plan_.align_gather && interleaved()) {
    for (int chunk = 0; chunk < 2; ++chunk) gather(chunk, items);
    return;
  }
  for (const Pass& pass : plan_.forwards) gather(chunk_of(pass.stage), items);
  for (std::size_t chunk = 0; chunk < plan_.stages.size(); ++chunk) gather(static_cast<int>(chunk), items);
}

// Before the rank's k-th forward: chunk c begins when forward k + r, r being the rank, is the first of chunk c-1.
void Overlap::aligned_gather(std::vector<Item>& items) {
  const std::size_t ahead = next_forward_ + static_cast<std::size_t>(plan_.rank);
  if (ahead >= plan_.forwards.size() || plan_.forwards[ahead].microbatch != 0) return;
  const int chunk = chunk_of(plan_.forwards[ahead].stage) + 1;
  if (chunk > 1 && static_cast<std::size_t>(chunk) < plan_.stages.size()) gather(chunk, items);
}

void Overlap::before_forward(std::vector<Item>& items) {
  if (!plan_.gathers) return;
  if (plan_.align_gather && interleaved()) aligned_gather(items);
  const int chunk = chunk_of(plan_.forwards[next_forward_++].stage);
  gather(chunk, items);  // has begun already, by the rules above
  wait_for_gathers(chunk, items);
}

void Overlap::reduce_now(int stage, std::vector<Item>& items) {
  if (buffers_ == nullptr) return;
  const auto chunk = static_cast<std::size_t>(chunk_of(stage));
  if (chunk < reduced_.size())
    reduced_[chunk] = true;  // rows may name a stage of another rank; the checker tells
  reductions_ += buffers_->reduce_all(stage, kHandle, kReduceQueue, items);
}

bool Overlap::reduced(int stage) const {
  return buffers_ != nullptr && reduces() && reduced_[static_cast<std::size_t>(chunk_of(stage))];
}

// Behind so many of the backwards.
void Overlap::reduce_agreed(std::size_t count, std::vector<Item>& items) {
  const auto through = [&](int stage) {
    return last_backward_[static_cast<std::size_t>(chunk_of(stage))] < count;
  };
  while (next_agreed_ < plan_.agreed.size() && through(plan_.agreed[next_agreed_]))
    reduce(chunk_of(plan_.agreed[next_agreed_++]), items);
}

void Overlap::before_computation(std::vector<Item>& items) {
  if (plan_.reduces && plan_.holders_meet) reduce_agreed(through_, items);
}

void Overlap::after_backward(std::vector<Item>& items) {
  if (!plan_.reduces) return;
  const std::size_t k = next_backward_++;
  if (!plan_.agreed.empty()) {
    through_ = k + 1;
  } else if (!plan_.calls || !plan_.align_reduce) {
    if (is_last_backward(k)) reduce(chunk_of(plan_.backwards[k].stage), items);
  } else if (interleaved()) {
    const auto rank = static_cast<std::size_t>(plan_.rank);
    if (k >= rank && is_last_backward(k - rank)) reduce(chunk_of(plan_.backwards[k - rank].stage), items);
  } else if (plan_.rank == 0 && k + 1 == plan_.backwards.size()) {
    reduce(0, items);
  }
}

void Overlap::finish(std::vector<Item>& items) {
  if (plan_.reduces && !plan_.agreed.empty()) reduce_agreed(plan_.backwards.size(), items);
  for (std::size_t chunk = 0; chunk < plan_.stages.size(); ++chunk) {
    if (plan_.reduces) reduce(static_cast<int>(chunk), items);
  }
  int handles = 0;
  for (const auto& [chunk, count] : awaited_) handles += count;
  awaited_.clear();
  wait(kGatherQueue, handles, items);
}

void Overlap::wait_for_reductions(std::vector<Item>& items) {
  wait(kReduceQueue, std::exchange(reductions_, 0), items);
}

}  // namespace plumbline::lowering

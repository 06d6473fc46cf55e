#include "backends/cuda/memory_pool.h"

#include <algorithm>

namespace plumbline::cuda {

Status MemoryPool::reserve(Sort sort, std::size_t count) {
  std::vector<BlockId>& free = free_[sort];
  while (free.size() < count) {
    Result<Memory> memory = Memory::allocate(device_, sort.first, sort.second);
    if (!memory) return tl::unexpected(memory.error());
    free.push_back(static_cast<BlockId>(blocks_.size()));
    blocks_.push_back({std::move(*memory), sort, {}});
    bytes_ += sort.second;
  }
  return {};
}

Result<MemoryPool::BlockId> MemoryPool::take(Sort sort, const std::function<bool(Token)>& done) {
  std::vector<BlockId>& free = free_[sort];
  if (free.empty()) {
    std::vector<BlockId>& draining = draining_[sort];
    for (std::size_t i = 0; i < draining.size(); ++i) {
      std::vector<Token>& uses = blocks_[draining[i]].last_uses;
      while (!uses.empty() && done(uses.back())) uses.pop_back();
      if (!uses.empty()) continue;
      const BlockId block = draining[i];
      draining.erase(draining.begin() + static_cast<std::ptrdiff_t>(i));
      return block;
    }
    PL_TRY(reserve(sort, 1));
    ++made_late_;
  }
  const BlockId block = free.back();
  free.pop_back();
  return block;
}

void MemoryPool::give(BlockId block, std::vector<Token> last_uses) {
  blocks_[block].last_uses = std::move(last_uses);
  draining_[blocks_[block].sort].push_back(block);
}

void MemoryPool::settle() {
  for (auto& [sort, blocks] : draining_) {
    for (const BlockId block : blocks) {
      blocks_[block].last_uses.clear();
      free_[sort].push_back(block);
    }
    blocks.clear();
  }
}

}  // namespace plumbline::cuda

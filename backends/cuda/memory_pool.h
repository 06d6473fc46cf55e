// MemoryPool: blocks for the slots of one rank. A block that is given back is lent again once everything that used
// it has completed - never by making new work wait for old, which would add an order that the Program does not have
// and could make it hang. Blocks are made before the step where their number is known (reserve), since making one
// while streams are busy may wait for the device (N50).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "backends/cuda/device.h"
#include "engine/runtime/backend.h"

namespace plumbline::cuda {

class MemoryPool {
 public:
  explicit MemoryPool(Device device) : device_(std::move(device)) {}

  using BlockId = std::uint32_t;
  using Sort = std::pair<MemoryKind, Bytes>;  // of blocks: where, and of what size
  // So many blocks of this sort exist from now on, at least.
  Status reserve(Sort sort, std::size_t count);
  // `done` tells whether a token is.
  Result<BlockId> take(Sort sort, const std::function<bool(Token)>& done);
  std::byte* data(BlockId block) const { return blocks_[block].memory.get(); }
  // The block is free once all these are done.
  void give(BlockId block, std::vector<Token> last_uses);
  // Everything given back is free: the step is over.
  void settle();
  Bytes bytes() const { return bytes_; }                // of all blocks
  std::size_t made_late() const { return made_late_; }  // blocks that reserve() had not foreseen

 private:
  struct Block {
    Memory memory;
    Sort sort;
    std::vector<Token> last_uses;
  };
  Device device_;
  std::vector<Block> blocks_;
  std::map<Sort, std::vector<BlockId>> free_;
  std::map<Sort, std::vector<BlockId>> draining_;  // given back, maybe still in use; oldest first
  Bytes bytes_ = 0;
  std::size_t made_late_ = 0;
};

}  // namespace plumbline::cuda

// MemoryPool: blocks for the slots of one rank. A block that is given back is lent again once everything that used
// it has completed - never by making new work wait for old, which would add an order that the Program does not have
// and could make it hang. Blocks are made before the step where their number is known (reserve), since making one
// while streams are busy may wait for the device (N50).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "backends/cuda/device.h"
#include "engine/runtime/backend.h"

namespace plumbline::cuda {

class MemoryPool {
 public:
  MemoryPool(Device device, MemoryKind kind) : device_(std::move(device)), kind_(kind) {}

  using BlockId = std::uint32_t;
  // So many blocks of this size exist from now on, at least.
  Status reserve(Bytes bytes, std::size_t count);
  // `done` tells whether a token is.
  Result<BlockId> take(Bytes bytes, const std::function<bool(Token)>& done);
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
    Bytes bytes = 0;
    std::vector<Token> last_uses;
  };
  Device device_;
  MemoryKind kind_;
  std::vector<Block> blocks_;
  std::map<Bytes, std::vector<BlockId>> free_;      // by size
  std::map<Bytes, std::vector<BlockId>> draining_;  // given back, maybe still in use; oldest first
  Bytes bytes_ = 0;
  std::size_t made_late_ = 0;
};

}  // namespace plumbline::cuda

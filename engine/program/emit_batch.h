// One call of several sends and receives, as batch_isend_irecv makes it: a group a communicator, in the order of
// first use; the operations of a group keep the order of the call.
#pragma once

#include <span>
#include <vector>

#include "engine/program/lower_tables.h"
#include "engine/program/program.h"

namespace plumbline::lowering {

struct PostedOp {
  unsigned endpoint = 0;
  int microbatch = 0;
};

// Who waits for the call to be complete.
enum class BatchWait : std::uint8_t {
  kCompute,  // the compute stream (Work::wait)
  kHost,     // host and compute stream (Megatron's batch_p2p_sync)
};

// Reorders `ops`. Nothing for an empty call.
void emit_batch(std::span<PostedOp> ops, const Tables& tables, BatchWait wait, std::vector<Item>& items);

// One operation.
inline Item item_of(const PostedOp& op, const Tables& tables, unsigned flags, unsigned queue) {
  return make_item(ItemOp::kOp, op.microbatch, flags, op.endpoint, tables.stream(op.endpoint) | queue << 8);
}

}  // namespace plumbline::lowering

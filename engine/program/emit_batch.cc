#include "engine/program/emit_batch.h"

#include <algorithm>

namespace plumbline::lowering {

void emit_batch(std::span<PostedOp> ops, const Tables& tables, BatchWait wait, std::vector<Item>& items) {
  const unsigned host = wait == BatchWait::kHost ? unsigned{kHostWaits} : 0U;
  const auto stream = [&](const PostedOp& op) { return tables.stream(op.endpoint); };
  unsigned groups = 0;
  for (std::size_t begin = 0; begin < ops.size(); ++groups) {
    std::size_t next = begin + 1;
    for (std::size_t i = next; i < ops.size(); ++i) {
      if (stream(ops[i]) != stream(ops[begin])) continue;
      std::rotate(ops.begin() + static_cast<std::ptrdiff_t>(next),
                  ops.begin() + static_cast<std::ptrdiff_t>(i),
                  ops.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      ++next;
    }
    const bool single = begin == 0 && next == ops.size();
    for (std::size_t i = begin; i + 1 < next; ++i) items.push_back(item_of(ops[i], tables, kMore, 0));
    items.push_back(item_of(ops[next - 1], tables,
                            kAfterCompute | (single ? kComputeWaits | host : unsigned{kHandle}), 0));
    begin = next;
  }
  if (groups > 1) items.push_back(make_item(ItemOp::kWait, kNoMicrobatch, host, 0, groups));
}

}  // namespace plumbline::lowering

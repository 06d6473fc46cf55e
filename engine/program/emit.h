// From scripts and rows of actions to items.
#pragma once

#include <span>
#include <vector>

#include "engine/base/result.h"
#include "engine/program/lower_tables.h"
#include "engine/program/overlap.h"
#include "engine/program/program.h"
#include "engine/program/script.h"
#include "engine/schedule/dualpipe_rows.h"

namespace plumbline::lowering {

// A computation on the compute stream, behind what it needs built again.
inline void launch(const Tables& tables, KernelKind kind, int stage, int microbatch,
                   std::vector<Item>& items) {
  const unsigned again = tables.recomputation(kind, stage);
  if (again != Tables::kNoRow)
    items.push_back(make_item(ItemOp::kLaunch, microbatch, 0, again, kComputeStream));
  items.push_back(make_item(ItemOp::kLaunch, microbatch, 0, tables.kernel(kind, stage), kComputeStream));
}

// Megatron's calls of one rank. Stages of the rank: chunk * ranks + rank. `overlap` is told of every chunk pass.
struct ScriptEmission {
  int ranks = 1;
  int rank = 0;
  P2pStyle style = P2pStyle::kBatched;
  bool call_marks = false;
};
void emit_script(const Script& script, const Tables& tables, const ScriptEmission& options, Overlap& overlap,
                 std::vector<Item>& items);

// A row that lists its own communication: every send and receive is a call of its own; a computation waits for the
// receive of what it reads; sends are waited for at the end of the row. UNSHARD and RESHARD need `buffers` and mean
// something where these are sharded; a computation waits for its stage's gather.
Status emit_actions(std::span<const Action> row, const Tables& tables, const ModelBuffers* buffers,
                    Overlap& overlap, std::vector<Item>& items);

// A row of computations whose communication goes out in batches before them, as DualPipe's code does it; the compute
// stream waits for each batch. `calls` ascend.
Status emit_batched_actions(std::span<const Action> row, std::span<const DualPipeCall> calls,
                            const Tables& tables, Overlap& overlap, std::vector<Item>& items);

}  // namespace plumbline::lowering

// The counting rules of Megatron-core's pipeline schedules (megatron/core/pipeline_parallel/schedules.py,
// get_pp_rank_microbatches, get_schedule_table), and of the January-2022 interleaved schedule. Generators and
// the lowering to Megatron's calls both use them, so that nobody counts twice.
//
// P ranks, V chunks a rank, M microbatches, G group size. A virtual microbatch k in [0, M*V) runs microbatch
// table[k] of chunk chunk[k] forward, and chunk V-1-chunk[k] backward.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/base/result.h"

namespace plumbline {

struct ScheduleTable {
  std::vector<std::int32_t> microbatch;
  std::vector<std::int32_t> chunk;
};
// Groups of G microbatches, chunk by chunk inside a group; the last group is whatever is left.
ScheduleTable schedule_table(int microbatches, int chunks, int group_size);

struct WarmupCounts {
  int total = 0;      // M * V
  int warmup = 0;     // forwards before the first backward
  int remaining = 0;  // total - warmup
  bool all_warmup = false;
};
// Current rule. `interleaved` selects the V >= 2 formula (also valid for V = 1 as upstream computes it);
// `extra_forward` is the one more forward of the combined mode (MoE all-to-all overlap), which only the
// interleaved formula knows. Counts only: nothing is refused here. Without pipelining (one rank, not
// interleaved) there is no warm-up.
WarmupCounts warmup_counts(int ranks, int rank, int chunks, bool interleaved, int microbatches,
                           int group_size, bool forward_only, bool extra_forward = false);
// 2022 rule: all forwards first on every rank when M = P.
WarmupCounts warmup_counts_2022(int ranks, int rank, int chunks, int microbatches, bool forward_only);

// Which group sizes and microbatch counts the interleaved schedule refuses, with rule and fix. A group size
// of 0 means P. More than one rank is upstream's rule for its arguments, not for the order, and left to the
// configuration.
Status check_interleaved(int ranks, int chunks, int microbatches, int group_size);
Status check_interleaved_2022(int ranks, int chunks, int microbatches);

}  // namespace plumbline

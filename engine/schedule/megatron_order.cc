#include "engine/schedule/megatron_order.h"

#include <algorithm>

#include <fmt/format.h>

#include "engine/base/assert.h"

namespace plumbline {
namespace {

// Warm-up grows with the distance to the last rank, twice where activations pass the ring V times.
WarmupCounts clamp_to_total(int total, std::int64_t warmup) {
  WarmupCounts counts;
  counts.total = total;
  counts.all_warmup = warmup >= total;
  counts.warmup = counts.all_warmup ? total : static_cast<int>(warmup);
  counts.remaining = total - counts.warmup;
  return counts;
}

std::int64_t interleaved_warmup(int ranks, int rank, int chunks, int group_size) {
  return std::int64_t{2} * (ranks - rank - 1) + std::int64_t{chunks - 1} * group_size;
}

tl::unexpected<Error> refuse(std::string problem) { return fail(ErrorCode::kConfig, std::move(problem)); }

}  // namespace

ScheduleTable schedule_table(int microbatches, int chunks, int group_size) {
  PL_ASSERT(microbatches >= 0 && chunks >= 1 && group_size >= 1);
  ScheduleTable table;
  const std::size_t total = static_cast<std::size_t>(microbatches) * static_cast<std::size_t>(chunks);
  table.microbatch.reserve(total);
  table.chunk.reserve(total);
  for (std::int64_t first = 0; first < microbatches; first += group_size) {
    const std::int64_t end = std::min<std::int64_t>(first + group_size, microbatches);
    for (int chunk = 0; chunk < chunks; ++chunk) {
      for (std::int64_t m = first; m < end; ++m) {
        table.microbatch.push_back(static_cast<std::int32_t>(m));
        table.chunk.push_back(chunk);
      }
    }
  }
  return table;
}

WarmupCounts warmup_counts(int ranks, int rank, int chunks, bool interleaved, int microbatches,
                           int group_size, bool forward_only, bool extra_forward) {
  PL_ASSERT(rank >= 0 && rank < ranks && chunks >= 1 && microbatches >= 1);
  const int total = microbatches * chunks;
  if (forward_only) return clamp_to_total(total, total);
  if (!interleaved) return clamp_to_total(total, ranks - rank - 1);
  const std::int64_t warmup = interleaved_warmup(ranks, rank, chunks, group_size);
  return clamp_to_total(total, warmup + (extra_forward ? 1 : 0));
}

WarmupCounts warmup_counts_2022(int ranks, int rank, int chunks, int microbatches, bool forward_only) {
  PL_ASSERT(rank >= 0 && rank < ranks && chunks >= 1 && microbatches >= 1);
  const int total = microbatches * chunks;
  if (forward_only || microbatches == ranks) return clamp_to_total(total, total);
  return clamp_to_total(total, interleaved_warmup(ranks, rank, chunks, ranks));
}

Status check_interleaved(int ranks, int chunks, int microbatches, int group_size) {
  if (ranks < 1 || chunks < 1) {
    return refuse(fmt::format("interleaved schedule: {} ranks with {} chunks each; set at least 1 of both",
                              ranks, chunks));
  }
  const int group = group_size == 0 ? ranks : group_size;
  if (group < ranks) {
    return refuse(fmt::format(
        "interleaved schedule: the microbatch group size {} is below the pipeline size {}; set it to "
        "{} or more",
        group, ranks, ranks));
  }
  if (group > microbatches) {
    return refuse(
        fmt::format("interleaved schedule: the microbatch group size {} is above the {} microbatches; use {} "
                    "microbatches or more, or a smaller group (not below the pipeline size {})",
                    group, microbatches, group, ranks));
  }
  const int rest = microbatches % group;
  if (rest != 0 && rest < ranks) {
    return refuse(fmt::format(
        "interleaved schedule: {} microbatches in groups of {} leave {} for the last group, below the "
        "pipeline size {}; use {} or {} microbatches, or another group size",
        microbatches, group, rest, ranks, microbatches - rest, microbatches - rest + ranks));
  }
  return {};
}

Status check_interleaved_2022(int ranks, int chunks, int microbatches) {
  if (ranks < 1 || chunks < 1 || microbatches < 1) {
    return refuse(fmt::format(
        "interleaved schedule of 2022: {} ranks, {} chunks, {} microbatches; set at least 1 of each", ranks,
        chunks, microbatches));
  }
  const int rest = microbatches % ranks;
  if (rest != 0) {
    return refuse(fmt::format(
        "interleaved schedule of 2022: {} microbatches are not a multiple of the pipeline size {}; use "
        "{} or {} microbatches, or the current schedule 'interleaved'",
        microbatches, ranks, microbatches - rest == 0 ? ranks : microbatches - rest,
        microbatches - rest + ranks));
  }
  return {};
}

}  // namespace plumbline

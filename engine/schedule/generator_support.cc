#include "engine/schedule/generator_support.h"

#include <fmt/format.h>

namespace plumbline {
namespace {

constexpr std::int64_t kMaxActions = std::int64_t{1} << 30;  // 8 GiB of actions

std::int64_t actions_of(const GeneratorArgs& args, Backward backward) {
  const int per_microbatch = args.forward_only ? 1 : backward == Backward::kWhole ? 2 : 3;
  return std::int64_t{args.ranks} * args.chunks * args.microbatches * args.slices * per_microbatch;
}

}  // namespace

Status check_args(const GeneratorArgs& args, std::string_view schedule, Chunks chunks) {
  const auto refuse = [&](std::string problem) {
    return fail(ErrorCode::kConfig, fmt::format("schedule {}: {}", schedule, problem));
  };
  if (args.ranks < 1) return refuse(fmt::format("{} ranks; a pipeline has at least 1", args.ranks));
  if (args.chunks < 1) return refuse(fmt::format("{} chunks a rank; set at least 1", args.chunks));
  if (args.microbatches < 1) return refuse(fmt::format("{} microbatches; set at least 1", args.microbatches));
  if (args.slices < 1) return refuse(fmt::format("{} slices a sequence; set at least 1", args.slices));
  if (std::int64_t{args.microbatches} * args.slices > kMaxMicrobatches) {
    return refuse(fmt::format("{} microbatches{}; the limit is {}",
                              std::int64_t{args.microbatches} * args.slices,
                              args.slices == 1 ? "" : ", slices counted", kMaxMicrobatches));
  }
  if (std::int64_t{args.ranks} * args.chunks > kMaxStages) {
    return refuse(fmt::format("{} ranks x {} chunks are more than {} stages; use fewer of either", args.ranks,
                              args.chunks, kMaxStages));
  }
  const std::int64_t actions = actions_of(args, Backward::kWhole);
  if (actions > kMaxActions) {
    return refuse(fmt::format("{} actions; the limit is {}; use fewer microbatches, ranks or chunks", actions,
                              kMaxActions));
  }
  if (chunks == Chunks::kOne && args.chunks != 1) {
    return refuse(fmt::format(
        "{} chunks a rank, but this schedule has one; set chunks to 1 or take 'interleaved'", args.chunks));
  }
  if (chunks == Chunks::kTwo && args.chunks != 2) {
    return refuse(
        fmt::format("{} chunks a rank, but this schedule has two; set chunks to 2 (--vp 2)", args.chunks));
  }
  if (chunks == Chunks::kEven && args.chunks % 2 != 0) {
    return refuse(
        fmt::format("{} chunks a rank, but a wave has two; set chunks to {}", args.chunks, args.chunks + 1));
  }
  if (args.slices != 1 && schedule != "seq-1f1b") {
    return refuse(
        fmt::format("{} slices a sequence, but this schedule does not cut sequences; leave them out or "
                    "take 'seq-1f1b'",
                    args.slices));
  }
  return {};
}

Status refuse_forward_only(const GeneratorArgs& args, std::string_view schedule) {
  if (!args.forward_only) return {};
  return fail(ErrorCode::kConfig,
              fmt::format("schedule {}: it orders backwards, and a forward-only pass has none; "
                          "take 'forward-only'",
                          schedule));
}

Schedule begin_schedule(const GeneratorArgs& args, std::string_view schedule, Backward backward) {
  Schedule out;
  out.name = schedule;
  out.ranks = args.ranks;
  out.stages = args.ranks * args.chunks;
  out.microbatches = args.microbatches * args.slices;
  out.slices = args.slices;
  out.forward_only = args.forward_only;
  out.rank_of_stage = loop_placement(out.stages, out.ranks);
  out.actions.reserve(static_cast<std::size_t>(actions_of(args, backward)));
  out.offsets.reserve(static_cast<std::size_t>(args.ranks) + 1);
  return out;
}

}  // namespace plumbline

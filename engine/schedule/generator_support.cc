#include "engine/schedule/generator_support.h"

#include <fmt/format.h>

namespace plumbline {
namespace {

constexpr std::int64_t kMaxActions = std::int64_t{1} << 30;  // 8 GiB of actions

std::int64_t actions_of(const GeneratorArgs& args) {
  return std::int64_t{args.ranks} * args.chunks * args.microbatches * (args.forward_only ? 1 : 2);
}

}  // namespace

Status check_args(const GeneratorArgs& args, std::string_view schedule, Chunks chunks) {
  const auto refuse = [&](std::string problem) {
    return fail(ErrorCode::kConfig, fmt::format("schedule {}: {}", schedule, problem));
  };
  if (args.ranks < 1) return refuse(fmt::format("{} ranks; a pipeline has at least 1", args.ranks));
  if (args.chunks < 1) return refuse(fmt::format("{} chunks a rank; set at least 1", args.chunks));
  if (args.microbatches < 1) return refuse(fmt::format("{} microbatches; set at least 1", args.microbatches));
  if (args.microbatches > kMaxMicrobatches) {
    return refuse(fmt::format("{} microbatches; the limit is {}", args.microbatches, kMaxMicrobatches));
  }
  if (std::int64_t{args.ranks} * args.chunks > kMaxStages) {
    return refuse(fmt::format("{} ranks x {} chunks are more than {} stages; use fewer of either", args.ranks,
                              args.chunks, kMaxStages));
  }
  if (actions_of(args) > kMaxActions) {
    return refuse(fmt::format("{} actions; the limit is {}; use fewer microbatches, ranks or chunks",
                              actions_of(args), kMaxActions));
  }
  if (chunks == Chunks::kOne && args.chunks != 1) {
    return refuse(fmt::format(
        "{} chunks a rank, but this schedule has one; set chunks to 1 or take 'interleaved'", args.chunks));
  }
  return {};
}

Schedule begin_schedule(const GeneratorArgs& args, std::string_view schedule) {
  Schedule out;
  out.name = schedule;
  out.ranks = args.ranks;
  out.stages = args.ranks * args.chunks;
  out.microbatches = args.microbatches;
  out.forward_only = args.forward_only;
  out.rank_of_stage = loop_placement(out.stages, out.ranks);
  out.actions.reserve(static_cast<std::size_t>(actions_of(args)));
  out.offsets.reserve(static_cast<std::size_t>(args.ranks) + 1);
  return out;
}

}  // namespace plumbline

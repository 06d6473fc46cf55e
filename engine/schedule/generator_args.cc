#include "engine/schedule/generator_args.h"

#include <algorithm>

namespace plumbline {

GeneratorArgs generator_args_of(const RunConfig& config, Bytes activation) {
  GeneratorArgs args;
  args.ranks = config.parallel.pp;
  args.chunks = config.schedule.chunks;
  args.microbatches = config.schedule.microbatches;
  args.group_size = config.schedule.group_size;
  args.forward_only = config.schedule.kind == ScheduleKind::kForwardOnly;
  args.slices = config.schedule.slices;
  args.costs.forward = config.time.forward;
  args.costs.backward = config.time.backward;
  args.costs.input_grad = config.time.input_grad;
  args.costs.weight_grad = config.time.weight_grad;
  // Links between the ranks of the first replica's pipeline.
  for (int from = 0; from < args.ranks && !config.time.links.empty(); ++from) {
    for (int to = 0; to < args.ranks; ++to) {
      const Rank a = config.grid.moved(0, Axis::kPp, from), b = config.grid.moved(0, Axis::kPp, to);
      const auto known = config.time.links.find({std::min(a, b), std::max(a, b)});
      if (known == config.time.links.end()) continue;
      args.costs.hops[{from, to}] =
          known->second.latency + transfer_time(activation, known->second.bytes_per_second);
    }
  }
  const LinkConfig& link = config.time.link;
  args.costs.hop = link.latency + transfer_time(activation, link.bytes_per_second);
  if (config.schedule.activation_cap > 0) args.activations.cap = {config.schedule.activation_cap};
  return args;
}

}  // namespace plumbline

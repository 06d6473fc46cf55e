#include "engine/schedule/generator_args.h"

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
  const LinkConfig& link = config.time.link;
  args.costs.hop = link.latency + transfer_time(activation, link.bytes_per_second);
  if (config.schedule.activation_cap > 0) args.activations.cap = {config.schedule.activation_cap};
  return args;
}

}  // namespace plumbline

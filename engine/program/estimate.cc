#include "engine/program/estimate.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "engine/program/lower.h"

namespace plumbline {
namespace {

MemoryClass class_of(SlotKind kind) {
  switch (kind) {
    case SlotKind::kParameters:
      return MemoryClass::kWeights;
    case SlotKind::kMainGrads:
    case SlotKind::kTiedGrad:
      return MemoryClass::kGradients;
    case SlotKind::kSnapshot:
      return MemoryClass::kOptimizer;
    case SlotKind::kStash:
    case SlotKind::kRebuilt:
      return MemoryClass::kActivations;
    default:
      return MemoryClass::kBuffers;
  }
}

// One host thread's items in host order, as sim/verify counts them: a kernel's outputs live from its launch, a
// receive from when its group is issued; what is freed goes once the launch or the group is through. Of the two
// ways a decision may go the one that steps counts.
class Counter {
 public:
  explicit Counter(const Program& program) : program_(program) {}

  RankBytes run(std::size_t thread) {
    persistent(thread);
    note(-1);
    const std::span<const Item> items = program_.thread_items(thread);
    for (std::size_t i = 0; i < items.size();) {
      if ((item_flags(items[i]) & kArmNo) != 0) {
        ++i;
        continue;
      }
      i = step(thread, items, i);
    }
    out_.peak_text = out_.peak_item < 0
                         ? "all the time"
                         : describe_item(program_, program_.threads[thread].rank,
                                         program_.items[static_cast<std::size_t>(out_.peak_item)]);
    return out_;
  }

 private:
  using Key = std::pair<unsigned, int>;  // slot class, microbatch

  // Slots of step scope that exist from the start, of the classes this rank uses.
  void persistent(std::size_t thread) {
    std::vector<bool> used(program_.slots.size(), false);
    for (const Item item : program_.thread_items(thread)) {
      if (item_op(item) == ItemOp::kOp) used[program_.endpoints[item_ref(item)].slot] = true;
      if (item_op(item) != ItemOp::kLaunch) continue;
      const Kernel& kernel = program_.kernels[item_ref(item)];
      for (const auto* list : {&kernel.reads, &kernel.frees, &kernel.writes})
        for (const std::uint16_t slot : *list) used[slot] = true;
    }
    for (std::size_t slot = 0; slot < used.size(); ++slot)
      if (used[slot] && program_.slots[slot].persistent) add(static_cast<unsigned>(slot), 1);
  }

  std::size_t step(std::size_t thread, std::span<const Item> items, std::size_t i) {
    const std::int64_t index = static_cast<std::int64_t>(program_.threads[thread].begin);
    const Item item = items[i];
    if (item_op(item) == ItemOp::kLaunch) {
      const Kernel& kernel = program_.kernels[item_ref(item)];
      for (const std::uint16_t slot : kernel.writes) allocate(slot, item_microbatch(item));
      note(index + static_cast<std::int64_t>(i));
      for (const std::uint16_t slot : kernel.frees) release(slot, item_microbatch(item));
      return i + 1;
    }
    if (item_op(item) == ItemOp::kFree) release(item_ref(item), item_microbatch(item));
    if (item_op(item) != ItemOp::kOp) return i + 1;
    std::size_t end = i;
    while (end + 1 < items.size() && (item_flags(items[end]) & kMore) != 0) ++end;
    for (std::size_t at = i; at <= end; ++at) {
      const Endpoint& endpoint = program_.endpoints[item_ref(items[at])];
      if (endpoint.kind != EndpointKind::kRecv) continue;
      allocate(endpoint.slot, item_microbatch(items[at]));
      note(index + static_cast<std::int64_t>(at));
    }
    for (std::size_t at = i; at <= end; ++at) {
      const Endpoint& endpoint = program_.endpoints[item_ref(items[at])];
      if (endpoint.free_after) release(endpoint.slot, item_microbatch(items[at]));
    }
    return end + 1;
  }

  void add(unsigned slot, Bytes times) {
    const SlotClass& row = program_.slots[slot];
    live_[static_cast<std::size_t>(class_of(row.kind))] += times * row.bytes;
    if (row.kind == SlotKind::kRebuilt) rebuilt_ += times * row.bytes;
    total_ += times * row.bytes;
  }
  void allocate(unsigned slot, int microbatch) {
    const SlotClass& row = program_.slots[slot];
    if (row.persistent ||
        !held_.emplace(Key{slot, row.per_microbatch ? microbatch : kNoMicrobatch}, true).second)
      return;
    add(slot, 1);
  }
  void release(unsigned slot, int microbatch) {
    const SlotClass& row = program_.slots[slot];
    if (row.persistent || held_.erase(Key{slot, row.per_microbatch ? microbatch : kNoMicrobatch}) == 0)
      return;
    add(slot, -1);
  }
  void note(std::int64_t item) {
    if (item >= 0 && total_ <= out_.peak) return;
    out_.peak = total_;
    out_.at_peak = live_;
    out_.rebuilt = rebuilt_;
    out_.peak_item = item;
  }

  const Program& program_;
  std::map<Key, bool> held_;
  std::array<Bytes, kMemoryClasses> live_{};
  Bytes total_ = 0, rebuilt_ = 0;
  RankBytes out_;
};

double kept_share(const OptimizerConfig& optimizer) {
  return optimizer.cpu_offload ? 1.0 - optimizer.offload_fraction : 1.0;
}

Bytes bytes_of(Precision precision) { return precision == Precision::kFp32 ? 4 : 2; }

// Parameters of a rank's stages, and how many of them it keeps states for.
struct Elements {
  std::int64_t all = 0, states = 0;
};

// Experts have replicas of their own: what is left of the ranks of a stage when they are spread over ep x etp of them.
Result<Elements> elements_of(const RunConfig& config, const ModelShape& shape, const Schedule& schedule,
                             int rank) {
  Elements out;
  const int replicas = config.grid.dp();
  const int of_experts = std::max(1, replicas * shape.tp / (shape.ep * shape.etp));
  int chunk = 0;
  for (const int stage : schedule.stages_of_rank(rank)) {
    for (const auto& [tensors, copies] : {std::pair{dense_tensors(shape, stage), replicas},
                                          std::pair{expert_tensors(shape, stage), of_experts}}) {
      const Result<ParamLayout> layout =
          ParamLayout::create(tensors, param_layout_options(config.optimizer, copies, rank, chunk));
      if (!layout) return tl::unexpected(layout.error());
      for (const ParamSize& tensor : tensors) out.all += tensor.numel;
      out.states += config.optimizer.distributed ? layout->numel() / copies : layout->numel();
    }
    ++chunk;
  }
  return out;
}

// Gradients and states are shared out over the ranks of context parallelism too: they have the same parameters.
Result<RunConfig> with_context_replicas(const RunConfig& config, const ModelShape& shape) {
  RunConfig out = config;
  out.parallel.dp *= shape.cp;
  const ParallelConfig& p = out.parallel;
  const Result<RankGrid> grid = RankGrid::create({p.tp, p.cp, p.ep, p.dp, p.pp}, p.order);
  if (!grid) return tl::unexpected(grid.error());
  out.grid = *grid;
  return out;
}

}  // namespace

std::string_view memory_class_name(MemoryClass kind) {
  static constexpr std::array<std::string_view, kMemoryClasses> names{"weights", "gradients", "optimizer",
                                                                      "activations", "buffers"};
  return names[static_cast<std::size_t>(kind)];
}

std::vector<RankBytes> slot_memory(const Program& program) {
  std::vector<RankBytes> out;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::size_t> known;  // ranges that ranks share
  for (std::size_t thread = 0; thread < program.threads.size(); ++thread) {
    const Thread& row = program.threads[thread];
    const auto [found, fresh] = known.emplace(std::pair{row.begin, row.end}, out.size());
    out.push_back(fresh ? Counter(program).run(thread) : out[found->second]);
  }
  return out;
}

Bytes weight_bytes(const RunConfig& config, std::int64_t elements) {
  return elements * bytes_of(config.train.precision);
}

Bytes optimizer_bytes(const RunConfig& config, std::int64_t sharded) {
  const OptimizerConfig& optimizer = config.optimizer;
  const bool half = config.train.precision != Precision::kFp32;
  const bool aware = optimizer.precision_aware;
  Bytes each = half ? (aware ? bytes_of(optimizer.main_params) : 4) : 0;
  if (optimizer.rule == OptimizerRule::kAdam)
    each += aware ? bytes_of(optimizer.exp_avg) + bytes_of(optimizer.exp_avg_sq) : 8;
  if (optimizer.rule == OptimizerRule::kSgd && optimizer.momentum > 0.0) each += 4;
  return static_cast<Bytes>(static_cast<double>(sharded * each) * kept_share(optimizer));
}

Result<MemoryEstimate> estimate_memory(const RunConfig& given, const ModelShape& shape) {
  const Result<RunConfig> with_replicas = with_context_replicas(given, shape);
  if (!with_replicas) return tl::unexpected(with_replicas.error());
  const RunConfig& config = *with_replicas;
  const Result<Schedule> schedule = schedule_of(config);
  if (!schedule) return tl::unexpected(schedule.error());
  if (schedule->stages != static_cast<int>(shape.stages.size())) {
    return fail(ErrorCode::kConfig,
                fmt::format("the schedule has {} stages, the model's layout {}; they must be equal",
                            schedule->stages, shape.stages.size()));
  }
  const ModelSizes sizes = sizes_of(shape);
  const Result<Program> program = lower(config, *schedule, sizes);
  if (!program) return tl::unexpected(program.error());
  const std::vector<RankBytes> slots = slot_memory(*program);
  MemoryEstimate out;
  out.schedule = schedule->name;
  out.parameters = parameters_of(shape);
  for (int rank = 0; rank < schedule->ranks; ++rank) {
    const Rank world = config.grid.moved(0, Axis::kPp, rank);
    RankBytes bytes = slots[static_cast<std::size_t>(world)];
    const Result<Elements> elements = elements_of(config, shape, *schedule, rank);
    if (!elements) return tl::unexpected(elements.error());
    const auto add = [&](MemoryClass kind, Bytes more) {
      bytes.at_peak[static_cast<std::size_t>(kind)] += more;
      bytes.peak += more;
    };
    // With the distributed optimizer the parameters are slots already.
    if (bytes.of(MemoryClass::kWeights) == 0) add(MemoryClass::kWeights, weight_bytes(config, elements->all));
    add(MemoryClass::kOptimizer, optimizer_bytes(config, elements->states));
    out.ranks.push_back(std::move(bytes));
    if (out.ranks.back().peak > out.ranks[static_cast<std::size_t>(out.largest)].peak) out.largest = rank;
  }
  return out;
}

}  // namespace plumbline

#include "engine/program/model_buffers.h"

#include <algorithm>

#include <fmt/format.h>

namespace plumbline::lowering {
namespace {

constexpr Bytes kGradientElement = 4;  // fp32

// Place of the stage among those of its rank.
int chunk_of(const Schedule& schedule, int stage) {
  const std::int32_t rank = schedule.rank_of_stage[static_cast<std::size_t>(stage)];
  if (rank < 0) return 0;
  const std::vector<int> held = schedule.stages_of_rank(rank);
  return static_cast<int>(std::find(held.begin(), held.end(), stage) - held.begin());
}

// A model that only gives bytes has one tensor a stage, which nothing shares.
std::vector<ParamSize> tensors_of(const ModelSizes& sizes, std::size_t stage) {
  if (!sizes.tensors.empty()) return sizes.tensors[stage];
  const std::int64_t elements = sizes.grads[stage] / kGradientElement;
  return elements > 0 ? std::vector<ParamSize>{{elements, false}} : std::vector<ParamSize>{};
}

Status check_tensors(const ModelSizes& sizes, std::size_t stage, const std::vector<ParamSize>& tensors) {
  Bytes bytes = 0;
  for (const ParamSize& tensor : tensors) bytes += tensor.numel * kGradientElement;
  if (bytes == sizes.grads[stage]) return {};
  return fail(
      ErrorCode::kConfig,
      fmt::format("stage {} has {} bytes of gradients, its parameter tensors {}; the model's sizes() must "
                  "list every tensor",
                  stage, sizes.grads[stage], bytes));
}

// The sets of ranks that hold the same stages, where these are more than one rank.
Result<std::vector<std::vector<int>>> copy_holders(const Schedule& schedule) {
  std::vector<std::vector<int>> out;
  if (schedule.pipelines() == 1) return out;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const std::vector<int> held = schedule.stages_of_rank(rank);
    std::vector<int> holders;
    for (int other = 0; other < schedule.ranks; ++other) {
      const std::vector<int> theirs = schedule.stages_of_rank(other);
      if (theirs == held) {
        holders.push_back(other);
        continue;
      }
      const auto shared = std::find_if(held.begin(), held.end(), [&](int stage) {
        return std::find(theirs.begin(), theirs.end(), stage) != theirs.end();
      });
      if (shared == held.end()) continue;
      return fail(
          ErrorCode::kUnsupported,
          fmt::format("ranks {} and {} both hold stage {}, but not the same stages otherwise; the copies' "
                      "gradients are added over ranks with equal sets of stages",
                      rank, other, *shared));
    }
    if (holders.size() > 1 && holders.front() == rank) out.push_back(std::move(holders));
  }
  return out;
}

bool lists(const Schedule& schedule, ActionKind kind) {
  return std::any_of(schedule.actions.begin(), schedule.actions.end(),
                     [kind](const Action& action) { return action.kind == kind; });
}

}  // namespace

// Options of the gradients' and parameters' synchronisation that do not go with this schedule.
Status ModelBuffers::check_sync(const RunConfig& config, const Schedule& schedule) const {
  if (sharded_ && config.optimizer.overlap_param_gather) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("schedule {} gathers parameters by UNSHARD; leave out --overlap-param-gather",
                            schedule.name));
  }
  return {};
}

Result<ModelBuffers> ModelBuffers::create(const RunConfig& config, const Schedule& schedule,
                                          const ModelSizes& sizes) {
  ModelBuffers out;
  out.distributed_ = config.optimizer.distributed;
  out.replicas_ = config.grid.dp();
  out.sharded_ = out.distributed_ && out.replicas_ > 1 && lists(schedule, ActionKind::kUnshard);
  out.parameter_type_ = sizes.activation_dtype;
  if (!sizes.tensors.empty() && sizes.tensors.size() != sizes.grads.size()) {
    return fail(ErrorCode::kConfig, fmt::format("the model lists parameter tensors of {} stages, it has {}",
                                                sizes.tensors.size(), sizes.grads.size()));
  }
  auto holders = copy_holders(schedule);
  if (!holders) return tl::unexpected(holders.error());
  out.holders_ = std::move(*holders);
  PL_TRY(out.check_sync(config, schedule));
  for (int stage = 0; stage < schedule.stages; ++stage) {
    const std::vector<ParamSize> tensors = tensors_of(sizes, index(stage));
    PL_TRY(check_tensors(sizes, index(stage), tensors));
    Result<ParamLayout> layout = ParamLayout::create(
        tensors, param_layout_options(config.optimizer, out.replicas_, schedule.rank_of_stage[index(stage)],
                                      chunk_of(schedule, stage)));
    if (!layout) return tl::unexpected(layout.error());
    Row row;
    row.layout = std::move(*layout);
    const auto tied = std::find_if(tensors.begin(), tensors.end(),
                                   [](const ParamSize& tensor) { return tensor.shared_embedding; });
    if (tied != tensors.end()) {
      const ParamPlace& place = row.layout.place(static_cast<int>(tied - tensors.begin()));
      row.tied_bytes =
          kGradientElement * (out.distributed_ ? row.layout.shard_numel(place.bucket) : tied->numel);
    } else if (!out.distributed_) {
      row.tied_bytes = sizes.tied_grad;
    }
    out.rows_.push_back(std::move(row));
  }
  return out;
}

void ModelBuffers::add_slots(Program& program, bool gradients) {
  const auto add = [&](SlotKind kind, const char* name, std::size_t stage, DType dtype) {
    program.slots.push_back({fmt::format("{}.{}", name, stage), kind, dtype,
                             static_cast<std::uint16_t>(stage), false, true,
                             rows_[stage].layout.numel() * dtype_bytes(dtype)});
    return static_cast<std::uint16_t>(program.slots.size() - 1);
  };
  has_gradients_ = gradients;
  for (std::size_t stage = 0; stage < rows_.size(); ++stage) {
    if (gradients) rows_[stage].gradients = add(SlotKind::kMainGrads, "main_grads", stage, DType::kF32);
    if (distributed_) rows_[stage].parameters = add(SlotKind::kParameters, "params", stage, parameter_type_);
    if (sharded_) {
      program.slots.back().persistent = false;
      rows_[stage].shard = add(SlotKind::kParameterShard, "shard", stage, parameter_type_);
      program.slots.back().bytes /= replicas_;
    }
  }
}

void ModelBuffers::add_families(const RankGrid& grid, Program& program) {
  const auto add = [&](const char* name, std::vector<std::vector<Rank>> instances, std::uint16_t& family,
                       unsigned& stream) {
    program.families.push_back({name, false, std::move(instances)});
    program.streams.push_back(name);
    family = static_cast<std::uint16_t>(program.families.size() - 1);
    stream = static_cast<unsigned>(program.streams.size() - 1);
  };
  if (adds_copies()) {
    std::vector<std::vector<Rank>> groups;
    for (const auto& pipeline : grid.groups(axis_bit(Axis::kPp))) {
      for (const std::vector<int>& holders : holders_) {
        std::vector<Rank>& members = groups.emplace_back();
        for (const int holder : holders) members.push_back(pipeline[index(holder)]);
      }
    }
    add("copies", std::move(groups), copies_family_, copies_stream_);
  }
  if (adds_copies() && communicates()) {
    copies_event_ = static_cast<unsigned>(program.events.size());
    program.events.emplace_back("copies-added");
  }
  if (communicates()) add("dp", grid.groups(axis_bit(Axis::kDp)), family_, stream_);
}

unsigned ModelBuffers::add_endpoints(EndpointKind kind, std::uint16_t slot, const Row& row,
                                     Program& program) const {
  const SlotClass& slot_class = program.slots[slot];
  const auto first = static_cast<unsigned>(program.endpoints.size());
  const std::vector<BucketRange>& buckets = row.layout.buckets();
  for (std::size_t bucket = 0; bucket < buckets.size(); ++bucket) {
    Endpoint out;
    out.name = fmt::format("{}.{}", endpoint_kind_name(kind), slot_class.name);
    if (buckets.size() > 1) out.name += fmt::format(".{}", bucket);
    out.kind = kind;
    out.dtype = slot_class.dtype;
    out.family = family_;
    out.slot = slot;
    out.offset = buckets[bucket].begin * dtype_bytes(slot_class.dtype);
    out.bytes = (buckets[bucket].end - buckets[bucket].begin) * dtype_bytes(slot_class.dtype);
    program.endpoints.push_back(std::move(out));
  }
  return first;
}

void ModelBuffers::add_endpoints(int stage, Program& program) {
  Row& row = rows_[index(stage)];
  if (row.has_endpoints) return;
  row.has_endpoints = true;
  if (adds_copies()) {
    const SlotClass& sums = program.slots[row.gradients];
    row.copies = static_cast<unsigned>(program.endpoints.size());
    Endpoint out;
    out.name = "copies." + sums.name;
    out.kind = EndpointKind::kAllReduce;
    out.dtype = sums.dtype;
    out.family = copies_family_;
    out.slot = row.gradients;
    out.bytes = sums.bytes;
    program.endpoints.push_back(std::move(out));
  }
  if (!communicates()) return;
  if (has_gradients_) {
    row.reduce = add_endpoints(distributed_ ? EndpointKind::kReduceScatter : EndpointKind::kAllReduce,
                               row.gradients, row, program);
  }
  if (distributed_) row.gather = add_endpoints(EndpointKind::kAllGather, row.parameters, row, program);
  if (!sharded_) return;
  const auto kernel = [&](KernelKind kind, const char* name, RowList reads, RowList frees, RowList writes) {
    program.kernels.push_back({fmt::format("{}.{}", name, stage), kind, static_cast<std::uint16_t>(stage),
                               std::move(reads), std::move(frees), std::move(writes)});
    return static_cast<unsigned>(program.kernels.size() - 1);
  };
  row.unshard = kernel(KernelKind::kUnshard, "unshard", {row.shard}, {}, {row.parameters});
  row.reshard = kernel(KernelKind::kReshard, "reshard", {}, {row.parameters}, {});
}

std::int64_t ModelBuffers::owned(int stage) const {
  const ParamLayout& layout = rows_[index(stage)].layout;
  return distributed_ ? layout.numel() / replicas_ : layout.numel();
}

int ModelBuffers::issue(unsigned first, int stage, unsigned flags, unsigned queue,
                        std::vector<Item>& items) const {
  if (!communicates()) return 0;
  const auto buckets = static_cast<unsigned>(rows_[index(stage)].layout.buckets().size());
  for (unsigned bucket = 0; bucket < buckets; ++bucket) {
    items.push_back(
        make_item(ItemOp::kOp, kNoMicrobatch, kAfterCompute | flags, first + bucket, stream_ | queue << 8));
  }
  return static_cast<int>(buckets);
}

void ModelBuffers::add_copies(int stage, std::vector<Item>& items) const {
  if (!has_copies() || rows_[index(stage)].layout.numel() == 0) return;  // a stage without parameters
  items.push_back(make_item(ItemOp::kOp, kNoMicrobatch, kAfterCompute | kComputeWaits,
                            rows_[index(stage)].copies, copies_stream_));
}

// Every holder begins its stages in one order, or the communicator would add up different stages.
int ModelBuffers::reduce_all(int stage, unsigned flags, unsigned queue, std::vector<Item>& items) const {
  if (!adds_copies() || rows_[index(stage)].layout.numel() == 0) return reduce(stage, flags, queue, items);
  items.push_back(make_item(ItemOp::kOp, kNoMicrobatch, kAfterCompute | flags, rows_[index(stage)].copies,
                            copies_stream_ | queue << 8));
  if (!communicates()) return 1;
  items.push_back(make_item(ItemOp::kRecord, kNoMicrobatch, 0, copies_event_, copies_stream_));
  items.push_back(make_item(ItemOp::kWaitEvent, kNoMicrobatch, 0, copies_event_, stream_));
  return 1 + reduce(stage, flags, queue, items);
}

std::vector<int> ModelBuffers::holders(int rank) const {
  for (const std::vector<int>& holders : holders_) {
    if (std::find(holders.begin(), holders.end(), rank) != holders.end()) return holders;
  }
  return {rank};
}

void ModelBuffers::unshard(int stage, std::vector<Item>& items) const {
  items.push_back(make_item(ItemOp::kLaunch, kNoMicrobatch, 0, rows_[index(stage)].unshard, kComputeStream));
  gather(stage, kHandle, kSlotQueue, items);
}

void ModelBuffers::reshard(int stage, std::vector<Item>& items) const {
  items.push_back(make_item(ItemOp::kLaunch, kNoMicrobatch, 0, rows_[index(stage)].reshard, kComputeStream));
}

int ModelBuffers::reduce(int stage, unsigned flags, unsigned queue, std::vector<Item>& items) const {
  return issue(rows_[index(stage)].reduce, stage, flags, queue, items);
}

int ModelBuffers::gather(int stage, unsigned flags, unsigned queue, std::vector<Item>& items) const {
  return issue(rows_[index(stage)].gather, stage, flags, queue, items);
}

}  // namespace plumbline::lowering

#include "engine/program/tail.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "engine/base/exact_sum.h"

namespace plumbline::lowering {
namespace {

// Handles of the reductions that a speculative step does not wait for.
constexpr unsigned kAgreementQueue = 5;

std::uint16_t row16(unsigned row) { return static_cast<std::uint16_t>(row); }

Bytes bytes_of(Precision precision) { return precision == Precision::kFp32 ? 4 : 2; }

// What a step changes of one parameter's state: main copy and moments.
Bytes state_bytes(const OptimizerConfig& config) {
  const Bytes main = bytes_of(config.main_params);
  if (config.rule == OptimizerRule::kAdam)
    return main + bytes_of(config.exp_avg) + bytes_of(config.exp_avg_sq);
  return main + (config.momentum > 0.0 ? 4 : 0);
}

// First and last stage are on different ranks. Where several pipelines cross, a rank may hold both, each of another
// pipeline: then their gradients meet there, once the copies' have been added up.
bool ends_apart(const Schedule& schedule) {
  const std::vector<int> held = schedule.stages_of_rank(schedule.rank_of_stage.front());
  return std::find(held.begin(), held.end(), schedule.stages - 1) == held.end();
}

}  // namespace

Tail::Tail(const RunConfig& config, const Schedule& schedule, const ModelSizes& sizes,
           const ModelBuffers& buffers, Program& program)
    : program_(program),
      schedule_(schedule),
      buffers_(buffers),
      options_(config.optimizer),
      scaled_(config.train.precision == Precision::kFp16 || config.loss_scale.constant > 0.0),
      has_tied_(sizes.tied_grad > 0),
      tied_between_ranks_(has_tied_ && ends_apart(schedule)),
      agrees_on_norm_(config.grid.pp() > 1 || (buffers.distributed() && config.grid.dp() > 1)),
      state_element_(state_bytes(config.optimizer)) {
  families(config);
  if (tied_between_ranks_)
    tied_slot_ = slot("tied_grad", SlotKind::kTiedGrad, DType::kF32, buffers.tied_bytes(0));
  if (scaled_) {
    found_slot_ = slot("found_inf", SlotKind::kFoundInf, DType::kF32, 4);
    if (options_.post_validation) {
      local_found_slot_ = slot("local_found_inf", SlotKind::kLocalFoundInf, DType::kF32, 4);
    } else {
      program_.variables.push_back({"found_inf", found_slot_});
    }
  }
  const int words = ExactSum::kWords + (options_.log_num_zeros ? 1 : 0);
  norm_slot_ = slot("norm_sums", SlotKind::kNormSums, DType::kI64, 8 * words);
}

void Tail::families(const RunConfig& config) {
  const RankGrid& grid = config.grid;
  std::vector<Rank> world(static_cast<std::size_t>(grid.world()));
  std::iota(world.begin(), world.end(), 0);
  if (tied_between_ranks_) {
    std::vector<std::vector<Rank>> groups;
    const auto holder = [&](int pipeline, int stage) {
      return static_cast<std::size_t>(
          schedule_.rank_of_stage[static_cast<std::size_t>(pipeline * schedule_.stages + stage)]);
    };
    for (const auto& ranks : grid.groups(axis_bit(Axis::kPp))) {
      for (int pipeline = 0; pipeline < schedule_.pipelines(); ++pipeline)
        groups.push_back({ranks[holder(pipeline, 0)], ranks[holder(pipeline, schedule_.stages - 1)]});
    }
    tied_family_ = family("embedding", std::move(groups));
  }
  const bool norm_of_all = buffers_.distributed();
  if (grid.world() > 1 && (scaled_ || (agrees_on_norm_ && norm_of_all)))
    world_family_ = family("grad-stats", {world});
  if (!agrees_on_norm_) return;
  const AxisSet model_parallel = static_cast<AxisSet>(axis_bit(Axis::kPp) | axis_bit(Axis::kTp));
  norm_family_ = norm_of_all ? world_family_ : family("model-parallel", grid.groups(model_parallel));
}

unsigned Tail::family(const char* name, std::vector<std::vector<Rank>> instances) {
  program_.families.push_back({name, false, std::move(instances)});
  program_.streams.push_back(name);
  return static_cast<unsigned>(program_.families.size() - 1);
}

std::uint16_t Tail::slot(std::string name, SlotKind kind, DType dtype, Bytes bytes) {
  program_.slots.push_back({std::move(name), kind, dtype, 0, false, false, bytes});
  return row16(static_cast<unsigned>(program_.slots.size() - 1));
}

// Rows of one rank stand side by side, so the shared reductions get a row a rank.
unsigned Tail::all_reduce(int rank, unsigned family, std::uint16_t slot, ReduceOp op) {
  Endpoint out;
  out.name = fmt::format("all-reduce.{}.{}", program_.slots[slot].name, rank);
  out.kind = EndpointKind::kAllReduce;
  out.dtype = program_.slots[slot].dtype;
  out.reduce = op;
  out.family = row16(family);
  out.slot = slot;
  out.bytes = program_.slots[slot].bytes;
  program_.endpoints.push_back(std::move(out));
  return static_cast<unsigned>(program_.endpoints.size() - 1);
}

unsigned Tail::kernel(KernelKind kind, int rank, const Rows& rows, RowList reads, RowList frees,
                      RowList writes) {
  std::string name(kernel_kind_name(kind));
  std::replace(name.begin(), name.end(), '-', '_');
  const int stage = rows.stages.empty() ? 0 : rows.stages.front();
  program_.kernels.push_back({fmt::format("{}.{}", name, rank), kind, row16(static_cast<unsigned>(stage)),
                              std::move(reads), std::move(frees), std::move(writes)});
  return static_cast<unsigned>(program_.kernels.size() - 1);
}

Tail::Slots Tail::gradients(const Rows& rows) const {
  Slots out;
  for (const int stage : rows.stages) out.push_back(buffers_.gradients(stage));
  return out;
}

// What a step writes of the model: slots with the distributed optimizer alone.
Tail::Slots Tail::parameters(const Rows& rows) const {
  Slots out;
  for (const int stage : rows.stages) {
    if (buffers_.distributed()) out.push_back(buffers_.updated(stage));
  }
  return out;
}

void Tail::add_rank(int rank) {
  Rows rows{};
  rows.stages = schedule_.stages_of_rank(rank);
  rows.zero = kernel(KernelKind::kZeroGrad, rank, rows, {}, {}, gradients(rows));
  tied_rows(rank, rows);
  if (scaled_) {
    Slots written = gradients(rows);
    written.push_back(found_slot_);
    if (options_.post_validation) written.push_back(local_found_slot_);
    rows.unscale = kernel(KernelKind::kUnscaleCheck, rank, rows, gradients(rows), {}, written);
    if (program_.grid.world() > 1)
      rows.reduce_found = all_reduce(rank, world_family_, found_slot_, ReduceOp::kMax);
  }
  rows.norm = kernel(KernelKind::kNormSums, rank, rows, gradients(rows), {}, {norm_slot_});
  if (agrees_on_norm_) rows.reduce_norm = all_reduce(rank, norm_family_, norm_slot_, ReduceOp::kSum);
  if (options_.post_validation) {
    speculative_rows(rank, rows);
  } else {
    step_rows(rank, rows);
  }
  rows_.push_back(std::move(rows));
}

void Tail::tied_rows(int rank, Rows& rows) {
  Slots tied;
  for (const int stage : rows.stages) {
    if (stage == 0 || stage == schedule_.stages - 1) tied.push_back(buffers_.gradients(stage));
  }
  rows.merges_tied = has_tied_ && !tied.empty();
  rows.sends_tied = tied_between_ranks_ && rows.merges_tied;
  if (!rows.merges_tied) return;
  if (rows.sends_tied) {
    rows.collect_tied = kernel(KernelKind::kCollectTied, rank, rows, tied, {}, {tied_slot_});
    rows.reduce_tied = all_reduce(rank, tied_family_, tied_slot_, ReduceOp::kSum);
  }
  rows.merge_tied =
      kernel(KernelKind::kMergeTied, rank, rows, tied, rows.sends_tied ? Slots{tied_slot_} : Slots{}, tied);
}

void Tail::step_rows(int rank, Rows& rows) {
  Slots freed{norm_slot_};
  if (scaled_) freed.push_back(found_slot_);
  Slots read = gradients(rows);
  const Slots written = parameters(rows);
  read.insert(read.end(), written.begin(), written.end());
  rows.step = kernel(KernelKind::kOptimizerStep, rank, rows, read, freed, written);
  if (scaled_) rows.skip = kernel(KernelKind::kSkipStep, rank, rows, {}, {found_slot_}, {});
}

void Tail::speculative_rows(int rank, Rows& rows) {
  std::int64_t owned = 0;
  for (const int stage : rows.stages) owned += buffers_.owned(stage);
  const std::uint16_t snapshot =
      slot(fmt::format("snapshot.{}", rank), SlotKind::kSnapshot, DType::kU8, owned * state_element_);
  Slots read = gradients(rows);
  Slots written = parameters(rows);
  read.insert(read.end(), written.begin(), written.end());
  Slots with_snapshot = written;
  with_snapshot.push_back(snapshot);
  rows.step = kernel(KernelKind::kSpeculativeStep, rank, rows, read,
                     scaled_ ? Slots{local_found_slot_} : Slots{}, with_snapshot);
  Slots freed{norm_slot_, snapshot};
  if (scaled_) freed.push_back(found_slot_);
  rows.validate = kernel(KernelKind::kValidateStep, rank, rows, read, freed, written);
}

void Tail::launch(unsigned kernel, unsigned arm, std::vector<Item>& items) const {
  items.push_back(make_item(ItemOp::kLaunch, kNoMicrobatch, arm, kernel, kComputeStream));
}

// A reduction on its family's stream. `flags`: kComputeWaits, or kHandle for the agreement queue; and an arm.
void Tail::post(unsigned endpoint, unsigned flags, std::vector<Item>& items) const {
  const std::string& family = program_.families[program_.endpoints[endpoint].family].name;
  const auto stream = static_cast<unsigned>(
      std::find(program_.streams.begin(), program_.streams.end(), family) - program_.streams.begin());
  const unsigned queue = (flags & kHandle) != 0 ? kAgreementQueue : 0U;
  items.push_back(
      make_item(ItemOp::kOp, kNoMicrobatch, kAfterCompute | flags, endpoint, stream | queue << 8));
}

void Tail::begin(int rank, std::vector<Item>& items) const {
  launch(rows_[static_cast<std::size_t>(rank)].zero, 0, items);
}

void Tail::finish(int rank, Overlap& overlap, std::vector<Item>& items) const {
  const Rows& rows = rows_[static_cast<std::size_t>(rank)];
  reduce_gradients(rows, overlap, items);
  if (options_.post_validation) {
    step_and_validate(rows, items);
  } else {
    decide_and_step(rows, items);
  }
}

void Tail::reduce_gradients(const Rows& rows, Overlap& overlap, std::vector<Item>& items) const {
  for (const int stage : rows.stages) {
    if (!overlap.reduced(stage)) buffers_.add_copies(stage, items);
  }
  if (overlap.reduces()) {
    overlap.wait_for_reductions(items);
  } else {
    for (const int stage : rows.stages) buffers_.reduce(stage, kComputeWaits, 0, items);
  }
  if (rows.sends_tied) {
    launch(rows.collect_tied, 0, items);
    post(rows.reduce_tied, kComputeWaits, items);
  }
  if (rows.merges_tied) launch(rows.merge_tied, 0, items);
}

void Tail::decide_and_step(const Rows& rows, std::vector<Item>& items) const {
  unsigned step_arm = 0;
  if (scaled_) {
    launch(rows.unscale, 0, items);
    if (program_.grid.world() > 1) post(rows.reduce_found, kComputeWaits, items);
    items.push_back(make_item(ItemOp::kRead, kNoMicrobatch, 0, 0, 0));
    items.push_back(make_item(ItemOp::kDecide, kNoMicrobatch, 0, 0, 0));
    step_arm = kArmNo;
  }
  launch(rows.norm, step_arm, items);
  if (agrees_on_norm_) post(rows.reduce_norm, kComputeWaits | step_arm, items);
  launch(rows.step, step_arm, items);
  gather(rows, step_arm, items);
  if (scaled_) launch(rows.skip, kArmYes, items);
}

void Tail::step_and_validate(const Rows& rows, std::vector<Item>& items) const {
  unsigned kept = 0;
  const auto agree = [&](unsigned endpoint) {
    post(endpoint, kHandle, items);
    ++kept;
  };
  if (scaled_) launch(rows.unscale, 0, items);
  launch(rows.norm, 0, items);
  if (scaled_ && program_.grid.world() > 1) agree(rows.reduce_found);
  if (agrees_on_norm_) agree(rows.reduce_norm);
  launch(rows.step, 0, items);
  if (kept > 0) items.push_back(make_item(ItemOp::kWait, kNoMicrobatch, 0, kAgreementQueue, kept));
  launch(rows.validate, 0, items);
  gather(rows, 0, items);
}

void Tail::gather(const Rows& rows, unsigned arm, std::vector<Item>& items) const {
  if (!buffers_.distributed() || buffers_.sharded() || options_.overlap_param_gather) return;
  for (const int stage : rows.stages) buffers_.gather(stage, kComputeWaits | arm, 0, items);
}

}  // namespace plumbline::lowering

#include "engine/program/tail.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

namespace plumbline::lowering {
namespace {

std::uint16_t row16(unsigned row) { return static_cast<std::uint16_t>(row); }

}  // namespace

Tail::Tail(const RunConfig& config, const Schedule& schedule, const ModelSizes& sizes, Program& program)
    : program_(program),
      scaled_(config.train.precision == Precision::kFp16 || config.loss_scale.constant > 0.0),
      tied_(sizes.tied_grad > 0 && schedule.rank_of_stage.front() != schedule.rank_of_stage.back()),
      replicated_(config.grid.dp() > 1),
      pipelined_(config.grid.pp() > 1) {
  const RankGrid& grid = config.grid;
  std::vector<Rank> world(static_cast<std::size_t>(grid.world()));
  std::iota(world.begin(), world.end(), 0);
  if (replicated_) dp_family_ = family("dp", grid.groups(axis_bit(Axis::kDp)));
  if (tied_) {
    std::vector<std::vector<Rank>> groups;
    const auto holder = [&](int stage) {
      return static_cast<std::size_t>(schedule.rank_of_stage[static_cast<std::size_t>(stage)]);
    };
    for (const auto& pipeline : grid.groups(axis_bit(Axis::kPp))) {
      groups.push_back({pipeline[holder(0)], pipeline[holder(schedule.stages - 1)]});
    }
    tied_slot_ = slot("tied_grad", SlotKind::kTiedGrad, DType::kF32, sizes.tied_grad);
    reduce_tied_ =
        reduce("all-reduce.tied_grad", family("embedding", std::move(groups)), tied_slot_, ReduceOp::kSum);
  }
  if (scaled_) {
    found_slot_ = slot("found_inf", SlotKind::kFoundInf, DType::kF32, 4);
    program_.variables.push_back({"found_inf", row16(found_slot_)});
    if (grid.world() > 1)
      reduce_found_ =
          reduce("all-reduce.found_inf", family("grad-stats", {world}), found_slot_, ReduceOp::kMax);
  }
  norm_slot_ = slot("norm_sums", SlotKind::kNormSums, DType::kF64,
                    8 * static_cast<Bytes>(std::max(1, sizes.parameters)));
  if (pipelined_) {
    const AxisSet model_parallel = static_cast<AxisSet>(axis_bit(Axis::kPp) | axis_bit(Axis::kTp));
    reduce_norm_ = reduce("all-reduce.norm_sums", family("model-parallel", grid.groups(model_parallel)),
                          norm_slot_, ReduceOp::kSum);
  }
  for (int rank = 0; rank < schedule.ranks; ++rank) rows_.push_back(rank_rows(rank, schedule, sizes));
}

unsigned Tail::family(const char* name, std::vector<std::vector<Rank>> instances) {
  program_.families.push_back({name, false, std::move(instances)});
  program_.streams.push_back(name);
  return static_cast<unsigned>(program_.families.size() - 1);
}

unsigned Tail::slot(std::string name, SlotKind kind, DType dtype, Bytes bytes) {
  program_.slots.push_back({std::move(name), kind, dtype, 0, false, false, bytes});
  return static_cast<unsigned>(program_.slots.size() - 1);
}

unsigned Tail::reduce(const char* name, unsigned family, unsigned slot, ReduceOp op) {
  Endpoint out;
  out.name = name;
  out.kind = EndpointKind::kAllReduce;
  out.dtype = program_.slots[slot].dtype;
  out.reduce = op;
  out.family = row16(family);
  out.slot = row16(slot);
  out.bytes = program_.slots[slot].bytes;
  program_.endpoints.push_back(std::move(out));
  return static_cast<unsigned>(program_.endpoints.size() - 1);
}

Tail::Rows Tail::rank_rows(int rank, const Schedule& schedule, const ModelSizes& sizes) {
  Rows rows{};
  const std::vector<int> stages = schedule.stages_of_rank(rank);
  Bytes bytes = 0;
  for (const int stage : stages) bytes += sizes.grads[static_cast<std::size_t>(stage)];
  rows.holds_first = !stages.empty() && stages.front() == 0;
  rows.holds_last = !stages.empty() && stages.back() == schedule.stages - 1;
  const std::uint16_t grads =
      row16(slot(fmt::format("main_grads.{}", rank), SlotKind::kMainGrads, DType::kF32, bytes));
  const std::uint16_t tied = row16(tied_slot_);
  const std::uint16_t found = row16(found_slot_);
  const std::uint16_t norm = row16(norm_slot_);
  const auto kernel = [&](KernelKind kind, const char* name, std::vector<std::uint16_t> reads,
                          std::vector<std::uint16_t> frees, std::vector<std::uint16_t> writes) {
    const int stage = stages.empty() ? 0 : stages.front();
    program_.kernels.push_back({fmt::format("{}.{}", name, rank), kind, row16(static_cast<unsigned>(stage)),
                                std::move(reads), std::move(frees), std::move(writes)});
    return static_cast<unsigned>(program_.kernels.size() - 1);
  };
  rows.zero = kernel(KernelKind::kZeroGrad, "zero_grad", {}, {}, {});
  rows.collect = kernel(KernelKind::kCollectGrads, "collect_grads", {}, {}, {grads});
  if (replicated_)
    rows.reduce_grads =
        reduce(fmt::format("all-reduce.main_grads.{}", rank).c_str(), dp_family_, grads, ReduceOp::kSum);
  const bool merges = sizes.tied_grad > 0 && (rows.holds_first || rows.holds_last);
  if (tied_ && merges)
    rows.collect_tied = kernel(KernelKind::kCollectTied, "collect_tied", {grads}, {}, {tied});
  if (merges) {
    rows.merge_tied = kernel(KernelKind::kMergeTied, "merge_tied", {grads},
                             tied_ ? std::vector<std::uint16_t>{tied} : std::vector<std::uint16_t>{}, {});
  }
  if (scaled_) rows.unscale = kernel(KernelKind::kUnscaleCheck, "unscale_check", {grads}, {}, {found});
  rows.norm = kernel(KernelKind::kNormSums, "norm_sums", {grads}, {}, {norm});
  std::vector<std::uint16_t> used{grads, norm};
  if (scaled_) used.push_back(found);
  rows.step = kernel(KernelKind::kOptimizerStep, "optimizer_step", {}, used, {});
  if (scaled_) rows.skip = kernel(KernelKind::kSkipStep, "skip_step", {}, {grads, found}, {});
  return rows;
}

void Tail::launch(unsigned kernel, unsigned arm, std::vector<Item>& items) const {
  items.push_back(make_item(ItemOp::kLaunch, kNoMicrobatch, arm, kernel, kComputeStream));
}

void Tail::all_reduce(unsigned endpoint, unsigned arm, std::vector<Item>& items) const {
  const std::string& family = program_.families[program_.endpoints[endpoint].family].name;
  const auto stream =
      std::find(program_.streams.begin(), program_.streams.end(), family) - program_.streams.begin();
  items.push_back(make_item(ItemOp::kOp, kNoMicrobatch, kAfterCompute | kComputeWaits | arm, endpoint,
                            static_cast<unsigned>(stream)));
}

void Tail::begin(int rank, std::vector<Item>& items) const {
  launch(rows_[static_cast<std::size_t>(rank)].zero, 0, items);
}

void Tail::finish(int rank, std::vector<Item>& items) const {
  const Rows& rows = rows_[static_cast<std::size_t>(rank)];
  launch(rows.collect, 0, items);
  if (replicated_) all_reduce(rows.reduce_grads, 0, items);
  if (rows.collect_tied != 0) {
    launch(rows.collect_tied, 0, items);
    all_reduce(reduce_tied_, 0, items);
  }
  if (rows.merge_tied != 0) launch(rows.merge_tied, 0, items);
  unsigned step_arm = 0;
  if (scaled_) {
    launch(rows.unscale, 0, items);
    if (program_.grid.world() > 1) all_reduce(reduce_found_, 0, items);
    items.push_back(make_item(ItemOp::kRead, kNoMicrobatch, 0, 0, 0));
    items.push_back(make_item(ItemOp::kDecide, kNoMicrobatch, 0, 0, 0));
    step_arm = kArmNo;
  }
  launch(rows.norm, step_arm, items);
  if (pipelined_) all_reduce(reduce_norm_, step_arm, items);
  launch(rows.step, step_arm, items);
  if (scaled_) launch(rows.skip, kArmYes, items);
}

}  // namespace plumbline::lowering

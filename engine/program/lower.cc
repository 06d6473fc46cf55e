#include "engine/program/lower.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "engine/base/text.h"
#include "engine/program/emit.h"
#include "engine/program/graphs.h"
#include "engine/program/lower_tables.h"
#include "engine/program/model_buffers.h"
#include "engine/program/model_shape.h"
#include "engine/program/overlap.h"
#include "engine/program/script.h"
#include "engine/program/tail.h"
#include "engine/schedule/communicate.h"
#include "engine/schedule/csv.h"
#include "engine/schedule/dualpipe_rows.h"
#include "engine/schedule/generator.h"
#include "engine/schedule/generator_args.h"
#include "engine/schedule/torch_passes.h"

namespace plumbline {
namespace {

// Room that a step takes in most modes: a computation, its calls and a release.
constexpr std::size_t kItemsAnAction = 5;

using lowering::Overlap;
using lowering::Policy;
using lowering::Script;
using lowering::ScriptArgs;

constexpr std::string_view generator_name(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::kGpipe:
      return "gpipe";
    case ScheduleKind::kOneFOneB:
      return "1f1b";
    case ScheduleKind::kInterleaved:
      return "interleaved";
    case ScheduleKind::kInterleaved2022:
      return "interleaved-2022";
    case ScheduleKind::kForwardOnly:
      return "forward-only";
    case ScheduleKind::kCsv:
    case ScheduleKind::kGenerator:
      break;
  }
  return "?";
}

// Schedules that Megatron has no calls for: rows of actions, with their communication or in need of it.
bool is_listed(const RunConfig& config) {
  return config.schedule.kind == ScheduleKind::kCsv || config.schedule.kind == ScheduleKind::kGenerator;
}

bool has_kind(const Schedule& schedule, ActionKind kind) {
  return std::any_of(schedule.actions.begin(), schedule.actions.end(),
                     [kind](const Action& action) { return action.kind == kind; });
}

// DualPipe's own code batches its communication; with separate calls it gets torch's rule like any other order.
bool has_own_batches(const RunConfig& config, const Schedule& schedule) {
  return config.schedule.kind == ScheduleKind::kGenerator && config.schedule.p2p == P2pStyle::kBatched &&
         !schedule.forward_only && !schedule.has_communication() &&
         !has_kind(schedule, ActionKind::kUnshard) && !has_kind(schedule, ActionKind::kReduceGrad) &&
         (schedule.name == "dualpipe" || schedule.name == "dualpipe-v");
}

Script script_of(ScheduleKind kind, P2pStyle style, const ScriptArgs& args) {
  if (style == P2pStyle::kFlush) return lowering::interleaved_flush_script(args);
  if (style == P2pStyle::kOverlap && !args.forward_only) return lowering::interleaved_overlap_script(args);
  switch (kind) {
    case ScheduleKind::kGpipe:
      return args.forward_only ? lowering::plain_script(args) : lowering::gpipe_script(args);
    case ScheduleKind::kInterleaved:
      return lowering::interleaved_script(args);
    case ScheduleKind::kInterleaved2022:
      return lowering::interleaved_2022_script(args);
    default:
      return args.chunks > 1 ? lowering::interleaved_script(args) : lowering::plain_script(args);
  }
}

Policy policy_of(const RunConfig& config, const Schedule& schedule, bool listed) {
  Policy policy;
  policy.forward_only = schedule.forward_only;
  policy.split_backward =
      std::any_of(schedule.actions.begin(), schedule.actions.end(), [](const Action& action) {
        return action.kind == ActionKind::kInputGrad || action.kind == ActionKind::kWeightGrad;
      });
  policy.free_items = !listed;
  policy.recompute = config.memory.recompute != Recompute::kNone && !schedule.forward_only;
  policy.shapes = config.schedule.variable_lengths && !listed;
  // Megatron's plain forward-only loop does not deallocate; its interleaved one does (megatron.md A.3, A.6).
  const bool plain_forward = schedule.forward_only && schedule.stages == schedule.ranks &&
                             config.schedule.kind != ScheduleKind::kInterleaved &&
                             config.schedule.kind != ScheduleKind::kInterleaved2022;
  policy.deallocate = config.schedule.deallocate_outputs && !plain_forward && !listed;
  policy.loss_slot = !listed && !schedule.forward_only;
  const bool interleaved = config.schedule.kind == ScheduleKind::kInterleaved ||
                           config.schedule.kind == ScheduleKind::kInterleaved2022;
  policy.free_loss = policy.loss_slot && !interleaved && policy.deallocate;
  return policy;
}

void set_frame(const RunConfig& config, const Schedule& schedule, const LowerOptions& options,
               Program& program) {
  program.name = fmt::format("{} pp={} stages={} m={}", schedule.name, schedule.ranks, schedule.stages,
                             schedule.microbatches);
  program.grid = config.grid;
  program.stages = schedule.stages;
  program.microbatches = schedule.microbatches;
  program.fragment = options.fragment;
  for (const std::int32_t rank : schedule.rank_of_stage)
    program.rank_of_stage.push_back(static_cast<std::uint16_t>(rank));
}

// Data-parallel replicas of one pipeline coordinate share their items.
void make_threads(const std::vector<std::uint32_t>& bounds, Program& program) {
  for (Rank rank = 0; rank < program.grid.world(); ++rank) {
    const auto coordinate = static_cast<std::size_t>(program.grid.coordinate(rank, Axis::kPp));
    program.threads.push_back({rank, bounds[coordinate], bounds[coordinate + 1]});
  }
}

// Lowers one configuration; holds what its ranks share.
class Lowering {
 public:
  Lowering(const RunConfig& config, const Schedule& schedule, const ModelSizes& sizes,
           const LowerOptions& options)
      : config_(config),
        schedule_(schedule),
        sizes_(sizes),
        options_(options),
        listed_(is_listed(config)),
        batches_(has_own_batches(config, schedule)),
        listed_reductions_(has_kind(schedule, ActionKind::kReduceGrad)) {}

  Result<Program> run() {
    set_frame(config_, schedule_, options_, program_);
    for (const std::string_view name : lowering::kMarkNames) {
      if (options_.call_marks) program_.marks.emplace_back(name);
    }
    const OptimizerConfig& optimizer = config_.optimizer;
    trains_ = options_.tail == StepTail::kTrain && !schedule_.forward_only;
    gathers_ = optimizer.overlap_param_gather && (trains_ || options_.tail == StepTail::kEvaluate);
    Policy policy = policy_of(config_, schedule_, listed_);
    policy.add_gradients = trains_;
    policy.read_parameters = optimizer.distributed && (trains_ || gathers_);
    policy.read_parameters = policy.read_parameters || shards_in_evaluation();
    if (policy.add_gradients || policy.read_parameters) {
      auto buffers = lowering::ModelBuffers::create(config_, schedule_, sizes_);
      if (!buffers) return tl::unexpected(buffers.error());
      buffers_ = std::move(*buffers);
      buffers_->add_slots(program_, trains_);
    }
    tables_.emplace(config_, schedule_, sizes_, policy, buffers_ ? &*buffers_ : nullptr, program_);
    if (buffers_) buffers_->add_families(config_.grid, program_);
    if (trains_) tail_.emplace(config_, schedule_, sizes_, *buffers_, program_);
    for (int rank = 0; rank < schedule_.ranks; ++rank) rows_of(rank);
    program_.items.reserve(schedule_.actions.size() * kItemsAnAction);
    std::vector<std::uint32_t> bounds{0};
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      PL_TRY(emit(rank));
      if (program_.items.size() > 0xFFFFFFFFU)
        return fail(ErrorCode::kUnsupported, "the program has more than 2^32 items");
      bounds.push_back(static_cast<std::uint32_t>(program_.items.size()));
    }
    make_threads(bounds, program_);
    PL_TRY(validate_program(program_));
    return std::move(program_);
  }

 private:
  // A sharded model's forwards gather, whatever follows them.
  bool shards_in_evaluation() const {
    return options_.tail == StepTail::kEvaluate && config_.optimizer.distributed && config_.grid.dp() > 1 &&
           has_kind(schedule_, ActionKind::kUnshard);
  }

  void rows_of(int rank) {
    tables_->add_rank(rank);
    for (const int stage : schedule_.stages_of_rank(rank)) {
      if (buffers_) buffers_->add_endpoints(stage, program_);
    }
    if (tail_) tail_->add_rank(rank);
  }

  Script script(int rank) {
    ScriptArgs args;
    args.ranks = schedule_.ranks;
    args.rank = rank;
    args.chunks = schedule_.stages / schedule_.ranks;
    args.microbatches = schedule_.microbatches;
    args.group_size = config_.schedule.group_size > 0 ? config_.schedule.group_size : schedule_.ranks;
    args.forward_only = schedule_.forward_only;
    args.reuse = &scripts_;
    args.combined = config_.schedule.combined && !schedule_.forward_only;
    return script_of(config_.schedule.kind, config_.schedule.p2p, args);
  }

  // With the rank's chunk passes still to be filled in.
  Overlap::Plan overlap_plan(int rank) const {
    const OptimizerConfig& optimizer = config_.optimizer;
    Overlap::Plan plan;
    plan.rank = rank;
    plan.calls = !listed_;
    plan.reduces = trains_ && optimizer.overlap_grad_reduce;
    plan.gathers = gathers_;
    plan.listed_reductions = listed_ && trains_ && listed_reductions_;
    plan.align_reduce = optimizer.align_grad_reduce;
    // A forward-only pass has Megatron's hook switched off.
    plan.align_gather = optimizer.align_param_gather && trains_;
    plan.stages = schedule_.stages_of_rank(rank);
    if (plan.reduces && buffers_->has_copies()) agree(rank, plan);
    return plan;
  }

  // The order of reductions that the rank and whoever else holds its stages have in common.
  void agree(int rank, Overlap::Plan& plan) const {
    const std::vector<int> holders = buffers_->holders(rank);
    plan.agreed = order_through(holders.front());
    plan.holders_meet = holders.size() == 2 && mirrored(holders.front(), holders.back());
  }

  // A rank's stages in the order of their last B or W.
  std::vector<int> order_through(int rank) const {
    std::vector<int> order;
    const std::span<const Action> row = schedule_.row(rank);
    for (std::size_t i = row.size(); i-- > 0;) {
      if (row[i].kind != ActionKind::kBackward && row[i].kind != ActionKind::kWeightGrad) continue;
      if (std::find(order.begin(), order.end(), row[i].stage) == order.end()) order.push_back(row[i].stage);
    }
    std::reverse(order.begin(), order.end());
    return order;
  }

  // Whether two ranks compute the same of the same stages in the same order: each in the other pipeline.
  bool mirrored(int one, int other) const {
    const auto same = [](const Action& a, const Action& b) { return a.kind == b.kind && a.stage == b.stage; };
    const auto computations = [&](int rank) {
      std::vector<Action> out;
      for (const Action& action : schedule_.row(rank)) {
        if (is_compute(action.kind)) out.push_back(action);
      }
      return out;
    };
    const std::vector<Action> mine = computations(one), theirs = computations(other);
    return std::equal(mine.begin(), mine.end(), theirs.begin(), theirs.end(), same);
  }

  Overlap overlap(Overlap::Plan plan) const {
    return buffers_ ? Overlap(*buffers_, std::move(plan)) : Overlap();
  }

  void begin(int rank, Overlap& overlap) {
    if (tail_) tail_->begin(rank, program_.items);
    overlap.begin(program_.items);
  }

  Status emit(int rank) {
    Overlap::Plan plan = overlap_plan(rank);
    if (listed_) {
      for (const Action& action : schedule_.row(rank)) {
        const Overlap::Pass pass{action.stage, action.microbatch};
        if (action.kind == ActionKind::kForward) plan.forwards.push_back(pass);
        if (action.kind == ActionKind::kBackward || action.kind == ActionKind::kWeightGrad)
          plan.backwards.push_back(pass);
      }
      Overlap overlapped = overlap(std::move(plan));
      begin(rank, overlapped);
      if (batches_) {
        const std::vector<DualPipeCall> calls = dualpipe_calls(schedule_, rank);
        PL_TRY(
            lowering::emit_batched_actions(schedule_.row(rank), calls, *tables_, overlapped, program_.items));
      } else {
        PL_TRY(lowering::emit_actions(schedule_.row(rank), *tables_, buffers_ ? &*buffers_ : nullptr,
                                      overlapped, program_.items));
      }
      finish(rank, overlapped);
      return {};
    }
    Script calls = script(rank);
    if (plan.gathers || plan.reduces) {
      plan.forwards = lowering::passes_of(calls, lowering::StepKind::kForward, schedule_.ranks, rank);
      plan.backwards = lowering::passes_of(calls, lowering::StepKind::kBackward, schedule_.ranks, rank);
    }
    Overlap overlapped = overlap(std::move(plan));
    begin(rank, overlapped);
    lowering::emit_script(calls, *tables_, {schedule_.ranks, rank, config_.schedule.p2p, options_.call_marks},
                          overlapped, program_.items);
    scripts_ = std::move(calls);
    finish(rank, overlapped);
    return {};
  }

  void finish(int rank, Overlap& overlap) {
    overlap.finish(program_.items);
    if (options_.call_marks && !schedule_.forward_only) {
      program_.items.push_back(
          make_item(ItemOp::kMark, kNoMicrobatch, 0, lowering::mark_of(lowering::Phase::kFinalize), 0));
    }
    if (tail_) tail_->finish(rank, overlap, program_.items);
  }

  const RunConfig& config_;
  const Schedule& schedule_;
  const ModelSizes& sizes_;
  const LowerOptions& options_;
  bool listed_;
  bool batches_;
  bool listed_reductions_;
  bool trains_ = false;
  bool gathers_ = false;
  Program program_;
  Script scripts_;  // memory of the last one
  std::optional<lowering::ModelBuffers> buffers_;
  std::optional<lowering::Tables> tables_;
  std::optional<lowering::Tail> tail_;
};

Status check_frame(const RunConfig& config, const Schedule& schedule, const ModelSizes& sizes) {
  if (schedule.ranks != config.grid.pp()) {
    return fail(ErrorCode::kConfig,
                fmt::format("the schedule has {} ranks but pipeline-model-parallel-size is {}; set it to {}",
                            schedule.ranks, config.grid.pp(), schedule.ranks));
  }
  const bool keeps_handles =
      config.schedule.p2p == P2pStyle::kFlush || config.schedule.p2p == P2pStyle::kOverlap;
  const bool one_chunk_calls = config.schedule.kind == ScheduleKind::kOneFOneB ||
                               config.schedule.kind == ScheduleKind::kGpipe ||
                               config.schedule.kind == ScheduleKind::kInterleaved2022;
  if (keeps_handles && one_chunk_calls) {
    return fail(
        ErrorCode::kConfig,
        fmt::format("schedule {} has no calls that overlap with computation; use --p2p batched or separate, "
                    "or --schedule interleaved",
                    generator_name(config.schedule.kind)));
  }
  const std::size_t stages = static_cast<std::size_t>(schedule.stages);
  if (sizes.stash.size() != stages || sizes.grads.size() != stages) {
    return fail(ErrorCode::kConfig,
                fmt::format("the model has {} stages, the schedule {}", sizes.stash.size(), schedule.stages));
  }
  if (stages * 4 > static_cast<std::size_t>(kMaxTableRows) / 2) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{} stages need more table rows than an item can name; at most {}", stages,
                            kMaxTableRows / 8));
  }
  return {};
}

}  // namespace

Result<Program> lower(const RunConfig& config, const Schedule& given, const ModelSizes& sizes,
                      LowerOptions options) {
  PL_TRY(check_frame(config, given, sizes));
  const bool listed = is_listed(config);
  Schedule with_communication;
  if (listed && !given.has_communication() && !options.fragment && !has_own_batches(config, given)) {
    auto added = add_communication(given);
    if (!added) return tl::unexpected(added.error());
    if (config.schedule.p2p == P2pStyle::kDeferred) added = defer_receives(*added);
    if (!added) return tl::unexpected(added.error());
    with_communication = std::move(*added);
  }
  Result<Program> program =
      Lowering(config, with_communication.ranks > 0 ? with_communication : given, sizes, options).run();
  // Evaluation is not worth a capture: it runs once in many steps.
  if (!program || !config.schedule.cuda_graphs || options.tail == StepTail::kEvaluate) return program;
  return with_graphs(*program);
}

Result<Program> lower_param_sync(const RunConfig& config, const Schedule& schedule, const ModelSizes& sizes) {
  PL_TRY(check_frame(config, schedule, sizes));
  auto buffers = lowering::ModelBuffers::create(config, schedule, sizes);
  if (!buffers) return tl::unexpected(buffers.error());
  Program program;
  set_frame(config, schedule, {}, program);
  program.name += " param-sync";
  const bool gathers = config.optimizer.overlap_param_gather;
  if (gathers) {
    buffers->add_slots(program, false);
    buffers->add_families(config.grid, program);
  }
  std::vector<std::uint32_t> bounds{0};
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    for (const int stage : schedule.stages_of_rank(rank)) {
      if (!gathers) continue;
      buffers->add_endpoints(stage, program);
      buffers->gather(stage, kComputeWaits, 0, program.items);
    }
    bounds.push_back(static_cast<std::uint32_t>(program.items.size()));
  }
  make_threads(bounds, program);
  PL_TRY(validate_program(program));
  return program;
}

Result<Schedule> schedule_of(const RunConfig& config, bool fragment) {
  if (config.schedule.kind == ScheduleKind::kCsv) {
    const auto text = read_file(config.schedule.csv);
    if (!text) return tl::unexpected(text.error());
    return parse_schedule_csv(*text, config.schedule.csv, {fragment});
  }
  const auto generator = find_generator(config.schedule.kind == ScheduleKind::kGenerator
                                            ? std::string_view(config.schedule.generator)
                                            : generator_name(config.schedule.kind));
  if (!generator) return tl::unexpected(generator.error());
  GeneratorArgs args = generator_args_of(config, default_sizes(config).activation);
  if (config.memory.recompute != Recompute::kNone)
    args.costs.recompute = recompute_times(model_shape(config), config.time.forward);
  auto made = (*generator)->make(args);
  if (!made || !config.optimizer.shard_parameters || !is_listed(config)) return made;
  auto sharded = add_sharding(*made);
  if (!sharded || made->pipelines() > 1 || made->forward_only) return sharded;
  return add_reductions(*sharded);
}

Result<Schedule> evaluation_schedule_of(const RunConfig& config) {
  if (is_listed(config)) {
    // The rows' own forwards in their own order: leaving the backwards out leaves every dependency in order.
    auto schedule = schedule_of(config);
    if (!schedule) return schedule;
    Schedule forward = *schedule;
    forward.forward_only = true;
    forward.actions.clear();
    forward.offsets.assign(1, 0);
    for (int rank = 0; rank < schedule->ranks; ++rank) {
      std::vector<Action> row;
      for (Action action : schedule->row(rank)) {
        action.paired = 0;
        if (action.kind == ActionKind::kForward) row.push_back(action);
      }
      forward.add_row(row);
    }
    if (has_kind(*schedule, ActionKind::kUnshard)) return add_sharding(forward);
    return forward;
  }
  const auto generator = find_generator("forward-only");
  if (!generator) return tl::unexpected(generator.error());
  GeneratorArgs args = generator_args_of(config, 0);
  args.forward_only = true;
  return (*generator)->make(args);
}

Result<Program> program_of(const RunConfig& config, const ModelSizes& sizes, LowerOptions options) {
  const auto schedule = schedule_of(config, options.fragment);
  if (!schedule) return tl::unexpected(schedule.error());
  return lower(config, *schedule, sizes, options);
}

}  // namespace plumbline

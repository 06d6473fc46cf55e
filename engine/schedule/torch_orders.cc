#include "engine/schedule/torch_orders.h"

#include <algorithm>

#include <fmt/format.h>

#include "engine/base/text.h"
#include "engine/schedule/communicate.h"
#include "engine/schedule/torch_passes.h"

namespace plumbline {
namespace {

constexpr std::string_view kZbv = "ZBVZeroBubble";
constexpr std::string_view kZb1p = "InterleavedZeroBubble";

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

std::size_t at(int index) { return static_cast<std::size_t>(index); }

void add_idle(IdleCells& idle, int rank, std::size_t before, int count) {
  auto& row = idle.before[at(rank)];
  if (count > 0) row.insert(row.end(), at(count), static_cast<std::uint32_t>(before));
}

// Forwards before the first that a backward follows directly; `hop` forwards more for each rank that is nearer the
// start.
int warmup_of(const GeneratorArgs& args, int rank, int hop) {
  const int rounds = std::max(1, args.microbatches / args.ranks);
  const std::int64_t wanted = std::int64_t{args.chunks - 1} * (args.microbatches / rounds) +
                              std::int64_t{hop} * (args.ranks - 1 - rank);
  return static_cast<int>(std::min(wanted, std::int64_t{args.microbatches} * args.chunks));
}

void idle_of_looped_bfs(const GeneratorArgs& args, IdleCells& idle) {
  for (int rank = 0; rank < args.ranks; ++rank) {
    add_idle(idle, rank, 0, rank);
    add_idle(idle, rank, at(args.chunks) * at(args.microbatches), 2 * (args.ranks - 1 - rank));
  }
}

// After the warm-up until the first backward can arrive, and one before every backward that no forward goes with.
void idle_of_interleaved(const GeneratorArgs& args, IdleCells& idle) {
  const int total = args.microbatches * args.chunks;
  for (int rank = 0; rank < args.ranks; ++rank) {
    const int warmup = warmup_of(args, rank, 2);
    add_idle(idle, rank, 0, rank);
    const int wait = args.chunks * args.ranks + 2 * (args.ranks - 1 - rank) - (warmup + rank);
    if (warmup > 0) add_idle(idle, rank, at(warmup), wait);
    for (int k = 0; k < warmup; ++k) add_idle(idle, rank, at(2 * total - warmup + k), 1);
  }
}

// torch walks the rows step by step and adds an idle step where a forward's input does not exist yet
// (_add_bubbles_to_actions; it looks at forwards only). What was computed counts from the next step on.
class Bubbles {
 public:
  Bubbles(const Schedule& schedule, const IdleCells& given)
      : schedule_(schedule),
        given_(given),
        forward_(at(schedule.stages) * at(schedule.microbatches), 0),
        rows_(at(schedule.ranks)) {}

  IdleCells run() {
    IdleCells out;
    out.before.resize(at(schedule_.ranks));
    bool going = true;
    for (int step = 1; going; ++step) {
      going = false;
      for (int rank = 0; rank < schedule_.ranks; ++rank) {
        if (rows_[at(rank)].next == schedule_.row(rank).size()) continue;
        going = true;
        take(rank, step, out);
      }
    }
    return out;
  }

 private:
  struct Row {
    std::size_t next = 0;
    std::size_t idle = 0;  // of the given ones, taken
  };

  void take(int rank, int step, IdleCells& out) {
    Row& row = rows_[at(rank)];
    const auto& given = given_.before[at(rank)];
    const bool waits = row.idle < given.size() && given[row.idle] == row.next;
    const Action& action = schedule_.row(rank)[row.next];
    if (waits) ++row.idle;
    if (waits || !has_input(action, step)) {
      add_idle(out, rank, row.next, 1);
      return;
    }
    if (action.kind == ActionKind::kForward) *done(action.stage, action.microbatch) = step;
    ++row.next;
  }

  int* done(int stage, int microbatch) {
    return &forward_[at(stage) * at(schedule_.microbatches) + at(microbatch)];
  }
  bool has_input(const Action& action, int step) {
    if (action.kind != ActionKind::kForward || action.stage == 0) return true;
    const int when = *done(action.stage - 1, action.microbatch);
    return when != 0 && when < step;
  }

  const Schedule& schedule_;
  const IdleCells& given_;
  std::vector<int> forward_;  // step of each forward, 0: not yet
  std::vector<Row> rows_;
};

IdleCells idle_of_interleaved_zb(const GeneratorArgs& args, const Schedule& schedule, IdleCells idle) {
  for (int rank = 0; rank < args.ranks; ++rank) {
    const int warmup = warmup_of(args, rank, 1);
    add_idle(idle, rank, 0, rank);
    if (warmup > 0) add_idle(idle, rank, at(warmup), args.ranks - rank - 1);
  }
  return Bubbles(schedule, idle).run();
}

// Fewer microbatches than the pattern has leave holes in it.
Status idle_of_zbv(const GeneratorArgs& args, IdleCells& idle) {
  GeneratorArgs whole = args;
  whole.microbatches = std::max(2 * args.ranks - 1, args.microbatches);
  const Generator* generator = find_generator("zb-v").value();
  const Result<Schedule> pattern = generator->make(whole);
  if (!pattern) return tl::unexpected(pattern.error());
  for (int rank = 0; rank < args.ranks; ++rank) {
    add_idle(idle, rank, 0, rank);
    std::size_t kept = 0;
    for (const Action& action : pattern->row(rank)) {
      if (action.microbatch < args.microbatches) {
        ++kept;
      } else {
        add_idle(idle, rank, kept, 1);
      }
    }
  }
  return {};
}

Result<TorchRows> rows_of(const TorchClass& known, const GeneratorArgs& args) {
  if (known.name == "1F1B" && args.microbatches < args.ranks) {
    return fail(
        ErrorCode::kConfig,
        fmt::format("torch's 1F1B takes no fewer microbatches ({}) than stages ({}); use more, or our "
                    "generator '1f1b', which takes any number",
                    args.microbatches, args.ranks));
  }
  Result<Schedule> schedule = find_generator(known.generator).value()->make(args);
  if (!schedule) return tl::unexpected(schedule.error());
  TorchRows rows{std::move(*schedule), {}};
  rows.schedule.name = known.name;
  rows.idle.before.resize(at(args.ranks));
  if (known.name == "GPipe" || known.name == "1F1B") rows.schedule = add_reductions(rows.schedule);
  if (known.name == "LoopedBFS") idle_of_looped_bfs(args, rows.idle);
  if (known.name == "Interleaved1F1B") idle_of_interleaved(args, rows.idle);
  if (known.name == kZb1p) rows.idle = idle_of_interleaved_zb(args, rows.schedule, std::move(rows.idle));
  if (known.name == kZbv) PL_TRY(idle_of_zbv(args, rows.idle));
  return rows;
}

}  // namespace

const std::vector<TorchClass>& torch_classes() {
  static const std::vector<TorchClass> all = {
      {"GPipe", "gpipe"},
      {"1F1B", "1f1b"},
      {"Interleaved1F1B", "torch-interleaved"},
      {"LoopedBFS", "torch-looped-bfs"},
      {std::string(kZb1p), "torch-interleaved-zb"},
      {std::string(kZbv), "zb-v"},
      {"DualPipeV", "dualpipe-v"},
  };
  return all;
}

Result<TorchRows> torch_compute_rows(std::string_view name, const GeneratorArgs& args) {
  std::vector<std::string> names;
  for (const TorchClass& known : torch_classes()) {
    if (lower_case(known.name) == lower_case(name)) return rows_of(known, args);
    names.push_back(known.name);
  }
  const std::string near = nearest(name, names);
  return fail(ErrorCode::kUsage, fmt::format("torch has no schedule '{}'{}; known: {}", name,
                                             near.empty() ? "" : fmt::format(", did you mean '{}'?", near),
                                             fmt::join(names, ", ")));
}

Result<Schedule> torch_lowered_rows(const Schedule& schedule, bool defer) {
  Schedule computations = schedule;
  computations.actions.clear();
  computations.offsets.assign(1, 0);
  std::vector<Action> row;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    row.clear();
    for (const Action& action : schedule.row(rank))
      if (action.kind != ActionKind::kReduceGrad) row.push_back(action);
    computations.add_row(row);
  }
  const Result<Schedule> sharded = add_sharding(computations);
  if (!sharded) return sharded;
  Result<Schedule> lowered = add_communication(add_reductions(*sharded));
  if (!lowered || !defer) return lowered;
  return defer_receives(*lowered);
}

}  // namespace plumbline

#include "engine/schedule/csv.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "engine/schedule/csv_pipelines.h"

namespace plumbline {
namespace {

// What a file's cells say about the whole: sizes, placement, direction. Filled in one pass.
class Shape {
 public:
  void see(const Action& action, int rank, const CsvCell& cell) {
    const std::size_t stage = action.stage;
    if (stage >= holder_.size()) {
      holder_.resize(stage + 1, -1);
      claim_.resize(stage + 1, Claim::kNone);
      top_stage_ = cell;
    }
    const Claim claim = claim_of(action.kind);
    if (claim > claim_[stage]) {
      claim_[stage] = claim;
      holder_[stage] = rank;
    }
    if (action.microbatch >= 0) see_microbatch(action, cell);
    const bool forward = action.kind == ActionKind::kForward || action.kind == ActionKind::kSendForward ||
                         action.kind == ActionKind::kRecvForward;
    any_forward_ = any_forward_ || forward;
    any_backward_ = any_backward_ || (takes_microbatch(action.kind) && !forward) ||
                    action.kind == ActionKind::kReduceGrad;
  }

  Status finish(const std::string& name, bool fragment, Schedule* schedule) const {
    if (holder_.empty()) {
      return fail(ErrorCode::kParse, "the schedule has no action; write one row of actions a rank",
                  Where{name, 0, 0});
    }
    if (!fragment) PL_TRY(refuse_holes(name));
    schedule->stages = static_cast<int>(holder_.size());
    schedule->microbatches = static_cast<int>(computed_.size());
    schedule->rank_of_stage = holder_;
    schedule->forward_only = any_forward_ && !any_backward_;
    return {};
  }

 private:
  // How strongly an action says that its rank holds its stage; the first of the strongest decides.
  enum class Claim : std::uint8_t { kNone, kSharding, kP2p, kCompute };

  static Claim claim_of(ActionKind kind) {
    if (is_compute(kind)) return Claim::kCompute;
    return is_p2p(kind) ? Claim::kP2p : Claim::kSharding;
  }

  void see_microbatch(const Action& action, const CsvCell& cell) {
    const std::size_t microbatch = static_cast<std::size_t>(action.microbatch);
    if (microbatch >= computed_.size()) {
      computed_.resize(microbatch + 1, false);
      top_microbatch_ = cell;
    }
    if (is_compute(action.kind)) computed_[microbatch] = true;
  }

  Status refuse_holes(const std::string& name) const {
    const auto stage =
        std::find_if(claim_.begin(), claim_.end(), [](Claim claim) { return claim != Claim::kCompute; });
    if (stage != claim_.end()) {
      return fail(
          ErrorCode::kParse,
          fmt::format(
              "stage {} is used here, but no rank computes stage {}; stages count from 0 without holes; "
              "add it, renumber, or read the file as a fragment",
              claim_.size() - 1, stage - claim_.begin()),
          Where{name, top_stage_.line, top_stage_.column});
    }
    const auto microbatch = std::find(computed_.begin(), computed_.end(), false);
    if (microbatch != computed_.end()) {
      return fail(
          ErrorCode::kParse,
          fmt::format(
              "microbatch {} is used here, but no rank computes microbatch {}; microbatches count from 0 "
              "without holes; add it, renumber, or read the file as a fragment",
              computed_.size() - 1, microbatch - computed_.begin()),
          Where{name, top_microbatch_.line, top_microbatch_.column});
    }
    return {};
  }

  std::vector<std::int32_t> holder_;  // rank of each stage, -1: none
  std::vector<Claim> claim_;          // on what ground
  std::vector<bool> computed_;        // microbatch -> some rank computes it
  CsvCell top_stage_;                 // where the largest stage was met first
  CsvCell top_microbatch_;
  bool any_forward_ = false;
  bool any_backward_ = false;
};

}  // namespace

Result<Schedule> parse_schedule_csv(std::string_view text, const std::string& name, CsvOptions options,
                                    IdleCells* idle) {
  const Result<std::vector<std::vector<CsvCell>>> rows = parse_csv_cells(text, name);
  if (!rows) return tl::unexpected(rows.error());
  Schedule schedule;
  schedule.name = name;
  Shape shape;
  Where where{name, 0, 0};
  if (idle != nullptr) idle->before.clear();
  for (const std::vector<CsvCell>& row : *rows) {
    if (idle != nullptr) idle->before.emplace_back();
    for (const CsvCell& cell : row) {
      where.line = cell.line;
      where.column = cell.column;
      const std::size_t before = schedule.actions.size();
      PL_TRY(append_cell(cell.text, where, &schedule.actions));
      for (std::size_t i = before; i < schedule.actions.size(); ++i)
        shape.see(schedule.actions[i], schedule.ranks, cell);
      if (idle != nullptr && schedule.actions.size() == before)
        idle->before.back().push_back(static_cast<std::uint32_t>(before - schedule.offsets.back()));
    }
    schedule.offsets.push_back(static_cast<std::uint32_t>(schedule.actions.size()));
    ++schedule.ranks;
  }
  PL_TRY(shape.finish(name, options.fragment, &schedule));
  if (!options.fragment) detail::infer_pipelines(schedule);
  return schedule;
}

std::string print_schedule_csv(const Schedule& schedule, bool crlf, const IdleCells* idle) {
  std::string out;
  out.reserve(schedule.actions.size() * 8);
  const std::vector<std::uint32_t> none;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const std::span<const Action> row = schedule.row(rank);
    const std::vector<std::uint32_t>& waits =
        idle == nullptr ? none : idle->before[static_cast<std::size_t>(rank)];
    std::size_t wait = 0;
    bool first = true;
    const auto comma = [&] {
      if (!first) out += ',';
      first = false;
    };
    for (std::size_t i = 0; i <= row.size(); ++i) {
      for (; wait < waits.size() && waits[wait] <= i; ++wait) comma();
      if (i == row.size()) break;
      comma();
      if (row[i].paired != 0 && i + 1 < row.size()) {
        out += print_pair(row[i], row[i + 1]);
        ++i;
      } else {
        out += print_action(row[i]);
      }
    }
    out += crlf ? "\r\n" : "\n";
  }
  return out;
}

}  // namespace plumbline

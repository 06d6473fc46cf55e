#include "reports/comparison.h"

#include <algorithm>

#include <fmt/format.h>

#include "engine/base/json_writer.h"
#include "reports/comparison_rows.h"
#include "reports/markup.h"
#include "reports/terminal_colour.h"

namespace plumbline {
namespace detail {
namespace {

WorkKind kind_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return WorkKind::kForward;
    case ActionKind::kInputGrad:
      return WorkKind::kInputGrad;
    case ActionKind::kWeightGrad:
      return WorkKind::kWeightGrad;
    default:
      return WorkKind::kBackward;
  }
}

template <typename Value>
Value largest(const std::vector<Value>& list) {
  return list.empty() ? Value{} : *std::max_element(list.begin(), list.end());
}

}  // namespace

const std::vector<std::string>& figure_titles() {
  static const std::vector<std::string> titles = {"makespan", "bubble", "stage time",
                                                  "bubble",   "held",   "bytes held"};
  return titles;
}

Figures figures_of(const ComparedSchedule& one) {
  const Evaluation& e = one.evaluation;
  return {format_duration(e.makespan),
          fmt::format("{:.1f} %", 100.0 * e.bubble()),
          format_duration(e.stage_time),
          fmt::format("{:.1f} %", 100.0 * e.stage_bubble()),
          fmt::format("{}", largest(e.peak_until_weight_grad)),
          format_bytes(largest(one.peak_bytes))};
}

int chunks_of(const Schedule& schedule) {
  std::size_t most = 1;
  for (int rank = 0; rank < schedule.ranks; ++rank)
    most = std::max(most, schedule.stages_of_rank(rank).size());
  return static_cast<int>(most);
}

std::vector<WorkBox> boxes_of(const ComparedSchedule& one, int rank) {
  const Schedule& schedule = one.schedule;
  const std::vector<int> stages = schedule.stages_of_rank(rank);
  std::vector<WorkBox> boxes;
  const std::uint32_t begin = schedule.offsets[static_cast<std::size_t>(rank)];
  const std::span<const Action> row = schedule.row(rank);
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (!is_compute(row[i].kind)) continue;
    const std::size_t index = begin + i;
    WorkBox box;
    box.start = one.times.start[index];
    box.end = one.times.end[index];
    box.kind = kind_of(row[i].kind);
    box.microbatch = row[i].microbatch;
    box.chunk = static_cast<int>(std::find(stages.begin(), stages.end(), row[i].stage) - stages.begin());
    box.pair = row[i].paired != 0 || (i > 0 && row[i - 1].paired != 0);
    const Nanoseconds again = one.times.recomputed[index];
    if (again > box.start) {
      WorkBox part = box;
      part.end = again;
      part.recompute = true;
      boxes.push_back(part);
      box.start = again;
    }
    boxes.push_back(box);
  }
  return boxes;
}

Nanoseconds longest_of(const std::vector<ComparedSchedule>& schedules) {
  Nanoseconds longest = 1;
  for (const ComparedSchedule& one : schedules) longest = std::max(longest, one.evaluation.makespan);
  return longest;
}

}  // namespace detail

namespace {

using detail::WorkBox;

class TextWriter {
 public:
  TextWriter(const std::vector<ComparedSchedule>& all, const ComparisonOptions& options)
      : all_(all), options_(options), longest_(detail::longest_of(all)) {
    int ranks = 1;
    for (const ComparedSchedule& one : all) ranks = std::max(ranks, one.schedule.ranks);
    label_ = fmt::format("rank {}", ranks - 1).size() + 1;
    const Nanoseconds room = std::max(20, options.width - static_cast<int>(label_));
    unit_ = std::max<Nanoseconds>(1, (longest_ + room - 1) / room);
  }

  std::string run() {
    table();
    out_ += fmt::format("\none character = {}\n", axis_label(unit_, std::max<Nanoseconds>(unit_ / 100, 1)));
    for (const ComparedSchedule& one : all_) {
      out_ += "\n" + paint_bold(one.name, options_.colour) + "\n";
      const int drawn = std::min(one.schedule.ranks, options_.most_ranks);
      for (int rank = 0; rank < drawn; ++rank) row(one, rank);
      if (drawn < one.schedule.ranks) out_ += fmt::format("and {} more ranks\n", one.schedule.ranks - drawn);
    }
    out_ += '\n' + legend();
    return std::move(out_);
  }

 private:
  void table() {
    std::vector<std::vector<std::string>> rows(1, {"schedule"});
    rows[0].insert(rows[0].end(), detail::figure_titles().begin(), detail::figure_titles().end());
    for (const ComparedSchedule& one : all_) {
      const detail::Figures f = detail::figures_of(one);
      rows.push_back({one.name, f.makespan, f.bubble, f.stage_time, f.stage_bubble, f.peak, f.bytes});
    }
    std::vector<std::size_t> width(rows[0].size(), 0);
    for (const auto& row : rows)
      for (std::size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
    // Figures take what they need; names are cut to what is left.
    std::size_t figures = 0;
    for (std::size_t i = 1; i < width.size(); ++i) figures += width[i] + 2;
    const std::size_t room = static_cast<std::size_t>(std::max(options_.width, 40));
    width[0] = std::min(width[0], room > figures + 8 ? room - figures : 8);
    for (const auto& row : rows) {
      out_ += fmt::format("{:<{}}", row[0].substr(0, width[0]), width[0]);
      for (std::size_t i = 1; i < row.size(); ++i) out_ += fmt::format("  {:>{}}", row[i], width[i]);
      out_ += '\n';
    }
    if (!options_.costs.empty()) out_ += options_.costs + "\n";
  }

  void row(const ComparedSchedule& one, int rank) {
    const std::size_t columns = static_cast<std::size_t>((longest_ + unit_ - 1) / unit_);
    std::vector<const WorkBox*> cells(columns, nullptr);
    std::vector<Nanoseconds> filled(columns, 0);
    const std::vector<WorkBox> boxes = detail::boxes_of(one, rank);
    for (const WorkBox& box : boxes) {
      for (Nanoseconds k = box.start / unit_; k * unit_ < box.end; ++k) {
        const Nanoseconds part = std::min(box.end, (k + 1) * unit_) - std::max(box.start, k * unit_);
        const std::size_t at = static_cast<std::size_t>(k);
        // Less than a third of a character is rounding.
        if (at >= columns || 3 * part < unit_ || part <= filled[at]) continue;
        filled[at] = part;
        cells[at] = &box;
      }
    }
    out_ += fmt::format("{:<{}}", fmt::format("rank {}", rank), label_);
    const int chunks = detail::chunks_of(one.schedule);
    std::string line;
    for (const WorkBox* box : cells) line += draw(box, chunks);
    out_ += line + "\n";
  }

  std::string draw(const WorkBox* box, int chunks) const {
    if (box == nullptr)
      return options_.colour == TerminalColour::kPlain ? "." : paint_dim("·", options_.colour);
    if (options_.colour == TerminalColour::kPlain) {
      if (box->recompute) return "r";
      return box->pair ? "#" : std::string(work_letter(box->kind));
    }
    const std::string digit = std::to_string(box->microbatch % 10);
    if (box->recompute) return paint_colour("r", kRecomputeColour, options_.colour);
    return paint_kind(digit, box->kind, box->chunk, chunks, options_.colour);
  }

  std::string legend() const {
    if (options_.colour == TerminalColour::kPlain)
      return "F forward  B backward  I input, W weight gradient  # pair  r recomputed  . idle\n";
    std::string out;
    for (const WorkKind kind :
         {WorkKind::kForward, WorkKind::kBackward, WorkKind::kInputGrad, WorkKind::kWeightGrad})
      out +=
          paint_kind(work_letter(kind), kind, 0, 1, options_.colour) + fmt::format(" {}  ", work_title(kind));
    return out + paint_colour("r", kRecomputeColour, options_.colour) +
           " recomputation  digits: microbatch\n";
  }

  const std::vector<ComparedSchedule>& all_;
  const ComparisonOptions& options_;
  Nanoseconds longest_ = 1;
  Nanoseconds unit_ = 1;
  std::size_t label_ = 0;
  std::string out_;
};

}  // namespace

std::string comparison_text(const std::vector<ComparedSchedule>& schedules,
                            const ComparisonOptions& options) {
  return TextWriter(schedules, options).run();
}

std::string comparison_json(const std::vector<ComparedSchedule>& schedules) {
  JsonWriter json;
  json.begin_object().field("plumbline", 1).key("schedules").begin_array();
  for (const ComparedSchedule& one : schedules) {
    const Evaluation& e = one.evaluation;
    json.begin_object().field("name", one.name);
    json.field("ranks", one.schedule.ranks).field("stages", one.schedule.stages);
    json.field("microbatches", one.schedule.microbatches);
    json.field("makespan_ns", e.makespan).field("bubble", e.bubble());
    json.field("stage_time_ns", e.stage_time)
        .field("stage_bubble", e.stage_bubble())
        .field("work_ns", e.work);
    const auto list = [&](const char* name, const auto& values) {
      json.key(name).begin_array();
      for (const auto value : values) json.value(value);
      json.end_array();
    };
    list("busy_ns", e.busy);
    list("held", e.peak_until_weight_grad);
    list("held_bytes", one.peak_bytes);
    json.end_object();
  }
  return json.end_array().end_object().text();
}

}  // namespace plumbline

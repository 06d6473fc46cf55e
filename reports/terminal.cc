#include "reports/terminal.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "reports/analysis.h"
#include "reports/markup.h"
#include "reports/terminal_colour.h"

namespace plumbline {
namespace {

struct Cell {
  std::int32_t event = kNoEvent;
  bool begins = false;  // the first cell of its computation
};

class Grid {
 public:
  Grid(const RunRecord& record, const StepAnalysis& step, const TerminalOptions& options)
      : record_(record), step_(step), options_(options), chunks_(record) {
    choose_unit();
    for (Rank rank = 0; rank < record.ranks; ++rank) rows_.push_back(fill_row(rank));
    for (const auto& row : rows_) {
      for (const Cell& cell : row) cell_width_ = std::max(cell_width_, label(cell).size() + 1);
    }
    name_width_ = fmt::format("rank {}", std::max(record.ranks - 1, 0)).size() + 1;
  }

  std::string run() const {
    const std::string dots(options_.colour == TerminalColour::kPlain ? "." : "·");
    std::string out = fmt::format("step {}, one cell = {}\n", step_.events.step,
                                  axis_label(unit_, std::max<Nanoseconds>(unit_ / 100, 1)));
    const std::size_t width = static_cast<std::size_t>(std::max(options_.width, 20));
    const std::size_t in_block = std::max<std::size_t>(1, (width - name_width_) / cell_width_);
    for (std::size_t begin = 0; begin < columns_; begin += in_block) {
      const std::size_t end = std::min(begin + in_block, columns_);
      if (begin > 0) out += '\n';
      out += ruler(begin, end);
      for (std::size_t rank = 0; rank < rows_.size(); ++rank) {
        out += fmt::format("{:<{}}", fmt::format("rank {}", rank), name_width_);
        for (std::size_t k = begin; k < end; ++k) out += draw(rows_[rank][k], dots);
        trim_blanks(out);
        out += '\n';
      }
    }
    return out;
  }

 private:
  const RunEvent& event(const Cell& cell) const {
    return record_.events[static_cast<std::size_t>(cell.event)];
  }

  void choose_unit() {
    Nanoseconds shortest = 0;
    for (const std::uint32_t i : step_.events.index) {
      const RunEvent& e = record_.events[i];
      if (!is_pipeline(work_kind(record_.labels[e.label])) || e.end == e.start) continue;
      shortest = shortest == 0 ? e.end - e.start : std::min(shortest, e.end - e.start);
    }
    const Nanoseconds window = std::max<Nanoseconds>(step_.time.window, 1);
    const Nanoseconds coarsest = (window + options_.most_columns - 1) / std::max(options_.most_columns, 1);
    unit_ = std::max({shortest, coarsest, Nanoseconds{1}});
    columns_ = static_cast<std::size_t>((window + unit_ - 1) / unit_);
  }

  std::vector<Cell> fill_row(Rank rank) const {
    std::vector<Cell> row(columns_);
    std::vector<Nanoseconds> filled(columns_, 0);
    for (const std::uint32_t i : step_.events.of_rank(rank)) {
      const RunEvent& e = record_.events[i];
      if (!is_pipeline(work_kind(record_.labels[e.label]))) continue;
      const Nanoseconds from = e.start - step_.time.begin, to = e.end - step_.time.begin;
      for (Nanoseconds k = from / unit_; k * unit_ < to && k < static_cast<Nanoseconds>(columns_); ++k) {
        const Nanoseconds part = std::min(to, (k + 1) * unit_) - std::max(from, k * unit_);
        const std::size_t at = static_cast<std::size_t>(k);
        // Less than a third of a cell is rounding, not occupation.
        if (part <= filled[at] || 3 * part < unit_) continue;
        filled[at] = part;
        row[at].event = static_cast<std::int32_t>(i);
      }
    }
    for (std::size_t k = 0; k < columns_; ++k) {
      row[k].begins = row[k].event != kNoEvent && (k == 0 || row[k - 1].event != row[k].event);
    }
    return row;
  }

  std::string label(const Cell& cell) const {
    if (cell.event == kNoEvent || !cell.begins) return "";
    const int chunk = chunks_.chunk(event(cell).rank, record_.labels[event(cell).label].stage);
    const std::string name = short_name(record_, event(cell));
    return chunk == 0 ? name : fmt::format("{}.{}", name, chunk);
  }

  std::string draw(const Cell& cell, const std::string& dot) const {
    const std::string blank(cell_width_, ' ');
    if (cell.event == kNoEvent) return blank.substr(1) + paint_dim(dot, options_.colour);
    const std::string text =
        cell.begins ? label(cell) : (options_.colour == TerminalColour::kPlain ? "--" : "");
    const std::string padded = fmt::format("{:>{}}", text, cell_width_ - 1);
    const EventLabel& of = record_.labels[event(cell).label];
    const std::string painted = paint_kind(padded, work_kind(of), chunks_.chunk(event(cell).rank, of.stage),
                                           chunks_.chunks(), options_.colour);
    // The gap before a computation tells it from its neighbour; inside one, colour runs through.
    if (cell.begins || options_.colour == TerminalColour::kPlain) return " " + painted;
    return paint_kind(" ", work_kind(of), chunks_.chunk(event(cell).rank, of.stage), chunks_.chunks(),
                      options_.colour) +
           painted;
  }

  std::string ruler(std::size_t begin, std::size_t end) const {
    std::string line(name_width_, ' ');
    const std::size_t digits = fmt::format("{}", columns_).size() + 1;
    const std::size_t every = (digits + cell_width_ - 1) / cell_width_;
    for (std::size_t k = begin; k < end; ++k) {
      line += fmt::format("{:>{}}", k % every == 0 ? fmt::format("{}", k) : "", cell_width_);
    }
    trim_blanks(line);
    return paint_dim(line, options_.colour) + "\n";
  }

  static void trim_blanks(std::string& line) {
    while (!line.empty() && line.back() == ' ') line.pop_back();
  }

  const RunRecord& record_;
  const StepAnalysis& step_;
  const TerminalOptions& options_;
  ChunkTable chunks_;
  Nanoseconds unit_ = 1;
  std::size_t columns_ = 0;
  std::size_t cell_width_ = 3;
  std::size_t name_width_ = 0;
  std::vector<std::vector<Cell>> rows_;
};

}  // namespace

Result<std::string> terminal_timeline(const RunRecord& record, const TerminalOptions& options) {
  const Analysis analysis = analyze(record);
  const StepAnalysis* chosen = nullptr;
  for (const StepAnalysis& step : analysis.steps) {
    if (step.events.step == options.step) chosen = &step;
  }
  if (options.step < 0 && !analysis.steps.empty())
    chosen = &analysis.steps[static_cast<std::size_t>(analysis.typical)];
  if (chosen == nullptr) {
    return fail(ErrorCode::kUsage, options.step < 0
                                       ? std::string("the record has no steps to draw")
                                       : fmt::format("step {} is not in the record", options.step));
  }
  return Grid(record, *chosen, options).run();
}

}  // namespace plumbline

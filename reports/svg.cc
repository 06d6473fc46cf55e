#include "reports/svg.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "engine/base/text.h"
#include "reports/analysis.h"
#include "reports/event_kind.h"
#include "reports/markup.h"
#include "reports/palette.h"
#include "reports/step_events.h"

namespace plumbline {
namespace {

constexpr std::size_t kMostBoxes = 100'000;
constexpr int kLeft = 64;  // room for the rank labels
constexpr int kRight = 16;
constexpr int kTop = 58;  // title and ruler
constexpr int kLegend = 34;
constexpr int kBar = 6;  // height of the communication bar

const StepEvents* choose_step(const std::vector<StepEvents>& steps, int wanted) {
  const StepEvents* chosen = nullptr;
  int training = 0;
  for (const StepEvents& step : steps) {
    if (wanted >= 0 ? step.step == wanted : !step.evaluation && !step.index.empty() && training++ < 2)
      chosen = &step;
  }
  return chosen != nullptr || wanted >= 0 || steps.empty() ? chosen : &steps.front();
}

class TimelineWriter {
 public:
  TimelineWriter(const RunRecord& record, const StepEvents& step, const SvgOptions& options)
      : record_(record), step_(step), options_(options), chunks_(record) {
    pitch_ = options.row_height + (options.communication ? kBar + 6 : 5);
    rows_ = options.last_row - options.first_row + 1;
    span_ = std::max<Nanoseconds>(step.end - step.begin, 1);
    height_ = kTop + rows_ * pitch_ + (options.legend ? kLegend : 8);
  }

  std::string run() {
    head();
    ruler();
    for (Rank rank = options_.first_row; rank <= options_.last_row; ++rank) row(rank);
    if (options_.legend) legend();
    out_ += "</svg>\n";
    return std::move(out_);
  }

 private:
  template <typename... Args>
  void put(fmt::format_string<Args...> form, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), form, std::forward<Args>(args)...);
  }

  int x(Nanoseconds time) const {
    const double share = static_cast<double>(time - step_.begin) / static_cast<double>(span_);
    return kLeft + static_cast<int>(share * (options_.width - kLeft - kRight) + 0.5);
  }

  void head() {
    put("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
        "role=\"img\">\n",
        options_.width, height_);
    const std::string title =
        options_.title.empty()
            ? fmt::format("{}: {} ranks, {} stages, {} microbatches, step {}", schedule_name(record_),
                          record_.ranks, record_.stages, record_.microbatches, step_.step)
            : options_.title;
    put("<title>{}</title>\n", escape_xml(title));
    out_ +=
        "<style>\ntext{font:12px Helvetica,Arial,sans-serif;fill:#111}\n.t{font-size:14px;font-weight:bold}\n"
        ".m{text-anchor:middle}.e{text-anchor:end}.n{font-size:11px;text-anchor:middle;pointer-events:none}\n"
        ".g{stroke:#bbb;stroke-width:1}.lane{fill:#f3f3f1}rect.b{stroke:#000;stroke-opacity:.45;stroke-width:"
        "1}\n"
        ".wait{opacity:.35}\n</style>\n"
        "<defs><pattern id=\"hatch\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\""
        " patternTransform=\"rotate(45)\"><path d=\"M0 0V6\" stroke=\"#000\" stroke-opacity=\".45\""
        " stroke-width=\"3\"/></pattern></defs>\n";
    put("<text class=\"t\" x=\"{}\" y=\"20\">{}</text>\n", kLeft, escape_xml(title));
  }

  void ruler() {
    const std::vector<Nanoseconds> ticks = axis_ticks(span_, std::max(2, options_.width / 110));
    const Nanoseconds spacing = ticks.size() > 1 ? ticks[1] : span_;
    for (const Nanoseconds t : ticks) {
      const int at = x(step_.begin + t);
      put("<path class=\"g\" d=\"M{0} 44V{1}\"/><text class=\"m\" x=\"{0}\" y=\"38\">{2}</text>\n", at,
          kTop + rows_ * pitch_, axis_label(t, spacing));
    }
  }

  void row(Rank rank) {
    const int y = kTop + (rank - options_.first_row) * pitch_;
    put("<g><text class=\"e\" x=\"{}\" y=\"{}\">rank {}</text>\n", kLeft - 8, y + options_.row_height / 2 + 4,
        rank);
    put("<rect class=\"lane\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>\n", kLeft, y,
        options_.width - kLeft - kRight, options_.row_height);
    for (const std::uint32_t i : step_.of_rank(rank)) {
      const RunEvent& e = record_.events[i];
      const WorkKind kind = work_kind(record_.labels[e.label]);
      if (!is_communication(kind)) {
        box(e, kind, y);
      } else if (options_.communication) {
        bar(e, kind, y + options_.row_height + 1);
      }
    }
    out_ += "</g>\n";
  }

  // Boxes too narrow for a border go without, or the border would be all one sees of them.
  void box(const RunEvent& e, WorkKind kind, int y) {
    seen_.insert(kind);
    const int left = x(e.start);
    const int width = std::max(1, x(e.end) - left);
    const Colour fill =
        kind_colour(kind, chunks_.chunk(e.rank, record_.labels[e.label].stage), chunks_.chunks());
    const std::string place =
        fmt::format("x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"", left, y, width, options_.row_height);
    put("<rect class=\"{}{}\" {} fill=\"{}\"><title>{}</title></rect>", width >= 3 ? "b " : "",
        work_letter(kind), place, hex_colour(fill), escape_xml(spoken_name(record_, e)));
    if (kind == WorkKind::kWeightGrad) put("<rect {} fill=\"url(#hatch)\"/>", place);
    const std::string label = e.microbatch >= 0 ? fmt::format("{}", e.microbatch) : "";
    if (!label.empty() && width >= 3 + 7 * static_cast<int>(label.size()) && options_.row_height >= 12) {
      put("<text class=\"n\" x=\"{}\" y=\"{}\" style=\"fill:{}\">{}</text>", left + width / 2,
          y + options_.row_height / 2 + 4, hex_colour(ink_on(fill)), label);
    }
    out_ += '\n';
  }

  // Waiting for the other end is pale, the transfer solid.
  void bar(const RunEvent& e, WorkKind kind, int y) {
    seen_.insert(kind);
    const std::string fill = hex_colour(kind_colour(kind));
    if (x(e.ready) > x(e.start)) {
      put("<rect class=\"wait\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>", x(e.start),
          y + 2, x(e.ready) - x(e.start), kBar - 4, fill);
    }
    put("<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" "
        "fill=\"{}\"><title>{}</title></rect>\n",
        work_letter(kind), x(e.ready), y, std::max(1, x(e.end) - x(e.ready)), kBar, fill,
        escape_xml(spoken_name(record_, e)));
  }

  void legend() {
    int at = kLeft;
    const int y = kTop + rows_ * pitch_ + 10;
    const auto entry = [&](WorkKind kind, std::string_view text) {
      put("<rect class=\"b\" x=\"{}\" y=\"{}\" width=\"14\" height=\"14\" fill=\"{}\"/>", at, y,
          hex_colour(kind_colour(kind)));
      if (kind == WorkKind::kWeightGrad) {
        put("<rect x=\"{}\" y=\"{}\" width=\"14\" height=\"14\" fill=\"url(#hatch)\"/>", at, y);
      }
      put("<text x=\"{}\" y=\"{}\">{}</text>\n", at + 20, y + 11, text);
      at += 44 + 7 * static_cast<int>(text.size());
    };
    for (const WorkKind kind : seen_) {
      if (kind == WorkKind::kRecv && seen_.count(WorkKind::kSend) != 0) continue;
      const bool p2p = kind == WorkKind::kSend || kind == WorkKind::kRecv;
      const std::string text = is_pipeline(kind) ? fmt::format("{} {}", work_letter(kind), work_title(kind))
                                                 : std::string(work_title(kind));
      entry(kind, p2p ? "send and receive (pale: waiting)" : text);
    }
    if (chunks_.chunks() > 1) put("<text x=\"{}\" y=\"{}\">lighter: later chunk</text>\n", at, y + 11);
  }

  const RunRecord& record_;
  const StepEvents& step_;
  const SvgOptions& options_;
  ChunkTable chunks_;
  int pitch_ = 0;
  int rows_ = 0;
  Nanoseconds span_ = 1;
  int height_ = 0;
  std::set<WorkKind> seen_;
  std::string out_;
};

}  // namespace

Result<std::string> timeline_svg(const RunRecord& record, const SvgOptions& options) {
  const std::vector<StepEvents> steps = step_events(record);
  const StepEvents* step = choose_step(steps, options.step);
  if (step == nullptr || record.ranks < 1) {
    return fail(ErrorCode::kUsage, options.step >= 0
                                       ? fmt::format("step {} is not in the record", options.step)
                                       : std::string("the record has no steps to draw"));
  }
  SvgOptions checked = options;
  if (checked.last_row < 0) checked.last_row = record.ranks - 1;
  if (checked.first_row < 0 || checked.first_row > checked.last_row || checked.last_row >= record.ranks) {
    return fail(ErrorCode::kUsage, fmt::format("rows {}-{} are not ranks of the record, which are 0-{}",
                                               checked.first_row, checked.last_row, record.ranks - 1));
  }
  checked.width = std::max(checked.width, kLeft + kRight + 100);
  checked.row_height = std::max(checked.row_height, 4);
  const std::size_t boxes = step->offsets[static_cast<std::size_t>(checked.last_row) + 1] -
                            step->offsets[static_cast<std::size_t>(checked.first_row)];
  if (boxes > kMostBoxes) {
    return fail(
        ErrorCode::kUnsupported,
        fmt::format(
            "{} boxes are too many for one SVG ({} at most): draw fewer ranks with --rows, or the HTML "
            "report, which draws all of them",
            boxes, kMostBoxes));
  }
  return TimelineWriter(record, *step, checked).run();
}

Status parse_rows(std::string_view text, SvgOptions& options) {
  const std::vector<std::string_view> parts = split(text, '-');
  const Result<std::int64_t> first = parse_integer(parts.front());
  const Result<std::int64_t> last = parse_integer(parts.back());
  if (parts.size() > 2 || !first || !last || *first < 0 || *last < *first || *last > 1'000'000) {
    return fail(ErrorCode::kUsage, fmt::format("'{}' is not a range of ranks (examples: 0-7, 3)", text));
  }
  options.first_row = static_cast<int>(*first);
  options.last_row = static_cast<int>(*last);
  return {};
}

}  // namespace plumbline

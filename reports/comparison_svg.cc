#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "reports/comparison.h"
#include "reports/comparison_rows.h"
#include "reports/markup.h"

namespace plumbline {
namespace {

using detail::WorkBox;

constexpr std::size_t kMostBoxes = 100'000;
constexpr int kLeft = 64;
constexpr int kRight = 16;
constexpr int kTop = 44;
constexpr int kRow = 22;
constexpr int kPitch = 26;
constexpr int kHead = 30;  // a schedule's name and figures
constexpr int kLegend = 34;

class SvgWriter {
 public:
  SvgWriter(const std::vector<ComparedSchedule>& all, const ComparisonOptions& options)
      : all_(all),
        width_(std::max(options.width, 400)),
        longest_(detail::longest_of(all)),
        costs_(options.costs) {
    height_ = kTop + kLegend;
    for (const ComparedSchedule& one : all) height_ += kHead + one.schedule.ranks * kPitch + 8;
  }

  std::string run() {
    head();
    axis();
    int y = kTop;
    for (const ComparedSchedule& one : all_) {
      panel(one, y);
      y += kHead + one.schedule.ranks * kPitch + 8;
    }
    legend(y + 8);
    return std::move(out_) + "</svg>\n";
  }

 private:
  template <typename... Args>
  void put(fmt::format_string<Args...> form, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), form, std::forward<Args>(args)...);
  }

  int x(Nanoseconds time) const {
    const double share = static_cast<double>(time) / static_cast<double>(longest_);
    return kLeft + static_cast<int>(share * (width_ - kLeft - kRight) + 0.5);
  }

  void head() {
    put("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
        "role=\"img\">\n<title>Schedules on one time axis{2}{3}</title>\n",
        width_, height_, costs_.empty() ? "" : ": ", escape_xml(costs_));
    out_ +=
        "<style>\ntext{font:12px Helvetica,Arial,sans-serif;fill:#111}\n.t{font-size:14px;font-weight:bold}\n"
        ".m{text-anchor:middle}.e{text-anchor:end}.n{font-size:11px;text-anchor:middle;pointer-events:none}\n"
        ".g{stroke:#bbb;stroke-width:1}.lane{fill:#f3f3f1}rect.b{stroke:#000;stroke-opacity:.45;stroke-width:"
        "1}\n"
        ".end{stroke:#111;stroke-width:1.5;stroke-dasharray:4 3}\n</style>\n"
        "<defs><pattern id=\"hatch\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\""
        " patternTransform=\"rotate(45)\"><path d=\"M0 0V6\" stroke=\"#000\" stroke-opacity=\".45\""
        " stroke-width=\"3\"/></pattern></defs>\n";
    put("<rect width=\"{}\" height=\"{}\" fill=\"#fff\"/>\n", width_, height_);
  }

  void axis() {
    const std::vector<Nanoseconds> ticks = axis_ticks(longest_, std::max(2, width_ / 110));
    const Nanoseconds spacing = ticks.size() > 1 ? ticks[1] : longest_;
    for (const Nanoseconds t : ticks) {
      put("<path class=\"g\" d=\"M{0} 28V{1}\"/><text class=\"m\" x=\"{0}\" y=\"22\">{2}</text>\n", x(t),
          height_ - kLegend, axis_label(t, spacing));
    }
  }

  void panel(const ComparedSchedule& one, int y) {
    const detail::Figures f = detail::figures_of(one);
    put("<g>\n<text class=\"t\" x=\"{}\" y=\"{}\">{}</text>", kLeft, y + 18, escape_xml(one.name));
    put("<text class=\"e\" x=\"{}\" y=\"{}\">makespan {}, bubble {}; stage time {}, bubble {}; holds {} "
        "({})</text>\n",
        width_ - kRight, y + 18, f.makespan, f.bubble, f.stage_time, f.stage_bubble, f.peak, f.bytes);
    const int chunks = detail::chunks_of(one.schedule);
    for (int rank = 0; rank < one.schedule.ranks; ++rank) {
      const int top = y + kHead + rank * kPitch;
      put("<text class=\"e\" x=\"{}\" y=\"{}\">rank {}</text>", kLeft - 8, top + kRow / 2 + 4, rank);
      put("<rect class=\"lane\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>\n", kLeft, top,
          width_ - kLeft - kRight, kRow);
      for (const WorkBox& box : detail::boxes_of(one, rank)) draw(box, top, chunks);
    }
    const int end = x(one.evaluation.makespan);
    put("<path class=\"end\" d=\"M{0} {1}V{2}\"/>\n</g>\n", end, y + kHead - 4,
        y + kHead + one.schedule.ranks * kPitch);
  }

  void draw(const WorkBox& box, int top, int chunks) {
    const int left = x(box.start);
    const int width = std::max(1, x(box.end) - left);
    // The halves of a pair share the lane.
    const int height = box.pair ? kRow / 2 : kRow;
    const int y = top + (box.pair && box.kind != WorkKind::kForward ? kRow / 2 : 0);
    const Colour fill = box.recompute ? kRecomputeColour : kind_colour(box.kind, box.chunk, chunks);
    const std::string place =
        fmt::format("x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"", left, y, width, height);
    put("<rect class=\"{}{}\" {} fill=\"{}\"><title>{}{} of microbatch {}, chunk {}</title></rect>",
        width >= 3 ? "b " : "", box.recompute ? "R" : work_letter(box.kind), place, hex_colour(fill),
        box.recompute ? "recomputation for the " : "", work_title(box.kind), box.microbatch, box.chunk);
    if (box.kind == WorkKind::kWeightGrad) put("<rect {} fill=\"url(#hatch)\"/>", place);
    const std::string label = std::to_string(box.microbatch);
    if (!box.recompute && width >= 3 + 7 * static_cast<int>(label.size()) && height >= 11) {
      put("<text class=\"n\" x=\"{}\" y=\"{}\" style=\"fill:{}\">{}</text>", left + width / 2,
          y + height / 2 + 4, hex_colour(ink_on(fill)), label);
    }
    out_ += '\n';
    seen_.insert(box.recompute ? -1 : static_cast<int>(box.kind));
  }

  void legend(int y) {
    int at = kLeft;
    for (const int seen : seen_) {
      const WorkKind kind = static_cast<WorkKind>(std::max(seen, 0));
      const std::string text = seen < 0 ? "recomputation" : std::string(work_title(kind));
      put("<rect class=\"b\" x=\"{}\" y=\"{}\" width=\"14\" height=\"14\" fill=\"{}\"/>", at, y,
          hex_colour(seen < 0 ? kRecomputeColour : kind_colour(kind)));
      if (seen >= 0 && kind == WorkKind::kWeightGrad)
        put("<rect x=\"{}\" y=\"{}\" width=\"14\" height=\"14\" fill=\"url(#hatch)\"/>", at, y);
      put("<text x=\"{}\" y=\"{}\">{}</text>\n", at + 20, y + 11, text);
      at += 44 + 7 * static_cast<int>(text.size());
    }
    put("<text x=\"{}\" y=\"{}\">lighter: later chunk; dashed: the schedule's end</text>\n", at, y + 11);
  }

  const std::vector<ComparedSchedule>& all_;
  int width_;
  Nanoseconds longest_;
  std::string costs_;
  int height_ = 0;
  std::set<int> seen_;  // kinds; -1: recomputation
  std::string out_;
};

}  // namespace

Result<std::string> comparison_svg(const std::vector<ComparedSchedule>& schedules,
                                   const ComparisonOptions& options) {
  std::size_t boxes = 0;
  for (const ComparedSchedule& one : schedules) boxes += one.schedule.actions.size();
  if (boxes > kMostBoxes) {
    return fail(
        ErrorCode::kUnsupported,
        fmt::format(
            "{} boxes are too many for one picture ({} at most); compare with fewer microbatches or ranks",
            boxes, kMostBoxes));
  }
  return SvgWriter(schedules, options).run();
}

Result<std::string> comparison_html(const std::vector<ComparedSchedule>& schedules,
                                    const ComparisonOptions& options) {
  const Result<std::string> svg = comparison_svg(schedules, options);
  if (!svg) return svg;
  std::string out =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta "
      "http-equiv=\"Content-Security-Policy\" "
      "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n<meta name=\"viewport\" "
      "content=\"width=device-width\">\n<title>plumbline compare</title>\n"
      "<style>body{font:14px Helvetica,Arial,sans-serif;margin:24px;color:#111;background:#fff}"
      "table{border-collapse:collapse;margin:12px 0 20px}th,td{padding:4px "
      "12px;text-align:right;border-bottom:1px solid "
      "#ddd}th:first-child,td:first-child{text-align:left}.wide{overflow-x:auto}</style>\n</head><body>\n"
      "<h1>Schedules on one time axis</h1>\n";
  if (!options.costs.empty()) out += fmt::format("<p>{}</p>\n", escape_xml(options.costs));
  out += "<table><thead><tr><th>schedule</th>";
  for (const std::string& title : detail::figure_titles()) out += fmt::format("<th>{}</th>", title);
  out += "</tr></thead><tbody>\n";
  for (const ComparedSchedule& one : schedules) {
    const detail::Figures f = detail::figures_of(one);
    out += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
        escape_xml(one.name), f.makespan, f.bubble, f.stage_time, f.stage_bubble, f.peak, f.bytes);
  }
  return out + "</tbody></table>\n<div class=\"wide\">\n" + *svg + "</div>\n</body></html>\n";
}

}  // namespace plumbline

#include "reports/ring.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "reports/markup.h"

namespace plumbline {
namespace {

constexpr std::size_t kMostBoxes = 16;
constexpr double kTurn = 6.283185307179586;
constexpr int kBoxWidth = 132;
constexpr int kBoxHeight = 46;

struct Point {
  double x = 0;
  double y = 0;
};

std::string cut(const std::string& text, std::size_t most) {
  return text.size() <= most ? text : text.substr(0, most - 1) + "…";
}

// Where the segment from the box's centre towards `to` leaves the box.
Point leave(Point box, Point to) {
  const double dx = to.x - box.x, dy = to.y - box.y;
  const double sx = dx == 0 ? 1e9 : (kBoxWidth / 2.0 + 5) / std::abs(dx);
  const double sy = dy == 0 ? 1e9 : (kBoxHeight / 2.0 + 5) / std::abs(dy);
  const double s = std::min({sx, sy, 1.0});
  return {box.x + dx * s, box.y + dy * s};
}

class Ring {
 public:
  explicit Ring(const std::vector<CycleHop>& hops) {
    for (const CycleHop& hop : hops) {
      if (rank_.size() == kMostBoxes - 1 && hops.size() > kMostBoxes) {
        rank_.push_back(fmt::format("… {} more ranks", hops.size() - kMostBoxes + 1));
        operation_.push_back("");
        break;
      }
      rank_.push_back(fmt::format("rank {}", hop.rank));
      operation_.push_back(short_operation(hop.stuck_in));
    }
    place();
  }

  std::string svg() const {
    std::string out = fmt::format(
        "<svg class=\"ring\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" role=\"img\" "
        "aria-label=\"{2}\">"
        "<defs><marker id=\"ring-head\" viewBox=\"0 0 10 10\" refX=\"8\" refY=\"5\" markerWidth=\"7\" "
        "markerHeight=\"7\" "
        "orient=\"auto-start-reverse\"><path class=\"ring-tip\" d=\"M0 0L10 5L0 10z\"/></marker></defs>\n",
        width_, height_, escape_xml(describe()));
    for (std::size_t k = 0; k < rank_.size(); ++k) out += arrow(k, (k + 1) % rank_.size());
    for (std::size_t k = 0; k < rank_.size(); ++k) out += box(k);
    return out + "</svg>\n";
  }

 private:
  void place() {
    const std::size_t n = rank_.size();
    // Wide enough that neighbours on the flat sides keep their distance.
    const double rx = n <= 2 ? 170 : std::max(170.0, static_cast<double>(n) * 27);
    const double ry = n <= 2 ? 0 : std::max(96.0, static_cast<double>(n) * 19);
    width_ = static_cast<int>(2 * rx) + kBoxWidth + 24;
    height_ = static_cast<int>(2 * ry) + kBoxHeight + (n <= 2 ? 74 : 24);
    for (std::size_t k = 0; k < n; ++k) {
      // Two ranks stand side by side, more begin at the top and run clockwise.
      const double angle =
          kTurn * static_cast<double>(k) / static_cast<double>(n) - (n <= 2 ? kTurn / 2 : kTurn / 4);
      at_.push_back({width_ / 2.0 + rx * std::cos(angle), height_ / 2.0 + ry * std::sin(angle)});
    }
  }

  std::string arrow(std::size_t from, std::size_t to) const {
    if (from == to) return "";
    const Point a = at_[from], b = at_[to];
    // Arrows bend outwards; with two ranks, that keeps there and back apart.
    const double dx = b.x - a.x, dy = b.y - a.y, length = std::max(1.0, std::hypot(dx, dy));
    const double bend = rank_.size() <= 2 ? 58 : std::min(26.0, length / 6);
    const Point control = {(a.x + b.x) / 2 + dy / length * bend, (a.y + b.y) / 2 - dx / length * bend};
    const Point start = leave(a, control), end = leave(b, control);
    return fmt::format(
        "<path class=\"ring-arrow\" marker-end=\"url(#ring-head)\" d=\"M{:.0f} {:.0f}Q{:.0f} {:.0f} {:.0f} "
        "{:.0f}\"/>\n",
        start.x, start.y, control.x, control.y, end.x, end.y);
  }

  std::string box(std::size_t k) const {
    const int x = static_cast<int>(std::lround(at_[k].x)), y = static_cast<int>(std::lround(at_[k].y));
    return fmt::format(
        "<g><rect class=\"ring-box\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"7\"/>"
        "<text class=\"ring-rank\" x=\"{}\" y=\"{}\">{}</text><text class=\"ring-op\" x=\"{}\" "
        "y=\"{}\">{}</text></g>\n",
        x - kBoxWidth / 2, y - kBoxHeight / 2, kBoxWidth, kBoxHeight, x,
        operation_[k].empty() ? y + 4 : y - 4, escape_xml(rank_[k]), x, y + 14,
        escape_xml(cut(operation_[k], 17)));
  }

  std::string describe() const {
    std::string text = "Wait-for cycle:";
    for (std::size_t k = 0; k < rank_.size(); ++k) {
      text += fmt::format(" {} in {} waits for {};", rank_[k], operation_[k], rank_[(k + 1) % rank_.size()]);
    }
    return text;
  }

  std::vector<std::string> rank_, operation_;
  std::vector<Point> at_;
  int width_ = 0;
  int height_ = 0;
};

}  // namespace

std::string ring_svg(const std::vector<CycleHop>& hops) { return hops.empty() ? "" : Ring(hops).svg(); }

}  // namespace plumbline

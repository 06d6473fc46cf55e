#include "reports/record_diff_text.h"

#include <fmt/format.h>

#include "engine/base/units.h"

namespace plumbline {

std::string record_diff_text(const RecordDiff& diff, const std::string& a, const std::string& b) {
  std::string out = fmt::format("a = {}\nb = {}\n", a, b);
  for (const std::string& line : diff.header) out += line + "\n";
  const Tolerance& tolerance = diff.tolerance;
  const bool bits = tolerance.rule == NumbersRule::kBitwise;
  out += fmt::format("numbers, by steps that both have{}:\n", bits ? "" : "; tolerance " + tolerance.why);
  for (const NumberDiff& number : diff.numbers) {
    out += fmt::format("  {:<18} {} of {} equal, bit for bit", number.what, number.equal, number.steps);
    if (number.limit > 0.0)
      out += fmt::format(", {} within {:.2g}", number.within, number.limit);
    else if (!number.judged)
      out += " (not judged)";
    if (number.first >= 0) {
      out += fmt::format("; first differs in step {}", number.first);
      if (number.a != 0.0 || number.b != 0.0)
        out +=
            fmt::format(": {:.9g} against {:.9g}, at most {:.2g} apart", number.a, number.b, number.largest);
    }
    out += "\n";
  }
  if (tolerance.parameter > 0.0)
    out += fmt::format(
        "  parameters are apart by at most {:.2g} each (Adam's steps); checkpoints tell: plumbline "
        "checkpoint "
        "diff A B --within {:.2g}\n",
        tolerance.parameter, tolerance.parameter);
  out += fmt::format("order: {} streams of ranks have the same operations in the same order\n",
                     diff.same_orders);
  for (const OrderDiff& order : diff.orders) {
    out += fmt::format("  rank {}, stream {}: after {} operations a has {}, b has {}\n", order.rank,
                       order.stream, order.operations, order.a.empty() ? "nothing more" : order.a,
                       order.b.empty() ? "nothing more" : order.b);
  }
  if (!diff.times.empty()) {
    out += fmt::format("times, b over a{}:\n  {:<28} {:>7} {:>12} {:>12} {:>8} {:>8}\n",
                       diff.makespan > 0.0 ? fmt::format(" (a step: {:.3f})", diff.makespan) : "", "",
                       "count", "a", "b", "median", "p95");
    for (const TimeDiff& time : diff.times) {
      out += fmt::format("  {:<28} {:>7} {:>12} {:>12} {:>8.3f} {:>8.3f}\n", time.what, time.count,
                         format_duration(time.total_a), format_duration(time.total_b), time.median, time.p95);
    }
  }
  out.pop_back();
  return out;
}

}  // namespace plumbline

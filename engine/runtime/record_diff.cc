#include "engine/runtime/record_diff.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include <fmt/format.h>

namespace plumbline {
namespace {

double ratio_at(std::vector<double>& sorted, double quantile) {
  if (sorted.empty()) return 0.0;
  const double at = quantile * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<std::size_t>(at);
  const std::size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (sorted[high] - sorted[low]) * (at - static_cast<double>(low));
}

std::vector<std::string> header_differences(const RunRecord& a, const RunRecord& b) {
  std::vector<std::string> out;
  const auto differ = [&](const char* what, const auto& x, const auto& y) {
    if (x != y) out.push_back(fmt::format("{}: {} against {}", what, x, y));
  };
  differ("seed", a.seed, b.seed);
  differ("Program", fmt::format("{:016x}", a.program_digest), fmt::format("{:016x}", b.program_digest));
  differ("training text", a.data_digest, b.data_digest);
  differ("ranks", a.ranks, b.ranks);
  differ("stages", a.stages, b.stages);
  differ("microbatches", a.microbatches, b.microbatches);
  if (a.config != b.config) out.emplace_back("the configurations differ");
  return out;
}

class Steps {
 public:
  Steps(const RunRecord& a, const RunRecord& b, const Tolerance& tolerance) : tolerance_(tolerance) {
    std::map<std::int32_t, const StepRow*> by_step;
    for (const StepRow& row : a.steps) by_step[row.step] = &row;
    for (const StepRow& row : b.steps) {
      const auto found = by_step.find(row.step);
      if (found != by_step.end()) pairs_.emplace_back(found->second, &row);
    }
  }

  // Bits: `first` 0. Else the tolerance of the first step.
  template <typename Value>
  NumberDiff compare(const char* what, double first, Value value) const {
    NumberDiff diff;
    diff.what = what;
    int trained = 0;  // an evaluation is of the parameters that the steps before it left
    for (const auto& [a, b] : pairs_) {
      const auto x = value(*a), y = value(*b);
      const double limit = first > 0.0 ? tolerance_.at(first, trained) : 0.0;
      if (!a->evaluation) ++trained;
      ++diff.steps;
      diff.limit = std::max(diff.limit, limit);
      if (std::bit_cast<std::uint64_t>(x) == std::bit_cast<std::uint64_t>(y)) {
        ++diff.equal;
        ++diff.within;
        continue;
      }
      double apart = 1.0;
      if constexpr (std::is_floating_point_v<decltype(x)>) {
        apart = std::abs(x - y) / std::max({std::abs(x), std::abs(y), 1e-300});
        if (std::isnan(apart)) apart = std::numeric_limits<double>::infinity();  // no tolerance covers a NaN
        if (diff.first < 0) diff.a = x, diff.b = y;
        if (apart <= limit) ++diff.within;
      }
      if (diff.first < 0) diff.first = a->step;
      diff.largest = std::max(diff.largest, apart);
    }
    return diff;
  }

  double makespan() const {
    std::vector<double> ratios;
    for (const auto& [a, b] : pairs_) {
      if (a->end > a->begin && !a->evaluation)
        ratios.push_back(static_cast<double>(b->end - b->begin) / static_cast<double>(a->end - a->begin));
    }
    std::sort(ratios.begin(), ratios.end());
    return ratio_at(ratios, 0.5);
  }

 private:
  const Tolerance& tolerance_;
  std::vector<std::pair<const StepRow*, const StepRow*>> pairs_;
};

using StreamKey = std::tuple<Rank, std::string>;

// Operations of each rank and stream in their order, over the steps that both records have.
std::map<StreamKey, std::vector<const RunEvent*>> streams_of(const RunRecord& record,
                                                             std::int32_t last_step) {
  std::map<StreamKey, std::vector<const RunEvent*>> out;
  for (const RunEvent& event : record.events)
    if (event.step <= last_step) out[{event.rank, record.streams[event.stream]}].push_back(&event);
  return out;
}

std::string words(const RunRecord& record, const RunEvent* event) {
  if (event == nullptr) return {};
  std::string text = record.labels[event->label].name;
  if (event->microbatch >= 0) text += fmt::format(" of microbatch {}", event->microbatch);
  if (event->peer >= 0) text += fmt::format(", rank {}", event->peer);
  return fmt::format("{} (step {})", text, event->step);
}

bool same_operation(const RunRecord& a, const RunEvent* x, const RunRecord& b, const RunEvent* y) {
  if (x == nullptr || y == nullptr) return x == y;
  return x->step == y->step && x->microbatch == y->microbatch && x->peer == y->peer &&
         a.labels[x->label].name == b.labels[y->label].name;
}

std::string kind_of(const EventLabel& label) {
  const std::string_view kind =
      label.communication ? endpoint_kind_name(label.endpoint) : kernel_kind_name(label.kernel);
  return fmt::format("{} of stage {}", kind, label.stage);
}

struct Times {
  std::int64_t count = 0;
  Nanoseconds a = 0, b = 0;
  std::vector<double> ratios;
};

std::int32_t last_common_step(const RunRecord& a, const RunRecord& b) {
  const std::int32_t of_a = a.steps.empty() ? -1 : a.steps.back().step;
  const std::int32_t of_b = b.steps.empty() ? -1 : b.steps.back().step;
  return std::min(of_a, of_b);
}

void compare_events(const RunRecord& a, const RunRecord& b, RecordDiff& diff) {
  const std::int32_t last = last_common_step(a, b);
  auto of_a = streams_of(a, last), of_b = streams_of(b, last);
  for (const auto& [key, events] : of_b) of_a.try_emplace(key);
  std::map<std::string, Times> times;
  for (const auto& [key, left] : of_a) {
    const std::vector<const RunEvent*>& right = of_b[key];
    OrderDiff order{std::get<0>(key), std::get<1>(key), 0, -1, {}, {}};
    const std::size_t count = std::max(left.size(), right.size());
    for (std::size_t i = 0; i < count && order.first < 0; ++i) {
      const RunEvent* x = i < left.size() ? left[i] : nullptr;
      const RunEvent* y = i < right.size() ? right[i] : nullptr;
      if (!same_operation(a, x, b, y)) {
        order.first = static_cast<std::int64_t>(i);
        order.a = words(a, x);
        order.b = words(b, y);
        break;
      }
      ++order.operations;
      Times& of = times[kind_of(a.labels[x->label])];
      ++of.count;
      of.a += x->end - x->start;
      of.b += y->end - y->start;
      if (x->end > x->start)
        of.ratios.push_back(static_cast<double>(y->end - y->start) / static_cast<double>(x->end - x->start));
    }
    if (order.first < 0)
      ++diff.same_orders;
    else
      diff.orders.push_back(std::move(order));
  }
  for (auto& [what, of] : times) {
    std::sort(of.ratios.begin(), of.ratios.end());
    diff.times.push_back({what, of.count, of.a, of.b, ratio_at(of.ratios, 0.5), ratio_at(of.ratios, 0.95)});
  }
}

}  // namespace

bool RecordDiff::same_numbers() const {
  return std::all_of(numbers.begin(), numbers.end(),
                     [](const NumberDiff& number) { return number.equal == number.steps; });
}

bool RecordDiff::numbers_hold() const {
  return std::all_of(numbers.begin(), numbers.end(), [](const NumberDiff& number) {
    return !number.judged || number.within == number.steps;
  });
}

RecordDiff diff_records(const RunRecord& a, const RunRecord& b, const Tolerance& tolerance) {
  RecordDiff diff;
  diff.header = header_differences(a, b);
  diff.tolerance = tolerance;
  const Steps steps(a, b, tolerance);
  const bool bits = tolerance.rule == NumbersRule::kBitwise;
  const auto add = [&](const char* what, double first, bool judged, auto value) {
    diff.numbers.push_back(steps.compare(what, first, value));
    diff.numbers.back().judged = judged;
  };
  add("loss", tolerance.loss, true, [](const StepRow& row) { return row.loss; });
  add("loss scale", 0.0, true, [](const StepRow& row) { return row.scale; });
  add("skipped", 0.0, true, [](const StepRow& row) { return static_cast<std::int64_t>(row.skipped); });
  add("gradient norm", tolerance.grad_norm, true, [](const StepRow& row) { return row.grad_norm; });
  add("zeros", 0.0, bits, [](const StepRow& row) { return row.zeros; });
  add("params digest", 0.0, bits, [](const StepRow& row) { return row.params_digest; });
  add("optimizer digest", 0.0, bits, [](const StepRow& row) { return row.optimizer_digest; });
  compare_events(a, b, diff);
  diff.makespan = steps.makespan();
  return diff;
}

}  // namespace plumbline

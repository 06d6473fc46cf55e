#include "engine/runtime/calibrate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

namespace plumbline {
namespace {

double median(std::vector<double> values) {
  if (values.empty()) return 0.0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Layers and, on the last stage, the head: value = layers * layer + head.
void split(const std::map<int, std::vector<double>>& by_stage, double layers_a_stage, double& layer,
           double& head) {
  std::vector<double> inner;
  const int last = by_stage.rbegin()->first;
  for (const auto& [stage, values] : by_stage)
    if (stage != last) inner.push_back(median(values) / layers_a_stage);
  const double at_last = median(by_stage.at(last));
  layer = inner.empty() ? at_last / layers_a_stage : median(inner);
  head = std::max(0.0, at_last - layer * layers_a_stage);
}

// Latency and bandwidth by least squares over (bytes, nanoseconds).
LinkConfig fit_link(const std::map<Bytes, std::vector<double>>& by_bytes) {
  LinkConfig link;
  double n = 0.0, sx = 0.0, sy = 0.0, sxx = 0.0, sxy = 0.0;
  for (const auto& [bytes, values] : by_bytes) {
    const double x = static_cast<double>(bytes), y = median(values);
    n += 1.0, sx += x, sy += y, sxx += x * x, sxy += x * y;
  }
  if (n == 0.0) return link;
  const double spread = n * sxx - sx * sx;
  const double slope = n < 2.0 || spread <= 0.0 ? 0.0 : (n * sxy - sx * sy) / spread;
  if (slope > 0.0) link.bytes_per_second = 1e9 / slope;
  const double latency = slope > 0.0 ? (sy - slope * sx) / n : sy / n;
  link.latency = std::max<Nanoseconds>(0, std::llround(latency));
  return link;
}

// Both ends of a message, apart from its direction.
using MessageKey = std::tuple<std::int32_t, Rank, Rank, std::int32_t, SlotKind, std::int32_t>;

}  // namespace

Nanoseconds join_messages(RunRecord& record) {
  std::map<MessageKey, std::pair<RunEvent*, RunEvent*>> messages;
  for (RunEvent& event : record.events) {
    const EventLabel& label = record.labels[event.label];
    if (!label.communication || event.peer < 0 || !is_p2p(label.endpoint)) continue;
    const bool send = label.endpoint == EndpointKind::kSend;
    auto& [from, to] = messages[{event.step, send ? event.rank : event.peer, send ? event.peer : event.rank,
                                 label.stage, label.slot, event.microbatch}];
    (send ? from : to) = &event;
  }
  Nanoseconds residual = 0;
  for (auto& [key, ends] : messages) {
    auto& [from, to] = ends;
    if (from == nullptr || to == nullptr) continue;
    residual = std::max(residual, from->start - to->end);
    const Nanoseconds ready = std::max(from->start, to->start);
    for (RunEvent* event : {from, to}) event->ready = std::clamp(ready, event->start, event->end);
  }
  return residual;
}

Result<Calibration> calibrate(const RunRecord& record, const RunConfig& config) {
  const int stages = config.stages();
  const double layers_a_stage = static_cast<double>(config.model.layers) / stages;
  std::map<int, std::vector<double>> forward, backward;
  std::map<Bytes, std::vector<double>> transfers;
  std::map<std::pair<std::int32_t, Rank>, double> tails;
  std::map<std::int32_t, bool> training;
  std::vector<double> steps;
  std::int32_t first = -1;
  for (const StepRow& row : record.steps) {
    if (row.evaluation) continue;
    if (first < 0) first = row.step;
    training[row.step] = true;
    if (row.step != first) steps.push_back(static_cast<double>(row.end - row.begin));
  }
  const bool only_one = training.size() == 1;
  Calibration out;
  for (const RunEvent& event : record.events) {
    if (!training.count(event.step) || (event.step == first && !only_one)) continue;
    const EventLabel& label = record.labels[event.label];
    const auto took = static_cast<double>(event.end - event.start);
    if (label.communication) {
      if (is_p2p(label.endpoint))
        transfers[label.bytes].push_back(static_cast<double>(event.end - event.ready));
    } else if (label.kernel == KernelKind::kForward) {
      forward[label.stage].push_back(took);
    } else if (label.kernel == KernelKind::kBackward) {
      backward[label.stage].push_back(took);
    } else {
      tails[{event.step, event.rank}] += took;
    }
  }
  if (forward.empty() || backward.empty())
    return fail(ErrorCode::kUsage, "this record has no forwards and backwards of training steps to measure");
  split(forward, layers_a_stage, out.forward_layer, out.forward_head);
  split(backward, layers_a_stage, out.backward_layer, out.backward_head);
  std::vector<double> tail;
  const double layers_a_rank = static_cast<double>(config.model.layers) / config.parallel.pp;
  for (const auto& [key, took] : tails) tail.push_back(took / layers_a_rank);
  out.optimizer = median(tail);
  out.link = fit_link(transfers);
  out.layers = config.model.layers;
  for (const auto& [stage, values] : forward) out.samples += static_cast<std::int64_t>(values.size());
  for (const auto& [stage, values] : backward) out.samples += static_cast<std::int64_t>(values.size());
  for (const auto& [bytes, values] : transfers) out.transfers += static_cast<std::int64_t>(values.size());
  if (only_one) steps.push_back(static_cast<double>(record.steps.front().end - record.steps.front().begin));
  out.step = median(steps);
  return out;
}

TimeConfig Calibration::time_of(const RunConfig& config) const {
  TimeConfig time;
  const int stages = config.stages();
  const double layers_a_stage = static_cast<double>(config.model.layers) / stages;
  const auto costs = [&](double layer, double head) {
    std::vector<Nanoseconds> out(static_cast<std::size_t>(stages), std::llround(layer * layers_a_stage));
    out.back() = std::llround(layer * layers_a_stage + head);
    return out;
  };
  time.forward = costs(forward_layer, forward_head);
  time.backward = costs(backward_layer, backward_head);
  time.optimizer = std::llround(optimizer * config.model.layers / config.parallel.pp);
  time.link = link;
  return time;
}

}  // namespace plumbline

#include "engine/runtime/calibrate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/config/stage_layers.h"
#include "engine/program/model_shape.h"

namespace plumbline {
namespace {

double median(std::vector<double> values) {
  if (values.empty()) return 0.0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// value = layers * layer, and beside it the embedding on the first stage and the head on the last one.
void split(const std::map<int, double>& by_stage, const std::vector<StageLayers>& stages, double& layer,
           double& embedding, double& head) {
  const auto layers_of = [&](int stage) {
    const auto at = static_cast<std::size_t>(stage);
    return at < stages.size() ? static_cast<double>(stages[at].layers) : 0.0;
  };
  std::vector<double> inner;
  const int first = by_stage.begin()->first, last = by_stage.rbegin()->first;
  const bool knows_inner = last - first > 1;
  for (const auto& [stage, cost] : by_stage) {
    if (stage != last && !(knows_inner && stage == first) && layers_of(stage) > 0.0)
      inner.push_back(cost / layers_of(stage));
  }
  layer = inner.empty() ? by_stage.at(last) / std::max(1.0, layers_of(last)) : median(inner);
  head = std::max(0.0, by_stage.at(last) - layer * layers_of(last));
  if (knows_inner) embedding = std::max(0.0, by_stage.at(first) - layer * layers_of(first));
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

namespace {

enum class Phase : std::uint8_t { kForward, kBackward, kRecompute, kTail };

Phase phase_of(KernelKind kind) {
  if (kind == KernelKind::kForward) return Phase::kForward;
  if (kind == KernelKind::kRecompute) return Phase::kRecompute;
  return kind == KernelKind::kBackward ? Phase::kBackward : Phase::kTail;
}

// A kernel that ran.
struct Sample {
  Phase phase = Phase::kTail;
  int stage = 0;
  std::int32_t step = 0;
  Rank rank = 0;
  Nanoseconds start = 0, end = 0;
  double cost = 0.0;
  double crowd = 0.0;  // 0: alone on its machine, 1: all of its cores busy; the mean over its time
};

// How busy the other cores of a machine are, integrated over a step's time.
class Crowd {
 public:
  Crowd(std::vector<std::pair<Nanoseconds, int>> changes, int cores) : changes_(std::move(changes)) {
    std::sort(changes_.begin(), changes_.end());
    int running = 0;
    double sum = 0.0;
    Nanoseconds before = changes_.empty() ? 0 : changes_.front().first;
    for (const auto& [time, change] : changes_) {
      const int others = std::clamp(running - 1, 0, cores - 1);
      rates_.push_back(cores > 1 ? static_cast<double>(others) / (cores - 1) : 0.0);
      sum += rates_.back() * static_cast<double>(time - before);
      sums_.push_back(sum);
      running += change;
      before = time;
    }
  }
  double until(Nanoseconds time) const {
    const auto after =
        std::lower_bound(changes_.begin(), changes_.end(), std::pair(time, std::numeric_limits<int>::min()));
    if (after == changes_.end()) return sums_.empty() ? 0.0 : sums_.back();
    const auto i = static_cast<std::size_t>(after - changes_.begin());
    return sums_[i] - rates_[i] * static_cast<double>(after->first - time);
  }

 private:
  std::vector<std::pair<Nanoseconds, int>> changes_;
  std::vector<double> rates_, sums_;  // before the change, and up to it
};

void add_crowds(std::vector<Sample>& samples, int cores, int ranks_a_machine) {
  std::map<std::pair<std::int32_t, int>, std::vector<std::pair<Nanoseconds, int>>> changes;
  const auto key = [&](const Sample& sample) {
    return std::pair(sample.step, ranks_a_machine > 0 ? sample.rank / ranks_a_machine : 0);
  };
  for (const Sample& sample : samples) {
    changes[key(sample)].emplace_back(sample.start, 1);
    changes[key(sample)].emplace_back(sample.end, -1);
  }
  std::map<std::pair<std::int32_t, int>, Crowd> crowds;
  for (auto& [at, list] : changes) crowds.emplace(at, Crowd(std::move(list), cores));
  for (Sample& sample : samples) {
    const Crowd& crowd = crowds.at(key(sample));
    if (sample.end > sample.start)
      sample.crowd = (crowd.until(sample.end) - crowd.until(sample.start)) /
                     static_cast<double>(sample.end - sample.start);
  }
}

// From kernels that ran alone at some times and with all cores busy at others; 0 where there are none.
double interference_of(const std::vector<Sample>& samples) {
  constexpr std::size_t kEnough = 3;
  std::map<std::pair<Phase, int>, std::array<std::vector<const Sample*>, 2>> groups;
  for (const Sample& sample : samples) {
    if (sample.phase == Phase::kTail || (sample.crowd > 0.25 && sample.crowd < 0.75)) continue;
    groups[{sample.phase, sample.stage}][sample.crowd > 0.5 ? 1 : 0].push_back(&sample);
  }
  double sum = 0.0, weights = 0.0;
  for (const auto& [group, sides] : groups) {
    if (sides[0].size() < kEnough || sides[1].size() < kEnough) continue;
    std::array<double, 2> cost{}, crowd{};
    for (std::size_t side = 0; side < 2; ++side) {
      std::vector<double> costs, crowds;
      for (const Sample* sample : sides[side]) costs.push_back(sample->cost), crowds.push_back(sample->crowd);
      cost[side] = median(costs), crowd[side] = median(crowds);
    }
    // cost = alone * (1 + interference * crowd), on both sides.
    const double below = cost[0] * crowd[1] - cost[1] * crowd[0];
    if (below <= 0.0) continue;
    const auto weight = static_cast<double>(std::min(sides[0].size(), sides[1].size()));
    sum += weight * (cost[1] - cost[0]) / below;
    weights += weight;
  }
  return weights > 0.0 ? std::max(0.0, sum / weights) : 0.0;
}

// What lies between two kernels of a rank: the host's work, and wake-ups after a receive that was waited for.
struct Gaps {
  std::vector<double> host, wake;
};

Gaps gaps_of(const std::vector<Sample>& samples, const std::vector<RunEvent>& messages,
             const RunRecord& record) {
  std::map<std::pair<std::int32_t, Rank>, std::vector<const Sample*>> kernels;
  std::map<std::pair<std::int32_t, Rank>, std::vector<std::pair<Nanoseconds, bool>>>
      ends;  // and whether a receive
  for (const Sample& sample : samples) kernels[{sample.step, sample.rank}].push_back(&sample);
  for (const RunEvent& event : messages)
    ends[{event.step, event.rank}].emplace_back(event.end,
                                                record.labels[event.label].endpoint == EndpointKind::kRecv);
  for (auto& [key, list] : ends) std::sort(list.begin(), list.end());
  Gaps out;
  for (auto& [key, list] : kernels) {
    std::sort(list.begin(), list.end(), [](const Sample* a, const Sample* b) { return a->start < b->start; });
    const auto& over = ends[key];
    for (std::size_t i = 1; i < list.size(); ++i) {
      if (list[i]->phase == Phase::kTail) continue;
      auto last = std::upper_bound(over.begin(), over.end(), std::pair(list[i]->start, true));
      const bool waited = last != over.begin() && std::prev(last)->first > list[i - 1]->end;
      if (!waited) {
        out.host.push_back(static_cast<double>(list[i]->start - list[i - 1]->end));
      } else if (std::prev(last)->second) {
        out.wake.push_back(static_cast<double>(list[i]->start - std::prev(last)->first));
      }
    }
  }
  return out;
}

// What training steps show; the first one is left out where there are more.
struct Measured {
  std::vector<Sample> kernels;
  std::vector<RunEvent> messages;
  std::vector<double> steps;
  bool computing = false;   // costs are computing time
  bool recomputes = false;  // in kernels of their own, beside the backwards
};

Measured measure(const RunRecord& record) {
  Measured out;
  std::map<std::int32_t, const StepRow*> rows;
  for (const StepRow& row : record.steps)
    if (!row.evaluation) rows[row.step] = &row;
  if (rows.size() > 1) rows.erase(rows.begin());
  for (const auto& [step, row] : rows) out.steps.push_back(static_cast<double>(row->end - row->begin));
  out.computing = record.cores > 0;
  for (const RunEvent& event : record.events)
    if (rows.count(event.step) > 0 && !record.labels[event.label].communication && event.cpu <= 0 &&
        event.end > event.start)
      out.computing = false;
  for (const RunEvent& event : record.events) {
    if (rows.count(event.step) == 0) continue;
    const EventLabel& label = record.labels[event.label];
    if (label.communication) {
      if (is_p2p(label.endpoint)) out.messages.push_back(event);
      continue;
    }
    if (label.kernel == KernelKind::kRecompute) {
      if (event.end == event.start) continue;  // a real backward recomputes by itself; this marks where
      out.recomputes = true;
    }
    const Nanoseconds cost = out.computing ? event.cpu : event.end - event.start;
    out.kernels.push_back({phase_of(label.kernel), label.stage, event.step, event.rank, event.start,
                           event.end, static_cast<double>(cost)});
  }
  return out;
}

std::map<int, double> costs_by_stage(const std::vector<Sample>& samples, Phase phase) {
  std::map<int, std::vector<double>> all;
  for (const Sample& sample : samples)
    if (sample.phase == phase) all[sample.stage].push_back(sample.cost);
  std::map<int, double> out;
  for (auto& [stage, costs] : all) out[stage] = median(std::move(costs));
  return out;
}

double optimizer_of(const std::vector<Sample>& samples, double host, double layers_a_rank) {
  std::map<std::pair<std::int32_t, Rank>, double> tails;
  for (const Sample& sample : samples)
    if (sample.phase == Phase::kTail) tails[{sample.step, sample.rank}] += sample.cost + host;
  std::vector<double> all;
  for (const auto& [key, took] : tails) all.push_back(took / layers_a_rank);
  return median(std::move(all));
}

}  // namespace

Result<Calibration> calibrate(const RunRecord& record, const RunConfig& config) {
  const std::vector<StageLayers> stages = stage_layers(config);
  Measured measured = measure(record);
  Calibration out;
  if (measured.computing) {
    out.cores = record.cores;
    double computed = 0.0, ran = 0.0;
    for (const Sample& sample : measured.kernels) {
      computed += sample.cost;
      ran += static_cast<double>(sample.end - sample.start);
    }
    if (ran > 0.0) out.share = computed / ran;
    add_crowds(measured.kernels, record.cores, record.ranks_a_machine);
    out.interference = interference_of(measured.kernels);
    for (Sample& sample : measured.kernels) sample.cost /= 1.0 + out.interference * sample.crowd;
  }
  const std::map<int, double> forward = costs_by_stage(measured.kernels, Phase::kForward);
  const std::map<int, double> backward = costs_by_stage(measured.kernels, Phase::kBackward);
  if (forward.empty() || backward.empty())
    return fail(ErrorCode::kUsage, "this record has no forwards and backwards of training steps to measure");
  split(forward, stages, out.forward_layer, out.forward_embedding, out.forward_head);
  split(backward, stages, out.backward_layer, out.backward_embedding, out.backward_head);
  // A backward that recomputes by itself holds time that predictions add anew.
  if (!measured.recomputes)
    out.backward_layer =
        std::max(0.0, out.backward_layer - out.forward_layer * recomputed_share(model_shape(config), 0));
  Gaps gaps = gaps_of(measured.kernels, measured.messages, record);
  out.host = median(std::move(gaps.host));
  out.wake = median(std::move(gaps.wake));
  out.optimizer =
      optimizer_of(measured.kernels, out.host, static_cast<double>(config.model.layers) / config.parallel.pp);
  std::map<Bytes, std::vector<double>> transfers;
  for (const RunEvent& event : measured.messages)
    transfers[record.labels[event.label].bytes].push_back(static_cast<double>(event.end - event.ready));
  out.link = fit_link(transfers);
  out.layers = config.model.layers;
  out.samples = std::count_if(measured.kernels.begin(), measured.kernels.end(), [](const Sample& sample) {
    return sample.phase == Phase::kForward || sample.phase == Phase::kBackward;
  });
  out.transfers = static_cast<std::int64_t>(measured.messages.size());
  out.step = median(measured.steps);
  return out;
}

TimeConfig Calibration::time_of(const RunConfig& config) const {
  TimeConfig time;
  const std::vector<StageLayers> stages = stage_layers(config);
  const auto costs = [&](double layer, double embedding, double head) {
    std::vector<double> all;
    for (const StageLayers& stage : stages) all.push_back(layer * stage.layers + host);
    all.front() += embedding;
    all.back() += head;
    std::vector<Nanoseconds> out;
    for (const double cost : all) out.push_back(std::llround(cost));
    return out;
  };
  time.forward = costs(forward_layer, forward_embedding, forward_head);
  time.backward = costs(backward_layer, backward_embedding, backward_head);
  time.optimizer = std::llround(optimizer * config.model.layers / config.parallel.pp);
  time.link = link;
  time.link.latency += std::llround(wake);
  time.cores = cores;
  time.interference = interference;
  return time;
}

}  // namespace plumbline

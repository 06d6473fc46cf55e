#include "reports/analysis.h"

#include <algorithm>
#include <set>

namespace plumbline {
namespace {

int pipeline_size(const RunRecord& record) {
  int size = 0;
  for (const std::int32_t coordinate : record.pipeline_coordinate) size = std::max(size, coordinate + 1);
  return size > 0 ? size : record.ranks;
}

int count_microbatches(const RunRecord& record, const StepEvents& step) {
  std::set<std::int32_t> seen;
  for (const std::uint32_t i : step.index) {
    const RunEvent& e = record.events[i];
    if (work_kind(record.labels[e.label]) == WorkKind::kForward) seen.insert(e.microbatch);
  }
  return static_cast<int>(seen.size());
}

// The last computation of the rank that started by then; the host runs ahead of the device, so this is a
// pointer, not proof.
std::string computation_at(const RunRecord& record, const StepEvents& step, const MemoryPoint& point) {
  std::string name;
  for (const std::uint32_t i : step.of_rank(point.rank)) {
    const RunEvent& e = record.events[i];
    if (e.start > point.time) break;
    if (!record.labels[e.label].communication) name = spoken_name(record, e);
  }
  return name;
}

void find_peaks(const RunRecord& record, std::vector<StepAnalysis>& steps) {
  const std::size_t ranks = static_cast<std::size_t>(std::max(record.ranks, 0));
  for (StepAnalysis& step : steps) step.peaks.assign(ranks, {});
  std::vector<std::vector<const MemoryPoint*>> best(steps.size(),
                                                    std::vector<const MemoryPoint*>(ranks, nullptr));
  for (const MemoryPoint& point : record.memory) {
    const auto at = std::lower_bound(steps.begin(), steps.end(), point.step,
                                     [](const StepAnalysis& s, std::int32_t n) { return s.events.step < n; });
    if (at == steps.end() || at->events.step != point.step || point.rank < 0 || point.rank >= record.ranks)
      continue;
    const MemoryPoint*& peak =
        best[static_cast<std::size_t>(at - steps.begin())][static_cast<std::size_t>(point.rank)];
    if (peak == nullptr || point.live > peak->live) peak = &point;
  }
  for (std::size_t s = 0; s < steps.size(); ++s) {
    for (std::size_t r = 0; r < ranks; ++r) {
      const MemoryPoint* peak = best[s][r];
      if (peak == nullptr) continue;
      steps[s].peaks[r] = {peak->live, peak->time, computation_at(record, steps[s].events, *peak)};
    }
  }
}

int typical_step(const RunRecord& record, const std::vector<StepAnalysis>& steps) {
  std::set<std::int32_t> skipped;
  for (const StepRow& row : record.steps) {
    if (row.skipped) skipped.insert(row.step);
  }
  int first = -1;
  for (std::size_t s = 0; s < steps.size(); ++s) {
    if (steps[s].time.evaluation || steps[s].events.index.empty() || skipped.count(steps[s].events.step) != 0)
      continue;
    if (first >= 0) return static_cast<int>(s);
    first = static_cast<int>(s);
  }
  return std::max(first, 0);
}

}  // namespace

std::string schedule_name(const RunRecord& record) {
  std::string name = record.schedule.substr(0, record.schedule.find(" pp="));
  const std::size_t folder = name.rfind('/');
  if (folder != std::string::npos) name.erase(0, folder + 1);
  return name.empty() ? "run" : name;
}

std::optional<BubbleFormula> bubble_formula(const RunRecord& record, int microbatches) {
  const int p = pipeline_size(record);
  const int v = p > 0 ? std::max(record.stages / p, 1) : 1;
  const int m = microbatches;
  if (p < 1 || m < 1) return std::nullopt;
  const auto value = [&](int chunks) {
    return static_cast<double>(p - 1) / (static_cast<double>(chunks) * m + p - 1);
  };
  const std::string name = schedule_name(record);
  if (name == "gpipe" || name == "1f1b" || (name == "forward-only" && v == 1)) {
    return BubbleFormula{"(p-1)/(m+p-1)", value(1)};
  }
  if (name.rfind("interleaved", 0) == 0 && m % p == 0) {
    return BubbleFormula{"(p-1)/(v*m+p-1)", value(v)};
  }
  return std::nullopt;
}

Analysis analyze(const RunRecord& record) {
  Analysis analysis;
  std::vector<StepEvents> steps = step_events(record);
  analysis.links = link_events(record, steps);
  analysis.slack = slack_of_events(record, steps, analysis.links);
  for (StepEvents& events : steps) {
    StepAnalysis step;
    step.time = step_time(record, events);
    step.path = critical_path(record, events, analysis.links);
    step.microbatches = count_microbatches(record, events);
    // Evaluation steps run forwards only, whatever schedule trains.
    if (!events.evaluation) step.formula = bubble_formula(record, step.microbatches);
    step.events = std::move(events);
    analysis.steps.push_back(std::move(step));
  }
  find_peaks(record, analysis.steps);
  analysis.peaks.assign(static_cast<std::size_t>(std::max(record.ranks, 0)), {});
  for (const StepAnalysis& step : analysis.steps) {
    for (std::size_t r = 0; r < analysis.peaks.size(); ++r) {
      if (step.peaks[r].bytes > analysis.peaks[r].bytes) analysis.peaks[r] = step.peaks[r];
    }
  }
  analysis.typical = typical_step(record, analysis.steps);
  return analysis;
}

}  // namespace plumbline

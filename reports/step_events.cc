#include "reports/step_events.h"

#include <algorithm>
#include <map>

#include "reports/event_kind.h"

namespace plumbline {
namespace {

void sort_step(const RunRecord& record, StepEvents& step) {
  std::sort(step.index.begin(), step.index.end(), [&](std::uint32_t a, std::uint32_t b) {
    const RunEvent& x = record.events[a];
    const RunEvent& y = record.events[b];
    if (x.rank != y.rank) return x.rank < y.rank;
    if (x.start != y.start) return x.start < y.start;
    if (x.end != y.end) return x.end < y.end;
    return a < b;
  });
  const std::size_t ranks = static_cast<std::size_t>(std::max(record.ranks, 0));
  step.offsets.assign(ranks + 1, 0);
  for (const std::uint32_t i : step.index)
    ++step.offsets[static_cast<std::size_t>(record.events[i].rank) + 1];
  for (std::size_t r = 0; r < ranks; ++r) step.offsets[r + 1] += step.offsets[r];
}

void set_span(const RunRecord& record, const StepRow* row, StepEvents& step) {
  if (!step.index.empty()) {
    step.begin = record.events[step.index.front()].start;
    for (const std::uint32_t i : step.index) {
      step.begin = std::min(step.begin, record.events[i].start);
      step.end = std::max(step.end, record.events[i].end);
    }
  }
  if (row == nullptr) return;
  step.evaluation = row->evaluation;
  if (row->end <= row->begin) return;
  // A row that does not contain its events (clocks of several hosts) gives way to them.
  step.begin = step.index.empty() ? row->begin : std::min(step.begin, row->begin);
  step.end = std::max(step.end, row->end);
}

}  // namespace

std::vector<StepEvents> step_events(const RunRecord& record) {
  std::map<std::int32_t, StepEvents> steps;
  for (std::size_t i = 0; i < record.events.size(); ++i) {
    if (!drawable(record, record.events[i])) continue;
    steps[record.events[i].step].index.push_back(static_cast<std::uint32_t>(i));
  }
  std::map<std::int32_t, const StepRow*> rows;
  for (const StepRow& row : record.steps) {
    rows[row.step] = &row;
    steps[row.step];
  }
  std::vector<StepEvents> result;
  result.reserve(steps.size());
  for (auto& [number, step] : steps) {
    step.step = number;
    sort_step(record, step);
    const auto row = rows.find(number);
    set_span(record, row == rows.end() ? nullptr : row->second, step);
    result.push_back(std::move(step));
  }
  return result;
}

}  // namespace plumbline

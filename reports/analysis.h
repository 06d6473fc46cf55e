// Analysis: everything that reports compute from a RunRecord, as values. Deterministic, no I/O.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "reports/critical_path.h"
#include "reports/event_links.h"
#include "reports/idle.h"
#include "reports/step_events.h"

namespace plumbline {

// What the textbook says about a schedule's bubble when all stages cost the same and messages are free.
struct BubbleFormula {
  std::string text;    // "(p-1)/(m+p-1)"
  double value = 0.0;  // of the makespan metric
};
// "interleaved" of "interleaved pp=4 stages=8 m=8", "hang.csv" of "cases/hang.csv pp=2 stages=3 m=2"; "run"
// if unnamed.
std::string schedule_name(const RunRecord& record);

// By the schedule's name; nothing for schedules without a closed form. `microbatches` may differ from step to
// step.
std::optional<BubbleFormula> bubble_formula(const RunRecord& record, int microbatches);

struct MemoryPeak {
  Bytes bytes = 0;
  Nanoseconds time = 0;
  std::string at;  // the computation at or just before the peak: "F5 of stage 2"; empty: none
};

struct StepAnalysis {
  StepEvents events;
  StepTime time;
  CriticalPath path;
  int microbatches = 0;  // distinct ones among the step's forwards
  std::optional<BubbleFormula> formula;
  std::vector<MemoryPeak> peaks;  // per rank; bytes 0 where nothing was recorded
};

struct Analysis {
  std::vector<StepAnalysis> steps;
  EventLinks links;
  std::vector<Nanoseconds> slack;  // parallel to RunRecord::events
  std::vector<MemoryPeak> peaks;   // per rank, over the run
  int typical =
      0;  // index of the step to show first: the second applied training step, else the first, else 0
};

Analysis analyze(const RunRecord& record);

}  // namespace plumbline

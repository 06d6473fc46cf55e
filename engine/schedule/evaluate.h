// How long a schedule takes and what it holds, by the plainest model there is: an action starts as soon as its rank
// is free and its inputs are there. Crossing ranks adds a latency; links have no bandwidth, sends no rendezvous,
// memory no limit. Zero Bubble's and Megatron's papers argue in this model, so published rates can be compared;
// what the simulator adds to it is the subject of `plumbline sim`.
//
// Linear in the number of actions. Communication, UNSHARD, RESHARD and REDUCE_GRAD are passed over.
#pragma once

#include <optional>
#include <vector>

#include "engine/base/result.h"
#include "engine/schedule/costs.h"
#include "engine/schedule/schedule.h"

namespace plumbline {

// Two metrics are in use, and papers seldom say which:
//   makespan    the last end on any rank, counted from the start of the step
//   stage time  the longest any rank needs from its first start to its last end. Steps that follow each other without
//               a barrier overlap by the difference ("parallelogram"), so this is Zero Bubble's metric
struct Evaluation {
  Nanoseconds makespan = 0;
  Nanoseconds stage_time = 0;
  Nanoseconds work = 0;  // compute of the busiest rank
  // Per rank.
  std::vector<Nanoseconds> busy;
  std::vector<Nanoseconds> first_start;
  std::vector<Nanoseconds> last_end;
  // Most stage activations alive at once: held until W (or B), and held until I (or B). In an overlapped pair the
  // forward counts before the backward frees.
  std::vector<int> peak_until_weight_grad;
  std::vector<int> peak_until_input_grad;

  // Idle share of the busiest rank's time, by either metric.
  double bubble() const;
  double stage_bubble() const;
};

// Start and end of each action, by its index in Schedule::actions; both halves of a pair have the pair's times, and
// what is passed over has zeros.
struct ActionTimes {
  std::vector<Nanoseconds> start;
  std::vector<Nanoseconds> end;
  std::vector<Nanoseconds>
      recomputed;  // where the recomputation that a backward begins with ends: its start if there is none
};

// `times`, if given, is overwritten. Errors: costs that do not fit the number of stages or ranks (kConfig); an order
// that cannot run (kConfig), with the first action of a rank that waits for ever. A schedule without
// validate_schedule's findings always runs.
Result<Evaluation> evaluate(const Schedule& schedule, const StageCosts& costs, ActionTimes* times = nullptr);

// What ranks compute on, where one may slow another down: of several pipelines that run the same schedule side by side.
class Devices {
 public:
  struct Completion {
    Nanoseconds time = 0;
    int replica = 0;
    int rank = 0;
  };
  virtual ~Devices() = default;
  // A rank that computes nothing begins something that takes `work` > 0 alone. Times never decrease.
  virtual void start(int replica, int rank, Nanoseconds work, Nanoseconds now) = 0;
  // What is over first if nothing else starts.
  virtual std::optional<Completion> next() const = 0;
  // It is over; time has come to it.
  virtual void complete(const Completion& completion) = 0;
};

// The same on `devices`, for pipelines that run the schedule side by side, each with costs of its own; the times are
// the first one's. A rank is busy from an action's start to its end, however slowly it gets on. n log n in the number
// of actions.
Result<Evaluation> evaluate_on(Devices& devices, const Schedule& schedule,
                               const std::vector<StageCosts>& replicas, ActionTimes* times = nullptr);

// Most that each rank holds at once of `model`, whatever its unit: F takes `held` of its stage, I gives back
// `freed_early`, W the rest, B all; what is recomputed counts during B, or from I to W. In an overlapped pair the
// forward counts before the backward frees. Forward-only schedules hold nothing.
std::vector<std::int64_t> peak_held(const Schedule& schedule, const ActivationModel& model);

}  // namespace plumbline

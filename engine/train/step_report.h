// StepReport: one rank's account of a step, as a value. From the reports of all ranks together come the step's row,
// the comparison of replicas and the digests of the model, and it makes no difference whether the ranks are in one
// process or sent each other their reports.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "engine/model/toy_check.h"
#include "engine/runtime/run_record.h"
#include "engine/train/worker.h"
#include "sim/verdict.h"

namespace plumbline {

struct StepReport {
  // What is held under a name, and its digest: a whole parameter, or an optimizer state from element `begin` on.
  struct Held {
    std::string name;
    int global = 0;
    std::int64_t begin = 0;
    std::uint64_t digest = 0;
  };
  // Digests of one parameter and of its optimizer state, by a rank that has all of both.
  struct Whole {
    int global = 0;
    std::uint64_t value = 0, state = 0;
  };
  // A shard of them, to be put together with the others'.
  struct Piece {
    ParameterSlice slice;
    RankModel::OwnPart part;  // its slice is not set
  };

  Rank rank = 0;
  int replica = 0;
  StepResult result;
  float scale_after = 1.0f;
  std::string scaler;  // its state in words; equal on all ranks
  Nanoseconds begin = 0, end = 0;
  std::vector<Finding> findings;
  std::vector<ToyFinding> toy;
  std::vector<Held> values, states;  // for the comparison of replicas
  std::vector<Whole> whole;          // for the digests of the model
  std::vector<Piece> pieces;
};

// What a report is to hold beside the results.
struct ReportWishes {
  bool values = false;   // digests of whole parameters
  bool states = false;   // digests of optimizer states
  bool digests = false;  // `whole` and `pieces`, of what this rank answers for
};
StepReport report_of(const StageWorker& worker, const RunConfig& config, const ReportWishes& wishes);

// Of the toy model: what its gradients, before the update, must be in step `step` and are not.
std::vector<ToyFinding> toy_findings(const StageWorker& worker, const RunConfig& config, std::int64_t step);

std::string report_bytes(const StepReport& report);
Result<StepReport> parse_report(std::string_view bytes);

// Mean loss over microbatches, in their order, then over replicas; NaN when no rank has any. Ranks of a replica with
// copies of the last stage have losses of different microbatches.
double loss_of(const std::vector<StepReport>& reports);
// The ranks hold the same where they hold the same thing; `iteration` is for the message.
Status compare_replicas(const std::vector<StepReport>& reports, int iteration);
// `parameters`: of the whole model.
ModelDigests digests_of(const std::vector<StepReport>& reports, int parameters);

}  // namespace plumbline

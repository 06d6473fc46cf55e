// The optimizer of one rank: fp32 main parameters and moments of all its parameter tensors in one flat array
// each, the loss scaler, the learning-rate schedule. It works on the rank's flat gradients (the main_grads
// slot) and knows nothing of LibTorch; whoever owns the model's tensors copies parameters out after step().
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/config/run_config.h"
#include "engine/optim/loss_scaler.h"
#include "engine/optim/lr_schedule.h"

namespace plumbline {

// One parameter tensor in the rank's flat arrays. The order is that of the Program's main_grads: stages
// ascending, their parameters in order.
struct ParameterSlice {
  std::string name;
  int stage = 0;
  int index = 0;   // among the stage's parameters
  int global = 0;  // among all parameters of the model, the tied one once
  bool tied = false;
  bool counted = true;  // false: the last stage's copy of the tied embedding, left out of norms and digests
  bool decayed = true;  // weight decay applies: tensors of two or more dimensions (not biases and norms)
  std::size_t offset = 0;
  std::size_t size = 0;
};

class RankOptimizer {
 public:
  // `initial` are the flat parameters, exactly representable in the model's precision.
  static Result<RankOptimizer> create(const RunConfig& config, std::vector<ParameterSlice> slices,
                                      std::vector<float> initial);

  const std::vector<ParameterSlice>& slices() const { return slices_; }
  std::size_t size() const { return main_.size(); }
  std::span<const float> main() const { return main_; }
  std::span<const float> first_moments() const { return first_; }
  std::span<const float> second_moments() const { return second_; }
  const LossScaler& scaler() const { return scaler_; }
  std::int64_t updates() const { return updates_; }
  double lr() const { return schedule_.at(updates_); }  // of the next update

  // Sum of squares of each counted parameter into sums[global]; entries of other ranks' parameters become 0.
  void norm_sums(std::span<const float> gradients, std::span<double> sums) const;

  struct Outcome {
    double norm = 0.0;
    double lr = 0.0;
  };
  // Clips by the norm of all sums, updates, grows the scale, moves the schedule.
  Outcome step(std::span<const float> gradients, std::span<const double> sums);
  // An overflow: the scale backs off, nothing else changes.
  void skip() { scaler_.update(true); }

  // Adds what identifies the state of one parameter: main values, moments, number of updates.
  std::uint64_t state_digest(const ParameterSlice& slice) const;

 private:
  OptimizerConfig options_;
  LrSchedule schedule_;
  LossScaler scaler_;
  std::vector<ParameterSlice> slices_;
  std::vector<float> main_, first_, second_;
  std::int64_t updates_ = 0;
};

}  // namespace plumbline

// The table that a training run prints: one line an interval, and one for every evaluation and every skipped
// step.
#pragma once

#include <chrono>
#include <string>

#include "engine/config/run_config.h"
#include "engine/runtime/run_record.h"

namespace plumbline::cli {

class RunTable {
 public:
  // `interval` 0: about twenty lines over the run. `time` is what the steps' times are called.
  RunTable(const RunConfig& config, int interval, bool quiet, std::string time = "virtual time");
  void add(const StepRow& row);

 private:
  void header();

  int interval_;
  int iterations_;
  int evaluation_steps_;
  bool quiet_;
  std::string time_;
  bool begun_ = false;
  double evaluation_sum_ = 0.0;
  int evaluation_count_ = 0;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace plumbline::cli

// Small configurations and runs for the tests of engine/train.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine/config/validate.h"
#include "engine/train/libtorch.h"
#include "engine/train/trainer.h"

namespace plumbline::test {

inline const bool kLibTorchIsSetUp = (set_up_libtorch(), true);

struct Layout {
  ScheduleKind kind = ScheduleKind::kOneFOneB;
  int pp = 1, vp = 1, m = 4, dp = 1;
  std::string name() const {
    return fmt::format("schedule {}, pp {}, vp {}, m {}, dp {}", static_cast<int>(kind), pp, vp, m, dp);
  }
};

// A GPT of eight layers, small enough that a step takes milliseconds.
inline RunConfig small_config(const Layout& layout, Precision precision = Precision::kFp32) {
  RunConfig config;
  config.parallel.pp = layout.pp;
  config.parallel.dp = layout.dp;
  config.schedule.kind = layout.kind;
  config.schedule.chunks = layout.vp;
  config.schedule.microbatches = layout.m;
  config.model.layers = 8;
  config.model.hidden = 16;
  config.model.heads = 2;
  config.model.seq_length = 12;
  config.model.init_std = 0.08;
  config.train.micro_batch_size = 2;
  config.train.iterations = 20;
  config.train.eval_iterations = 2;
  config.train.precision = precision;
  config.train.data = fmt::format("{}/data/text.txt", PLUMBLINE_TEST_DATA);
  config.optimizer.lr = 5e-3;
  config.loss_scale.initial = 1024.0;
  return config;
}

inline RunConfig toy_config(const Layout& layout, Precision precision = Precision::kFp32) {
  RunConfig config = small_config(layout, precision);
  config.model.name = "toy";
  config.model.seq_length = 2;
  config.train.micro_batch_size = 1;
  config.train.data.clear();
  config.loss_scale.initial = 16.0;
  return config;
}

inline std::unique_ptr<Trainer> make_trainer(const RunConfig& config, Trainer::Options options = {}) {
  const Result<RunConfig> valid = validate(config, {}, Purpose::kRun);
  EXPECT_TRUE(valid) << (valid ? "" : valid.error().text());
  if (!valid) return nullptr;
  Result<std::unique_ptr<Trainer>> trainer = Trainer::create(*valid, std::move(options));
  EXPECT_TRUE(trainer) << (trainer ? "" : trainer.error().text());
  return trainer ? std::move(*trainer) : nullptr;
}

// Training rows only.
inline std::vector<StepRow> training_rows(const RunRecord& record) {
  std::vector<StepRow> rows;
  for (const StepRow& row : record.steps) {
    if (!row.evaluation) rows.push_back(row);
  }
  return rows;
}

}  // namespace plumbline::test

#include "engine/model/toy_check.h"

#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace plumbline {
namespace {

ToyStep make_step(DType dtype) {
  ToyStep step;
  step.dtype = dtype;
  step.microbatches = 4;
  step.replicas = 2;
  step.step = 3;
  step.factor = 16.0f / 8.0f;
  step.inverse = 1.0f / 16.0f;
  return step;
}

std::vector<float> right_gradient(const ToyStep& step) {
  std::vector<float> gradient;
  for (int entry = 0; entry < step.entries(); ++entry) gradient.push_back(toy_expected(step, entry));
  return gradient;
}

ToyFinding only_finding(const ToyStep& step, const std::vector<float>& gradient) {
  const std::vector<ToyFinding> findings = check_toy_gradient(step, 5, 2, gradient);
  EXPECT_EQ(findings.size(), 1u);
  return findings.empty() ? ToyFinding{} : findings.front();
}

TEST(ToyCheck, WeightsAreOddDistinctAndExactInThePrecision) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const std::int64_t step : {0, 1, 1000}) {
      std::set<int> seen;
      for (int entry = 0; entry < toy_max_entries(dtype); ++entry) {
        const int weight = toy_weight(dtype, step, entry);
        EXPECT_EQ(weight % 2, 1);
        EXPECT_LE(weight, dtype == DType::kBF16 ? 256 : 2048);
        EXPECT_TRUE(seen.insert(weight).second);
      }
    }
  }
}

TEST(ToyCheck, NothingToSayAboutTheRightGradient) {
  const ToyStep step = make_step(DType::kF16);
  EXPECT_TRUE(check_toy_gradient(step, 0, 0, right_gradient(step)).empty());
}

TEST(ToyCheck, NamesEachFaultByRankStageAndMicrobatch) {
  const ToyStep step = make_step(DType::kF16);
  const std::vector<float> right = right_gradient(step);
  const std::size_t entry = 5;  // microbatch 2 of replica 1
  ToyStep before = step;
  before.step = step.step - 1;
  const std::vector<std::pair<float, ToyFault>> cases{
      {0.0f, ToyFault::kLost},
      {2.0f * right[entry], ToyFault::kDoubled},
      {right[3], ToyFault::kSwapped},
      {right[entry] + right[3], ToyFault::kMixed},
      {toy_expected(before, 5), ToyFault::kStale},
      {toy_expected(before, 5) + right[entry], ToyFault::kStale},
      {right[entry] * 8.0f, ToyFault::kScaled},
  };
  for (const auto& [value, fault] : cases) {
    std::vector<float> gradient = right;
    gradient[entry] = value;
    const ToyFinding finding = only_finding(step, gradient);
    EXPECT_EQ(finding.fault, fault) << finding.text;
    EXPECT_EQ(finding.rank, 5);
    EXPECT_EQ(finding.stage, 2);
    EXPECT_EQ(finding.microbatch, 2);
    EXPECT_EQ(finding.replica, 1);
    EXPECT_EQ(finding.text.find("rank 5, stage 2, microbatch 2 of replica 1: " +
                                std::string(toy_fault_name(fault))),
              0u)
        << finding.text;
  }
}

}  // namespace
}  // namespace plumbline

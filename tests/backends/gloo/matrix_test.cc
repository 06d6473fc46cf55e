// Every cell of schedule x pipeline x replicas x precision: the simulator, Gloo and the CUDA driver on the doubles give
// the same bits in every step. (That the driver also executes the same operations in the same order on the same bytes
// is tests/backends/cuda/driver_test.cc's, over the same cells.)
#include <map>

#include "tests/backends/cuda/tensors/on_doubles.h"
#include "tests/backends/gloo/ranks.h"
#include "tests/engine/train/small_run.h"

namespace plumbline {
namespace {

using test::Layout;

struct Cell {
  std::string name;
  RunConfig config;
};

std::vector<Cell> cells_of(int pp, int dp) {
  std::vector<Cell> cells;
  for (const ScheduleKind kind : {ScheduleKind::kOneFOneB, ScheduleKind::kInterleaved, ScheduleKind::kGpipe,
                                  ScheduleKind::kForwardOnly}) {
    for (const Precision precision : {Precision::kFp32, Precision::kFp16, Precision::kBf16}) {
      const Layout layout{kind, pp, kind == ScheduleKind::kInterleaved ? 2 : 1, pp == 2 ? 2 : 4, dp};
      RunConfig config = test::small_config(layout, precision);
      // Groups of microbatches are of pp, and with two ranks batched calls of two chunks cross.
      if (kind == ScheduleKind::kInterleaved) {
        config.schedule.microbatches = pp;
        config.schedule.p2p = P2pStyle::kSeparate;
      }
      config.model.layers = pp * layout.vp;
      config.train.iterations = 1;
      config.train.eval_iterations = kind == ScheduleKind::kForwardOnly ? 1 : 0;
      cells.push_back({fmt::format("{}, precision {}", layout.name(), static_cast<int>(precision)), config});
    }
  }
  return cells;
}

std::vector<StepRow> run_of(const RunConfig& config, Trainer::Options options) {
  const std::unique_ptr<Trainer> trainer = test::make_trainer(config, std::move(options));
  if (trainer == nullptr) return {};
  const Result<TrainOutcome> outcome = trainer->run();
  EXPECT_TRUE(outcome) << outcome.error().text();
  if (!outcome) return {};
  EXPECT_EQ(0, outcome->exit_code);
  return trainer->record().steps;
}

void expect_same(const std::vector<StepRow>& expected, std::vector<StepRow> rows, const char* who) {
  ASSERT_EQ(expected.size(), rows.size()) << who;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].begin = expected[i].begin;
    rows[i].end = expected[i].end;
    EXPECT_EQ(expected[i], rows[i]) << who << ", step " << i << ": loss " << rows[i].loss << " against "
                                    << expected[i].loss;
  }
}

class Matrix : public ::testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(Matrix, SimulatorGlooAndCudaDriverGiveTheSameBits) {
  const auto [pp, dp] = GetParam();
  const std::vector<Cell> cells = cells_of(pp, dp);
  std::vector<std::vector<StepRow>> simulated;
  for (const Cell& cell : cells) {
    SCOPED_TRACE(cell.name);
    simulated.push_back(run_of(cell.config, {}));
    ASSERT_EQ(1u, simulated.back().size());
    ASSERT_EQ(cell.config.schedule.kind == ScheduleKind::kForwardOnly, simulated.back().front().evaluation);
    Trainer::Options on_cuda;
    on_cuda.driver = cuda::driver_on_doubles(cell.config, cuda::Level::kNccl);
    expect_same(simulated.back(), run_of(cell.config, std::move(on_cuda)), "cuda driver");
  }
  test::on_ranks(pp * dp, [&](gloo::Transport& transport) {
    const std::unique_ptr<ControlChannel> channel = gloo::control_channel(transport);
    for (std::size_t i = 0; i < cells.size(); ++i) {
      SCOPED_TRACE(cells[i].name);
      RankStatus status;
      Trainer::Options options;
      options.driver = gloo::driver(transport, status, 0);
      options.channel = channel.get();
      expect_same(simulated[i], run_of(cells[i].config, std::move(options)), "gloo");
      if (::testing::Test::HasFailure()) return;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(AllCells, Matrix,
                         ::testing::Combine(::testing::Values(2, 3, 4), ::testing::Values(1, 2)),
                         [](const auto& cell) {
                           return fmt::format("pp{}dp{}", std::get<0>(cell.param), std::get<1>(cell.param));
                         });

}  // namespace
}  // namespace plumbline

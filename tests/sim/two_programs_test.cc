// A run alternates Programs (training, evaluation); events of both must carry their own Program's labels.
// Found when a report of a training run showed stages on ranks that do not hold them.
#include <gtest/gtest.h>

#include "engine/program/link.h"
#include "engine/program/lower.h"
#include "sim/simulator.h"
#include "tests/engine/program/config.h"

namespace plumbline {
namespace {

TEST(TwoPrograms, EventsKeepTheirOwnLabels) {
  const RunConfig config = test::config_of(ScheduleKind::kInterleaved, 4, 2, 4);
  const auto train = program_of(config, default_sizes(config));
  const auto schedule = evaluation_schedule_of(config);
  const auto evaluation = lower(config, *schedule, default_sizes(config), {StepTail::kSchedule});
  ASSERT_TRUE(train.has_value() && evaluation.has_value());
  const auto train_linked = link_program(*train);
  const auto evaluation_linked = link_program(*evaluation);

  RunRecord record = record_for(*train);
  Simulator simulator(*train_linked, SimOptions{});
  for (int step = 0; step < 4; ++step) {
    simulator.set_program(step % 2 == 0 ? *train_linked : *evaluation_linked);
    ASSERT_TRUE(simulator.run_step(step, record).has_value());
  }
  EXPECT_EQ(record.labels.size(), train->kernels.size() + train->endpoints.size() +
                                      evaluation->kernels.size() + evaluation->endpoints.size());
  int computations = 0;
  for (const RunEvent& event : record.events) {
    const EventLabel& label = record.labels.at(event.label);
    if (label.communication || event.microbatch < 0) continue;
    EXPECT_EQ(train->rank_of_stage[static_cast<std::size_t>(label.stage)], event.rank) << label.name;
    EXPECT_TRUE(event.step % 2 == 0 || label.kernel == KernelKind::kForward) << label.name;
    ++computations;
  }
  EXPECT_EQ(computations, 2 * (64 + 32));
}

}  // namespace
}  // namespace plumbline

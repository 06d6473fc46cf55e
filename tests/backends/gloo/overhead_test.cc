// Host time that the interpreter and the backend take for an item of a Program when its kernels do nothing. CPU time of
// the thread, so that a busy machine does not count.
#include <cstdio>
#include <ctime>

#include "engine/program/link.h"
#include "engine/program/lower.h"
#include "tests/backends/gloo/ranks.h"
#include "tests/engine/train/small_run.h"

namespace plumbline {
namespace {

class Idle final : public Worker {
 public:
  Status launch(const KernelCall&, SlotStore&) override { return {}; }
};

double cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

TEST(GlooOverhead, MicrosecondsOfHostTimeAnItem) {
  RunConfig config = test::small_config({ScheduleKind::kOneFOneB, 2, 1, 512, 1});
  const Result<RunConfig> valid = validate(config, {}, Purpose::kSim);
  ASSERT_TRUE(valid) << valid.error().text();
  ModelSizes sizes = default_sizes(*valid);
  sizes.activation = 64;
  LowerOptions lowering;
  lowering.tail = StepTail::kSchedule;
  const Result<Program> program = program_of(*valid, sizes, lowering);
  ASSERT_TRUE(program) << program.error().text();
  const Result<LinkedProgram> linked = link_program(*program);
  ASSERT_TRUE(linked);
  test::on_ranks(2, [&](gloo::Transport& transport) {
    Idle worker;
    RankStatus status;
    const auto driver = gloo::driver(transport, status, 0)(*valid, *linked, {&worker});
    RunRecord record = record_for(*program);
    ASSERT_TRUE(driver->run_step(0, record));  // the first step makes the tables
    constexpr int kSteps = 5;
    const double begin = cpu_seconds();
    for (int step = 1; step <= kSteps; ++step) ASSERT_TRUE(driver->run_step(step, record));
    const auto items = static_cast<double>(program->thread_items(0).size());
    const double microseconds = (cpu_seconds() - begin) * 1e6 / kSteps / items;
    if (transport.rank() == 0)
      std::printf("host time an item: %.2f us (%d items a step)\n", microseconds, static_cast<int>(items));
    EXPECT_LT(microseconds, 15.0) << "3 us is the aim at -O2";
  });
}

}  // namespace
}  // namespace plumbline

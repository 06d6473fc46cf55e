// Schedules on shared cores: with a core a rank they are what the evaluator says, on 1,740 recorded orders; with fewer,
// by hand.
#include "sim/shared_devices.h"

#include <gtest/gtest.h>

#include "tests/engine/schedule/orders.h"

namespace plumbline {
namespace {

using nlohmann::json;

std::vector<std::vector<std::size_t>> one_machine(std::size_t replicas, int ranks) {
  return std::vector(replicas, std::vector<std::size_t>(static_cast<std::size_t>(ranks), 0));
}

// One schedule on one machine of so many cores.
Evaluation on_cores(const Schedule& schedule, std::size_t replicas, const StageCosts& costs, int cores,
                    double interference = 0.0, ActionTimes* times = nullptr) {
  SharedDevices devices(cores, interference, one_machine(replicas, schedule.ranks));
  Result<Evaluation> got = evaluate_on(devices, schedule, std::vector(replicas, costs), times);
  EXPECT_TRUE(got) << (got ? "" : got.error().text());
  return got.value_or(Evaluation());
}

TEST(SharedDevices, ACoreARankIsADeviceARank) {
  int compared = 0;
  test::for_each_line("oracles/schedules/orders.jsonl.gz", [&](const json& line) {
    const Schedule schedule = test::schedule_of_order(line);
    const StageCosts costs = test::costs_in_units(line["evals"].front()["cost"]);
    ActionTimes own_times, times;
    const Evaluation own = evaluate(schedule, costs, &own_times).value();
    const Evaluation got = on_cores(schedule, 1, costs, schedule.ranks, 0.0, &times);
    EXPECT_EQ(own.makespan, got.makespan) << test::label_of(line);
    EXPECT_EQ(own.stage_time, got.stage_time);
    EXPECT_EQ(own.busy, got.busy);
    EXPECT_EQ(own_times.start, times.start) << test::label_of(line);
    EXPECT_EQ(own_times.end, times.end);
    EXPECT_EQ(own_times.recomputed, times.recomputed);
    ++compared;
  });
  EXPECT_EQ(compared, 1740);
}

// rank 0: F0 F1 B0 B1; rank 1: F0 B0 F1 B1
TEST(SharedDevices, OneCoreByHand) {
  const Schedule schedule = test::generate("1f1b", {2, 1, 2}).value();
  StageCosts costs;
  costs.forward = {10};
  costs.backward = {20};
  ActionTimes times;
  const Evaluation got = on_cores(schedule, 1, costs, 1, 0.0, &times);
  // F0 alone to 10; then rank 0's F1 and rank 1's F0 at half speed to 30; rank 1's B0 alone to 50; then rank 0's B0
  // and rank 1's F1 at half speed: F1 is over at 70, and of B0 10 are left; beside rank 1's B1 they last until 90, and
  // of B1 10 are left, alone until 100; rank 0's B1 until 120.
  EXPECT_EQ(times.start, (std::vector<Nanoseconds>{0, 10, 50, 100, 10, 30, 50, 70}));
  EXPECT_EQ(times.end, (std::vector<Nanoseconds>{10, 30, 90, 120, 30, 50, 70, 100}));
  EXPECT_EQ(got.makespan, 120);
  EXPECT_EQ(got.busy, (std::vector<Nanoseconds>{90, 90}));
}

TEST(SharedDevices, ReplicasAndMachines) {
  const Schedule schedule = test::generate("1f1b", {4, 1, 8}).value();
  StageCosts costs;
  costs.forward = {100};
  costs.backward = {200};
  // One core is never idle: it is given all the work there is.
  EXPECT_EQ(on_cores(schedule, 1, costs, 1).makespan, 4 * 8 * 300);
  EXPECT_EQ(on_cores(schedule, 3, costs, 1).makespan, 3 * 4 * 8 * 300);
  // A machine a replica: as if it were alone.
  SharedDevices devices(2, 0.0, {{0, 0, 0, 0}, {1, 1, 1, 1}});
  EXPECT_EQ(evaluate_on(devices, schedule, {costs, costs}).value().makespan,
            on_cores(schedule, 1, costs, 2).makespan);
  EXPECT_GT(on_cores(schedule, 1, costs, 4, 0.5).makespan, on_cores(schedule, 1, costs, 4).makespan);
}

// A schedule that cannot run is the same error, whatever it runs on.
TEST(SharedDevices, WhatWaitsForEver) {
  Schedule schedule = test::generate("1f1b", {2, 1, 2}).value();
  std::swap(schedule.actions[0], schedule.actions[2]);  // rank 0 begins with a backward
  SharedDevices devices(1, 0.0, one_machine(1, 2));
  const Result<Evaluation> got = evaluate_on(devices, schedule, {StageCosts()});
  ASSERT_FALSE(got);
  EXPECT_EQ(evaluate(schedule, {}).error().message, got.error().message);
}

}  // namespace
}  // namespace plumbline

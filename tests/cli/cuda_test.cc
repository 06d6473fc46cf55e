// `run --backend cuda`: what it says without CUDA, and whole runs on the doubles of CUDA and NCCL, which a process
// loads in their place.
#include <gmock/gmock.h>

#include "tests/cli/run_engine.h"

namespace plumbline {
namespace {

using testing::HasSubstr;

const std::string kRun =
    "run --pp 2 --dp 2 --num-layers 4 --hidden-size 16 --num-attention-heads 2 -m 4 --bf16 "
    "--train-iters 2 --eval-iters 1 ";

std::string on_doubles(int devices) {
  std::string environment = "PLUMBLINE_DOUBLE_DEVICES=" + std::to_string(devices);
  for (const char* name : {"CUDART_LIBRARY", "CUDA_DRIVER_LIBRARY", "NCCL_LIBRARY", "NVTX_LIBRARY"})
    environment += std::string(" ") + name + "=" + PLUMBLINE_DOUBLES;
  return environment;
}

void expect_same_rows(const RunRecord& a, RunRecord b) {
  ASSERT_EQ(a.steps.size(), b.steps.size());
  ASSERT_FALSE(a.steps.empty());
  for (std::size_t i = 0; i < a.steps.size(); ++i) {
    b.steps[i].begin = a.steps[i].begin;
    b.steps[i].end = a.steps[i].end;
    EXPECT_EQ(a.steps[i], b.steps[i]) << i;
  }
  EXPECT_EQ(a.events.size(), b.events.size());
}

#define NEEDS_DOUBLES \
  NEEDS_ENGINE;       \
  if (std::string(PLUMBLINE_DOUBLES).empty()) GTEST_SKIP() << "the doubles of CUDA are not built"

TEST(CudaRun, WithoutALibraryItIsNamed) {
  NEEDS_DOUBLES;
  const Outcome no_runtime = run_engine(kRun + "--backend cuda", "CUDART_LIBRARY=/nowhere/libcudart.so");
  EXPECT_EQ(75, no_runtime.code);
  EXPECT_THAT(no_runtime.err, HasSubstr("/nowhere/libcudart.so"));
  const Outcome no_nccl =
      run_engine(kRun + "--backend cuda", on_doubles(4) + " NCCL_LIBRARY=/nowhere/libnccl.so");
  EXPECT_EQ(75, no_nccl.code);
  EXPECT_THAT(no_nccl.err, HasSubstr("/nowhere/libnccl.so"));
  const Outcome no_device = run_engine(kRun + "--backend cuda", on_doubles(0));
  EXPECT_EQ(75, no_device.code);
  EXPECT_THAT(no_device.err, HasSubstr("finds no device"));
}

TEST(CudaRun, WhatCannotBeIsRefused) {
  NEEDS_DOUBLES;
  const Outcome few = run_engine(kRun + "--backend cuda --cuda-level nccl", on_doubles(1));
  EXPECT_EQ(2, few.code);
  EXPECT_THAT(few.err, HasSubstr("there are 1 for 4 ranks"));
  EXPECT_THAT(run_engine(kRun + "--backend cuda --cuda-level nvlink").err,
              HasSubstr("known are auto, nccl, loopback, self-send"));
}

TEST(CudaRun, OnTheDoublesItGivesTheSimulatorsNumbers) {
  NEEDS_DOUBLES;
  const std::string sim = temporary("sim.plmb"), nccl = temporary("nccl.plmb"), loop = temporary("loop.plmb");
  const Outcome simulated = run_engine(kRun + "-q -o " + sim);
  ASSERT_EQ(0, simulated.code) << simulated.err;
  const Outcome a = run_engine(kRun + "--backend cuda -o " + nccl, on_doubles(4));
  ASSERT_EQ(0, a.code) << a.err << a.out;
  EXPECT_THAT(a.out, HasSubstr("backend cuda-nccl"));
  EXPECT_THAT(a.out, HasSubstr("record  " + nccl));
  EXPECT_EQ("cuda-nccl", record_at(nccl).backend);
  expect_same_rows(record_at(sim), record_at(nccl));
  const Outcome b = run_engine(kRun + "--backend cuda -o " + loop, on_doubles(1));
  ASSERT_EQ(0, b.code) << b.err << b.out;
  EXPECT_EQ("cuda-loopback", record_at(loop).backend);
  expect_same_rows(record_at(sim), record_at(loop));
  const Outcome c = run_engine(kRun + "--backend cuda --cuda-level self-send -o " + loop, on_doubles(1));
  ASSERT_EQ(0, c.code) << c.err << c.out;
  EXPECT_EQ("cuda-self-send", record_at(loop).backend);
  expect_same_rows(record_at(sim), record_at(loop));
}

TEST(CudaRun, AsGraphsItGivesTheSameNumbers) {
  NEEDS_DOUBLES;
  const std::string sim = temporary("sim.plmb"), graphs = temporary("graphs.plmb");
  const std::string how = kRun + "--p2p separate ";
  ASSERT_EQ(0, run_engine(how + "-q -o " + sim).code);
  const Outcome run = run_engine(how + "--backend cuda --cuda-graphs -o " + graphs, on_doubles(4));
  ASSERT_EQ(0, run.code) << run.err << run.out;
  EXPECT_EQ("cuda-nccl", record_at(graphs).backend);
  expect_same_rows(record_at(sim), record_at(graphs));
  const Outcome loopback = run_engine(how + "--backend cuda --cuda-graphs -o " + graphs, on_doubles(1));
  EXPECT_EQ(2, loopback.code) << loopback.out;
  EXPECT_THAT(loopback.err, HasSubstr("CUDA graphs need the level nccl"));
  const Outcome device =
      run_engine(how + "--backend cuda --cuda-graphs --compute device -o " + graphs, on_doubles(4));
  EXPECT_EQ(2, device.code) << device.out;
  EXPECT_THAT(device.err, HasSubstr("--compute host"));
}

TEST(CudaRun, ARecordIsReplayedOnIt) {
  NEEDS_DOUBLES;
  const std::string sim = temporary("sim.plmb");
  ASSERT_EQ(0, run_engine(kRun + "-q -o " + sim).code);
  const Outcome replay =
      run_engine("replay " + sim + " --backend cuda -q -o " + temporary("again.plmb"), on_doubles(1));
  EXPECT_EQ(0, replay.code) << replay.out << replay.err;
}

}  // namespace
}  // namespace plumbline

// Memory of slots: given when asked for, zeroed, used again.
#include "sim/slots.h"

#include <cstring>

#include <gtest/gtest.h>

namespace plumbline::sim {
namespace {

// One rank, one kernel that writes a slot of every class.
Program program_with(std::initializer_list<Bytes> sizes) {
  Program program;
  program.name = "slots";
  program.grid = *RankGrid::create({});
  program.microbatches = 4;
  Kernel& kernel = program.kernels.emplace_back();
  kernel.name = "F.0";
  for (const Bytes bytes : sizes) {
    kernel.writes.push_back(static_cast<std::uint16_t>(program.slots.size()));
    SlotClass& row = program.slots.emplace_back();
    row.name = "s";
    row.per_microbatch = true;
    row.bytes = bytes;
  }
  program.items = {make_item(ItemOp::kLaunch, 0, 0, 0, 0)};
  program.threads = {{0, 0, 1}};
  return program;
}

// What a slot holds that only stands for something a worker keeps is accounted for and never made: in runs of many
// microbatches, filling such memory with zeros took longer than everything else the engine did.
TEST(Slots, WhatNobodyAsksForIsNeverMade) {
  constexpr Bytes kTooMuch = Bytes{1} << 60;
  const Program program = program_with({kTooMuch});
  FindingLog log;
  log.begin(program);
  PersistentMemory persistent;
  Slots slots(program, 0, log, &persistent);
  const Use use = slots.write(0, 0, 0);
  slots.start(use, 0);
  EXPECT_EQ(kTooMuch, slots.live_bytes());
  slots.finish(use);
  slots.release(0, 0, 0);
  EXPECT_EQ(0, slots.live_bytes());
}

TEST(Slots, MemoryThatIsUsedAgainIsZeroed) {
  const Program program = program_with({100, 100});
  FindingLog log;
  log.begin(program);
  PersistentMemory persistent;
  Slots slots(program, 0, log, &persistent);
  std::byte* before = nullptr;
  for (int m = 0; m < 4; ++m) {
    const Use use = slots.write(0, m, 0), other = slots.write(1, m, 0);
    slots.start(use, 0);
    slots.start(other, 0);
    const SlotMemory memory = slots.memory(use);
    ASSERT_EQ(100, memory.bytes);
    EXPECT_EQ(memory.data, slots.memory(use).data) << "asked again, it is the same";
    EXPECT_NE(memory.data, slots.memory(other).data);
    for (Bytes i = 0; i < memory.bytes; ++i) ASSERT_EQ(std::byte{0}, memory.data[i]) << "microbatch " << m;
    std::memset(memory.data, 0xFF, static_cast<std::size_t>(memory.bytes));
    if (before != nullptr) {
      EXPECT_EQ(before, memory.data);
    }
    before = memory.data;
    slots.finish(use);
    slots.finish(other);
    slots.release(0, m, 0);
    slots.release(1, m, 0);
  }
}

}  // namespace
}  // namespace plumbline::sim

// Worker: the computation of one rank, as seen by the runtime. A backend calls it when a kernel's turn comes
// (the simulator: at the kernel's virtual start; Gloo: at once; CUDA: to enqueue it). Slots are raw memory
// owned by the backend; tensors are views made inside launch() and must not outlive their slot.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/base/result.h"
#include "engine/program/program.h"

namespace plumbline {

struct SlotRef {
  std::uint16_t slot_class = 0;
  std::int32_t microbatch = kNoMicrobatch;  // kNoMicrobatch for step scope
  bool operator==(const SlotRef&) const = default;
};

struct SlotMemory {
  std::byte* data = nullptr;
  Bytes bytes = 0;
  DType dtype = DType::kF32;
  bool operator==(const SlotMemory&) const = default;
};

// Access to the live slots of one rank. The slots a kernel reads, frees and writes are live during its
// launch().
class SlotStore {
 public:
  virtual ~SlotStore() = default;
  virtual SlotMemory slot(SlotRef ref) = 0;
};

struct KernelCall {
  const Program* program = nullptr;
  Rank rank = 0;
  unsigned kernel = 0;  // row of program->kernels
  int microbatch = kNoMicrobatch;
};

class Worker {
 public:
  virtual ~Worker() = default;
  // Called once for each persistent slot of the rank, before the first step of a Program that uses it. The
  // memory is zeroed and stays in place as long as the backend lives; a worker may fill it and keep views of it.
  virtual Status bind(const SlotClass& /*slot*/, const SlotMemory& /*memory*/) { return {}; }
  virtual Status launch(const KernelCall& call, SlotStore& slots) = 0;
};

}  // namespace plumbline

// StageKernels: how the kernels of a Program come onto a stream. The driver layer knows two kinds of rank: one whose
// Worker computes on the host, called from its stream in its turn (HostKernels: toy stages, and LibTorch on the CPU),
// and one that enqueues work for the device (the tensors layer).
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "backends/cuda/device.h"
#include "engine/runtime/worker.h"

namespace plumbline::cuda {

class StageKernels {
 public:
  virtual ~StageKernels() = default;
  // Where a slot of this kind lies; nothing: nobody looks into it, and it has no memory.
  virtual std::optional<MemoryKind> memory(const SlotClass& slot) const = 0;
  // As Worker::bind; work on `stream` is enqueued.
  virtual Status bind(const SlotClass& slot, const SlotMemory& memory, StreamHandle stream) = 0;
  // Enqueues the kernel on `stream`; the slots are what it will work on when it runs, and are not touched before.
  virtual Status launch(const KernelCall& call, const std::vector<std::pair<SlotRef, SlotMemory>>& slots,
                        StreamHandle stream) = 0;
  // launch() on a stream that is being captured: the kernel runs at every launch of the graph, and what it needs for
  // that lives as long as the returned owner. can_be_captured() tells whether there is such a thing.
  virtual Result<std::shared_ptr<void>> capture(const KernelCall& call,
                                                const std::vector<std::pair<SlotRef, SlotMemory>>& slots,
                                                StreamHandle stream);
  virtual bool can_be_captured() const { return false; }
  // Before the first step of a Program, when nothing is on any stream: everything that could make the host wait for the
  // device later. `unseen` is the most that slots without memory stand for at one time, on the compute stream `stream`.
  virtual Status warm_up(const Program& /*program*/, Bytes /*unseen*/, StreamHandle /*stream*/) { return {}; }
  // The first error of a kernel that has run meanwhile; it stays.
  virtual std::optional<Error> error_so_far() { return std::nullopt; }
};

// The slots of one launch.
class ListedSlots final : public SlotStore {
 public:
  explicit ListedSlots(std::vector<std::pair<SlotRef, SlotMemory>> slots) : slots_(std::move(slots)) {}
  SlotMemory slot(SlotRef ref) override;

 private:
  std::vector<std::pair<SlotRef, SlotMemory>> slots_;
};

// A Worker on the host, called by cudaLaunchHostFunc. CUDA calls such functions from a thread of its own, one after
// another; a worker of this kind must make no CUDA call and may not care which thread it runs on.
class HostKernels final : public StageKernels {
 public:
  // Both outlive this.
  HostKernels(const Libraries& libraries, Worker& worker) : libraries_(&libraries), worker_(&worker) {}
  std::optional<MemoryKind> memory(const SlotClass& /*slot*/) const override { return MemoryKind::kHost; }
  Status bind(const SlotClass& slot, const SlotMemory& memory, StreamHandle stream) override;
  Status launch(const KernelCall& call, const std::vector<std::pair<SlotRef, SlotMemory>>& slots,
                StreamHandle stream) override;
  Result<std::shared_ptr<void>> capture(const KernelCall& call,
                                        const std::vector<std::pair<SlotRef, SlotMemory>>& slots,
                                        StreamHandle stream) override;
  bool can_be_captured() const override { return true; }
  std::optional<Error> error_so_far() override;

 private:
  struct Turn;
  static void run(void* turn);        // and it is over
  static void run_again(void* turn);  // of a graph

  const Libraries* libraries_;
  Worker* worker_;
  std::mutex mutex_;
  std::optional<Error> error_;
};

}  // namespace plumbline::cuda

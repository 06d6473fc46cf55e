// Counts LibTorch's CPU allocations on this thread: bytes held now, and the most at one time, of what was allocated
// since the counter began. The release of an older block is not counted (LibTorch knows no size for it).
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

namespace plumbline::test {

class CountedMemory {
 public:
  CountedMemory()
      : counts_(std::make_shared<Counts>()), guard_(c10::DebugInfoKind::PROFILER_STATE, counts_) {}

  std::int64_t held() const { return counts_->held; }
  std::int64_t peak() const { return counts_->peak; }

 private:
  struct Counts : c10::MemoryReportingInfoBase {
    void reportMemoryUsage(void*, std::int64_t size, std::int64_t, std::int64_t, c10::Device) override {
      held += size;
      peak = std::max(peak, held);
    }
    bool memoryProfilingEnabled() const override { return true; }
    std::int64_t held = 0, peak = 0;
  };

  std::shared_ptr<Counts> counts_;
  c10::DebugInfoGuard guard_;
};

}  // namespace plumbline::test

// Slots: the tensors of one simulated rank. The host allocates and releases in its order, which decides live
// memory and finds uses of what is not there; the device writes and reads later, which finds uses of what is
// not there yet.
//
// Each write makes a new instance. An operation keeps the instances it was issued with, so a host that runs
// ahead and writes a slot anew does not touch what earlier operations still use. Memory (with workers only)
// comes into being when somebody asks for it - many slots only stand for what a worker keeps itself - and goes
// when the slot is released and its last user has completed; blocks of a class are used again. It is aligned to 64
// bytes and zeroed, so that neither addresses nor leftovers reach a result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/program/program.h"
#include "engine/runtime/worker.h"
#include "sim/findings.h"

namespace plumbline::sim {

struct FreeMemory {
  void operator()(std::byte* data) const { std::free(data); }
};
using Memory = std::unique_ptr<std::byte, FreeMemory>;
Memory zeroed_memory(Bytes bytes);

enum class Access : std::uint8_t { kRead, kWrite, kUpdate };  // kUpdate: read and written in place

struct Use {
  std::uint32_t instance = 0;  // 0: none
  std::uint16_t slot_class = 0;
  Access access = Access::kRead;
};

// Persistent slots by name: they outlive steps and Programs.
struct PersistentSlot {
  Memory memory;
  Bytes bytes = 0;
  bool bound = false;  // its worker knows it
};
using PersistentMemory = std::map<std::string, PersistentSlot>;

class Slots {
 public:
  // Of the rank whose first thread is `thread`. `persistent` null: timing only, no memory. Everything given
  // outlives this.
  Slots(const Program& program, std::uint32_t thread, FindingLog& log, PersistentMemory* persistent);

  void begin_step();

  // Host order. `microbatch` is the item's; a class of step scope ignores it.
  Use read(std::uint16_t slot_class, int microbatch, std::uint32_t item);
  Use update(std::uint16_t slot_class, int microbatch, std::uint32_t item);
  Use write(std::uint16_t slot_class, int microbatch, std::uint32_t item);
  void release(std::uint16_t slot_class, int microbatch, std::uint32_t item);
  bool live(std::uint16_t slot_class, int microbatch) const;
  // The number of the instance that the slot has now, or had last; 0: none yet.
  std::uint32_t instance(std::uint16_t slot_class, int microbatch) const {
    return const_cast<Slots*>(this)->current(slot_class, microbatch);
  }
  Bytes live_bytes() const { return live_bytes_; }
  const std::vector<std::uint16_t>& classes() const { return classes_; }  // those the rank uses, ascending
  void report_leaks();

  // Device order: the operation of `item` starts, and completes; memory() in between.
  void start(const Use& use, std::uint32_t item);
  void finish(const Use& use);
  SlotMemory memory(const Use& use);
  int microbatch(const Use& use) const { return instances_[use.instance].microbatch; }

 private:
  struct Instance {
    std::uint32_t writer = kNoItem;
    std::uint32_t users = 0;  // issued and not complete
    std::int32_t microbatch = kNoMicrobatch;
    std::uint16_t slot_class = 0;
    bool written = false;
    bool released = false;
    bool costs = false;  // counts as live memory
    std::byte* data = nullptr;
    Memory owned;
  };

  void use_classes(std::span<const Item> items);
  void use_class(std::uint16_t slot_class);
  std::uint32_t& current(std::uint16_t slot_class, int microbatch);
  std::uint32_t add(std::uint16_t slot_class, int microbatch, std::uint32_t writer);
  std::uint32_t live_or_reported(std::uint16_t slot_class, int microbatch, std::uint32_t item);
  void give_memory(Instance& instance);
  void take_memory(Instance& instance);

  const Program* program_;
  std::uint32_t thread_;
  FindingLog* log_;
  PersistentMemory* persistent_;
  std::vector<std::int32_t> offset_;    // of each class in `slots_`; -1: not used by this rank
  std::vector<std::uint16_t> classes_;  // used ones, ascending
  std::vector<std::uint32_t> slots_;    // the instance a slot has now, or had last
  std::vector<Instance> instances_;     // 0 is nobody
  std::map<std::uint16_t, std::vector<Memory>> spare_;  // by class
  Bytes live_bytes_ = 0;
};

}  // namespace plumbline::sim

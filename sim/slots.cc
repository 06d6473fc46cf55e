#include "sim/slots.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "engine/base/assert.h"

namespace plumbline::sim {

Memory zeroed_memory(Bytes bytes) {
  constexpr std::size_t kAlignment = 64;
  const std::size_t size = (static_cast<std::size_t>(bytes) / kAlignment + 1) * kAlignment;
  auto* data = static_cast<std::byte*>(std::aligned_alloc(kAlignment, size));
  PL_ASSERT_MSG(data != nullptr, fmt::format("out of memory: a slot of {} bytes", bytes));
  std::memset(data, 0, size);
  return Memory(data);
}

Slots::Slots(const Program& program, std::uint32_t thread, FindingLog& log, PersistentMemory* persistent)
    : program_(&program),
      thread_(thread),
      log_(&log),
      persistent_(persistent),
      offset_(program.slots.size(), -1) {
  const Rank rank = program.threads[thread].rank;
  for (std::size_t t = thread; t < program.threads.size() && program.threads[t].rank == rank; ++t)
    use_classes(program.thread_items(t));
  std::sort(classes_.begin(), classes_.end());
  begin_step();
}

void Slots::use_classes(std::span<const Item> items) {
  for (const Item item : items) {
    if (item_op(item) == ItemOp::kLaunch) {
      const Kernel& kernel = program_->kernels[item_ref(item)];
      for (const auto* list : {&kernel.reads, &kernel.frees, &kernel.writes}) {
        for (const std::uint16_t slot_class : *list) use_class(slot_class);
      }
    } else if (item_op(item) == ItemOp::kOp) {
      use_class(program_->endpoints[item_ref(item)].slot);
    } else if (item_op(item) == ItemOp::kFree) {
      use_class(static_cast<std::uint16_t>(item_ref(item)));
    } else if (item_op(item) == ItemOp::kRead) {
      use_class(program_->variables[item_ref(item)].slot);
    }
  }
}

void Slots::use_class(std::uint16_t slot_class) {
  if (offset_[slot_class] >= 0) return;
  offset_[slot_class] = static_cast<std::int32_t>(slots_.size());
  classes_.push_back(slot_class);
  slots_.resize(slots_.size() + static_cast<std::size_t>(
                                    program_->slots[slot_class].per_microbatch ? program_->microbatches : 1));
}

void Slots::begin_step() {
  for (Instance& instance : instances_) take_memory(instance);  // of a step that ended early
  instances_.clear();
  instances_.emplace_back();
  std::fill(slots_.begin(), slots_.end(), 0);
  live_bytes_ = 0;
  for (const std::uint16_t slot_class : classes_) {
    if (!program_->slots[slot_class].persistent) continue;
    const std::uint32_t instance = add(slot_class, kNoMicrobatch, kNoItem);
    instances_[instance].written = true;
    current(slot_class, kNoMicrobatch) = instance;
    give_memory(instances_[instance]);
    live_bytes_ += program_->slots[slot_class].bytes;
  }
}

std::uint32_t& Slots::current(std::uint16_t slot_class, int microbatch) {
  const std::int32_t offset = offset_[slot_class];
  PL_ASSERT(offset >= 0);
  return slots_[static_cast<std::size_t>(program_->slots[slot_class].per_microbatch ? offset + microbatch
                                                                                    : offset)];
}

std::uint32_t Slots::add(std::uint16_t slot_class, int microbatch, std::uint32_t writer) {
  Instance& instance = instances_.emplace_back();
  instance.writer = writer;
  instance.microbatch = program_->slots[slot_class].per_microbatch ? microbatch : kNoMicrobatch;
  instance.slot_class = slot_class;
  return static_cast<std::uint32_t>(instances_.size() - 1);
}

bool Slots::live(std::uint16_t slot_class, int microbatch) const {
  const std::uint32_t instance = const_cast<Slots*>(this)->current(slot_class, microbatch);
  return instance != 0 && !instances_[instance].released;
}

// The slot's instance. One that is not there is reported - unless the Program is a fragment, whose unwritten
// slots count as written before - and stands in as written, so that the run goes on.
std::uint32_t Slots::live_or_reported(std::uint16_t slot_class, int microbatch, std::uint32_t item) {
  std::uint32_t& slot = current(slot_class, microbatch);
  if (slot != 0 && !instances_[slot].released) return slot;
  const FindingKind kind = slot != 0 ? FindingKind::kReadFreed : FindingKind::kReadUnwritten;
  if ((slot != 0 || !program_->fragment) && log_->wants(kind)) {
    const OperationRef user = log_->operation(thread_, item);
    log_->add(kind, {user},
              fmt::format("{} on rank {} uses {} {}", user.text, user.rank,
                          slot_text(*program_, slot_class, microbatch),
                          slot != 0 ? "after its release" : "before anything wrote it"));
  }
  slot = add(slot_class, microbatch, kNoItem);
  instances_[slot].written = true;
  return slot;
}

Use Slots::read(std::uint16_t slot_class, int microbatch, std::uint32_t item) {
  const std::uint32_t instance = live_or_reported(slot_class, microbatch, item);
  ++instances_[instance].users;
  return {instance, slot_class, Access::kRead};
}

Use Slots::update(std::uint16_t slot_class, int microbatch, std::uint32_t item) {
  Use use = read(slot_class, microbatch, item);
  use.access = Access::kUpdate;
  instances_[use.instance].writer = item;
  return use;
}

Use Slots::write(std::uint16_t slot_class, int microbatch, std::uint32_t item) {
  std::uint32_t& slot = current(slot_class, microbatch);
  const SlotClass& row = program_->slots[slot_class];
  if (row.persistent) {
    ++instances_[slot].users;
    return {slot, slot_class, Access::kWrite};
  }
  if (slot != 0 && !instances_[slot].released) {
    Instance& old = instances_[slot];
    if (old.costs && log_->wants(FindingKind::kDoubleWrite)) {
      const OperationRef writer = log_->operation(thread_, item);
      log_->add(FindingKind::kDoubleWrite, {writer, log_->operation(thread_, old.writer)},
                fmt::format("{} on rank {} writes {} while what was written before is still live",
                            writer.text, writer.rank, slot_text(*program_, slot_class, microbatch)));
    }
    if (old.costs) live_bytes_ -= row.bytes;
    old.released = true;
    if (old.users == 0) take_memory(old);
  }
  slot = add(slot_class, microbatch, item);
  instances_[slot].costs = true;
  instances_[slot].users = 1;
  live_bytes_ += row.bytes;
  return {slot, slot_class, Access::kWrite};
}

void Slots::release(std::uint16_t slot_class, int microbatch, std::uint32_t item) {
  Instance& instance = instances_[live_or_reported(slot_class, microbatch, item)];
  if (program_->slots[slot_class].persistent) return;
  instance.released = true;
  if (instance.costs) live_bytes_ -= program_->slots[slot_class].bytes;
  if (instance.users == 0) take_memory(instance);
}

void Slots::report_leaks() {
  if (program_->fragment) return;
  for (const std::uint16_t slot_class : classes_) {
    if (program_->slots[slot_class].persistent) continue;
    int leaked = 0;
    std::uint32_t first = 0;
    const int count = program_->slots[slot_class].per_microbatch ? program_->microbatches : 1;
    for (int m = 0; m < count; ++m) {
      const std::uint32_t instance = current(slot_class, m);
      if (instance == 0 || instances_[instance].released || !instances_[instance].costs) continue;
      if (leaked++ == 0) first = instance;
    }
    if (leaked == 0 || !log_->wants(FindingKind::kLeak)) continue;
    const OperationRef writer = log_->operation(thread_, instances_[first].writer);
    std::string why =
        fmt::format("{} on rank {} is still live at the end of the step",
                    slot_text(*program_, slot_class, instances_[first].microbatch), writer.rank);
    if (leaked > 1) why += fmt::format(", and {} more of its class", leaked - 1);
    log_->add(FindingKind::kLeak, {writer}, std::move(why));
  }
}

void Slots::give_memory(Instance& instance) {
  if (persistent_ == nullptr || instance.data != nullptr) return;
  const SlotClass& row = program_->slots[instance.slot_class];
  if (row.persistent) {
    PersistentSlot& kept = (*persistent_)[row.name];
    if (kept.memory == nullptr) {
      kept.memory = zeroed_memory(row.bytes);
      kept.bytes = row.bytes;
    }
    PL_ASSERT_MSG(kept.bytes == row.bytes,
                  fmt::format("persistent slot {} has {} bytes in one Program of a run, "
                              "{} in another",
                              row.name, kept.bytes, row.bytes));
    instance.data = kept.memory.get();
  } else {
    std::vector<Memory>& spare = spare_[instance.slot_class];
    if (spare.empty()) {
      instance.owned = zeroed_memory(row.bytes);
    } else {
      instance.owned = std::move(spare.back());
      spare.pop_back();
      std::memset(instance.owned.get(), 0, static_cast<std::size_t>(row.bytes));
    }
    instance.data = instance.owned.get();
  }
}

void Slots::take_memory(Instance& instance) {
  if (instance.owned != nullptr) spare_[instance.slot_class].push_back(std::move(instance.owned));
  instance.data = nullptr;
}

void Slots::start(const Use& use, std::uint32_t item) {
  Instance& instance = instances_[use.instance];
  if (use.access != Access::kWrite && !instance.written && log_->wants(FindingKind::kReadUnwritten)) {
    const OperationRef user = log_->operation(thread_, item);
    const OperationRef writer = log_->operation(thread_, instance.writer);
    log_->add(
        FindingKind::kReadUnwritten, {user, writer},
        fmt::format("{} on rank {} starts to use {} before {} has finished writing it: no wait orders them",
                    user.text, user.rank, slot_text(*program_, use.slot_class, instance.microbatch),
                    writer.text));
  }
  if (use.access != Access::kRead) instance.written = false;
}

void Slots::finish(const Use& use) {
  Instance& instance = instances_[use.instance];
  PL_ASSERT(instance.users > 0);
  if (use.access != Access::kRead) instance.written = true;
  if (--instance.users == 0 && instance.released) take_memory(instance);
}

SlotMemory Slots::memory(const Use& use) {
  give_memory(instances_[use.instance]);
  const SlotClass& row = program_->slots[use.slot_class];
  return {instances_[use.instance].data, row.bytes, row.dtype};
}

}  // namespace plumbline::sim

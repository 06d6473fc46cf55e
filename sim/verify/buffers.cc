#include "sim/verify/buffers.h"

#include <algorithm>

#include <fmt/format.h>

namespace plumbline::verify {
namespace {

// More findings of one kind on one rank than this tell nothing new.
constexpr int kMostOfAKind = 8;

}  // namespace

ScratchVector<ClassCost> class_costs(const Program& program) {
  ScratchVector<ClassCost> costs;
  costs.reserve(program.slots.size());
  for (const SlotClass& slot : program.slots) costs.push_back(class_cost(slot));
  return costs;
}

std::string Buffers::slot_name(std::uint32_t slot_class, int microbatch) const {
  const SlotClass& slot = world_->program->slots[slot_class];
  if (!slot.per_microbatch || microbatch == kNoMicrobatch) return slot.name;
  return fmt::format("{} of microbatch {}", slot.name, microbatch);
}

void Buffers::add(FindingKind kind, std::uint32_t culprit, std::uint32_t other, std::string why) {
  // A use that frees meets the same slot twice, and both arms meet the same end.
  const auto is_same = [&](const Finding& f) {
    return f.kind == kind && f.why == why && f.operations.front().item == static_cast<std::int64_t>(culprit);
  };
  if (std::any_of(findings_.begin(), findings_.end(), is_same)) return;
  if (++count_of_kind_[static_cast<std::size_t>(kind)] > kMostOfAKind) return;
  Finding finding;
  finding.kind = kind;
  finding.operations.push_back(world_->operation(thread_, culprit));
  if (other != kNone32) finding.operations.push_back(world_->operation(thread_, other));
  finding.why = std::move(why);
  findings_.push_back(std::move(finding));
}

// A use of a slot that is not live. True: it counts as live all the same.
bool Buffers::missing(SlotState& slot, std::uint32_t slot_class, int microbatch, Use use) {
  if (slot.phase == SlotPhase::kAssumed) return true;
  if (slot.phase == SlotPhase::kFreed) {
    add(FindingKind::kReadFreed, use.item, kNone32,
        fmt::format("{} uses {} after its release", world_->operation(thread_, use.item).text,
                    slot_name(slot_class, microbatch)));
    return false;
  }
  if (world_->program->fragment) {
    slot.phase = SlotPhase::kAssumed;
    return true;
  }
  add(FindingKind::kReadUnwritten, use.item, kNone32,
      fmt::format("{} uses {} before anything wrote it", world_->operation(thread_, use.item).text,
                  slot_name(slot_class, microbatch)));
  return false;
}

void Buffers::unordered_read(const SlotState& slot, std::uint32_t slot_class, int microbatch, Use use) {
  const std::uint32_t writer = slot.writer - 1;
  add(FindingKind::kReadUnwritten, use.item, writer,
      fmt::format("{} uses {}, but nothing makes it wait for {} to finish",
                  world_->operation(thread_, use.item).text, slot_name(slot_class, microbatch),
                  world_->operation(thread_, writer).text));
}

// The new reader does not come after the one on record, so that both matter to a release.
void Buffers::keep_reader(SlotState& slot, std::uint32_t index) {
  other_readers_.push_back({index, slot.reader, slot.reader_stream});
  slot.more_readers = true;
}

void Buffers::overwrite(SlotState& slot, std::uint32_t index, std::uint32_t slot_class, int microbatch,
                        Use use) {
  if (slot.phase == SlotPhase::kAssumed) {
    const std::uint32_t reader = slot.reader == 0 ? kNone32 : slot.reader - 1;
    add(FindingKind::kReadUnwritten, reader == kNone32 ? use.item : reader, use.item,
        fmt::format("{} is used before {} writes it", slot_name(slot_class, microbatch),
                    world_->operation(thread_, use.item).text));
    return;
  }
  if (world_->program->slots[slot_class].persistent) {
    check_users(slot, index, slot_class, microbatch, use, "overwrites");
    return;
  }
  add(FindingKind::kDoubleWrite, use.item, slot.writer == 0 ? kNone32 : slot.writer - 1,
      fmt::format("{} writes {} while what was written before is still live",
                  world_->operation(thread_, use.item).text, slot_name(slot_class, microbatch)));
}

// All uses of the slot so far must be over when `use` begins.
void Buffers::check_users(const SlotState& slot, std::uint32_t index, std::uint32_t slot_class,
                          int microbatch, Use use, const char* verb) {
  const auto check = [&](std::uint32_t user, int stream) {
    if (user == 0 || user == use.item + 1 || clocks_->ordered(use.stream, stream, user)) return;
    add(FindingKind::kFreeInUse, use.item, user - 1,
        fmt::format("{} {} {} while {} may still be using it: no wait orders them",
                    world_->operation(thread_, use.item).text, verb, slot_name(slot_class, microbatch),
                    world_->operation(thread_, user - 1).text));
  };
  check(slot.writer, slot.writer_stream);
  check(slot.reader, slot.reader_stream);
  if (!slot.more_readers) return;
  for (const OtherReader& other : other_readers_) {
    if (other.slot == index && other.reader >= slot.writer) check(other.reader, other.stream);
  }
}

void Buffers::report_leaks() {
  if (live_.slots == 0 || world_->program->fragment) return;
  for (const std::uint32_t slot_class : slots_->used_classes()) {
    if (world_->program->slots[slot_class].persistent) continue;
    int leaked = 0;
    std::uint32_t writer = kNone32;
    int first = kNoMicrobatch;
    for (std::uint32_t m = 0; m < slots_->class_size(slot_class); ++m) {
      const SlotState& slot = slots_->state(slots_->index(slot_class, static_cast<int>(m)));
      if (slot.phase != SlotPhase::kLive) continue;
      if (leaked++ == 0) {
        writer = slot.writer - 1;
        first = static_cast<int>(m);
      }
    }
    if (leaked == 0) continue;
    std::string why = slot_name(slot_class, first) + " is still live at the end of the step";
    if (leaked > 1) why += fmt::format(", and {} more of its class", leaked - 1);
    add(FindingKind::kLeak, writer, kNone32, std::move(why));
  }
}

void Buffers::begin_trial() {
  slots_->begin_trial();
  before_trial_ = live_;
  readers_before_trial_ = other_readers_.size();
}

void Buffers::roll_back() {
  slots_->roll_back();
  live_ = before_trial_;
  other_readers_.resize(readers_before_trial_);
}

RankMemory Buffers::memory() const {
  RankMemory memory;
  memory.peak = peak_.bytes;
  for (const std::uint32_t slot_class : slots_->used_classes()) {
    const SlotClass& slot = world_->program->slots[slot_class];
    if (slot.persistent) memory.peak += slot.bytes;
  }
  memory.peak_activations = peak_.activation_bytes;
  memory.peak_item = peak_item_;
  memory.live_stashes = peak_.stashes;
  return memory;
}

}  // namespace plumbline::verify

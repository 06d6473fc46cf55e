#include "sim/findings.h"

#include <utility>

#include <fmt/format.h>

namespace plumbline::sim {

void FindingLog::begin(const Program& program) {
  program_ = &program;
  findings_.clear();
  count_.fill(0);
}

OperationRef FindingLog::operation(std::uint32_t thread, std::uint32_t item) const {
  const Rank rank = program_->threads[thread].rank;
  if (item >= program_->items.size()) return {rank, -1, -1, "the end of its step"};
  const Item code = program_->items[item];
  const int microbatch = item_microbatch(code) == kNoMicrobatch ? -1 : item_microbatch(code);
  return {rank, item, microbatch, describe_item(*program_, rank, code)};
}

bool FindingLog::wants(FindingKind kind) {
  int& count = count_[static_cast<std::size_t>(kind)];
  if (count < kMostOfAKind) return true;
  ++count;
  return false;
}

void FindingLog::add(FindingKind kind, std::vector<OperationRef> operations, std::string why) {
  Finding finding;
  finding.kind = kind;
  finding.operations = std::move(operations);
  finding.why = std::move(why);
  add(std::move(finding));
}

void FindingLog::add(Finding finding) {
  if (++count_[static_cast<std::size_t>(finding.kind)] <= kMostOfAKind)
    findings_.push_back(std::move(finding));
}

std::vector<Finding> FindingLog::take() {
  for (std::size_t kind = 0; kind < count_.size(); ++kind) {
    const int more = count_[kind] - kMostOfAKind;
    if (more <= 0) continue;
    for (auto last = findings_.rbegin(); last != findings_.rend(); ++last) {
      if (static_cast<std::size_t>(last->kind) != kind) continue;
      last->why += fmt::format(" ({} more findings of this kind are not listed.)", more);
      break;
    }
  }
  count_.fill(0);
  return std::exchange(findings_, {});
}

std::string slot_text(const Program& program, std::uint16_t slot_class, int microbatch) {
  const SlotClass& slot = program.slots[slot_class];
  if (!slot.per_microbatch || microbatch == kNoMicrobatch) return slot.name;
  return fmt::format("{} of microbatch {}", slot.name, microbatch);
}

}  // namespace plumbline::sim

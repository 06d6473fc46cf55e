#include "sim/payloads.h"

#include <fmt/format.h>

#include "engine/base/hash.h"

namespace plumbline::sim {

void PayloadLedger::clear() {
  sent_.clear();
  received_.clear();
}

void PayloadLedger::report(const Program& program, FindingLog& log) const {
  for (const Receipt& receipt : received_) {
    const auto sent = sent_.find(receipt.label);
    if (sent != sent_.end() && sent->second == receipt.digest) continue;
    if (!log.wants(FindingKind::kPayloadMismatch)) continue;
    const OperationRef to = log.operation(receipt.thread, receipt.item);
    const auto& [replica, slot_class, microbatch] = receipt.label;
    const std::string expected = sent == sent_.end()
                                     ? "nobody sent that"
                                     : fmt::format("it was sent with digest {}", hex64(sent->second));
    log.add(FindingKind::kPayloadMismatch, {to},
            fmt::format("{} on rank {} got bytes with digest {} for {}; {}", to.text, to.rank,
                        hex64(receipt.digest), slot_text(program, slot_class, microbatch), expected));
  }
}

}  // namespace plumbline::sim

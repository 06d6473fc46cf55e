#include "sim/verify/agreement.h"

#include <map>
#include <numeric>
#include <utility>

#include <fmt/format.h>

namespace plumbline::verify {
namespace {

// Ranks connected by operations inside arms.
class Components {
 public:
  Components(const CheckWorld& world, const ScratchVector<const RangeFacts*>& facts_of)
      : parent_(world.threads()), size_(world.threads(), 1) {
    std::iota(parent_.begin(), parent_.end(), 0u);
    for (std::uint32_t t = 0; t < world.threads(); ++t) {
      for (const std::uint32_t item : facts_of[t]->armed) {
        const Port& port = world.port(t, item_ref(world.program->items[item]));
        if (port.dropped) continue;
        if (is_p2p(port.kind)) {
          unite(t, port.peer);
          continue;
        }
        const std::uint32_t base = world.member_base[port.communicator];
        unite(t, world.member_thread[base]);
      }
    }
  }

  std::uint32_t root(std::uint32_t thread) {
    while (parent_[thread] != thread) thread = parent_[thread] = parent_[parent_[thread]];
    return thread;
  }
  std::uint32_t size(std::uint32_t thread) { return size_[root(thread)]; }

 private:
  void unite(std::uint32_t a, std::uint32_t b) {
    a = root(a);
    b = root(b);
    if (a == b) return;
    parent_[b] = a;
    size_[a] += size_[b];
  }

  ScratchVector<std::uint32_t> parent_, size_;
};

}  // namespace

std::vector<Finding> check_agreement(const CheckWorld& world,
                                     const ScratchVector<const RangeFacts*>& facts_of) {
  std::vector<Finding> findings;
  Components components(world, facts_of);
  std::map<std::uint32_t, std::map<std::uint32_t, std::uint32_t>>
      counted;  // communicator -> component -> members
  for (std::uint32_t t = 0; t < world.threads(); ++t) {
    const std::uint32_t connected = components.size(t);
    if (connected < 2) continue;
    for (const Decision& decision : facts_of[t]->decisions) {
      std::string instead = "nothing on this rank writes it before";
      if (decision.writer != kNone32) {
        const Item writer = world.program->items[decision.writer];
        instead = "its value comes from " + world.operation(t, decision.writer).text;
        if (item_op(writer) == ItemOp::kOp) {
          const Port& port = world.port(t, item_ref(writer));
          auto [members, fresh] = counted.try_emplace(port.communicator);
          for (std::uint32_t m = world.member_base[port.communicator];
               fresh && m < world.member_base[port.communicator + 1]; ++m) {
            ++members->second[components.root(world.member_thread[m])];
          }
          if (port.kind == EndpointKind::kAllReduce && members->second[components.root(t)] == connected)
            continue;
        }
      }
      Finding finding;
      finding.kind = FindingKind::kDecideUnagreed;
      finding.operations.push_back(world.operation(t, decision.item));
      if (decision.writer != kNone32) finding.operations.push_back(world.operation(t, decision.writer));
      finding.why = fmt::format(
          "{} ranks communicate depending on this decision of rank {}, but it is not reduced over them: {}",
          connected, t, instead);
      findings.push_back(std::move(finding));
      break;
    }
    if (findings.size() == 8) break;  // every rank would say the same
  }
  return findings;
}

}  // namespace plumbline::verify

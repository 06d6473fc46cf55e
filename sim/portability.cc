#include "sim/portability.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "sim/findings.h"

namespace plumbline {
namespace {

constexpr std::size_t kMessagesOfAKernel = 63;  // sim/nccl_model.cc

class Lint {
 public:
  explicit Lint(const LinkedProgram& linked) : linked_(linked), program_(*linked.program) {
    log_.begin(program_);
  }

  std::vector<Finding> run() {
    for (std::uint32_t t = 0; t < program_.threads.size(); ++t) thread(t);
    partitions();
    communicator_orders();
    return log_.take();
  }

 private:
  struct Place {
    std::uint32_t thread = 0;
    std::uint32_t item = 0;
  };
  // The operations of one group with one peer: how many sends and receives.
  struct Part {
    std::array<int, 2> counts{};  // receives, sends
    Place place;
  };
  using Pair = std::tuple<std::int32_t, std::int32_t, std::int32_t>;  // communicator, own place, peer's place

  void report(std::string rule, std::vector<Place> places, const std::string& why) {
    if (!log_.wants(FindingKind::kNotPortable) || ++reported_[rule] > 4) return;
    Finding finding;
    finding.kind = FindingKind::kNotPortable;
    for (const Place& place : places) finding.operations.push_back(log_.operation(place.thread, place.item));
    finding.rule = std::move(rule);
    finding.why = why;
    log_.add(std::move(finding));
  }

  std::string at(const Place& place) const {
    const OperationRef operation = log_.operation(place.thread, place.item);
    return fmt::format("{} on rank {}", operation.text, operation.rank);
  }

  void thread(std::uint32_t t) {
    const Thread& range = program_.threads[t];
    for (std::uint32_t first = range.begin; first < range.end;) {
      std::uint32_t end = first + 1;
      if (item_op(program_.items[first]) == ItemOp::kOp) {
        while ((item_flags(program_.items[end - 1]) & kMore) != 0) ++end;
        group(t, first, end);
      }
      first = end;
    }
  }

  void group(std::uint32_t t, std::uint32_t first, std::uint32_t end) {
    std::map<std::int32_t, std::array<std::size_t, 2>> kinds;  // communicator -> collectives, messages
    std::vector<std::int32_t> order;
    std::map<std::pair<std::int32_t, std::int32_t>, Part> parts;
    for (std::uint32_t i = first; i < end; ++i) {
      const Endpoint& endpoint = program_.endpoints[item_ref(program_.items[i])];
      const LinkedEndpoint& linked = linked_.at(t, item_ref(program_.items[i]));
      const Place place{t, i};
      if (!is_p2p(endpoint.kind) && endpoint.bytes == 0) {
        report(
            "N60", {place},
            at(place) + " moves no bytes: it is dropped on this rank alone, and whoever brings some waits");
      }
      auto& kind = kinds[linked.communicator];
      ++kind[is_p2p(endpoint.kind) ? 1 : 0];
      if (std::find(order.begin(), order.end(), linked.communicator) == order.end())
        order.push_back(linked.communicator);
      if (!is_p2p(endpoint.kind)) continue;
      Part& part = parts[{linked.communicator, linked.peer_position}];
      if (part.counts == std::array<int, 2>{}) part.place = place;
      ++part.counts[endpoint.kind == EndpointKind::kSend ? 1 : 0];
      own_[{linked.communicator, linked.peer_position}] = linked.position;
    }
    for (const auto& [key, part] : parts) sequences_[{key.first, own_[key], key.second}].push_back(part);
    for (const auto& [communicator, kind] : kinds) {
      const std::string& name = linked_.communicators[static_cast<std::size_t>(communicator)].name;
      if (kind[0] > 0 && kind[1] > 0) {
        report("N15", {{t, first}},
               fmt::format(
                   "the group at {} has collectives and messages of communicator {}: which run first is not "
                   "documented",
                   at({t, first}), name));
      }
      if (kind[1] > kMessagesOfAKernel) {
        report("N14", {{t, first}},
               fmt::format(
                   "the group at {} has {} messages of communicator {}: releases up to 2.29.3 split it into "
                   "kernels, at places that may differ between ranks",
                   at({t, first}), kind[1], name));
      }
    }
    if (order.size() > 1) orders_.push_back({std::move(order), {t, first}});
  }

  // The groups of two ranks with each other are mirror images, one by one. Of a pair, the first difference.
  void partitions() {
    for (const auto& [pair, parts] : sequences_) {
      const auto [communicator, own, peer] = pair;
      if (own >= peer) continue;
      const auto other = sequences_.find({communicator, peer, own});
      if (other == sequences_.end()) continue;  // without counterparts it hangs, which is said elsewhere
      const std::size_t common = std::min(parts.size(), other->second.size());
      for (std::size_t k = 0; k < common; ++k) {
        const Part& a = parts[k];
        const Part& b = other->second[k];
        if (a.counts[0] == b.counts[1] && a.counts[1] == b.counts[0]) continue;
        report("N12", {a.place, b.place},
               fmt::format("group {} of the two ranks in communicator {} is cut differently at its ends: {} "
                           "sends {} and "
                           "receives {}, {} sends {} and receives {}",
                           k + 1, linked_.communicators[static_cast<std::size_t>(communicator)].name,
                           at(a.place), a.counts[1], a.counts[0], at(b.place), b.counts[1], b.counts[0]));
        break;
      }
    }
  }

  // Two groups that share two communicators name them in one order.
  void communicator_orders() {
    std::map<std::pair<std::int32_t, std::int32_t>, Place> before;
    for (const auto& [order, place] : orders_) {
      for (std::size_t i = 0; i < order.size(); ++i) {
        for (std::size_t j = i + 1; j < order.size(); ++j) {
          before.try_emplace({order[i], order[j]}, place);
          const auto reversed = before.find({order[j], order[i]});
          if (reversed == before.end()) continue;
          report("N16", {place, reversed->second},
                 fmt::format("the group at {} names its communicators in another order than the group at {}",
                             at(place), at(reversed->second)));
        }
      }
    }
  }

  const LinkedProgram& linked_;
  const Program& program_;
  sim::FindingLog log_;
  std::map<std::string, int> reported_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> own_;
  std::map<Pair, std::vector<Part>> sequences_;
  std::vector<std::pair<std::vector<std::int32_t>, Place>> orders_;
};

}  // namespace

std::vector<Finding> portability(const LinkedProgram& linked) { return Lint(linked).run(); }

}  // namespace plumbline

#include "reports/wait_cycle.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

namespace plumbline {
namespace {

int urgency(const Finding& finding) {
  if (finding.kind != FindingKind::kDeadlock) return 1;
  return finding.cycle.empty() ? 2 : 3;
}

// "2SEND_F5" of "2SEND_F5 to rank 3"; texts that do not begin with an action stay whole.
std::string first_word(const std::string& text) {
  const bool action = !text.empty() && text.front() >= '0' && text.front() <= '9';
  return action ? text.substr(0, text.find(' ')) : text;
}

}  // namespace

std::vector<CycleHop> cycle_hops(const std::vector<WaitEdge>& cycle) {
  std::vector<CycleHop> hops;
  // Start right after an edge that crosses ranks, so that the edges inside one rank stay together.
  std::size_t start = 0;
  while (start < cycle.size() && cycle[start].from.rank == cycle[start].to.rank) ++start;
  if (start == cycle.size()) {
    if (cycle.empty()) return hops;
    const WaitEdge& edge = cycle.front();
    return {{edge.from.rank, edge.to.rank, edge.from.text, edge.to.text, edge.reason, {}}};
  }
  for (std::size_t k = 0; k < cycle.size(); ++k) {
    const WaitEdge& edge = cycle[(start + k) % cycle.size()];
    if (edge.from.rank != edge.to.rank) {
      hops.push_back({edge.from.rank, edge.to.rank, edge.from.text, edge.to.text, edge.reason, {}});
    } else if (hops.back().behind.empty()) {
      hops.back().behind = edge.reason;
    }
  }
  return hops;
}

std::string of_rank(Rank rank, const std::string& text) {
  const std::size_t article = text.rfind("the ", 0) == 0 ? 4 : 0;
  return fmt::format("rank {}'s {}", rank, text.substr(article));
}

std::string short_operation(const std::string& text) {
  std::size_t begin = 0;
  while (begin < text.size() && text[begin] >= '0' && text[begin] <= '9') ++begin;
  const std::size_t end = std::min(text.find(' '), text.size());
  // "all-reduce of found_inf" has no action word: keep the whole text.
  if (begin == 0 || begin >= end) return text;
  return text.substr(begin, end - begin);
}

std::string cycle_line(const std::vector<CycleHop>& hops) {
  std::string line;
  for (const CycleHop& hop : hops)
    line += fmt::format("{} --{}--> ", hop.rank, short_operation(hop.stuck_in));
  if (!hops.empty()) line += fmt::format("{}", hops.front().rank);
  return line;
}

std::string cycle_sentence(const std::vector<CycleHop>& hops) {
  if (hops.empty()) return "";
  std::set<Rank> ranks;
  for (const CycleHop& hop : hops) ranks.insert(hop.rank);
  std::string text = ranks.size() == 1 ? fmt::format("rank {} waits for itself: ", *ranks.begin())
                                       : fmt::format("{} ranks wait in a cycle: ", ranks.size());
  text += fmt::format("rank {} is in {}", hops.front().rank, first_word(hops.front().stuck_in));
  // Four hops tell the pattern; the ring and the list show the rest.
  constexpr std::size_t kMostHops = 4;
  const std::size_t shown = hops.size() > kMostHops ? 2 : hops.size();
  for (std::size_t k = 0; k < shown; ++k) {
    const CycleHop& hop = hops[k];
    const CycleHop& next = hops[(k + 1) % hops.size()];
    text += fmt::format(", which waits for {} of rank {}", first_word(hop.needs), hop.next);
    if (hop.needs != next.stuck_in)
      text += fmt::format(", which is behind its {}", first_word(next.stuck_in));
  }
  if (shown < hops.size()) text += fmt::format(", and so on round to rank {}", hops.front().rank);
  return text + ".";
}

const Finding* leading_finding(const Verdict& verdict, std::string* mode) {
  const Finding* best = nullptr;
  if (mode != nullptr) mode->clear();
  const auto consider = [&](const Finding& finding, const std::string& name) {
    if (best != nullptr && urgency(*best) >= urgency(finding)) return;
    best = &finding;
    if (mode != nullptr) *mode = name;
  };
  // The mode nearest to everyday use first: what hangs by default matters more than what only certification
  // refuses.
  for (auto m = verdict.modes.rbegin(); m != verdict.modes.rend(); ++m) {
    for (const Finding& finding : m->findings) consider(finding, m->mode);
  }
  for (const Finding& finding : verdict.findings) consider(finding, "");
  return best;
}

std::string_view finding_words(FindingKind kind) {
  switch (kind) {
    case FindingKind::kDeadlock:
      return "deadlock";
    case FindingKind::kLabelMismatch:
      return "a receive gets another tensor than its reader needs";
    case FindingKind::kSizeMismatch:
      return "a send and its receive differ in size";
    case FindingKind::kUnmatched:
      return "a send or receive has no other end";
    case FindingKind::kCollectiveMismatch:
      return "the members of a communicator call different collectives";
    case FindingKind::kCrossWired:
      return "two ranks open one connection in opposite directions";
    case FindingKind::kReadUnwritten:
      return "a tensor is read before it is written";
    case FindingKind::kReadFreed:
      return "a tensor is read after its release";
    case FindingKind::kDoubleWrite:
      return "a tensor is overwritten while in use";
    case FindingKind::kFreeInUse:
      return "a tensor is released before its last reader is done";
    case FindingKind::kLeak:
      return "a tensor is never released";
    case FindingKind::kDecideUnagreed:
      return "ranks that communicate may take different branches";
    case FindingKind::kMemoryLimit:
      return "the memory limit is exceeded";
    case FindingKind::kPayloadMismatch:
      return "received bytes are not those that were sent";
    case FindingKind::kStructure:
      return "the schedule is not well formed";
    case FindingKind::kNcclError:
      return "a call returns an error";
    case FindingKind::kNotPortable:
      return "NCCL leaves this undefined";
  }
  return "unknown finding";
}

}  // namespace plumbline

#include "sim/fix.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "engine/program/link.h"
#include "sim/examine.h"
#include "sim/verify/check.h"

namespace plumbline {
namespace {

// Two groups of one host thread: the later one waits behind the earlier one.
struct Behind {
  std::size_t thread = 0;
  std::uint32_t earlier = 0;  // first items
  std::uint32_t later = 0;
};

struct Change {
  enum class Kind { kGroup, kSwap } kind;
  Behind at;
};

class Fixer {
 public:
  Fixer(const Program& program, const std::vector<NcclModel>& modes, const TimeModel& time)
      : program_(program), modes_(modes), time_(time) {}

  std::optional<Fix> run(const Finding& finding) {
    const std::vector<Behind> places = places_of(finding);
    // All ranks of the circle first, as it takes to give them one order; then each alone.
    std::vector<std::vector<Change>> candidates;
    for (const Change::Kind kind : {Change::Kind::kGroup, Change::Kind::kSwap}) {
      if (kind == Change::Kind::kGroup) {
        std::vector<Change> all;
        for (const Behind& place : places) all.push_back({kind, place});
        if (all.size() > 1) candidates.push_back(std::move(all));
      }
      for (const Behind& place : places) candidates.push_back({{kind, place}});
    }
    for (const std::vector<Change>& changes : candidates) {
      std::optional<Program> changed = apply(changes);
      if (changed && helps(*changed)) return Fix{words(changes), std::move(*changed)};
    }
    return std::nullopt;
  }

 private:
  static constexpr std::size_t kMostPlaces = 6;

  std::uint32_t first_of(std::uint32_t item, std::uint32_t begin) const {
    while (item > begin && item_op(program_.items[item - 1]) == ItemOp::kOp &&
           (item_flags(program_.items[item - 1]) & kMore) != 0)
      --item;
    return item;
  }
  std::uint32_t end_of(std::uint32_t first) const {
    while ((item_flags(program_.items[first]) & kMore) != 0) ++first;
    return first + 1;
  }

  // Where the circle goes from an operation to one before it on the same rank. The checker's circles leave that
  // step out: there the operation that is waited for is behind the one that its rank is stuck in.
  std::vector<Behind> places_of(const Finding& finding) const {
    std::vector<Behind> places;
    for (const WaitEdge& edge : finding.cycle) {
      add(edge.from, edge.to, places);
      if (edge.from.rank != edge.to.rank) behind_of_match(edge, places);
    }
    if (places.size() > kMostPlaces) places.clear();
    return places;
  }

  void add(const OperationRef& later, const OperationRef& earlier, std::vector<Behind>& places) const {
    if (later.rank != earlier.rank || later.item < 0 || earlier.item < 0 || later.item <= earlier.item)
      return;
    const auto a = static_cast<std::uint32_t>(earlier.item);
    const auto b = static_cast<std::uint32_t>(later.item);
    if (item_op(program_.items[a]) != ItemOp::kOp || item_op(program_.items[b]) != ItemOp::kOp) return;
    for (std::size_t t = 0; t < program_.threads.size(); ++t) {
      const Thread& thread = program_.threads[t];
      if (thread.rank != later.rank || a < thread.begin || b >= thread.end) continue;
      const Behind place{t, first_of(a, thread.begin), first_of(b, thread.begin)};
      const auto same = [&](const Behind& other) {
        return other.thread == place.thread && other.earlier == place.earlier && other.later == place.later;
      };
      if (place.earlier != place.later && std::none_of(places.begin(), places.end(), same))
        places.push_back(place);
      return;
    }
  }

  // `edge.from` needs a counterpart of rank edge.to.rank, which is stuck in edge.to: it is the next operation of
  // that rank with edge.from's rank as its peer, the same communicator and the opposite direction.
  void behind_of_match(const WaitEdge& edge, std::vector<Behind>& places) const {
    if (edge.from.item < 0 || edge.to.item < 0) return;
    const Item from = program_.items[static_cast<std::size_t>(edge.from.item)];
    if (item_op(from) != ItemOp::kOp) return;
    const Endpoint& wanted = program_.endpoints[item_ref(from)];
    if (!is_p2p(wanted.kind)) return;
    for (std::size_t t = 0; t < program_.threads.size(); ++t) {
      const Thread& thread = program_.threads[t];
      if (thread.rank != edge.to.rank || edge.to.item < thread.begin || edge.to.item >= thread.end) continue;
      for (auto item = static_cast<std::uint32_t>(edge.to.item); item < thread.end; ++item) {
        if (item_op(program_.items[item]) != ItemOp::kOp) continue;
        const Endpoint& endpoint = program_.endpoints[item_ref(program_.items[item])];
        if (!is_p2p(endpoint.kind) || endpoint.kind == wanted.kind || endpoint.family != wanted.family)
          continue;
        if (endpoint_peer(program_.grid, endpoint, thread.rank) != edge.from.rank) continue;
        OperationRef later = edge.to;
        later.item = item;
        return add(later, edge.to, places);
      }
    }
  }

  // Groups can be moved past each other if nothing but groups and marks lies between, in one arm.
  bool only_groups_between(const Behind& place) const {
    const unsigned arm = item_flags(program_.items[place.earlier]) & (kArmYes | kArmNo);
    for (std::uint32_t i = place.earlier; i < end_of(place.later); ++i) {
      const ItemOp op = item_op(program_.items[i]);
      if (op != ItemOp::kOp && op != ItemOp::kMark) return false;
      if (op == ItemOp::kOp && (item_flags(program_.items[i]) & (kArmYes | kArmNo)) != arm) return false;
    }
    return true;
  }

  // The program with each changed thread's items written anew; threads that share items are split from the others.
  std::optional<Program> apply(const std::vector<Change>& changes) const {
    Program out = program_;
    std::map<std::size_t, std::vector<Item>> rewritten;
    for (const Change& change : changes) {
      if (!only_groups_between(change.at) || rewritten.count(change.at.thread) != 0) return std::nullopt;
      std::vector<Item> items = change.kind == Change::Kind::kGroup ? grouped(change.at) : swapped(change.at);
      if (items.empty()) return std::nullopt;
      rewritten[change.at.thread] = std::move(items);
    }
    out.items.clear();
    for (std::size_t t = 0; t < out.threads.size(); ++t) {
      const auto found = rewritten.find(t);
      const auto begin = static_cast<std::uint32_t>(out.items.size());
      if (found != rewritten.end()) {
        out.items.insert(out.items.end(), found->second.begin(), found->second.end());
      } else {
        const auto same = program_.thread_items(t);
        out.items.insert(out.items.end(), same.begin(), same.end());
      }
      out.threads[t].begin = begin;
      out.threads[t].end = static_cast<std::uint32_t>(out.items.size());
    }
    if (!validate_program(out)) return std::nullopt;
    return out;
  }

  // Everything from the earlier to the later group as one group, on the stream of the first, with the edges of
  // both. Kept handles would be counted anew: not tried.
  std::vector<Item> grouped(const Behind& place) const {
    const Thread& thread = program_.threads[place.thread];
    std::vector<Item> group, marks, items;
    unsigned edges = 0;
    for (std::uint32_t i = place.earlier; i < end_of(place.later); ++i) {
      const Item item = program_.items[i];
      if (item_op(item) == ItemOp::kMark) {
        marks.push_back(item);
        continue;
      }
      edges |= item_flags(item) & ~static_cast<unsigned>(kMore);
      group.push_back(item);
    }
    if ((edges & kHandle) != 0) return {};
    const unsigned stream = static_cast<unsigned>(item_stream(group.front()));
    for (std::size_t i = 0; i < group.size(); ++i) {
      const unsigned more = i + 1 < group.size() ? unsigned{kMore} | (edges & (kArmYes | kArmNo)) : edges;
      group[i] = make_item(ItemOp::kOp, item_microbatch(group[i]), more, item_ref(group[i]), stream);
    }
    append(thread.begin, place.earlier, items);
    items.insert(items.end(), marks.begin(), marks.end());
    items.insert(items.end(), group.begin(), group.end());
    append(end_of(place.later), thread.end, items);
    return items;
  }

  std::vector<Item> swapped(const Behind& place) const {
    const Thread& thread = program_.threads[place.thread];
    std::vector<Item> items;
    append(thread.begin, place.earlier, items);
    append(place.later, end_of(place.later), items);
    append(end_of(place.earlier), place.later, items);
    append(place.earlier, end_of(place.earlier), items);
    append(end_of(place.later), thread.end, items);
    return items;
  }

  void append(std::uint32_t begin, std::uint32_t end, std::vector<Item>& items) const {
    items.insert(items.end(), program_.items.begin() + begin, program_.items.begin() + end);
  }

  bool helps(const Program& changed) const {
    const Result<LinkedProgram> linked = link_program(changed);
    if (!linked) return false;
    for (const NcclModel& mode : modes_) {
      const Result<ModeVerdict> verdict = examine_mode(*linked, mode, time_);
      if (!verdict || !verdict->completes || !verdict->findings.empty()) return false;
    }
    if (!is_provable(*linked) || changed.fragment) return true;
    CheckOptions options;
    options.makespan = false;
    const Result<Verdict> verdict = check_program(*linked, options);
    return verdict && verdict->findings.empty();
  }

  std::string words(const std::vector<Change>& changes) const {
    std::string out;
    for (const Change& change : changes) {
      const Rank rank = program_.threads[change.at.thread].rank;
      const std::string a = describe_item(program_, rank, program_.items[change.at.earlier]);
      const std::string b = describe_item(program_, rank, program_.items[change.at.later]);
      out += out.empty() ? "" : ", and ";
      out += change.kind == Change::Kind::kGroup
                 ? fmt::format("put {} and {} into one group on rank {}", a, b, rank)
                 : fmt::format("call {} before {} on rank {}", b, a, rank);
    }
    return out;
  }

  const Program& program_;
  const std::vector<NcclModel>& modes_;
  const TimeModel& time_;
};

}  // namespace

std::optional<Fix> find_fix(const Program& program, const Finding& finding,
                            const std::vector<NcclModel>& modes, const TimeModel& time) {
  if (finding.kind != FindingKind::kDeadlock || finding.cycle.empty()) return std::nullopt;
  return Fixer(program, modes, time).run(finding);
}

}  // namespace plumbline

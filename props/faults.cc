#include "props/faults.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "engine/base/rng.h"

namespace plumbline::props {
namespace {

// A place in a Program.
struct Site {
  std::size_t thread = 0;
  std::uint32_t item = 0;
};

class Injector {
 public:
  Injector(const Program& program, std::uint64_t seed) : program_(program), rng_(seed, "fault") { unshare(); }

  std::optional<Fault> run(FaultKind kind) {
    switch (kind) {
      case FaultKind::kDrop:
        return drop();
      case FaultKind::kDuplicate:
        return duplicate();
      case FaultKind::kSwap:
        return swap();
      case FaultKind::kWrongPeer:
        return wrong_peer();
      case FaultKind::kWrongRank:
        return wrong_rank();
    }
    return std::nullopt;
  }

 private:
  // A fault is in one rank only, so that ranks with identical items get their own.
  void unshare() {
    std::vector<Item> items;
    for (Thread& thread : program_.threads) {
      const auto begin = static_cast<std::uint32_t>(items.size());
      items.insert(items.end(), program_.items.begin() + thread.begin, program_.items.begin() + thread.end);
      thread.begin = begin;
      thread.end = static_cast<std::uint32_t>(items.size());
    }
    program_.items = std::move(items);
  }

  std::size_t pick(std::size_t count) { return static_cast<std::size_t>(rng_.below(draws_++, count)); }

  template <typename Allowed>
  std::vector<Site> sites(Allowed allowed) const {
    std::vector<Site> out;
    for (std::size_t t = 0; t < program_.threads.size(); ++t) {
      for (std::uint32_t i = program_.threads[t].begin; i < program_.threads[t].end; ++i) {
        if (allowed(program_.items[i])) out.push_back({t, i});
      }
    }
    return out;
  }

  bool is_computation(Item item) const {
    return item_op(item) == ItemOp::kLaunch &&
           plumbline::is_computation(program_.kernels[item_ref(item)].kind);
  }
  bool is_message(Item item) const {
    return item_op(item) == ItemOp::kOp && is_p2p(program_.endpoints[item_ref(item)].kind);
  }
  bool is_operation(Item item) const { return item_op(item) == ItemOp::kOp || is_computation(item); }

  Fault fault(FaultKind kind, const Site& site) const {
    const auto rank = static_cast<Rank>(site.thread);
    return {kind,
            {},
            fmt::format("{} of {} on rank {}", fault_kind_name(kind),
                        describe_item(program_, rank, program_.items[site.item]), rank)};
  }

  void insert(std::uint32_t before, std::size_t thread, Item item) {
    program_.items.insert(program_.items.begin() + before, item);
    ++program_.threads[thread].end;
    for (std::size_t t = thread + 1; t < program_.threads.size(); ++t) {
      ++program_.threads[t].begin;
      ++program_.threads[t].end;
    }
  }

  // Takes an item out; the group it closed is closed by the entry before it, with its edges.
  void erase(const Site& site) {
    const Item item = program_.items[site.item];
    const bool entry = item_op(item) == ItemOp::kOp;
    const bool chained = site.item > program_.threads[site.thread].begin &&
                         (item_flags(program_.items[site.item - 1]) & kMore) != 0;
    if (entry && chained && (item_flags(item) & kMore) == 0) {
      Item& previous = program_.items[site.item - 1];
      previous = with_flags(previous, item_flags(item));
    }
    program_.items.erase(program_.items.begin() + site.item);
    --program_.threads[site.thread].end;
    for (std::size_t t = site.thread + 1; t < program_.threads.size(); ++t) {
      --program_.threads[t].begin;
      --program_.threads[t].end;
    }
  }

  static Item with_flags(Item item, unsigned flags) {
    return make_item(item_op(item), item_microbatch(item), flags, item_ref(item), item_aux(item));
  }
  static Item with_ref(Item item, unsigned ref) {
    return make_item(item_op(item), item_microbatch(item), item_flags(item), ref, item_aux(item));
  }

  std::optional<Fault> finish(Fault out) {
    if (!validate_program(program_)) return std::nullopt;
    out.program = std::move(program_);
    return out;
  }

  std::optional<Fault> drop() {
    const auto all = sites([&](Item item) { return is_operation(item); });
    if (all.empty()) return std::nullopt;
    const Site site = all[pick(all.size())];
    Fault out = fault(FaultKind::kDrop, site);
    erase(site);
    return finish(std::move(out));
  }

  std::optional<Fault> duplicate() {
    const auto all = sites([&](Item item) { return is_operation(item); });
    if (all.empty()) return std::nullopt;
    const Site site = all[pick(all.size())];
    Fault out = fault(FaultKind::kDuplicate, site);
    // After the whole group, as a call of its own with the group's edges.
    std::uint32_t last = site.item;
    while ((item_flags(program_.items[last]) & kMore) != 0) ++last;
    insert(last + 1, site.thread, with_flags(program_.items[site.item], item_flags(program_.items[last])));
    return finish(std::move(out));
  }

  // Two messages of the same endpoint exchange their microbatches: the peer takes one for the other.
  std::optional<Fault> swap() {
    const auto all = sites([&](Item item) { return is_message(item); });
    if (all.empty()) return std::nullopt;
    const Site site = all[pick(all.size())];
    std::vector<Site> others;
    for (const Site& other : all) {
      const Item a = program_.items[site.item];
      const Item b = program_.items[other.item];
      const bool same = other.thread == site.thread && item_ref(a) == item_ref(b);
      if (same && item_microbatch(a) != item_microbatch(b)) others.push_back(other);
    }
    if (others.empty()) return std::nullopt;
    const Site other = others[pick(others.size())];
    Fault out = fault(FaultKind::kSwap, site);
    Item& a = program_.items[site.item];
    Item& b = program_.items[other.item];
    const int microbatch = item_microbatch(a);
    a = make_item(ItemOp::kOp, item_microbatch(b), item_flags(a), item_ref(a), item_aux(a));
    b = make_item(ItemOp::kOp, microbatch, item_flags(b), item_ref(b), item_aux(b));
    return finish(std::move(out));
  }

  // Ranks that a message of this endpoint could name instead.
  std::vector<Rank> other_peers(std::size_t thread, const Endpoint& endpoint) const {
    std::vector<Rank> out;
    const auto own = static_cast<Rank>(thread);
    const Rank now = endpoint_peer(program_.grid, endpoint, own);
    for (const auto& members : program_.families[endpoint.family].instances) {
      if (std::find(members.begin(), members.end(), own) == members.end()) continue;
      for (const Rank member : members) {
        if (member != own && member != now) out.push_back(member);
      }
    }
    return out;
  }

  std::optional<Fault> wrong_peer() {
    auto all = sites([&](Item item) { return is_message(item); });
    std::erase_if(all, [&](const Site& site) {
      return other_peers(site.thread, program_.endpoints[item_ref(program_.items[site.item])]).empty();
    });
    if (all.empty()) return std::nullopt;
    const Site site = all[pick(all.size())];
    Fault out = fault(FaultKind::kWrongPeer, site);
    Endpoint endpoint = program_.endpoints[item_ref(program_.items[site.item])];
    const auto peers = other_peers(site.thread, endpoint);
    endpoint.form = PeerForm::kRank;
    endpoint.peer = peers[pick(peers.size())];
    endpoint.name += ".wrong-peer";
    program_.endpoints.push_back(std::move(endpoint));
    Item& item = program_.items[site.item];
    item = with_ref(item, static_cast<unsigned>(program_.endpoints.size() - 1));
    return finish(std::move(out));
  }

  // The computation moves to another rank, at the same place of its program as far as that is as long.
  std::optional<Fault> wrong_rank() {
    if (program_.threads.size() < 2) return std::nullopt;
    const auto all = sites([&](Item item) { return is_computation(item); });
    if (all.empty()) return std::nullopt;
    const Site site = all[pick(all.size())];
    Fault out = fault(FaultKind::kWrongRank, site);
    const Item item = program_.items[site.item];
    const std::uint32_t offset = site.item - program_.threads[site.thread].begin;
    const std::size_t shift = 1 + pick(program_.threads.size() - 1);
    const std::size_t target = (site.thread + shift) % program_.threads.size();
    erase(site);
    const Thread& thread = program_.threads[target];
    std::uint32_t at = std::min(thread.begin + offset, thread.end);
    while (at > thread.begin && (item_flags(program_.items[at - 1]) & kMore) != 0) --at;
    insert(at, target, item);
    return finish(std::move(out));
  }

  Program program_;
  CounterRng rng_;
  std::uint64_t draws_ = 0;
};

}  // namespace

std::string_view fault_kind_name(FaultKind kind) {
  switch (kind) {
    case FaultKind::kDrop:
      return "drop";
    case FaultKind::kDuplicate:
      return "duplicate";
    case FaultKind::kSwap:
      return "swap";
    case FaultKind::kWrongPeer:
      return "wrong peer";
    case FaultKind::kWrongRank:
      return "wrong rank";
  }
  return "?";
}

std::optional<Fault> inject(const Program& program, FaultKind kind, std::uint64_t seed) {
  return Injector(program, seed).run(kind);
}

}  // namespace plumbline::props

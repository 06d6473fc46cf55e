// Random Programs from one 64-bit seed: a random sequence of global steps (a message, a group of messages
// that cross, a collective) is dealt to the ranks, so that it completes, with streams, edges and host waits
// drawn at will; then it is left alone, or its order is disturbed, or one fault is put in.
#pragma once

#include <cstdint>

#include "engine/base/rng.h"
#include "tests/sim/verify/builder.h"

namespace plumbline::test {

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : rng_(seed, "checker-test") {}
  int below(int bound) { return static_cast<int>(rng_.below(index_++, static_cast<std::uint64_t>(bound))); }
  bool one_in(int n) { return below(n) == 0; }

 private:
  CounterRng rng_;
  std::uint64_t index_ = 0;
};

class RandomProgram {
 public:
  enum class Size : std::uint8_t {
    kSmall,
    kLarge,  // more ranks and steps
  };
  explicit RandomProgram(std::uint64_t seed, Size size = Size::kSmall)
      : draw_(seed), ranks_(2 + draw_.below(size == Size::kSmall ? 3 : 7)), b_(ranks_, kMicrobatches) {
    b_.program().fragment = true;
    for (int s = 0; s < 2; ++s) slots_.push_back(b_.slot("x" + std::to_string(s), 64 << (4 * s)));
    step_slot_ = b_.slot("s", 256, SlotKind::kOther, false, true);
    kernel_ = b_.kernel({}, {}, {}, KernelKind::kForward);  // takes time
    b_.program().events = {"a", "b"};
    families();
    rows_.resize(static_cast<std::size_t>(ranks_));
    const int steps = 1 + draw_.below(size == Size::kSmall ? 14 : 40);
    for (int i = 0; i < steps; ++i) step();
    disturb();
  }

  Program program() {
    for (int r = 0; r < ranks_; ++r) {
      // Waits for what precedes the first group have their own rule (HostWaits::need).
      for (int i = draw_.below(4); i > 0; --i) {
        if (const Item item = extra(); item != 0) b_.add(r, item);
      }
      for (const auto& group : rows_[static_cast<std::size_t>(r)]) emit(r, group);
    }
    return b_.build();
  }

 private:
  static constexpr int kMicrobatches = 8;
  struct Entry {
    unsigned endpoint;
    int microbatch;
  };
  struct Group {
    std::vector<Entry> entries;
    unsigned flags = 0;
    Item extra = 0;  // an item before the group; 0: none
  };

  void families() {
    const int count = 1 + draw_.below(3);
    for (int f = 0; f < count; ++f) {
      std::vector<Rank> members;
      for (int r = 0; r < ranks_; ++r) {
        if (f == 0 || !draw_.one_in(4)) members.push_back(r);
      }
      while (members.size() < 2) {
        const Rank extra = draw_.below(ranks_);
        if (std::find(members.begin(), members.end(), extra) == members.end()) members.push_back(extra);
      }
      if (draw_.one_in(2)) std::reverse(members.begin(), members.end());
      members_.push_back(members);
      b_.family("c" + std::to_string(f), {members});
    }
  }

  Item extra() {
    const auto stream = static_cast<unsigned>(draw_.below(static_cast<int>(members_.size()) + 1));
    switch (draw_.below(8)) {
      case 0:
        return make_item(ItemOp::kLaunch, 0, 0, kernel_, 0);
      case 1:
        return make_item(ItemOp::kLaunch, 0, 0, kernel_, stream);
      case 2:
        return make_item(ItemOp::kRecord, kNoMicrobatch, 0, static_cast<unsigned>(draw_.below(2)), stream);
      case 3:
        return make_item(ItemOp::kWaitEvent, kNoMicrobatch, 0, static_cast<unsigned>(draw_.below(2)), stream);
      case 4:
        return draw_.one_in(3)
                   ? make_item(ItemOp::kSyncEvent, kNoMicrobatch, 0, static_cast<unsigned>(draw_.below(2)), 0)
                   : 0;
      case 5:
        return draw_.one_in(3) ? make_item(ItemOp::kSyncStream, kNoMicrobatch, 0, 0, stream) : 0;
      case 6:
        return draw_.one_in(4) ? make_item(ItemOp::kSyncDevice, kNoMicrobatch, 0, 0, 0) : 0;
      default:
        return 0;
    }
  }

  void put(int rank, std::vector<Entry> entries) {
    Group group;
    group.entries = std::move(entries);
    if (draw_.one_in(2)) group.flags |= kAfterCompute;
    if (draw_.one_in(2)) group.flags |= kComputeWaits;
    if (draw_.one_in(8)) group.flags |= kHostWaits;
    group.extra = extra();
    // Sometimes merged into the group before, which may then hold several communicators and kinds.
    auto& row = rows_[static_cast<std::size_t>(rank)];
    if (!row.empty() && draw_.one_in(10) && group.extra == 0) {
      row.back().entries.insert(row.back().entries.end(), group.entries.begin(), group.entries.end());
    } else {
      row.push_back(std::move(group));
    }
  }

  unsigned family() { return static_cast<unsigned>(draw_.below(static_cast<int>(members_.size()))); }
  Rank member(unsigned f) {
    return members_[f][static_cast<std::size_t>(draw_.below(static_cast<int>(members_[f].size())))];
  }

  void step() {
    const unsigned f = family();
    if (draw_.one_in(5)) {
      const int kind = draw_.below(3);
      const Rank root = member(f);
      for (const Rank r : members_[f]) {
        const unsigned e = kind == 0   ? b_.endpoint(EndpointKind::kAllReduce, f, step_slot_, -1)
                           : kind == 1 ? b_.endpoint(EndpointKind::kBroadcast, f, step_slot_, root)
                                       : b_.endpoint(EndpointKind::kAllReduce, f, step_slot_, -1, false, 128,
                                                     ReduceOp::kMax);
        put(r, {{e, kNoMicrobatch}});
      }
      return;
    }
    const Rank from = member(f);
    Rank to = member(f);
    while (to == from) to = member(f);
    const unsigned slot = slots_[static_cast<std::size_t>(draw_.below(2))];
    const int microbatch = draw_.below(kMicrobatches);
    std::vector<Entry> of_from{{b_.endpoint(EndpointKind::kSend, f, slot, to), microbatch}};
    std::vector<Entry> of_to{{b_.endpoint(EndpointKind::kRecv, f, slot, from), microbatch}};
    const int back = draw_.below(3);  // 1, 2: the other way at the same time
    for (int i = 0; i < back; ++i) {
      const int other = draw_.below(kMicrobatches);
      const bool same_way = draw_.one_in(3);
      of_from.push_back(
          {b_.endpoint(same_way ? EndpointKind::kSend : EndpointKind::kRecv, f, slot, to), other});
      of_to.push_back(
          {b_.endpoint(same_way ? EndpointKind::kRecv : EndpointKind::kSend, f, slot, from), other});
    }
    put(from, std::move(of_from));
    put(to, std::move(of_to));
  }

  void disturb() {
    auto& row = rows_[static_cast<std::size_t>(draw_.below(ranks_))];
    if (row.empty()) return;
    const auto at = static_cast<std::size_t>(draw_.below(static_cast<int>(row.size())));
    switch (draw_.below(8)) {
      case 0:
        row.erase(row.begin() + static_cast<std::ptrdiff_t>(at));
        return;
      case 1:
        row.insert(row.begin() + static_cast<std::ptrdiff_t>(at), row[at]);
        return;
      case 2:
        std::swap(row[at], row[static_cast<std::size_t>(draw_.below(static_cast<int>(row.size())))]);
        return;
      case 3:
        std::swap(row[at].entries.front(), row[at].entries.back());
        return;
      case 4:
        row[at].entries.front().microbatch =
            kNoMicrobatch == row[at].entries.front().microbatch ? kNoMicrobatch : 0;
        return;
      case 5: {  // a group in pieces
        const Group whole = row[at];
        row.erase(row.begin() + static_cast<std::ptrdiff_t>(at));
        for (std::size_t i = whole.entries.size(); i-- > 0;) {
          Group piece = whole;
          piece.entries = {whole.entries[i]};
          row.insert(row.begin() + static_cast<std::ptrdiff_t>(at), piece);
        }
        return;
      }
      default:
        return;
    }
  }

  void emit(Rank rank, const Group& group) {
    if (group.extra != 0) b_.add(rank, group.extra);
    for (std::size_t i = 0; i < group.entries.size(); ++i) {
      const bool last = i + 1 == group.entries.size();
      const unsigned endpoint = group.entries[i].endpoint;
      const unsigned stream = 1u + b_.program().endpoints[group.entries.back().endpoint].family;
      b_.add(rank, make_item(ItemOp::kOp, group.entries[i].microbatch, last ? group.flags : unsigned{kMore},
                             endpoint, stream));
    }
  }

  Draw draw_;
  int ranks_;
  Builder b_;
  std::vector<unsigned> slots_;
  unsigned step_slot_ = 0;
  unsigned kernel_ = 0;
  std::vector<std::vector<Rank>> members_;
  std::vector<std::vector<Group>> rows_;
};

}  // namespace plumbline::test

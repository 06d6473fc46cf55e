#include "reports/event_links.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "reports/event_kind.h"

namespace plumbline {
namespace {

// What a computation or receive has produced on a rank, as one sortable number.
enum class Product : std::uint8_t { kForward, kBackward, kActivation, kGradient };

std::uint64_t product_key(Rank rank, Product product, std::int64_t stage, std::int32_t microbatch) {
  return (static_cast<std::uint64_t>(rank) << 42) | (static_cast<std::uint64_t>(product) << 40) |
         (static_cast<std::uint64_t>(stage & 0xFFFF) << 21) |
         static_cast<std::uint64_t>((microbatch + 1) & 0x1FFFFF);
}

class StepLinker {
 public:
  StepLinker(const RunRecord& record, const StepEvents& step, EventLinks& links)
      : record_(record), step_(step), links_(links) {}

  void run() {
    match_messages();
    index_products();
    for (Rank rank = 0; rank < record_.ranks; ++rank) link_rank(rank);
    link_collectives();
  }

 private:
  const RunEvent& event(std::uint32_t i) const { return record_.events[i]; }
  const EventLabel& label(std::uint32_t i) const { return record_.labels[event(i).label]; }
  WorkKind kind(std::uint32_t i) const { return work_kind(label(i)); }

  void match_messages() {
    // (slot, stage, microbatch, from, to), then first in, first out.
    using Key = std::tuple<std::uint8_t, std::int32_t, std::int32_t, Rank, Rank>;
    std::vector<std::pair<Key, std::uint32_t>> sends, receives;
    for (const std::uint32_t i : step_.index) {
      const RunEvent& e = event(i);
      const std::uint8_t slot = static_cast<std::uint8_t>(label(i).slot);
      if (kind(i) == WorkKind::kSend) {
        sends.push_back({Key{slot, label(i).stage, e.microbatch, e.rank, e.peer}, i});
      } else if (kind(i) == WorkKind::kRecv) {
        receives.push_back({Key{slot, label(i).stage, e.microbatch, e.peer, e.rank}, i});
      }
    }
    const auto by_key = [](const auto& a, const auto& b) { return a.first < b.first; };
    std::stable_sort(sends.begin(), sends.end(), by_key);
    std::stable_sort(receives.begin(), receives.end(), by_key);
    std::size_t r = 0;
    std::int64_t pairs = 0;
    for (const auto& [key, send] : sends) {
      while (r < receives.size() && receives[r].first < key) ++r;
      if (r == receives.size() || receives[r].first != key) continue;
      links_.match[send] = static_cast<std::int32_t>(receives[r].second);
      links_.match[receives[r].second] = static_cast<std::int32_t>(send);
      ++pairs;
      ++r;
    }
    links_.matched += pairs;
    links_.unmatched += static_cast<std::int64_t>(sends.size() + receives.size()) - 2 * pairs;
  }

  void index_products() {
    for (const std::uint32_t i : step_.index) {
      const RunEvent& e = event(i);
      switch (kind(i)) {
        case WorkKind::kForward:
          add_product(Product::kForward, i, e);
          break;
        case WorkKind::kBackward:
        case WorkKind::kInputGrad:
          add_product(Product::kBackward, i, e);
          break;
        case WorkKind::kRecv:
          if (label(i).slot == SlotKind::kActivation) add_product(Product::kActivation, i, e);
          if (label(i).slot == SlotKind::kGradient) add_product(Product::kGradient, i, e);
          break;
        default:
          break;
      }
    }
    std::sort(products_.begin(), products_.end());
  }
  void add_product(Product product, std::uint32_t i, const RunEvent& e) {
    products_.push_back({product_key(e.rank, product, label(i).stage, e.microbatch), i});
  }

  // The latest such product that was finished before `before` started; kNoEvent if there is none.
  std::int32_t find(Product product, std::int64_t stage, const RunEvent& before) const {
    if (stage < 0) return kNoEvent;
    const std::uint64_t key = product_key(before.rank, product, stage, before.microbatch);
    auto at =
        std::lower_bound(products_.begin(), products_.end(), std::pair<std::uint64_t, std::uint32_t>{key, 0});
    std::int32_t best = kNoEvent;
    for (; at != products_.end() && at->first == key; ++at) {
      if (event(at->second).end <= before.start) best = later(best, static_cast<std::int32_t>(at->second));
    }
    return best;
  }

  std::int32_t later(std::int32_t a, std::int32_t b) const {
    if (a == kNoEvent) return b;
    if (b == kNoEvent) return a;
    return event(static_cast<std::uint32_t>(b)).end > event(static_cast<std::uint32_t>(a)).end ? b : a;
  }

  void find_data(std::uint32_t i) {
    const RunEvent& e = event(i);
    const std::int64_t stage = label(i).stage;
    std::int32_t& first = links_.data[0][i];
    std::int32_t& second = links_.data[1][i];
    switch (kind(i)) {
      case WorkKind::kForward:
        first = find(Product::kActivation, stage, e);
        if (first == kNoEvent) first = find(Product::kForward, stage - 1, e);
        break;
      case WorkKind::kRecompute:
      case WorkKind::kBackward:
      case WorkKind::kInputGrad:
        first = find(Product::kForward, stage, e);
        second = find(Product::kGradient, stage + 1, e);
        if (second == kNoEvent) second = find(Product::kBackward, stage + 1, e);
        break;
      case WorkKind::kWeightGrad:
        first = find(Product::kBackward, stage, e);
        break;
      case WorkKind::kSend:
        if (label(i).slot == SlotKind::kActivation) first = find(Product::kForward, stage - 1, e);
        if (label(i).slot == SlotKind::kGradient) first = find(Product::kBackward, stage, e);
        break;
      default:
        break;
    }
  }

  void link_rank(Rank rank) {
    const auto events = step_.of_rank(rank);
    std::vector<std::uint32_t> by_end(events.begin(), events.end());
    std::stable_sort(by_end.begin(), by_end.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return event(a).end < event(b).end; });
    std::vector<std::int32_t> last_of_stream;  // per stream: the event that ended last so far
    std::size_t ended = 0;
    std::int32_t last = kNoEvent;
    // `events` ascend by start, so all that ended by a start is a growing prefix of `by_end`. The prefix
    // stops before the event itself, which an event of no duration would otherwise reach.
    for (const std::uint32_t i : events) {
      while (ended < by_end.size() && event(by_end[ended]).end <= event(i).start && by_end[ended] != i) {
        const std::uint32_t done = by_end[ended++];
        last = static_cast<std::int32_t>(done);
        const std::size_t stream = event(done).stream;
        if (last_of_stream.size() <= stream) last_of_stream.resize(stream + 1, kNoEvent);
        last_of_stream[stream] = last;
      }
      const std::size_t stream = event(i).stream;
      links_.stream[i] = stream < last_of_stream.size() ? last_of_stream[stream] : kNoEvent;
      find_data(i);
      choose_cause(i, last);
    }
  }

  void choose_cause(std::uint32_t i, std::int32_t last_on_rank) {
    const std::int32_t other = links_.match[i];
    const RunEvent& e = event(i);
    if (other != kNoEvent && e.ready > e.start && event(static_cast<std::uint32_t>(other)).start > e.start) {
      links_.cause[i] = other;
      links_.cause_kind[i] = CauseKind::kPeer;
      return;
    }
    // On a tie the closest relation names the cause: data, then stream, then rank.
    std::int32_t best = later(links_.data[0][i], links_.data[1][i]);
    CauseKind why = best == kNoEvent ? CauseKind::kNone : CauseKind::kData;
    const auto consider = [&](std::int32_t candidate, CauseKind reason) {
      const std::int32_t winner = later(best, candidate);
      if (winner != best) why = reason;
      best = winner;
    };
    consider(links_.stream[i], CauseKind::kStream);
    consider(last_on_rank, CauseKind::kRank);
    links_.cause[i] = best;
    links_.cause_kind[i] = why;
  }

  // Members of one collective became ready together; the one that started last is what the others waited for.
  void link_collectives() {
    std::vector<std::tuple<std::uint16_t, Nanoseconds, std::uint32_t>> members;
    for (const std::uint32_t i : step_.index) {
      if (kind(i) == WorkKind::kCollective) members.push_back({event(i).label, event(i).ready, i});
    }
    std::sort(members.begin(), members.end());
    for (std::size_t begin = 0, end = 0; begin < members.size(); begin = end) {
      std::uint32_t last = std::get<2>(members[begin]);
      while (end < members.size() && std::get<0>(members[end]) == std::get<0>(members[begin]) &&
             std::get<1>(members[end]) == std::get<1>(members[begin])) {
        const std::uint32_t i = std::get<2>(members[end++]);
        if (event(i).start > event(last).start) last = i;
      }
      for (std::size_t k = begin; k < end; ++k) {
        const std::uint32_t i = std::get<2>(members[k]);
        if (event(i).start >= event(last).start || event(i).ready == event(i).start) continue;
        links_.cause[i] = static_cast<std::int32_t>(last);
        links_.cause_kind[i] = CauseKind::kPeer;
      }
    }
  }

  const RunRecord& record_;
  const StepEvents& step_;
  EventLinks& links_;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> products_;
};

}  // namespace

EventLinks link_events(const RunRecord& record, const std::vector<StepEvents>& steps) {
  EventLinks links;
  for (auto* column : {&links.match, &links.cause, &links.data[0], &links.data[1], &links.stream}) {
    column->assign(record.events.size(), kNoEvent);
  }
  links.cause_kind.assign(record.events.size(), CauseKind::kNone);
  for (const StepEvents& step : steps) StepLinker(record, step, links).run();
  return links;
}

std::vector<std::uint32_t> cause_chain(const EventLinks& links, std::uint32_t event, std::size_t limit) {
  std::vector<std::uint32_t> chain;
  for (std::int32_t at = static_cast<std::int32_t>(event); at != kNoEvent && chain.size() < limit;
       at = links.cause[static_cast<std::size_t>(at)]) {
    chain.push_back(static_cast<std::uint32_t>(at));
  }
  return chain;
}

}  // namespace plumbline

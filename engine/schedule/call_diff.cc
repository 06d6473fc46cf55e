#include "engine/schedule/call_diff.h"

#include <algorithm>
#include <map>

namespace plumbline {
namespace {

struct Place {
  int rank = -1;
  int at = -1;
};

// Calls by number: equal words of equal turn have equal numbers.
class Numbers {
 public:
  // `seen` counts the turns of one side.
  int of(const std::string& word, std::map<std::string, int>& seen) {
    const int turn = seen[word]++;
    return numbers_.emplace(std::pair{word, turn}, static_cast<int>(numbers_.size())).first->second;
  }
  std::size_t size() const { return numbers_.size(); }

 private:
  std::map<std::pair<std::string, int>, int> numbers_;
};

std::vector<std::vector<int>> numbered(const CallRows& rows, Numbers& numbers) {
  // Turns count within a rank first, so that a call stays with its rank where it can.
  std::vector<std::vector<int>> out;
  std::map<std::string, int> seen;
  for (const auto& row : rows) {
    out.emplace_back();
    for (const std::string& word : row) out.back().push_back(numbers.of(word, seen));
  }
  return out;
}

// Positions (ascending) of a longest increasing subsequence.
std::vector<std::size_t> longest_increasing(const std::vector<int>& values) {
  std::vector<std::size_t> tails;  // of the best sequence of each length: where it ends
  std::vector<std::size_t> before(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto at = std::lower_bound(tails.begin(), tails.end(), values[i],
                                     [&](std::size_t tail, int value) { return values[tail] < value; });
    before[i] = at == tails.begin() ? i : *(at - 1);
    if (at == tails.end()) {
      tails.push_back(i);
    } else {
      *at = i;
    }
  }
  std::vector<std::size_t> out;
  if (tails.empty()) return out;
  for (std::size_t i = tails.back();; i = before[i]) {
    out.push_back(i);
    if (before[i] == i) break;
  }
  std::reverse(out.begin(), out.end());
  return out;
}

std::string after_of(const CallRows& rows, const Place& place) {
  if (place.rank < 0 || place.at < 1) return {};
  return rows[static_cast<std::size_t>(place.rank)][static_cast<std::size_t>(place.at - 1)];
}

class Differ {
 public:
  Differ(const CallRows& before, const CallRows& after, const CallRows* details_before,
         const CallRows* details_after)
      : before_(before), after_(after), details_before_(details_before), details_after_(details_after) {
    Numbers numbers;
    old_ = numbered(before, numbers);
    new_ = numbered(after, numbers);
    old_places_ = places(old_, numbers.size());
    new_places_ = places(new_, numbers.size());
  }

  CallDiff run() {
    CallDiff out;
    for (const auto& row : before_) out.before += row.size();
    for (const auto& row : after_) out.after += row.size();
    for (std::size_t rank = 0; rank < old_.size(); ++rank) compare_row(rank, out);
    for (std::size_t rank = 0; rank < new_.size(); ++rank) {
      for (const int call : new_[rank])
        if (old_places_[static_cast<std::size_t>(call)].rank < 0) add(CallChange::kAdded, call, out);
    }
    return out;
  }

 private:
  static std::vector<Place> places(const std::vector<std::vector<int>>& rows, std::size_t calls) {
    std::vector<Place> out(calls);
    for (std::size_t rank = 0; rank < rows.size(); ++rank)
      for (std::size_t i = 0; i < rows[rank].size(); ++i)
        out[static_cast<std::size_t>(rows[rank][i])] = Place{static_cast<int>(rank), static_cast<int>(i)};
    return out;
  }

  void compare_row(std::size_t rank, CallDiff& out) {
    std::vector<int> kept;       // positions after, of the calls that stay on the rank
    std::vector<int> kept_call;  // the calls
    for (const int call : old_[rank]) {
      const Place& now = new_places_[static_cast<std::size_t>(call)];
      if (now.rank != static_cast<int>(rank)) continue;
      kept.push_back(now.at);
      kept_call.push_back(call);
    }
    std::vector<bool> in_order(kept.size(), false);
    for (const std::size_t i : longest_increasing(kept)) in_order[i] = true;
    std::size_t next = 0;
    for (const int call : old_[rank]) {
      const Place& now = new_places_[static_cast<std::size_t>(call)];
      if (now.rank < 0) {
        add(CallChange::kRemoved, call, out);
      } else if (now.rank != static_cast<int>(rank)) {
        add(CallChange::kRank, call, out);
      } else if (!in_order[next++]) {
        add(CallChange::kMoved, call, out);
      } else if (details_before_ != nullptr &&
                 detail(*details_before_, old_places_, call) != detail(*details_after_, new_places_, call)) {
        add(CallChange::kChanged, call, out);
        out.moves.back().from_after = detail(*details_before_, old_places_, call);
        out.moves.back().to_after = detail(*details_after_, new_places_, call);
      }
    }
  }

  static const std::string& detail(const CallRows& rows, const std::vector<Place>& places, int call) {
    const Place& place = places[static_cast<std::size_t>(call)];
    return rows[static_cast<std::size_t>(place.rank)][static_cast<std::size_t>(place.at)];
  }

  void add(CallChange change, int call, CallDiff& out) {
    const Place from = old_places_[static_cast<std::size_t>(call)];
    const Place to = new_places_[static_cast<std::size_t>(call)];
    CallMove move;
    move.change = change;
    const CallRows& rows = from.rank >= 0 ? before_ : after_;
    const Place& known = from.rank >= 0 ? from : to;
    move.call = rows[static_cast<std::size_t>(known.rank)][static_cast<std::size_t>(known.at)];
    move.from_rank = from.rank, move.from = from.at;
    move.to_rank = to.rank, move.to = to.at;
    move.from_after = after_of(before_, from);
    move.to_after = after_of(after_, to);
    out.moves.push_back(std::move(move));
  }

  const CallRows& before_;
  const CallRows& after_;
  const CallRows* details_before_;
  const CallRows* details_after_;
  std::vector<std::vector<int>> old_, new_;
  std::vector<Place> old_places_, new_places_;  // by call
};

}  // namespace

CallDiff diff_calls(const CallRows& before, const CallRows& after) {
  return Differ(before, after, nullptr, nullptr).run();
}

CallDiff diff_calls(const CallRows& before, const CallRows& after, const CallRows& details_before,
                    const CallRows& details_after) {
  return Differ(before, after, &details_before, &details_after).run();
}

CallRows call_rows(const Schedule& schedule) {
  CallRows rows;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    rows.emplace_back();
    const std::span<const Action> row = schedule.row(rank);
    for (std::size_t i = 0; i < row.size(); ++i) {
      const bool pair = row[i].paired != 0 && i + 1 < row.size();
      rows.back().push_back(pair ? print_pair(row[i], row[i + 1]) : print_action(row[i]));
      if (pair) ++i;
    }
  }
  return rows;
}

}  // namespace plumbline

#include "engine/schedule/v_reorder.h"

#include <algorithm>

namespace plumbline {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

}  // namespace

bool squeeze(SlotRows& rows, int microbatches) {
  const int ranks = static_cast<int>(rows.size());
  const std::size_t length = rows.front().size();
  SlotRows out(rows.size(), SlotRow(length, kIdle));
  SlotOfPass slots(ranks, microbatches);
  std::vector<PassCounts> counts(rows.size(), PassCounts{});
  std::vector<int> end(rows.size(), 0);
  for (std::size_t slot = 0; slot < length; ++slot) {
    for (const bool down : {true, false}) {
      for (int step = 0; step < ranks; ++step) {
        const int rank = down ? step : ranks - 1 - step;
        const SlotPass pass = rows[at(rank)][slot];
        if (pass == kIdle || leg_goes_down(pass) != down) continue;
        const int k = counts[at(rank)][at(pass)]++;
        if (k >= microbatches) return false;
        int to = end[at(rank)];
        const int from = frees_activation(pass) ? -1 : leg_source(ranks, rank, pass);
        if (from >= 0) {
          const int source = slots.of(from, pass, k);
          if (source < 0) return false;
          to = std::max(to, source + 1);
        }
        out[at(rank)][at(to)] = pass;
        slots.of(rank, pass, k) = to;
        end[at(rank)] = to + 1;
      }
    }
  }
  const int used = *std::max_element(end.begin(), end.end());
  for (SlotRow& row : out) row.resize(at(used));
  rows = std::move(out);
  return true;
}

namespace {

// What a row runs before its first leg-3 pass, taken out of it.
PassCounts take_warmup(SlotRow& row) {
  PassCounts counts{};
  for (SlotPass& pass : row) {
    if (pass == 3) break;
    if (pass != kIdle) ++counts[at(pass)];
    pass = kIdle;
  }
  return counts;
}

// Puts passes into a row from a slot on; false once the row has ended.
class Writer {
 public:
  Writer(SlotRow& row, int slot) : row_(row), slot_(at(slot)) {}
  void put(SlotPass pass) {
    if (slot_ >= row_.size()) fits_ = false;
    if (fits_) row_[slot_] = pass;
  }
  void next() { ++slot_; }
  bool fits() const { return fits_; }

 private:
  SlotRow& row_;
  std::size_t slot_;
  bool fits_ = true;
};

}  // namespace

bool reorder_warmup(SlotRows& rows, int microbatches) {
  const int ranks = static_cast<int>(rows.size());
  const int peak = std::min(peak_of(rows), 2 * ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    const int first_up = std::min({rank + 1, peak / 2, microbatches});
    const int first_down = std::min(peak - first_up, microbatches);
    const PassCounts all = take_warmup(rows[at(rank)]);
    int down = 0, up = 0, back = 0, weights = 0;
    Writer out(rows[at(rank)], rank);
    const auto put_down = [&] {
      if (down < first_down && down < all[0]) {
        out.put(0);
        ++down;
      }
      out.next();
    };
    for (int i = 0; i < 2 * (ranks - 1 - rank); ++i) put_down();
    for (int i = 0; i < rank + 1; ++i) {
      put_down();
      if (up < first_up && up < all[1]) {
        out.put(1);
        ++up;
      }
      out.next();
    }
    while (out.fits() && (down < all[0] || up < all[1] || back < all[2] || weights < all[kWeightOf2])) {
      if (back < all[2]) {
        out.put(2);
        ++back;
      }
      out.next();
      if (weights < all[kWeightOf2]) {
        out.put(kWeightOf2);
        ++weights;
      }
      out.next();
      if (up < all[1]) {
        out.put(1);
        ++up;
      } else if (down < all[0]) {
        out.put(0);
        ++down;
      }
      out.next();
    }
    if (!out.fits()) return false;
  }
  return true;
}

namespace {

// The last backwards of a row and the weight gradients behind them, taken out; `last_up` is the slot of the
// last leg-1 pass.
struct Tail {
  int second = 0;  // leg-2 passes
  int third = 0;   // leg-3 passes
  int last_up = -1;
};

Tail take_cooldown(SlotRow& row, int most_second, int most_third, int peak) {
  Tail tail;
  for (int slot = static_cast<int>(row.size()) - 1; slot >= 0; --slot) {
    SlotPass& pass = row[at(slot)];
    if (pass == 1 && tail.last_up < 0) tail.last_up = slot;
    if (pass == 2 && tail.second < most_second) {
      pass = kIdle;
      ++tail.second;
    } else if (pass == 3 && tail.third < most_third) {
      pass = kIdle;
      ++tail.third;
    }
  }
  int of_second = 0, of_third = 0;
  for (int slot = static_cast<int>(row.size()) - 1; slot >= 0; --slot) {
    if (of_second >= tail.second && of_third >= tail.third && of_second + of_third >= peak) break;
    SlotPass& pass = row[at(slot)];
    if (pass == kWeightOf2) {
      pass = kIdle;
      ++of_second;
    } else if (pass == kWeightOf3) {
      pass = kIdle;
      ++of_third;
    }
  }
  return tail;
}

// Weight gradients that are due into the free slots behind the row's last one, the rest behind its end.
void append_weight_grads(SlotRow& row) {
  int last = -1;
  for (int slot = static_cast<int>(row.size()) - 1; slot >= 0 && last < 0; --slot) {
    if (frees_activation(row[at(slot)])) last = slot;
  }
  int of_second = 0, of_third = 0;
  for (int slot = 0; slot < static_cast<int>(row.size()); ++slot) {
    SlotPass& pass = row[at(slot)];
    if (pass == 2) ++of_second;
    if (pass == 3) ++of_third;
    if (pass == kWeightOf2) --of_second;
    if (pass == kWeightOf3) --of_third;
    if (pass != kIdle || slot <= last) continue;
    if (of_second > 0) {
      pass = kWeightOf2;
      --of_second;
    } else if (of_third > 0) {
      pass = kWeightOf3;
      --of_third;
    }
  }
  row.insert(row.end(), at(std::max(0, of_second)), kWeightOf2);
  row.insert(row.end(), at(std::max(0, of_third)), kWeightOf3);
}

}  // namespace

bool reorder_cooldown(SlotRows& rows, int microbatches) {
  const int ranks = static_cast<int>(rows.size());
  const int peak = peak_of(rows);
  if (peak > 2 * ranks) return false;
  const int most_third = std::min((peak + 1) / 2, microbatches);
  const int most_second = std::min(peak - most_third, microbatches);
  int start = -1;
  for (int rank = 0; rank < ranks; ++rank) {
    SlotRow& row = rows[at(rank)];
    const Tail tail = take_cooldown(row, std::min(rank + 1, most_second), most_third, peak);
    if (rank == 0) start = tail.last_up;
    const auto put = [&](int slot, SlotPass pass, bool over) {
      if (slot < 0 || slot >= static_cast<int>(row.size())) return false;
      if (!over && row[at(slot)] != kIdle) return false;
      row[at(slot)] = pass;
      return true;
    };
    for (int k = 0; k < tail.third; ++k) {
      if (!put(start - rank + 2 * ranks - 2 * k, 3, false)) return false;
    }
    for (int k = 0; k < tail.second; ++k) {
      if (!put(start + 1 + rank - 2 * k, 2, true)) return false;
    }
  }
  std::size_t length = 0;
  for (SlotRow& row : rows) {
    append_weight_grads(row);
    length = std::max(length, row.size());
  }
  for (SlotRow& row : rows) row.resize(length, kIdle);
  return squeeze(rows, microbatches);
}

void drop_surplus(SlotRows& rows, int microbatches) {
  for (SlotRow& row : rows) {
    PassCounts counts{};
    for (SlotPass& pass : row) {
      if (pass != kIdle && counts[at(pass)]++ >= microbatches) pass = kIdle;
    }
  }
}

void delay_first_weight_grads(SlotRows& rows, int peak) {
  std::vector<int> peaks;
  for (const SlotRow& row : rows) peaks.push_back(peak_of(row));
  const int padding = std::max(0, peak - *std::min_element(peaks.begin(), peaks.end()));
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    SlotRow& row = rows[rank];
    SlotRow behind(at(padding), kIdle);
    int moved = 0;
    for (std::size_t slot = 0; slot < row.size() && peaks[rank] + moved < peak; ++slot) {
      if (!frees_activation(row[slot])) continue;
      behind[at(moved++)] = row[slot];
      row[slot] = kIdle;
    }
    row.insert(row.end(), behind.begin(), behind.end());
  }
}

}  // namespace plumbline

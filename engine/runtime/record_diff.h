// Comparison of two RunRecords: what was executed in which order, what came out, and how long things took. Numbers
// are compared bit for bit, or within a tolerance (tolerance.h) where backends' arithmetic differs; how far apart they
// are is told in any case. Within a tolerance, losses and gradient norms are judged by it, the loss scale and skipped
// steps must be the same, and what stands for bits alone (digests) or for exact zeros is told and not judged.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/runtime/run_record.h"
#include "engine/runtime/tolerance.h"

namespace plumbline {

// One quantity of the steps.
struct NumberDiff {
  std::string what;         // "loss", "params digest"
  int steps = 0;            // that both records have
  int equal = 0;            // of these, the same bits
  int within = 0;           // of these, the same bits or within the tolerance
  bool judged = true;       // false: told only
  double limit = 0.0;       // largest tolerance of its steps; 0: bits
  int first = -1;           // first step that differs; -1: none
  double a = 0.0, b = 0.0;  // there; digests: 0
  double largest = 0.0;     // largest |a - b| / max(|a|, |b|); digests: 1 where they differ
};

// Order of the operations of one rank on one stream, which is a communicator or the compute stream.
struct OrderDiff {
  Rank rank = 0;
  std::string stream;
  std::int64_t operations = 0;  // compared
  std::int64_t first = -1;      // position of the first difference; -1: the same
  std::string a, b;             // there; empty: nothing more
};

// Durations of one kind of operation of one stage over all steps and ranks, b over a by matched operations.
struct TimeDiff {
  std::string what;  // "F of stage 1"
  std::int64_t count = 0;
  Nanoseconds total_a = 0, total_b = 0;
  double median = 0.0, p95 = 0.0;  // of b / a, where a is not 0
};

struct RecordDiff {
  std::vector<std::string> header;  // what differs of seed, Program, text, ranks, in words
  Tolerance tolerance;
  std::vector<NumberDiff> numbers;
  std::vector<OrderDiff> orders;  // only those that differ
  std::int64_t same_orders = 0;   // streams of ranks whose order is the same
  std::vector<TimeDiff> times;
  double makespan = 0.0;      // median over steps of b's step time / a's; 0: not known
  bool same_numbers() const;  // all bits
  bool numbers_hold() const;  // what is judged is within the tolerance, by default the same bits
  bool same_order() const { return orders.empty(); }
};

// Steps are matched by their number.
RecordDiff diff_records(const RunRecord& a, const RunRecord& b, const Tolerance& tolerance = {});

}  // namespace plumbline

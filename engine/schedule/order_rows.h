// What the readers of order strings build: rows of (rank, chunk) steps, which become a Schedule once all of them are
// known.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/schedule/order_text.h"
#include "engine/schedule/row_tokens.h"

namespace plumbline::detail {

// A step of a rank; `action.stage` is the chunk until finish() knows the number of ranks.
struct OrderStep {
  Action action;
  RowToken token;
};

class OrderRows {
 public:
  explicit OrderRows(const std::string& name) : name_(name) {}

  void begin_row() { rows_.emplace_back(); }
  // Errors: a chunk or microbatch beyond the limits of an Action.
  Status add(ActionKind kind, std::int64_t chunk, std::int64_t microbatch, const RowToken& token);
  std::vector<std::vector<OrderStep>>& rows() { return rows_; }

  // Errors: no step at all, a microbatch or chunk that nobody computes, more than two chunks in a V.
  Result<Schedule> finish(Placement placement) const;

 private:
  const std::string& name_;
  std::vector<std::vector<OrderStep>> rows_;
};

// Which of the two placements a schedule has; one chunk a rank is both, and counts as a loop.
std::optional<Placement> placement_of(const Schedule& schedule);
// The chunk that a stage is to its rank.
int chunk_of(const Schedule& schedule, Placement placement, int stage);

}  // namespace plumbline::detail

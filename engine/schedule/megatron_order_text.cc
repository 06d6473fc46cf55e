// Megatron's orders of chunks as integers (order_text.h).
#include <map>

#include <fmt/format.h>

#include "engine/base/text.h"
#include "engine/schedule/order_rows.h"
#include "engine/schedule/quote.h"

namespace plumbline {
namespace {

using detail::OrderRows;

// Microbatches of a rank's chunks are counted by kind.
using Counters = std::map<std::pair<ActionKind, int>, int>;

struct Entry {
  std::int64_t chunk = 0;
  bool forward = false;
  bool weights = false;  // "-2.5"
};

Result<Entry> entry_of(const RowToken& token, const std::string& name) {
  std::string_view text = token.text;
  Entry entry;
  entry.weights = text.size() > 2 && text.substr(text.size() - 2) == ".5";
  if (entry.weights) text.remove_suffix(2);
  const Result<std::int64_t> number = parse_integer(text);
  const bool valid = number && *number != 0 && *number >= -kMaxStages && *number <= kMaxStages;
  if (!valid || (entry.weights && *number > 0)) {
    return fail(
        ErrorCode::kParse,
        fmt::format(
            "{} is no step of an order; chunk c-1 is c forward, -c backward, -c.5 its weight gradient, "
            "c from 1",
            quote(token.text)),
        token.where(name));
  }
  entry.forward = *number > 0;
  entry.chunk = (entry.forward ? *number : -*number) - 1;
  return entry;
}

}  // namespace

Result<Schedule> parse_megatron_order(std::string_view text, const std::string& name, Placement placement) {
  const auto rows = split_rows(text, ",[]");
  bool split = false;
  for (const auto& row : rows)
    for (const RowToken& token : row) split = split || token.text.find('.') != std::string_view::npos;
  OrderRows out(name);
  for (const auto& row : rows) {
    out.begin_row();
    Counters next;
    for (const RowToken& token : row) {
      const Result<Entry> entry = entry_of(token, name);
      if (!entry) return tl::unexpected(entry.error());
      const ActionKind backward = split ? ActionKind::kInputGrad : ActionKind::kBackward;
      const ActionKind kind = entry->forward   ? ActionKind::kForward
                              : entry->weights ? ActionKind::kWeightGrad
                                               : backward;
      PL_TRY(out.add(kind, entry->chunk, next[{kind, static_cast<int>(entry->chunk)}]++, token));
    }
  }
  return out.finish(placement);
}

Result<std::string> print_megatron_order(const Schedule& schedule) {
  const auto refuse = [](std::string what) {
    return fail(ErrorCode::kUnsupported,
                what + "; Megatron's integers cannot say that: export it as torch rows");
  };
  const std::optional<Placement> placement = detail::placement_of(schedule);
  if (!placement || schedule.pipelines() != 1) return refuse("stages lie neither in a loop nor in a V");
  bool whole = false;
  bool split = false;
  std::string out;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    Counters next;
    std::string row;
    for (const Action& action : schedule.row(rank)) {
      if (!is_compute(action.kind) || action.paired != 0)
        return refuse(fmt::format("rank {} has {}{}", rank, action.paired != 0 ? "a pair with " : "",
                                  print_action(action)));
      const int chunk = detail::chunk_of(schedule, *placement, action.stage);
      if (action.microbatch != next[{action.kind, chunk}]++)
        return refuse(fmt::format("rank {} runs {} out of turn", rank, print_action(action)));
      whole = whole || action.kind == ActionKind::kBackward;
      split = split || action.kind == ActionKind::kWeightGrad || action.kind == ActionKind::kInputGrad;
      if (whole && split) return refuse("B stands beside I and W");
      row += fmt::format("{}{}{}{}", row.empty() ? "" : ",", action.kind == ActionKind::kForward ? "" : "-",
                         chunk + 1, action.kind == ActionKind::kWeightGrad ? ".5" : "");
    }
    out += row + "\n";
  }
  return out;
}

}  // namespace plumbline

// Order strings of the Zero Bubble projects (order_text.h).
#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "engine/base/text.h"
#include "engine/schedule/order_rows.h"
#include "engine/schedule/quote.h"

namespace plumbline {
namespace {

using detail::OrderRows;
using detail::OrderStep;

constexpr std::array<std::pair<std::string_view, ActionKind>, 8> kKinds{{
    {"F", ActionKind::kForward},
    {"BW", ActionKind::kBackward},
    {"B", ActionKind::kInputGrad},  // a whole backward where no W and no BW is written
    {"W", ActionKind::kWeightGrad},
    {"SF", ActionKind::kSendForward},
    {"RF", ActionKind::kRecvForward},
    {"SB", ActionKind::kSendBackward},
    {"RB", ActionKind::kRecvBackward},
}};

class Reader {
 public:
  Reader(const std::string& name, Placement placement) : name_(name), placement_(placement), rows_(name) {}

  Result<Schedule> read(std::string_view text) {
    for (const auto& row : split_rows(text)) {
      rows_.begin_row();
      for (const RowToken& token : row) PL_TRY(step(token));
    }
    if (!split_)
      for (auto& row : rows_.rows())
        for (OrderStep& step : row)
          if (step.action.kind == ActionKind::kInputGrad) step.action.kind = ActionKind::kBackward;
    return rows_.finish(placement_);
  }

 private:
  tl::unexpected<Error> refuse(const RowToken& token, std::string problem) const {
    return fail(ErrorCode::kParse,
                fmt::format("{}: {}; steps are F3, B3, W3 or BW3 (F3.1 of chunk 1), or F:1:3 (chunk 1)",
                            quote(token.text), problem),
                token.where(name_));
  }

  Status step(const RowToken& token) {
    const std::size_t letters =
        std::min(token.text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ"), token.text.size());
    const std::string_view word = token.text.substr(0, letters);
    if (word == "PV" || word == "RPV" || word == "SPV") return {};
    const auto kind =
        std::find_if(kKinds.begin(), kKinds.end(), [&](const auto& known) { return known.first == word; });
    if (kind == kKinds.end()) return refuse(token, word.empty() ? "no kind" : "unknown kind " + quote(word));
    std::string_view numbers = token.text.substr(letters);
    const bool nodes = !numbers.empty() && numbers.front() == ':';
    if (nodes) {
      numbers.remove_prefix(1);
      if (!numbers.empty() && numbers.back() == 'r') numbers.remove_suffix(1);
    }
    const std::vector<std::string_view> parts = split(numbers, nodes ? ':' : '.');
    if (parts.size() > 2 || (nodes && parts.size() != 2)) return refuse(token, "too many or too few numbers");
    std::int64_t value[2] = {0, 0};
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const Result<std::int64_t> number = parse_integer(parts[i]);
      if (!number) return refuse(token, quote(parts[i]) + " is no number");
      value[i] = *number;
    }
    split_ = split_ || word == "W" || word == "BW";
    const std::int64_t chunk = nodes ? value[0] : value[1];
    return rows_.add(kind->second, chunk, nodes ? value[1] : value[0], token);
  }

  const std::string& name_;
  Placement placement_;
  OrderRows rows_;
  bool split_ = false;
};

std::string_view word_of(ActionKind kind, bool split) {
  if (kind == ActionKind::kBackward) return split ? "BW" : "B";
  for (const auto& [word, known] : kKinds)
    if (known == kind) return word;
  return {};
}

}  // namespace

Result<Schedule> parse_zero_bubble(std::string_view text, const std::string& name, Placement placement) {
  return Reader(name, placement).read(text);
}

Result<std::string> print_zero_bubble(const Schedule& schedule) {
  const std::optional<Placement> placement = detail::placement_of(schedule);
  if (!placement || schedule.pipelines() != 1) {
    return fail(ErrorCode::kUnsupported,
                "zero-bubble strings tell chunks of a loop or a V, and this schedule's stages lie otherwise; "
                "export it "
                "as torch rows");
  }
  const bool split = std::any_of(schedule.actions.begin(), schedule.actions.end(), [](const Action& action) {
    return action.kind == ActionKind::kWeightGrad || action.kind == ActionKind::kInputGrad;
  });
  const bool chunks = schedule.stages > schedule.ranks;
  std::string out;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    std::string row;
    for (const Action& action : schedule.row(rank)) {
      const std::string_view word = word_of(action.kind, split);
      if (word.empty() || action.paired != 0) {
        return fail(
            ErrorCode::kUnsupported,
            fmt::format("rank {} has {}{}, which zero-bubble strings cannot say; export it as torch rows",
                        rank, action.paired != 0 ? "a pair with " : "", print_action(action)));
      }
      row += fmt::format("{}{}{}", row.empty() ? "" : " ", word, action.microbatch);
      if (chunks) row += fmt::format(".{}", detail::chunk_of(schedule, *placement, action.stage));
    }
    out += row + "\n";
  }
  return out;
}

}  // namespace plumbline

#include "engine/schedule/action.h"

#include <array>
#include <charconv>
#include <optional>

#include <fmt/format.h>

#include "engine/schedule/quote.h"

namespace plumbline {
namespace {

constexpr std::string_view kPairSuffix = "OVERLAP_F_B";

constexpr std::array<std::string_view, kActionKinds> kNames = {
    "F", "B", "I", "W", "SEND_F", "RECV_F", "SEND_B", "RECV_B", "UNSHARD", "RESHARD", "REDUCE_GRAD"};

std::optional<ActionKind> kind_from_name(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<ActionKind>(i);
  }
  return std::nullopt;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_'; }
bool is_blank(char c) { return c == ' ' || c == '\t'; }

// A piece of a cell that remembers where in the cell it begins, so that every error can name its column.
struct Piece {
  std::string_view text;
  std::size_t at = 0;

  Piece sub(std::size_t from, std::size_t count = std::string_view::npos) const {
    return Piece{text.substr(from, count), at + from};
  }
  Piece trimmed() const {
    Piece out = *this;
    while (!out.text.empty() && is_blank(out.text.front())) out = out.sub(1);
    while (!out.text.empty() && is_blank(out.text.back())) out.text.remove_suffix(1);
    return out;
  }
};

class CellParser {
 public:
  CellParser(std::string_view cell, const Where& where) : cell_(cell), where_(where) {}

  Status append_to(std::vector<Action>* out) const {
    const Piece piece = Piece{cell_, 0}.trimmed();
    if (piece.text.empty()) return {};
    if (piece.text.front() == '(') return append_pair(piece, out);
    const Result<Action> action = parse_action(piece);
    if (!action) return tl::unexpected(action.error());
    out->push_back(*action);
    return {};
  }

 private:
  tl::unexpected<Error> fail_at(std::size_t at, std::string_view problem) const {
    Where place = where_;
    place.column = (where_.column > 0 ? where_.column : 1) + static_cast<int>(at);
    return fail(ErrorCode::kParse, fmt::format("action {}: {}", quote(cell_), problem), std::move(place));
  }

  // Digits at the front of `piece`, below `limit`. Returns how many characters they take.
  Result<std::size_t> parse_number(Piece piece, std::string_view what, int limit, int* value) const {
    std::size_t size = 0;
    while (size < piece.text.size() && is_digit(piece.text[size])) ++size;
    const auto [end, error] = std::from_chars(piece.text.data(), piece.text.data() + size, *value);
    if (error != std::errc() || *value >= limit) {
      return fail_at(piece.at, fmt::format("{} {} is above the limit of {}", what,
                                           quote(piece.text.substr(0, size)), limit - 1));
    }
    return size;
  }

  std::string unknown_kind(std::string_view word) const {
    if (word == "BW") {
      return "unknown kind 'BW'; PyTorch before 2.6 wrote BW for B (full backward) and B for I (input "
             "gradient)";
    }
    if (word == kPairSuffix) return "OVERLAP_F_B joins two actions; write (0F1;7B0)OVERLAP_F_B";
    return fmt::format(
        "unknown kind {}; kinds are F, B, I, W, SEND_F, RECV_F, SEND_B, RECV_B, UNSHARD, RESHARD and "
        "REDUCE_GRAD, in capitals",
        quote(word));
  }

  Result<Action> parse_action(Piece piece) const {
    if (piece.text.empty())
      return fail_at(piece.at, "an action is missing; write stage, kind and microbatch: 0F3");
    if (piece.text.front() == '(')
      return fail_at(piece.at, "pairs do not nest; a pair holds two plain actions");
    if (!is_digit(piece.text.front())) {
      return fail_at(piece.at,
                     "an action begins with its stage number; write stage, kind and microbatch: 0F3");
    }
    int stage = 0;
    const Result<std::size_t> stage_size = parse_number(piece, "stage", kMaxStages, &stage);
    if (!stage_size) return tl::unexpected(stage_size.error());

    const Piece rest = piece.sub(*stage_size);
    std::size_t word_size = 0;
    while (word_size < rest.text.size() && is_word(rest.text[word_size])) ++word_size;
    const std::string_view word = rest.text.substr(0, word_size);
    if (word.empty())
      return fail_at(rest.at, "a kind must follow the stage number; write stage, kind and microbatch: 0F3");
    const std::optional<ActionKind> kind = kind_from_name(word);
    if (!kind) return fail_at(rest.at, unknown_kind(word));

    Action action;
    action.stage = static_cast<std::uint16_t>(stage);
    action.kind = *kind;
    const Status status = parse_microbatch(rest.sub(word_size), &action);
    if (!status) return tl::unexpected(status.error());
    return action;
  }

  Status parse_microbatch(Piece piece, Action* action) const {
    const std::string_view name = action_kind_name(action->kind);
    const bool present = !piece.text.empty() && is_digit(piece.text.front());
    std::size_t size = 0;
    if (takes_microbatch(action->kind)) {
      if (!present) {
        return fail_at(piece.at,
                       fmt::format("{0} needs a microbatch number; write {1}{0}0", name, action->stage));
      }
      int microbatch = 0;
      const Result<std::size_t> parsed = parse_number(piece, "microbatch", kMaxMicrobatches, &microbatch);
      if (!parsed) return tl::unexpected(parsed.error());
      action->microbatch = microbatch;
      size = *parsed;
    } else if (present) {
      return fail_at(piece.at, fmt::format("{0} takes no microbatch; write {1}{0}", name, action->stage));
    }
    if (size < piece.text.size()) {
      return fail_at(piece.at + size,
                     fmt::format("the action ends at {}; one cell holds one action or one pair",
                                 quote(print_action(*action))));
    }
    return {};
  }

  Result<Action> parse_pair_member(Piece piece) const {
    const Piece member = piece.trimmed();
    Result<Action> action = parse_action(member);
    if (action && !is_compute(action->kind)) {
      return fail_at(member.at, fmt::format("a pair overlaps computations only (F, B, I, W); {} is none",
                                            action_kind_name(action->kind)));
    }
    return action;
  }

  Status append_pair(Piece piece, std::vector<Action>* out) const {
    const std::size_t nested = piece.text.find('(', 1);
    const std::size_t close = piece.text.find(')');
    if (nested < close)
      return fail_at(piece.at + nested, "pairs do not nest; a pair holds two plain actions");
    if (close == std::string_view::npos)
      return fail_at(piece.at + piece.text.size(), "the pair's ')' is missing");
    const std::size_t semicolon = piece.text.find(';');
    if (semicolon >= close) {
      return fail_at(piece.at + close, "a pair has two actions; write (0F1;7B0)OVERLAP_F_B");
    }
    const std::size_t third = piece.text.find(';', semicolon + 1);
    if (third < close) return fail_at(piece.at + third, "a pair has two actions, not more");
    if (piece.text.substr(close + 1) != kPairSuffix) {
      return fail_at(piece.at + close + 1, "after ')' a pair ends with exactly OVERLAP_F_B");
    }
    Result<Action> first = parse_pair_member(piece.sub(1, semicolon - 1));
    if (!first) return tl::unexpected(first.error());
    const Piece second_piece = piece.sub(semicolon + 1, close - semicolon - 1);
    const Result<Action> second = parse_pair_member(second_piece);
    if (!second) return tl::unexpected(second.error());
    if (*first == *second) return fail_at(second_piece.trimmed().at, "a pair joins two different actions");
    first->paired = 1;
    out->push_back(*first);
    out->push_back(*second);
    return {};
  }

  std::string_view cell_;
  const Where& where_;
};

}  // namespace

std::string_view action_kind_name(ActionKind kind) {
  const std::size_t index = static_cast<std::size_t>(kind);
  return index < kNames.size() ? kNames[index] : "?";
}

Status append_cell(std::string_view text, const Where& where, std::vector<Action>* out) {
  return CellParser(text, where).append_to(out);
}

Result<std::vector<Action>> parse_cell(std::string_view text, Where where) {
  std::vector<Action> actions;
  PL_TRY(append_cell(text, where, &actions));
  return actions;
}

std::string print_action(const Action& action) {
  std::string out = fmt::format("{}{}", action.stage, action_kind_name(action.kind));
  if (takes_microbatch(action.kind)) out += std::to_string(action.microbatch);
  return out;
}

std::string print_pair(const Action& first, const Action& second) {
  return fmt::format("({};{}){}", print_action(first), print_action(second), kPairSuffix);
}

}  // namespace plumbline

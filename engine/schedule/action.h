// Action: one step of a pipeline schedule, and its text form, which is the grammar of
// torch.distributed.pipelining (schedules.py, _Action; docs/action-grammar.md):
//
//   action   = stage kind [microbatch] | "(" action ";" action ")OVERLAP_F_B"
//   kind     = F | B | I | W | SEND_F | RECV_F | SEND_B | RECV_B | UNSHARD | RESHARD | REDUCE_GRAD
//
// F forward, B full backward, I gradient with respect to the stage's input, W gradient with respect to its
// weights. SEND_x and RECV_x carry the stage that executes them: 0SEND_F3 meets 1RECV_F3, and 1SEND_B3 meets
// 0RECV_B3. UNSHARD, RESHARD and REDUCE_GRAD take no microbatch; every other kind needs one. The parser takes
// whole words only; blanks may surround an action, never split it. A pair is two different computations and
// does not nest.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"

namespace plumbline {

enum class ActionKind : std::uint8_t {
  kForward,
  kBackward,
  kInputGrad,
  kWeightGrad,
  kSendForward,
  kRecvForward,
  kSendBackward,
  kRecvBackward,
  kUnshard,
  kReshard,
  kReduceGrad,
};

constexpr int kActionKinds = 11;
constexpr int kMaxStages = 1 << 16;
constexpr int kMaxMicrobatches = 1 << 20;  // a microbatch has 20 bits in a Program item

std::string_view action_kind_name(ActionKind kind);  // "F", "SEND_F", ...

constexpr bool is_compute(ActionKind kind) { return kind <= ActionKind::kWeightGrad; }
constexpr bool is_p2p(ActionKind kind) {
  return kind >= ActionKind::kSendForward && kind <= ActionKind::kRecvBackward;
}
constexpr bool is_send(ActionKind kind) {
  return kind == ActionKind::kSendForward || kind == ActionKind::kSendBackward;
}
constexpr bool takes_microbatch(ActionKind kind) { return kind < ActionKind::kUnshard; }

struct Action {
  std::int32_t microbatch = -1;  // -1: none
  std::uint16_t stage = 0;
  ActionKind kind = ActionKind::kForward;
  std::uint8_t paired = 0;  // 1: this action and the next form one overlapped pair

  bool operator==(const Action&) const = default;
};
static_assert(sizeof(Action) == 8);

// One cell: one action, or the two of an overlapped pair (the first with `paired` set). An empty cell (idle)
// is an empty vector. `where` is the position of the cell's first character; errors carry the exact column.
Result<std::vector<Action>> parse_cell(std::string_view text, Where where = {});
// The same, appending to `out` (left as it was on an error): readers of whole files call this.
Status append_cell(std::string_view text, const Where& where, std::vector<Action>* out);

std::string print_action(const Action& action);                     // one action; ignores `paired`
std::string print_pair(const Action& first, const Action& second);  // "(0F1;7B0)OVERLAP_F_B"

}  // namespace plumbline

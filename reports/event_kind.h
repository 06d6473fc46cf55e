// What an event of a RunRecord is, in the words and classes that every report shares: colour class, chunk,
// short name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/runtime/run_record.h"

namespace plumbline {

// The colour classes of all reports. Every kernel that is not F, B, I or W is kOptimizer: the work around the
// pipeline.
enum class WorkKind : std::uint8_t {
  kForward,
  kBackward,
  kInputGrad,
  kWeightGrad,
  kOptimizer,
  kSend,
  kRecv,
  kCollective,
  kRecompute,  // last, so that the page's numbers of the others stay
};
constexpr int kWorkKinds = 9;

WorkKind work_kind(const EventLabel& label);
constexpr bool is_pipeline(WorkKind kind) {
  return kind <= WorkKind::kWeightGrad || kind == WorkKind::kRecompute;
}
constexpr bool is_communication(WorkKind kind) {
  return kind >= WorkKind::kSend && kind <= WorkKind::kCollective;
}

std::string_view work_letter(WorkKind kind);  // "F", "B", "I", "W", "OPT", "SEND", "RECV", "COLL", "R"
std::string_view work_title(WorkKind kind);   // "forward", "backward", "input gradient", ...

// Whether an event can be drawn: its rank and label exist and its times are in order. Reports skip all
// others, so that a damaged record gives a smaller picture and never a crash.
bool drawable(const RunRecord& record, const RunEvent& event);

// "F3", "SEND_F5", "OPT": without stage. The event must be drawable.
std::string short_name(const RunRecord& record, const RunEvent& event);
// The field's action grammar where it has a word: "2F3", "2SEND_F5"; else the label's name.
std::string action_name(const RunRecord& record, const RunEvent& event);
// For sentences: "F3 of stage 2", "the receive of activation 5 (stage 2) from rank 1", "all-reduce grads".
std::string spoken_name(const RunRecord& record, const RunEvent& event);

// Which stages each rank computes, read off the events. A chunk is a stage's place among its rank's stages.
class ChunkTable {
 public:
  explicit ChunkTable(const RunRecord& record);
  int chunk(Rank rank, int stage) const;  // 0 for a stage that the rank does not compute
  int chunks() const { return chunks_; }  // most stages on one rank, at least 1
  const std::vector<int>& stages(Rank rank) const { return stages_[static_cast<std::size_t>(rank)]; }

 private:
  std::vector<std::vector<int>> stages_;  // ascending
  int chunks_ = 1;
};

}  // namespace plumbline

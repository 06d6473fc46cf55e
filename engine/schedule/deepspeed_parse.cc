// Reads DeepSpeed's instruction streams.
#include <map>
#include <utility>

#include <fmt/format.h>

#include "engine/base/text.h"
#include "engine/schedule/deepspeed.h"
#include "engine/schedule/quote.h"
#include "engine/schedule/row_tokens.h"

namespace plumbline {
namespace {

constexpr int kMostBuffers = 1 << 20;

// What one rank's buffers hold, as microbatches; -1: nothing.
struct Buffer {
  int input = -1;     // loaded or received
  int output = -1;    // of a forward, kept until the backward
  int incoming = -1;  // gradient received
  int outgoing = -1;  // gradient made by the last backward
};

class RankReader {
 public:
  RankReader(int rank, int ranks, const std::string& name) : rank_(rank), last_(ranks - 1), name_(name) {}

  Status step(const RowToken& token) {
    const std::size_t letters = std::min(token.text.find_first_of("0123456789"), token.text.size());
    const std::string_view word = token.text.substr(0, letters);
    const bool numbered = letters < token.text.size();
    if (word == "RT" || word == "R" || word == "O") {
      if (numbered) return refuse(token, "takes no buffer");
      if (word == "R")
        row_.push_back(Action{-1, static_cast<std::uint16_t>(rank_), ActionKind::kReduceGrad, 0});
      return {};
    }
    const Result<std::int64_t> number = parse_integer(token.text.substr(letters));
    if (!number || *number >= kMostBuffers) {
      return refuse(token,
                    "is no instruction; these are L, F, B, SA, RA, SG and RG with a buffer, RT, R and O");
    }
    return instruction(word, buffers_[static_cast<int>(*number)], token);
  }

  const std::vector<Action>& row() const { return row_; }
  int microbatches() const { return std::max(loaded_, received_); }

 private:
  tl::unexpected<Error> refuse(const RowToken& token, std::string_view problem) const {
    return fail(ErrorCode::kParse, fmt::format("{} {}", quote(token.text), problem), token.where(name_));
  }

  Status instruction(std::string_view word, Buffer& buffer, const RowToken& token) {
    if (word == "L") {
      const int microbatch = loaded_++;
      if (rank_ == 0) buffer.input = microbatch;  // the last rank loads labels
      return {};
    }
    if (word == "RA") {
      buffer.input = received_++;
      return add(ActionKind::kRecvForward, buffer.input);
    }
    if (word == "RG") {
      if (buffer.output < 0) return refuse(token, "receives the gradient of a buffer that holds no output");
      buffer.incoming = buffer.output;
      return add(ActionKind::kRecvBackward, buffer.incoming);
    }
    if (word == "F") return forward(buffer, token);
    if (word == "B") return backward(buffer, token);
    if (word == "SA") {
      if (buffer.output < 0) return refuse(token, "sends a buffer that holds no output");
      return add(ActionKind::kSendForward, buffer.output);
    }
    if (word == "SG") {
      if (buffer.outgoing < 0) return refuse(token, "sends a buffer that holds no gradient");
      return add(ActionKind::kSendBackward, std::exchange(buffer.outgoing, -1));
    }
    return refuse(token,
                  "is no instruction; these are L, F, B, SA, RA, SG and RG with a buffer, RT, R and O");
  }

  Status forward(Buffer& buffer, const RowToken& token) {
    if (buffer.input < 0) return refuse(token, "runs forward on a buffer that holds no input");
    buffer.output = std::exchange(buffer.input, -1);
    return add(ActionKind::kForward, buffer.output);
  }

  Status backward(Buffer& buffer, const RowToken& token) {
    if (buffer.output < 0) return refuse(token, "runs backward on a buffer that holds no output");
    if (rank_ != last_ && buffer.incoming != buffer.output)
      return refuse(token, "runs backward on a buffer whose gradient has not been received");
    buffer.outgoing = std::exchange(buffer.output, -1);
    buffer.incoming = -1;
    return add(ActionKind::kBackward, buffer.outgoing);
  }

  Status add(ActionKind kind, int microbatch) {
    row_.push_back(Action{microbatch, static_cast<std::uint16_t>(rank_), kind, 0});
    return {};
  }

  int rank_, last_;
  const std::string& name_;
  int loaded_ = 0;
  int received_ = 0;
  std::map<int, Buffer> buffers_;
  std::vector<Action> row_;
};

}  // namespace

Result<Schedule> parse_deepspeed(std::string_view text, const std::string& name) {
  const auto rows = split_rows(text, ";,");
  const int ranks = static_cast<int>(rows.size());
  if (ranks == 0 || ranks > kMaxStages) {
    return fail(ErrorCode::kParse,
                fmt::format("{} rows; write a rank's stream a line, at most {}", ranks, kMaxStages),
                Where{name, 0, 0});
  }
  Schedule schedule;
  schedule.name = name;
  schedule.ranks = ranks;
  schedule.stages = ranks;
  schedule.forward_only = true;
  schedule.rank_of_stage = loop_placement(ranks, ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    RankReader reader(rank, ranks, name);
    for (const RowToken& token : rows[static_cast<std::size_t>(rank)]) PL_TRY(reader.step(token));
    for (const Action& action : reader.row())
      schedule.forward_only = schedule.forward_only && (action.kind != ActionKind::kBackward);
    schedule.microbatches = std::max(schedule.microbatches, reader.microbatches());
    schedule.add_row(reader.row());
  }
  if (schedule.microbatches == 0 || schedule.microbatches > kMaxMicrobatches) {
    return fail(ErrorCode::kParse,
                fmt::format("{} microbatches; a stream loads or receives at least one, at most {}",
                            schedule.microbatches, kMaxMicrobatches),
                Where{name, 0, 0});
  }
  return schedule;
}

}  // namespace plumbline

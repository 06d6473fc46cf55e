#include "engine/schedule/deepspeed.h"

#include <algorithm>

#include <fmt/format.h>

#include "engine/schedule/generator.h"

namespace plumbline {
namespace {

// The microbatch that a rank works on in a step, which may be out of range, and whether forward.
struct Work {
  int microbatch = 0;
  bool forward = true;
};

Work work_of(int ranks, int rank, int step) {
  const bool even_step = step % 2 == 0;
  const bool even_rank = rank % 2 == 0;
  if (even_step == even_rank) return {(even_step ? step : step - 1) / 2 - rank / 2, true};
  if (even_step) return {step / 2 - ranks + (rank + 1) / 2, false};
  return {(step - 1) / 2 - ranks + 1 + rank / 2, false};
}

class Stream {
 public:
  Stream(int ranks, int rank, int microbatches) : ranks_(ranks), rank_(rank), microbatches_(microbatches) {}

  std::string train() {
    const int buffers = std::max(2, std::min(ranks_ - rank_, microbatches_));
    const int steps = 2 * (microbatches_ + ranks_ - 1);
    int before = -1;  // microbatch of the step before
    for (int step = 0; step < steps; ++step) {
      const auto [now, forward] = work_of(ranks_, rank_, step);
      begin(step);
      const bool sends = valid(before);
      if (forward) {
        if (sends && rank_ > 0) add("SG", before % buffers);
        if (valid(now) && rank_ > 0) add("RA", now % buffers);
        if (valid(now) && (rank_ == 0 || rank_ == ranks_ - 1)) add("L", now % buffers);
      } else {
        if (valid(now) && rank_ < ranks_ - 1) add("RG", now % buffers);
        if (sends && rank_ < ranks_ - 1) add("SA", before % buffers);
      }
      if (valid(now)) add(forward ? "F" : "B", now % buffers);
      if (step == steps - 1) {
        for (const char* end : {"RT", "R", "O"}) add(end, -1);
      }
      before = now;
    }
    return std::move(text_);
  }

  std::string infer() {
    for (int step = 0; step < microbatches_ + ranks_ - 1; ++step) {
      const int now = step - rank_;
      const int take = (step + rank_) % 2;  // even and odd ranks use the two buffers in opposite turns
      const int give = 1 - take;
      begin(step);
      if ((rank_ == 0 || rank_ == ranks_ - 1) && valid(now)) add("L", take);
      const bool sends = rank_ < ranks_ - 1 && valid(now - 1);
      if (rank_ % 2 == 0 && sends) add("SA", give);
      if (rank_ > 0 && valid(now)) add("RA", take);
      if (rank_ % 2 != 0 && sends) add("SA", give);
      if (valid(now)) add("F", take);
    }
    return std::move(text_);
  }

 private:
  bool valid(int microbatch) const { return microbatch >= 0 && microbatch < microbatches_; }
  void begin(int step) {
    if (step > 0) text_ += ';';
    first_ = true;
  }
  void add(std::string_view word, int buffer) {
    text_ += fmt::format("{}{}", first_ ? "" : ",", word);
    if (buffer >= 0) text_ += std::to_string(buffer);
    first_ = false;
  }

  int ranks_, rank_, microbatches_;
  std::string text_;
  bool first_ = true;
};

}  // namespace

std::string deepspeed_stream(int ranks, int rank, int microbatches, bool train) {
  Stream stream(ranks, rank, microbatches);
  return train ? stream.train() : stream.infer();
}

Result<std::string> print_deepspeed(const Schedule& schedule) {
  GeneratorArgs args;
  args.ranks = schedule.ranks;
  args.microbatches = schedule.microbatches;
  const Generator* known = find_generator(schedule.forward_only ? "forward-only" : "1f1b").value();
  const Result<Schedule> own = known->make(args);
  if (!own) return tl::unexpected(own.error());
  if (own->actions != schedule.actions || own->offsets != schedule.offsets) {
    return fail(
        ErrorCode::kUnsupported,
        fmt::format(
            "DeepSpeed orders computations as '{}' does, and this order is another; export it as torch "
            "rows",
            known->name));
  }
  std::string out;
  for (int rank = 0; rank < schedule.ranks; ++rank)
    out += deepspeed_stream(schedule.ranks, rank, schedule.microbatches, !schedule.forward_only) + "\n";
  return out;
}

}  // namespace plumbline

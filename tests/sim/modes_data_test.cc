// Data do not depend on the mode: a program that completes in several leaves the same bits behind in all of them,
// whatever was early or late. Matching is first-in-first-out without wildcards, so even a program whose ends are
// swapped delivers the same wrong data everywhere.
//
// A longer campaign: RC_PARAMS="max_success=100000" test_sim --gtest_filter='ModesData.*'
#include <algorithm>
#include <optional>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/sim/written_program.h"

namespace plumbline::test {
namespace {

// Every rank carries a sum. A message takes what the sender's is at that point into the receiver's; a collective adds
// the members' up. Each is made by a kernel before and taken in by one after, on the compute stream, which waits for
// it or not at all until later.
class Mixed {
 public:
  Mixed() : ranks_(*rc::gen::inRange(2, 5)), written_(ranks_, 12) {
    sum_ = written_.slot("sum", false, 8, true);
    data_ = written_.slot("data", true, 8);
    make_ = written_.kernel("make", {sum_}, {}, {data_});
    take_ = written_.kernel("take", {sum_}, {data_}, {sum_});
    written_.program.streams.push_back("d");
    written_.program.families.push_back({"d", false, written_.program.families[0].instances});
    steps_.resize(static_cast<std::size_t>(ranks_));
    const int events = *rc::gen::inRange(1, 12);
    for (int m = 0; m < events; ++m) event(m);
    for (auto& rows : steps_) {
      // A neighbour changes places with the next now and then: another order, or other partners.
      if (rows.size() > 1 && *rc::gen::inRange(0, 3) == 0) {
        const auto at = *rc::gen::inRange<std::size_t>(0, rows.size() - 1);
        std::swap(rows[at], rows[at + 1]);
      }
    }
    for (int r = 0; r < ranks_; ++r) {
      for (const Step& step : steps_[static_cast<std::size_t>(r)]) add(r, step);
    }
    written_.finish();
  }

  // What is left on each rank; nothing: it does not complete.
  std::optional<std::vector<std::int32_t>> run(const NcclModel& model) {
    std::vector<std::int32_t> left(static_cast<std::size_t>(ranks_));
    Calls calls;
    const auto value = [&](Rank r) { return 1 + 1000 * r; };
    std::vector<bool> begun(left.size());
    const auto sum_of = [&](Rank r, const auto& slot) {
      if (!begun[static_cast<std::size_t>(r)]) slot(sum_)[0] = value(r);
      begun[static_cast<std::size_t>(r)] = true;
      return slot(sum_);
    };
    calls.bodies["make"] = [&](Rank r, int m, const auto& slot) {
      slot(data_)[0] = sum_of(r, slot)[0];
      slot(data_)[1] = m;
      return Status();
    };
    calls.bodies["take"] = [&](Rank r, int, const auto& slot) {
      std::int32_t& sum = sum_of(r, slot)[0];
      sum = static_cast<std::int32_t>(static_cast<std::uint32_t>(sum) * 31U +
                                      static_cast<std::uint32_t>(slot(data_)[0]) +
                                      static_cast<std::uint32_t>(slot(data_)[1]) * 7U);
      left[static_cast<std::size_t>(r)] = sum;
      return Status();
    };
    SimOptions options;
    options.model = model;
    const SimStep step = written_.run(&calls, options);
    if (!step.completed) return std::nullopt;
    return left;
  }

 private:
  enum class What { kSend, kRecv, kSum };
  struct Step {
    What what = What::kSend;
    Rank peer = 0;
    int microbatch = 0;
    int family = 0;
    bool late = false;  // a send whose slot is let go when the step is over, not by the group
  };

  void event(int m) {
    const int family = *rc::gen::inRange(0, 2);
    if (*rc::gen::inRange(0, 5) == 0) {
      for (auto& rows : steps_) rows.push_back({What::kSum, 0, m, family, false});
      return;
    }
    const Rank from = *rc::gen::inRange(0, ranks_);
    const Rank to = (from + *rc::gen::inRange(1, ranks_)) % ranks_;
    steps_[static_cast<std::size_t>(from)].push_back(
        {What::kSend, to, m, family, *rc::gen::inRange(0, 2) == 0});
    steps_[static_cast<std::size_t>(to)].push_back({What::kRecv, from, m, family, false});
  }

  void add(Rank rank, const Step& step) {
    const bool sends = step.what == What::kSend;
    if (step.what != What::kRecv) written_.launch(rank, make_, step.microbatch);
    const EndpointKind kind = sends                      ? EndpointKind::kSend
                              : step.what == What::kRecv ? EndpointKind::kRecv
                                                         : EndpointKind::kAllReduce;
    const unsigned row = written_.endpoint(kind, data_, step.what == What::kSum ? -1 : step.peer, sends);
    written_.program.endpoints[row].family = static_cast<std::uint16_t>(step.family);
    const unsigned flags = kAfterCompute | (sends && step.late ? 0U : unsigned{kComputeWaits});
    written_.item(
        rank, make_item(ItemOp::kOp, step.microbatch, flags, row, 1U + static_cast<unsigned>(step.family)));
    if (!sends) written_.launch(rank, take_, step.microbatch);
  }

  int ranks_;
  Written written_;
  std::uint16_t sum_ = 0, data_ = 0;
  unsigned make_ = 0, take_ = 0;
  std::vector<std::vector<Step>> steps_;
};

RC_GTEST_PROP(ModesData, AllModesThatCompleteLeaveTheSame, ()) {
  Mixed program;
  std::optional<std::vector<std::int32_t>> first;
  int completed = 0;
  for (const char* name :
       {"rendezvous", "eager_8", "eager_2MiB", "always_eager", "rendezvous+strict", "eager_8+strict",
        "rendezvous+cold", "eager_8+cold", "rendezvous+launch_order", "rendezvous+queues_1",
        "rendezvous+launch_blocking", "rendezvous+batched", "rendezvous+strict+cold"}) {
    const auto left = program.run(model_named(name).value());
    if (!left) continue;
    ++completed;
    if (!first) first = left;
    RC_ASSERT(*left == *first);
  }
  RC_CLASSIFY(completed == 0, "completes in no mode");
  RC_CLASSIFY(completed > 0 && completed < 13, "in some");
  RC_CLASSIFY(completed == 13, "in all");
}

}  // namespace
}  // namespace plumbline::test

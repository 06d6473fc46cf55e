// Ordered pass: the host pass of a rank whose work is totally ordered - every group starts after all compute
// enqueued before it and is waited for by the compute stream or the host, as Megatron's combined calls are.
// Then every two uses of a slot are ordered, no clocks are needed, and a slot is one bit: all slots of a
// microbatch are one word, and what a kernel needs and changes is a mask.
//
// It accepts or declines; it reports nothing. A rank that it declines - work that overlaps, a broken rule, an
// unusual Program - takes the general host pass, which finds the same facts and says what is wrong. So the
// one property to test is: where it accepts, both give the same facts.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/verify/host_pass.h"
#include "sim/verify/host_tables.h"

namespace plumbline::verify {

class OrderedPass {
 public:
  explicit OrderedPass(HostTables& tables);

  // True: `facts` holds everything but hash and peak text. False: declined, `facts` is not to be used.
  bool run(std::size_t thread, RangeFacts& facts);

 private:
  static constexpr std::uint8_t kLanes64 = 64;
  static constexpr std::uint8_t kNoLane = 65;  // of a persistent class

  // What an item asks of the slots of one scope: bits in `care` must equal `want`; then `flip` changes them.
  struct Change {
    std::uint64_t care = 0, want = 0, flip = 0;
  };
  // A kernel or endpoint as this rank uses it; made at its first use.
  struct Row {
    std::uint32_t mark = 0;  // of the rank it was made for
    bool possible = true;
    bool counts = false;   // a computation
    bool decides = false;  // writes what a decision is by
    Change microbatch, step;
    ClassCost gains, losses;
  };
  struct alignas(64) EndpointState {
    std::uint32_t mark = 0;
    std::uint32_t seen = 0;       // HostTables::mark of the walk that has met it
    std::uint32_t group_key = 0;  // equal for entries that make one kernel
    std::uint64_t bit = 0;        // its slot's lane; 0: always live
    ClassCost cost;
    bool possible = true;
    bool per_microbatch = false;
    bool receives = false;    // the slot comes to life; otherwise it must be live
    bool free_after = false;  // and dies with the group
    bool notes_writer = false;
    bool dropped = false;
    bool p2p = false;
    bool pairs = false;
  };
  struct Undo {
    std::uint32_t microbatch;
    std::uint64_t before;
  };

  void begin(std::size_t thread);
  bool walk(Arm arm);
  bool both_arms();
  bool step(Item item);
  bool launch(Item item);
  bool group();
  bool free_slot(Item item);
  bool decide(Item item);
  bool apply(const Row& row, int microbatch);
  bool change(const Change& microbatch_change, const Change& step_change, int microbatch);
  std::uint64_t& word_of(bool per_microbatch, int microbatch);
  void set(std::uint64_t& word, std::uint64_t value, bool per_microbatch, int microbatch);
  bool release_after(std::uint32_t first, std::uint32_t end);
  void gain(const ClassCost& cost, std::uint32_t item);
  void lose(const ClassCost& cost);
  void computation(unsigned kernel, int microbatch);
  void first_use(unsigned endpoint, EndpointState& state, const FirstUse& use);
  void make_kernel(unsigned kernel, Row& row);
  void make_endpoint(unsigned endpoint, EndpointState& state);
  Row& kernel_row(unsigned kernel);
  EndpointState& endpoint_row(unsigned endpoint);
  // The lane of a class, 0 for persistent classes, which are always live; assigned at first use. `possible`
  // becomes false when there are more classes than lanes.
  std::uint64_t lane(unsigned slot_class, bool& possible) {
    if (lane_mark_[slot_class] != mark_) open_lane(slot_class);
    if (lane_[slot_class] < kLanes64) return std::uint64_t{1} << lane_[slot_class];
    possible = possible && lane_[slot_class] == kNoLane;
    return 0;
  }
  void open_lane(unsigned slot_class);
  Change& scope(unsigned slot_class, Row& row);
  void note_writers(unsigned kernel, std::uint32_t item);
  void take_tallies();

  HostTables& tables_;
  const Program& program_;
  ScratchVector<Row> kernels_;
  ScratchVector<EndpointState> endpoints_;
  ScratchVector<std::uint32_t> lane_mark_;
  ScratchVector<std::uint8_t> lane_;
  ScratchVector<std::uint8_t> decides_;        // by class: some decision is by its value
  ScratchVector<std::uint32_t> writers_;       // by class that decides: item + 1 of the last writer
  ScratchVector<std::uint64_t> microbatches_;  // live bits
  std::uint64_t step_ = 0;
  int microbatch_lanes_ = 0, step_lanes_ = 0;
  ScratchVector<unsigned> touched_;  // classes with a lane, and persistent ones, of this rank
  ScratchVector<Undo> undo_;
  bool journal_ = false;
  std::uint32_t mark_ = 0;

  RangeFacts* facts_ = nullptr;
  std::uint32_t next_ = 0, end_ = 0;
  std::uint32_t last_group_ = 0, host_group_ = 0;
  Arm arm_ = Arm::kNone;
  ClassCost live_, peak_;
  std::int64_t peak_item_ = -1;
};

}  // namespace plumbline::verify

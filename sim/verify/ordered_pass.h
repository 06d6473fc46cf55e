// Ordered pass: the host pass of a rank whose work is totally ordered - every group starts after all compute
// enqueued before it and is waited for by the compute stream or the host, as Megatron's combined calls are.
// Then every two uses of a slot are ordered, no clocks are needed, and a slot is one bit: all slots of a
// microbatch are one word, and what a kernel, an endpoint or a release needs and changes is a mask.
//
// It accepts or declines; it reports nothing. A rank that it declines - work that overlaps, a broken rule, an
// unusual Program - takes the general host pass, which finds the same facts and says what is wrong. So the
// one property to test is: where it accepts, both give the same facts.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/verify/footprint.h"
#include "sim/verify/host_pass.h"
#include "sim/verify/host_tables.h"

namespace plumbline::verify {

class OrderedPass {
 public:
  explicit OrderedPass(HostTables& tables);

  // True: `facts` holds everything but hash and peak text. False: declined, `facts` is not to be used.
  bool run(std::size_t thread, RangeFacts& facts);

 private:
  static constexpr int kLanes64 = 64;

  // A slot class: what its slots cost, and the bit they have on this rank (opened at first use; until then what lies
  // here is of another rank).
  struct Lane {
    Footprint cost;
    std::uint64_t bit = 0;   // 0 of a persistent class, whose slot is always live
    std::uint32_t mark = 0;  // of the rank that has opened it
    std::int32_t stashes = 0;
    std::uint32_t scope = 0;  // as in Row
    bool persistent = false;
    bool decides = false;     // of step scope, and some decision is by its value
    bool impossible = false;  // more classes than bits
  };
  struct Change {
    std::uint64_t care, want, flip;
  };
  // Row::bits. Below: equal numbers for endpoints whose operations make one kernel.
  enum RowBit : std::uint32_t {
    kGroupKey = (1u << 20) - 1,
    kPairs = 1u << 20,        // endpoints: of a family of pairs
    kNoOperation = 1u << 21,  // kernels: not a computation
    kTwoScopes = 1u << 22,    // kernels: `step_changes_[change]` holds too
    kDecides = 1u << 23,      // writes what a decision is by
    kFreeAfter = 1u << 24,    // endpoints: the slot dies with the group
    kTouchesSync = 1u << 25,  // endpoints: a reduction or gather that check_gradient_sync looks at
  };
  // What a kernel, an endpoint or a release of a slot class asks of the slots of one word, as this rank uses them:
  // bits in `care` must equal `want` (never, where it is not possible at all); then `flip` changes them.
  // Made at its first use (fresh_...()).
  struct Row {
    Change slots;
    std::int32_t new_stashes, old_stashes;
    Footprint gains, losses;  // an endpoint's losses count once its group is over
    std::uint64_t tally;      // kernels: sum of the microbatches' tallies
    std::uint32_t scope;      // 0: of the item's microbatch; step_word_: of step scope
    std::uint32_t quiet;      // kernels: Hot::quiet when it had nothing to add for check_gradient_sync
    std::uint32_t bits;
    std::uint32_t change;  // kTwoScopes
    std::uint32_t number;
  };
  // What changes with every item. A walk has it in registers, and puts it down for what happens seldom.
  struct Hot {
    std::uint32_t next = 0;
    std::uint32_t last_group = 0, host_group = 0;  // as FirstUse::need
    std::uint32_t quiet = 0;   // moves with every event for check_gradient_sync; 0: nothing is looked at
    std::uint32_t others = 0;  // items so far that are no operations
    Footprint live;
    std::int32_t stashes = 0;
  };

  void begin(std::size_t thread);
  template <bool kInArm>
  bool walk(Arm arm);
  bool both_arms();
  void host_waits();
  bool step(Item item);
  template <bool kInArm>
  bool launch(Hot& hot, Item item);
  template <bool kInArm>
  bool group(Hot& hot, Item item);
  bool release(Hot& hot, Item item);
  bool touch(Hot& hot, const Row& row, std::uint32_t place, std::uint32_t at);
  template <bool kInArm>
  const Row& entry(const Hot& hot, Item item, std::uint32_t first);
  bool release_after(Hot& hot, std::uint32_t first, std::uint32_t end);
  void new_peak(Footprint live, std::int32_t stashes, std::uint32_t item);
  std::uint32_t note_launch(unsigned kernel, Row& row, std::uint32_t item);
  bool change_step(const Row& row, unsigned kernel, std::uint32_t item);
  void note_entries(std::uint32_t first, std::uint32_t end);
  bool decide(Item item);
  bool nothing_live() const;
  // Of words_ and tally_of_: of the item's microbatch, or step_word_.
  std::uint32_t place_of(Item item) const {
    return std::min(static_cast<std::uint32_t>(item_microbatch(item)), step_word_);
  }
  std::uint64_t& word(const Row& row, std::uint32_t place) { return words_[std::max(place, row.scope)]; }
  void use_in_arm(unsigned endpoint, const FirstUse& use);
  void use(unsigned endpoint, const FirstUse& use);
  // Numbers: kernels, then endpoints, then releases by slot class.
  Row& row_of(std::size_t number) { return rows_[row_at_[number]]; }
  Row& fresh_kernel(unsigned kernel);
  Row& fresh_endpoint(unsigned endpoint);
  Row& used_endpoint(unsigned endpoint, std::uint32_t item, std::uint32_t first, std::uint32_t need);
  Row& fresh_release(unsigned slot_class);
  Row& begin_row(std::size_t number);
  Lane& lane(unsigned slot_class) {
    Lane& of = lanes_[slot_class];
    if (of.mark != mark_) open_lane(slot_class, of);
    return of;
  }
  void open_lane(unsigned slot_class, Lane& lane);
  void take_tallies();

  HostTables& tables_;
  const Program& program_;
  std::uint32_t first_endpoint_, first_release_;  // numbers
  // Rows of the rank at hand, in the order of their first use, so that they stay in the first-level cache; row 0 is
  // nobody's.
  RawVector<Row> rows_;
  ScratchVector<std::uint32_t> row_at_;  // by number (kernel, first_endpoint_ + endpoint, ...): its row, or 0
  std::uint32_t made_ = 1;               // rows, the one of nobody included
  ScratchVector<Change> step_changes_;
  ScratchVector<Lane> lanes_;                          // by class
  ScratchVector<std::uint32_t> writers_;               // by class that decides: item + 1 of the last writer
  ScratchVector<std::uint64_t> words_, words_before_;  // live bits by microbatch; last those of step scope
  RawVector<std::uint64_t> tally_of_;                  // by microbatch; last kNoMicrobatch's
  std::uint32_t step_word_;
  int microbatch_lanes_ = 0, step_lanes_ = 0;
  Bytes persistent_bytes_ = 0;  // of classes that this rank uses
  std::uint32_t mark_ = 0;

  RangeFacts* facts_ = nullptr;
  std::uint32_t begin_ = 0, end_ = 0;
  Arm arm_ = Arm::kNone;
  Hot hot_;
  Footprint peak_;
  std::int32_t peak_stashes_ = 0;
  std::int64_t peak_item_ = -1;
};

}  // namespace plumbline::verify

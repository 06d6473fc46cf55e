// Ordered pass: the host pass of a rank whose work is totally ordered - every group starts after all compute
// enqueued before it and is waited for by the compute stream or the host, as Megatron's combined calls are.
// Then every two uses of a slot are ordered, no clocks are needed, and a slot is one bit: all slots of a
// microbatch are one word, and what a kernel, an endpoint or a release needs and changes is a mask.
//
// Items that differ in their microbatch only ask the same of different words. So what an item does is worked out when
// the first of its kind is met, and for the others is looked up: compare, change, add.
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
  static constexpr Item kNoKey = ~Item{0};                        // of no item
  static constexpr Item key_of(Item item) { return item >> 20; }  // all but its microbatch
  static constexpr std::int64_t kStash = std::int64_t{1} << 32;   // see Hot

  // A slot class: what its slots cost, and the bit they have on this rank (opened at first use; until then what lies
  // here is of another rank).
  struct alignas(64) Lane {
    Footprint cost;
    std::int64_t stashes;  // times kStash
    std::uint64_t bit;     // 0 of a persistent class, whose slot is always live
    std::uint32_t mark;    // of the rank that has opened it
    std::uint32_t bits;

    std::uint32_t scope() const { return (bits & kOfStep) != 0 ? ~0u : 0; }  // Row::scope
  };
  enum LaneBit : std::uint32_t {
    kOfStep = 1,  // of step scope
    kPersistent = 1u << 1,
    kDecidesBy = 1u << 2,   // of step scope, and some decision is by its value
    kLooksAt = 1u << 3,     // check_gradient_sync looks at it
    kImpossible = 1u << 4,  // more classes than bits
  };
  struct Change {
    std::uint64_t care, want, flip;
  };
  // Row::bits. Below: equal numbers for endpoints whose operations make one kernel.
  enum RowBit : std::uint32_t {
    kGroupKey = (1u << 20) - 1,
    kPairs = 1u << 20,      // endpoints: of a family of pairs
    kP2p = 1u << 21,        // endpoints
    kTwoScopes = 1u << 22,  // kernels: `step_changes_[change]` holds too
    kDecides = 1u << 23,    // writes what a decision is by
    kFreeAfter = 1u << 24,  // endpoints: the slot dies with the group
    kSyncs = 1u << 25,      // check_gradient_sync is to be told
    kSeen = 1u << 26,       // endpoints: in `first_uses`, if it is p2p
    kSeenArmed = 1u << 27,  // endpoints: in `armed`
    kRepeats = 1u << 28,    // kernels: telling it again adds nothing until something else happens
    kNeverPlain = kTwoScopes | kDecides | kSyncs,
  };
  // What a kernel, an endpoint or a release of a slot class asks of the slots of one word, as this rank uses them:
  // bits in `care` must equal `want` (never, where it is not possible at all); then `flip` changes them. Made at its
  // first use (fresh_...()). An endpoint has two, one behind the other: the second is for entries that others of their
  // group follow, as nothing dies before the group is over.
  struct alignas(64) Row {
    Item key;  // items of this key need nothing but apply()
    Change slots;
    Footprint gains, losses;    // losses count once the kernel or the group is over
    std::uint64_t tally;        // kernels: sum of the microbatches' tallies
    std::int64_t takes, gives;  // of Hot::room_for: before and after, as gains and losses
    Item entry_key;             // endpoints: of entries that need no entry()
    Row* next;                  // followed endpoints: the next entry's row at the last time
    std::uint32_t scope;        // 0: of the item's microbatch; all ones: of step scope
    std::uint32_t bits;
    std::uint32_t change;  // kTwoScopes
    std::uint32_t number;  // 0: nobody's, or not made yet
  };
  // What changes with every item. A walk has it in registers, and puts it down for what happens seldom. Instead of
  // what is live it has what is left below the peak, so that a new peak shows in a sign.
  struct Hot {
    Footprint room{};
    const Item* next = nullptr;
    std::int64_t room_for = 0;  // stashes, times kStash; and below them the operations so far
  };
  // Where the tables lie, for the compiler to see that a walk does not move them.
  struct Places {
    Row* const* rows;
    std::uint64_t* words;
    const std::uint64_t* tallies;
    std::uint32_t mask;

    std::uint64_t& word(Item item, const Row& row) const {
      return words[(static_cast<std::uint32_t>(item) | row.scope) & mask];
    }
  };
  // What the host has waited for, looked up where a connection is used for the first time.
  struct HostWaits {
    const Item* known = nullptr;  // the last such place
    std::uint32_t waited = 0;     // before it, as FirstUse::need
  };

  void begin(std::size_t thread);
  bool walk(Arm arm);
  bool both_arms();
  void forget_uses();
  Places places() { return {row_at_.data(), words_.data(), tallies_, mask_}; }
  bool apply(Hot& hot, const Places& places, Row& row, Item item);
  void take_room(Hot& hot, const Row& row, const Item* at);
  Row* prepare(Row& row, const Item* at);
  Row* launch(Row& row, const Item* at);
  Row* step(Row& row, const Item* at);
  bool group(Hot& hot, const Places& places, Row* row);
  Row* link(Row* before, const Item* at, const Item* first);
  const Item* skip_group(const Item* first);
  bool release_after(Hot& hot, const Places& places, const Item* first, const Item* last);
  bool ends_in_order(Item last) const;
  Row* entry(Row& row, const Item* at, const Item* first);
  void use(const Item* at, const Item* first);
  void use_in_arm(Row& row, const Item* at, const Item* first);
  void note_launch(unsigned kernel, Row& row, const Item* at);
  void wake();
  bool change_step(const Row& row, unsigned kernel, const Item* at);
  void note_entry(const Row& row, const Item* at);
  bool reads(Item item);
  bool decide(const Item* at);
  bool nothing_live() const;
  std::uint32_t index_of(const Item* at) const {
    return static_cast<std::uint32_t>(at - program_.items.data());
  }
  std::uint32_t host_waited(const Item* now);
  std::uint32_t number_of(Item item) const {
    const Numbers& of = numbers_[key_of(item) & 0xF];
    return of.first + (static_cast<std::uint32_t>(item >> 32) & of.mask);
  }
  Row& fresh_kernel(unsigned kernel);
  void split(Row& row);
  bool writes_decision(const Kernel& kernel) const;
  Row& fresh_endpoint(Row& known, const Item* at, const Item* first);
  Row& entry_row(Item item) const { return row_at_[number_of(item)][is_followed(item) ? 1 : 0]; }
  static bool is_followed(Item item) { return (item_flags(item) & kMore) != 0; }
  Row& fresh_release(unsigned slot_class);
  Row& fresh_row(std::uint32_t number);
  static Row& begin_row(Row& row, std::uint32_t number);
  const Lane& lane(unsigned slot_class) {
    Lane& of = lanes_[slot_class];
    if (of.mark != mark_) open_lane(of);
    return of;
  }
  void open_lane(Lane& lane);
  void take_tallies();

  HostTables& tables_;
  const Program& program_;
  int streams_;
  // Numbers: nobody, kernels, endpoints, releases by slot class. Of an item: by its operation, first + (ref & mask).
  struct Numbers {
    std::uint32_t first = 0, mask = 0;
  };
  std::uint32_t first_endpoint_, first_release_;
  Numbers numbers_[kItemOps];
  // Rows of the rank at hand, in the order of their first use, so that they stay in the first-level cache. The first
  // two are nobody's, and have no items; applied, they do nothing.
  RawVector<Row> rows_;
  ScratchVector<Row*> row_at_;          // by number
  Row* made_;                           // end of the rows so far
  ScratchStack<const Row*> computing_;  // of kernels that compute
  ScratchVector<Change> step_changes_;
  ScratchStack<Row*> quiet_;  // need not be told to check_gradient_sync until something else happens
  RawVector<Lane> lanes_;     // by class
  ScratchVector<std::uint32_t> writers_;  // by class that decides: item + 1 of the last writer
  // Live bits and tallies by microbatch; the last is of step scope and of kNoMicrobatch. As long as a power of two, so
  // that `mask_` leaves an index of an item.
  ScratchVector<std::uint64_t> words_, words_before_;
  RawVector<std::uint64_t> tally_of_;
  std::uint32_t mask_;
  const std::uint64_t* tallies_ = nullptr;  // tally_of_, or zeros in the arm that does not count
  // Lanes of a microbatch from the lowest bit on, of step scope from the highest, so that no two are equal.
  int microbatch_lanes_ = 0, step_lanes_ = 0;
  std::uint64_t step_bits_ = 0;
  Bytes persistent_bytes_ = 0;  // of classes that this rank uses
  std::uint32_t mark_ = 0;

  RangeFacts* facts_ = nullptr;
  ScratchVector<FirstUse>* uses_ = nullptr;  // of the arm
  const Item* end_ = nullptr;
  Arm arm_ = Arm::kNone;
  unsigned skip_ = 0;  // flags of items that are not executed; no item is in an arm before the decision
  Hot hot_;
  HostWaits host_;
  Footprint peak_{};
  std::int64_t peak_stashes_ = 0;
  const Item* peak_item_ = nullptr;
};

}  // namespace plumbline::verify

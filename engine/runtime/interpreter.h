// Interpreter: walks one thread's items on a Backend. advance() runs until the host would wait, and never
// blocks; the drivers differ (virtual time, round robin, one rank a process), this does not.
//
// The edges of a group - compute waits, handle kept, host waits - are applied when its host token is done, so
// that a cold connection or a blocking launch holds them back as it holds back the host.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/runtime/backend.h"

namespace plumbline {

enum class AdvanceState : std::uint8_t {
  kFinished,
  kBlocked,
  kFailed,
  kReady,  // of step() alone: one item is executed, and the host could go on
};

struct Advance {
  AdvanceState state = AdvanceState::kFinished;
  Token waiting_for = 0;  // kBlocked
  std::uint32_t item_index =
      0;        // kBlocked, kFailed: the item the host stands at (of a group, its first); finished: the end
  Error error;  // kFailed
};

class Interpreter {
 public:
  // `backend` and `linked` outlive the interpreter; begin_step has been called.
  // `events` is given where several threads of a rank share their events: one entry an event, and outlives this.
  Interpreter(Backend& backend, const LinkedProgram& linked, std::uint32_t thread,
              std::vector<Token>* events = nullptr);

  // Once failed, it stays failed.
  Advance advance() { return run(false); }
  // The same, but starts at most one item.
  Advance step() { return run(true); }
  // The arm taken at each Decide so far: 1 yes, 0 no.
  const std::vector<std::uint8_t>& decisions() const { return decisions_; }
  // The arm in force: 1 yes, 0 no, -1 before the first decision.
  int arm() const { return arm_; }

 private:
  // What is still to do at the current item once the host token is done.
  enum class Then : std::uint8_t { kNothing, kGroupEdges, kFetchValue };

  Advance run(bool one);
  Status step_item();
  Status issue_group();
  Status group_edges();
  Status wait_handles(Item item);
  Status wait_slot(Item item);
  Status marker_wait(int stream);
  Status fetch_value();
  Status resume();
  bool skipped(Item item) const;
  Error out_of_program(const std::string& message) const;
  Token& event(Item item) {
    return (shared_events_ != nullptr ? *shared_events_ : own_events_)[item_ref(item)];
  }

  Backend* backend_;
  const LinkedProgram* linked_;
  std::uint32_t thread_;
  std::uint32_t next_;          // the item to execute next, an index into Program::items
  std::uint32_t current_;       // the item being executed
  std::vector<Token> waiting_;  // the host goes on when all are done, last one first
  Then then_ = Then::kNothing;
  Token group_done_ = 0;  // kGroupEdges: completion of the group that ends before next_
  int arm_ = -1;
  bool failed_ = false;
  std::vector<double> variables_;
  std::vector<std::vector<Token>> queues_;  // kept handles, oldest first
  std::vector<std::size_t> queue_heads_;
  std::map<std::uint64_t, Token>
      slot_handles_;  // kSlotQueue: (class, microbatch) -> operation that last filled it
  std::vector<Token> own_events_;
  std::vector<Token>* shared_events_;  // null: own_events_
  std::vector<std::uint8_t> decisions_;
};

}  // namespace plumbline

// Interpreter: walks one thread's items on a Backend. advance() runs until the host would wait, and never blocks; the
// drivers differ (virtual time, round robin, one rank a process), this does not.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/runtime/backend.h"

namespace plumbline {

enum class AdvanceState : std::uint8_t { kFinished, kBlocked, kFailed };

struct Advance {
  AdvanceState state = AdvanceState::kFinished;
  Token waiting_for = 0;            // kBlocked
  std::uint32_t item_index = 0;     // kBlocked, kFailed: the item the host stands at
  Error error;                      // kFailed
};

class Interpreter {
 public:
  // `backend` and `linked` outlive the interpreter; begin_step has been called.
  Interpreter(Backend& backend, const LinkedProgram& linked, std::uint32_t thread);

  Advance advance();
  // The arm taken at each Decide so far: 1 yes, 0 no.
  const std::vector<std::uint8_t>& decisions() const { return decisions_; }

 private:
  Advance step_item();
  Advance issue_group();
  Advance block(Token token);
  bool skipped(Item item) const;

  Backend* backend_;
  const LinkedProgram* linked_;
  std::uint32_t thread_;
  std::uint32_t next_;                            // index into Program::items
  Token waiting_ = 0;
  bool reading_ = false;                          // waiting_ belongs to a kRead
  int arm_ = -1;                                  // -1: no decision yet
  std::vector<double> variables_;
  std::vector<std::vector<Token>> queues_;        // kept handles, oldest first
  std::vector<std::size_t> queue_heads_;
  std::vector<Token> events_;
  std::vector<std::uint8_t> decisions_;
};

}  // namespace plumbline

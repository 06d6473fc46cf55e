// Backend: the seam between the interpreter and whatever executes - simulator, Gloo processes, CUDA with
// NCCL, a test double, or a wrapper that injects faults. No method blocks: each enqueues and returns tokens
// that are polled. A backend keeps NCCL's rules: operations of one communicator run in order on a rank
// whatever their stream (N6), a group completes as a whole (N11), matching is first-in-first-out per ordered
// pair, by bytes only (N20, N22).
//
// A backend serves one rank (a process of its own) or many (simulator, loopback); every call names the
// thread, an index into Program::threads. Memory of slots belongs to the backend: a receive's and a kernel's
// outputs are allocated by the call that posts them, and a release takes effect once everything enqueued
// before it that uses the slot has completed.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "engine/base/result.h"
#include "engine/program/link.h"
#include "engine/program/program.h"
#include "engine/runtime/worker.h"

namespace plumbline {

// Names something enqueued; 0 is "already done". Tokens are per backend and never reused within a step.
using Token = std::uint64_t;

enum class PollState : std::uint8_t { kDone, kPending, kFailed };
struct Poll {
  PollState state = PollState::kDone;
  std::string reason;  // pending: what it waits for; failed: the error
};

// One call of a communicator: a single operation, or the operations of a group in call order.
struct GroupCall {
  std::uint32_t thread = 0;
  std::uint32_t first_item = 0;   // index of the group's first item in Program::items
  std::span<const Item> entries;  // the kOp items
  int stream = 1;
  bool after_compute = false;  // starts after everything enqueued on the compute stream so far
};

struct Issued {
  Token host = 0;  // the host may go on when this is done (a cold connection blocks it); 0: at once
  Token done = 0;  // completion on the device
};

class Backend {
 public:
  virtual ~Backend() = default;

  // Begins a step: `linked` and its Program outlive it. Every slot but the persistent ones is gone.
  virtual Status begin_step(const LinkedProgram& linked) = 0;

  virtual Result<Issued> launch(std::uint32_t thread, std::uint32_t item_index, Item item) = 0;
  virtual Result<Issued> group(const GroupCall& call) = 0;
  // The stream waits for the token (work enqueued later starts after it).
  virtual Status stream_wait(std::uint32_t thread, int stream, Token token) = 0;
  // A token that is done when everything enqueued so far on the stream is; stream -1: on the whole device.
  virtual Result<Token> marker(std::uint32_t thread, int stream) = 0;
  virtual Status free(std::uint32_t thread, std::uint32_t item_index, SlotRef slot) = 0;
  // Starts reading a variable, in compute stream order; done when the value may be fetched with value().
  virtual Result<Token> read(std::uint32_t thread, std::uint32_t item_index, unsigned variable) = 0;
  virtual Result<double> value(std::uint32_t thread, unsigned variable) = 0;

  // A call on a communicator (kComm). Issued::done is when it is through on this rank; a nonblocking one has
  // no host token. Backends without it refuse.
  virtual Result<Issued> comm(std::uint32_t thread, std::uint32_t item_index, Item item);

  // Begin and end of what a CUDA graph replays on the stream (kGraph). Returned is what the host waits for; 0: it
  // goes on at once.
  virtual Result<Token> graph(std::uint32_t thread, int stream, bool begin);

  // The thread's process ends, or a kernel of its faults (kFail). Only a backend that plays it can.
  virtual Status failure(std::uint32_t thread, std::uint32_t item_index, Item item);

  virtual Poll poll(std::uint32_t thread, Token token) = 0;
};

inline Result<Token> Backend::graph(std::uint32_t /*thread*/, int /*stream*/, bool /*begin*/) {
  return fail(ErrorCode::kUnsupported, "this backend does not replay graphs");
}
inline Status Backend::failure(std::uint32_t /*thread*/, std::uint32_t /*item_index*/, Item /*item*/) {
  return fail(ErrorCode::kUnsupported, "this backend does not play processes that end or kernels that fault");
}
inline Result<Issued> Backend::comm(std::uint32_t /*thread*/, std::uint32_t /*item_index*/, Item /*item*/) {
  return fail(ErrorCode::kUnsupported, "this backend does not create or end communicators during a step");
}

}  // namespace plumbline

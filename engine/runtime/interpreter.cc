#include "engine/runtime/interpreter.h"

#include <fmt/format.h>

#include "engine/base/assert.h"

namespace plumbline {
namespace {

std::uint64_t slot_key(unsigned slot_class, int microbatch) {
  return (static_cast<std::uint64_t>(slot_class) << 32) | static_cast<std::uint32_t>(microbatch);
}

// A slot is filled by a receive or, in place, by a collective.
bool fills(EndpointKind kind) { return kind != EndpointKind::kSend; }

}  // namespace

Interpreter::Interpreter(Backend& backend, const LinkedProgram& linked, std::uint32_t thread,
                         std::vector<Token>* events)
    : backend_(&backend), linked_(&linked), thread_(thread), shared_events_(events) {
  const Program& program = *linked.program;
  PL_ASSERT(thread < program.threads.size());
  next_ = current_ = program.threads[thread].begin;
  variables_.assign(program.variables.size(), 0.0);
  if (events == nullptr) own_events_.assign(program.events.size(), 0);
}

Advance Interpreter::run(bool one) {
  bool started = false;
  const std::uint32_t end = linked_->program->threads[thread_].end;
  while (true) {
    Status status = failed_ ? Status(fail(ErrorCode::kState, "the thread has failed before")) : Status();
    while (status && !waiting_.empty()) {
      Poll poll = backend_->poll(thread_, waiting_.back());
      if (poll.state == PollState::kPending) return {AdvanceState::kBlocked, waiting_.back(), current_, {}};
      if (poll.state == PollState::kFailed) {
        status = fail(ErrorCode::kState, std::move(poll.reason));
      } else {
        waiting_.pop_back();
      }
    }
    if (status && then_ == Then::kNothing) {
      if (next_ == end) return {AdvanceState::kFinished, 0, end, {}};
      if (one && started) return {AdvanceState::kReady, 0, next_, {}};
      started = true;
      current_ = next_;
      status = step_item();
    } else if (status) {
      status = resume();
    }
    if (!status) {
      failed_ = true;
      return {AdvanceState::kFailed, 0, current_, std::move(status.error())};
    }
  }
}

bool Interpreter::skipped(Item item) const {
  const unsigned flags = item_flags(item);
  return ((flags & kArmYes) != 0 && arm_ != 1) || ((flags & kArmNo) != 0 && arm_ != 0);
}

// Finishes the current item after its host token. More waiting may follow.
Status Interpreter::resume() {
  const Then then = then_;
  then_ = Then::kNothing;
  return then == Then::kGroupEdges ? group_edges() : fetch_value();
}

Status Interpreter::step_item() {
  const Program& program = *linked_->program;
  const Item item = program.items[next_];
  if (item_op(item) == ItemOp::kOp) return issue_group();
  ++next_;
  if (skipped(item)) return {};
  const auto stream = static_cast<int>(item_aux(item));
  switch (item_op(item)) {
    case ItemOp::kLaunch: {
      const Result<Issued> issued = backend_->launch(thread_, current_, item);
      if (!issued) return tl::unexpected(issued.error());
      if (issued->host != 0) waiting_.push_back(issued->host);
      return {};
    }
    case ItemOp::kWait:
      return wait_handles(item);
    case ItemOp::kWaitSlot:
      return wait_slot(item);
    case ItemOp::kRecord: {
      const Result<Token> marker = backend_->marker(thread_, stream);
      if (!marker) return tl::unexpected(marker.error());
      event(item) = *marker;
      return {};
    }
    case ItemOp::kWaitEvent: {
      const Token recorded = event(item);
      return recorded == 0 ? Status() : backend_->stream_wait(thread_, stream, recorded);
    }
    case ItemOp::kSyncEvent:
      if (event(item) != 0) waiting_.push_back(event(item));
      return {};
    case ItemOp::kSyncStream:
      return marker_wait(stream);
    case ItemOp::kSyncDevice:
      return marker_wait(-1);
    case ItemOp::kFree: {
      const SlotRef slot{static_cast<std::uint16_t>(item_ref(item)), item_microbatch(item)};
      return backend_->free(thread_, current_, slot);
    }
    case ItemOp::kRead: {
      const Result<Token> token = backend_->read(thread_, current_, item_ref(item));
      if (!token) return tl::unexpected(token.error());
      if (*token != 0) waiting_.push_back(*token);
      then_ = Then::kFetchValue;
      return {};
    }
    case ItemOp::kDecide:
      arm_ = variables_[item_ref(item)] != 0.0 ? 1 : 0;
      decisions_.push_back(static_cast<std::uint8_t>(arm_));
      return {};
    case ItemOp::kComm: {
      const Result<Issued> issued = backend_->comm(thread_, current_, item);
      if (!issued) return tl::unexpected(issued.error());
      if (issued->host != 0) waiting_.push_back(issued->host);
      return {};
    }
    case ItemOp::kGraph: {
      const Result<Token> token = backend_->graph(thread_, stream, item_ref(item) == 0);
      if (!token) return tl::unexpected(token.error());
      if (*token != 0) waiting_.push_back(*token);
      return {};
    }
    case ItemOp::kFail:
      if (item_ref(item) == 0) next_ = program.threads[thread_].end;  // nothing of the process follows
      return backend_->failure(thread_, current_, item);
    case ItemOp::kMark:
    case ItemOp::kOp:
      return {};
  }
  return {};
}

Status Interpreter::issue_group() {
  const Program& program = *linked_->program;
  const std::uint32_t first = next_;
  while ((item_flags(program.items[next_]) & kMore) != 0) ++next_;
  ++next_;
  PL_ASSERT(next_ <= program.threads[thread_].end);
  const Item last = program.items[next_ - 1];
  if (skipped(last)) return {};

  GroupCall call;
  call.thread = thread_;
  call.first_item = first;
  call.entries = std::span<const Item>(program.items).subspan(first, next_ - first);
  call.stream = item_stream(last);
  call.after_compute = (item_flags(last) & kAfterCompute) != 0;
  const Result<Issued> issued = backend_->group(call);
  if (!issued) return tl::unexpected(issued.error());
  group_done_ = issued->done;
  then_ = Then::kGroupEdges;
  if (issued->host != 0) waiting_.push_back(issued->host);
  return {};
}

Status Interpreter::group_edges() {
  const Program& program = *linked_->program;
  const Item last = program.items[next_ - 1];
  const unsigned flags = item_flags(last);
  if ((flags & kHandle) != 0) {
    const auto queue = static_cast<std::size_t>(item_queue(last));
    if (queue == static_cast<std::size_t>(kSlotQueue)) {
      for (std::uint32_t i = current_; i < next_; ++i) {
        const Endpoint& endpoint = program.endpoints[item_ref(program.items[i])];
        if (!fills(endpoint.kind)) continue;
        slot_handles_[slot_key(endpoint.slot, item_microbatch(program.items[i]))] = group_done_;
      }
    } else {
      if (queues_.size() <= queue) queues_.resize(queue + 1);
      queues_[queue].push_back(group_done_);
    }
  }
  if ((flags & kHostWaits) != 0 && group_done_ != 0) waiting_.push_back(group_done_);
  if ((flags & kComputeWaits) == 0 || group_done_ == 0) return {};
  return backend_->stream_wait(thread_, kComputeStream, group_done_);
}

Status Interpreter::wait_handles(Item item) {
  const std::size_t queue = item_ref(item);
  const std::size_t count = item_aux(item);
  if (queue_heads_.size() <= queue) queue_heads_.resize(queue + 1, 0);
  std::size_t& head = queue_heads_[queue];
  const std::size_t kept = queue < queues_.size() ? queues_[queue].size() - head : 0;
  if (count > kept) {
    return tl::unexpected(
        out_of_program(fmt::format("waits for {} operations, but queue {} keeps {}", count, queue, kept)));
  }
  for (std::size_t i = 0; i < count; ++i) {
    const Token token = queues_[queue][head++];
    if (token == 0) continue;
    if ((item_flags(item) & kHostWaits) != 0) {
      waiting_.push_back(token);
    } else {
      PL_TRY(backend_->stream_wait(thread_, kComputeStream, token));
    }
  }
  return {};
}

Status Interpreter::wait_slot(Item item) {
  const auto found = slot_handles_.find(slot_key(item_ref(item), item_microbatch(item)));
  if (found == slot_handles_.end()) {
    return tl::unexpected(out_of_program("waits for a slot that no kept operation has filled"));
  }
  if (found->second == 0) return {};
  if ((item_flags(item) & kHostWaits) != 0) {
    waiting_.push_back(found->second);
    return {};
  }
  return backend_->stream_wait(thread_, kComputeStream, found->second);
}

Status Interpreter::marker_wait(int stream) {
  const Result<Token> marker = backend_->marker(thread_, stream);
  if (!marker) return tl::unexpected(marker.error());
  if (*marker != 0) waiting_.push_back(*marker);
  return {};
}

Status Interpreter::fetch_value() {
  const unsigned variable = item_ref(linked_->program->items[current_]);
  const Result<double> value = backend_->value(thread_, variable);
  if (!value) return tl::unexpected(value.error());
  variables_[variable] = *value;
  return {};
}

Error Interpreter::out_of_program(const std::string& message) const {
  const Program& program = *linked_->program;
  const Rank rank = program.threads[thread_].rank;
  return {ErrorCode::kState,
          fmt::format("rank {}, item {} ({}): {}", rank, current_,
                      describe_item(program, rank, program.items[current_]), message),
          {}};
}

}  // namespace plumbline

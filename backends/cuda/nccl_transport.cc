#include "backends/cuda/nccl_transport.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "engine/base/assert.h"

namespace plumbline::cuda {
namespace {

CommConfig nonblocking() {
  CommConfig config;
  config.blocking = 0;
  return config;
}

}  // namespace

NcclTransport::NcclTransport(std::vector<LocalRank> ranks, IdExchange& ids)
    : ranks_(std::move(ranks)), ids_(&ids) {
  PL_ASSERT(!ranks_.empty());
}

// Communicators still alive are ended without waiting for anybody: a peer may be gone (N77).
NcclTransport::~NcclTransport() { abort(); }

std::string NcclTransport::level() const { return nccl_version_text(libraries().nccl_version); }

const LocalRank& NcclTransport::rank_of(std::uint32_t thread) const {
  const auto found = std::find_if(ranks_.begin(), ranks_.end(),
                                  [&](const LocalRank& rank) { return rank.thread == thread; });
  PL_ASSERT(found != ranks_.end());
  return *found;
}

NcclTransport::Key NcclTransport::key_of(std::int32_t communicator, std::uint32_t thread) const {
  const Communicator& row = linked_->communicators[static_cast<std::size_t>(communicator)];
  return {fmt::format("{}({})", row.name, fmt::join(row.members, ",")), thread};
}

Status NcclTransport::set_program(const LinkedProgram& linked) {
  linked_ = &linked;
  const Program& program = *linked.program;
  std::vector<bool> created(program.families.size());
  for (const CommCall& call : program.comm_calls) {
    if (creates(call.kind)) created[call.family] = true;
  }
  to_join_.clear();
  for (std::size_t c = 0; c < linked.communicators.size(); ++c) {
    const Communicator& row = linked.communicators[c];
    if (created[row.family]) continue;
    for (std::size_t position = 0; position < row.members.size(); ++position) {
      for (const LocalRank& rank : ranks_) {
        if (program.threads[rank.thread].rank != row.members[position]) continue;
        Member& own = member(static_cast<std::int32_t>(c), rank.thread);
        if (own.wanted || own.handle != nullptr) continue;
        own.wanted = true;
        to_join_.emplace_back(static_cast<std::int32_t>(c), static_cast<std::int32_t>(position));
      }
    }
  }
  return {};
}

Status NcclTransport::publish(const std::string& key) {
  UniqueId id{};
  PL_NCCL(libraries(), ncclGetUniqueId, &id);
  return ids_->publish(key, id);
}

// Joins the communicator if its id is there; false: not yet.
Result<bool> NcclTransport::join(std::int32_t communicator, std::int32_t position, std::uint32_t thread) {
  const Key key = key_of(communicator, thread);
  Member& own = members_[key];
  const std::string name = fmt::format("{}#{}", key.first, own.generation);
  Result<std::optional<UniqueId>> id = ids_->look_up(name);
  if (!id) return tl::unexpected(id.error());
  if (!*id && position == 0) {
    PL_TRY(publish(name));
    own.published = name;
    id = ids_->look_up(name);
    if (!id) return tl::unexpected(id.error());
  }
  if (!*id) return false;
  PL_TRY(rank_of(thread).device.use());
  CommConfig config = nonblocking();
  const auto ranks =
      static_cast<int>(linked_->communicators[static_cast<std::size_t>(communicator)].members.size());
  PL_NCCL(libraries(), ncclCommInitRankConfig, &own.handle, ranks, **id, position, &config);
  ++own.generation;
  own.ready = false;
  return true;
}

Poll NcclTransport::state(CommHandle handle) const {
  int code = kNcclSuccess;
  const Status asked = nccl_status(libraries(), libraries().nccl.ncclCommGetAsyncError(handle, &code),
                                   "ncclCommGetAsyncError");
  if (!asked) return {PollState::kFailed, asked.error().message};
  if (code == kNcclInProgress) return {PollState::kPending, "a call on a communicator is under way"};
  if (const Status status = nccl_status(libraries(), code, "a call on a communicator"); !status)
    return {PollState::kFailed, status.error().message};
  return {};
}

Poll NcclTransport::ready() {
  if (aborted_) return {PollState::kFailed, "the communicators were aborted"};
  std::vector<std::pair<std::int32_t, std::int32_t>> left;
  std::set<std::uint32_t> waiting;  // threads that have one to join before: all ranks join in one order (N69)
  for (const auto& [communicator, position] : to_join_) {
    const Communicator& row = linked_->communicators[static_cast<std::size_t>(communicator)];
    const Rank rank = row.members[static_cast<std::size_t>(position)];
    for (const LocalRank& local : ranks_) {
      if (linked_->program->threads[local.thread].rank != rank) continue;
      const Result<bool> joined =
          waiting.contains(local.thread) ? Result<bool>(false) : join(communicator, position, local.thread);
      if (!joined) return {PollState::kFailed, joined.error().message};
      if (*joined) continue;
      waiting.insert(local.thread);
      left.emplace_back(communicator, position);
    }
  }
  to_join_ = std::move(left);
  if (!to_join_.empty()) {
    return {PollState::kPending,
            fmt::format("communicator {}: its first member has not told its id yet",
                        linked_->communicators[static_cast<std::size_t>(to_join_.front().first)].name)};
  }
  for (auto& [key, own] : members_) {
    if (!own.wanted || own.ready) continue;
    Poll poll = state(own.handle);
    if (poll.state != PollState::kDone) {
      poll.reason = fmt::format("communicator {} on thread {}: {}", key.first, key.second, poll.reason);
      return poll;
    }
    own.ready = true;
    if (own.published.empty()) continue;
    const Status retired = ids_->retire(std::exchange(own.published, {}));
    if (!retired) return {PollState::kFailed, retired.error().message};
  }
  return {};
}

Status NcclTransport::one(const TransportOp& op, CommHandle comm, StreamHandle stream) const {
  const Libraries& on = libraries();
  const int dtype = nccl_dtype(op.dtype);
  const auto count = static_cast<std::size_t>(op.bytes / dtype_bytes(op.dtype));
  const auto members =
      static_cast<Bytes>(linked_->communicators[static_cast<std::size_t>(op.communicator)].members.size());
  const std::size_t share = count / static_cast<std::size_t>(members);
  std::byte* const own = op.data + op.position * (op.bytes / members);
  switch (op.kind) {
    case EndpointKind::kSend:
      PL_NCCL(on, ncclSend, op.data, count, dtype, op.peer, comm, stream);
      return {};
    case EndpointKind::kRecv:
      PL_NCCL(on, ncclRecv, op.data, count, dtype, op.peer, comm, stream);
      return {};
    case EndpointKind::kAllReduce:
      PL_NCCL(on, ncclAllReduce, op.data, op.data, count, dtype, nccl_reduction(op.reduce), comm, stream);
      return {};
    case EndpointKind::kReduce:
      PL_NCCL(on, ncclReduce, op.data, op.data, count, dtype, nccl_reduction(op.reduce), op.peer, comm,
              stream);
      return {};
    case EndpointKind::kBroadcast:
      PL_NCCL(on, ncclBroadcast, op.data, op.data, count, dtype, op.peer, comm, stream);
      return {};
    case EndpointKind::kAllGather:
      PL_NCCL(on, ncclAllGather, own, op.data, share, dtype, comm, stream);
      return {};
    case EndpointKind::kReduceScatter:
      PL_NCCL(on, ncclReduceScatter, op.data, own, share, dtype, nccl_reduction(op.reduce), comm, stream);
      return {};
  }
  return {};
}

Result<bool> NcclTransport::enqueue(const TransportCall& call) {
  if (aborted_) return fail(ErrorCode::kState, "the communicators were aborted");
  PL_TRY(rank_of(call.thread).device.use());
  PL_NCCL(libraries(), ncclGroupStart);
  std::vector<CommHandle> used;
  Status failed;
  for (const TransportOp& op : call.ops) {
    const CommHandle comm = member(op.communicator, call.thread).handle;
    if (comm == nullptr && failed) {
      failed = fail(ErrorCode::kState,
                    fmt::format("communicator {} does not exist on this rank",
                                linked_->communicators[static_cast<std::size_t>(op.communicator)].name));
    } else if (failed) {
      failed = one(op, comm, call.stream);
    }
    if (std::find(used.begin(), used.end(), comm) == used.end()) used.push_back(comm);
  }
  const int code =
      libraries().nccl.ncclGroupEnd();  // in any case: a group left open would swallow what follows
  PL_TRY(failed);
  PL_TRY(nccl_status(libraries(), code, "ncclGroupEnd"));
  if (code == kNcclSuccess) return true;
  unissued_[call.thread] = std::move(used);
  return false;
}

Poll NcclTransport::issued(std::uint32_t thread) {
  std::vector<CommHandle>& comms = unissued_[thread];
  while (!comms.empty()) {
    Poll poll = state(comms.back());
    if (poll.state != PollState::kDone) return poll;
    comms.pop_back();
  }
  return {};
}

Result<std::uint64_t> NcclTransport::comm(std::uint32_t thread, const CommCall& call,
                                          const LinkedCommCall& linked) {
  PL_TRY(rank_of(thread).device.use());
  Pending pending;
  CommConfig config = nonblocking();
  if (call.share) config.splitShare = 1;
  Member* own = linked.communicator >= 0 ? &member(linked.communicator, thread) : nullptr;
  Member* parent = linked.parent >= 0 ? &member(linked.parent, thread) : nullptr;
  if (parent != nullptr && parent->handle == nullptr)
    return fail(ErrorCode::kState, fmt::format("{}: its parent does not exist on this rank", call.name));
  switch (call.kind) {
    case CommCallKind::kInit: {
      const Result<bool> joined = join(linked.communicator, linked.position, thread);
      if (!joined) return tl::unexpected(joined.error());
      // Its id is not there yet: through() tries again.
      pending.polled = {&own->handle};
      if (!*joined)
        return fail(ErrorCode::kUnsupported, fmt::format("{}: the id of the communicator is not "
                                                         "there yet",
                                                         call.name));
      break;
    }
    case CommCallKind::kSplit: {
      CommHandle none = nullptr;
      CommHandle* made = own != nullptr ? &own->handle : &none;
      PL_NCCL(libraries(), ncclCommSplit, parent->handle,
              own != nullptr ? linked.communicator : kSplitNoColor, linked.position, made, &config);
      pending.polled = {&parent->handle};
      if (own != nullptr) pending.polled.push_back(made);
      break;
    }
    case CommCallKind::kShrink: {
      if (libraries().nccl.ncclCommShrink == nullptr)
        return fail(ErrorCode::kUnsupported, fmt::format("{}: ncclCommShrink needs NCCL 2.27", call.name));
      const auto& old = linked_->communicators[static_cast<std::size_t>(linked.parent)].members;
      const auto& left = linked_->communicators[static_cast<std::size_t>(linked.communicator)].members;
      std::vector<int> excluded;
      for (std::size_t i = 0; i < old.size(); ++i) {
        if (std::find(left.begin(), left.end(), old[i]) == left.end())
          excluded.push_back(static_cast<int>(i));
      }
      PL_NCCL(libraries(), ncclCommShrink, parent->handle, excluded.data(), static_cast<int>(excluded.size()),
              &own->handle, &config, call.abort_parent ? kShrinkAbort : kShrinkDefault);
      pending.polled = {&own->handle};
      break;
    }
    case CommCallKind::kGrow:
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{}: communicators are not grown on devices", call.name));
    case CommCallKind::kFinalize:
      PL_NCCL(libraries(), ncclCommFinalize, own->handle);
      own->finalized = true;
      pending.polled = {&own->handle};
      break;
    case CommCallKind::kDestroy:
      if (!own->finalized) PL_NCCL(libraries(), ncclCommFinalize, own->handle);
      pending.polled = {&own->handle};
      pending.destroy = &own->handle;
      own->finalized = false;
      break;
    case CommCallKind::kAbort:
      PL_NCCL(libraries(), ncclCommAbort, own->handle);
      own->handle = nullptr;
      break;
    case CommCallKind::kReady:
      pending.polled = {&own->handle};
      break;
    case CommCallKind::kTurn:
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{}: this backend's hosts take their own turns", call.name));
    case CommCallKind::kSync:
    case CommCallKind::kRevoke:
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{}: the CUDA backend does not {}", call.name,
                              call.kind == CommCallKind::kSync ? "play a watchdog" : "call ncclCommRevoke"));
  }
  pending_[next_call_] = std::move(pending);
  return next_call_++;
}

Poll NcclTransport::through(std::uint64_t number) {
  Pending& pending = pending_[number];
  while (!pending.polled.empty()) {
    if (*pending.polled.back() != nullptr) {
      Poll poll = state(*pending.polled.back());
      if (poll.state != PollState::kDone) return poll;
    }
    pending.polled.pop_back();
  }
  if (pending.destroy != nullptr) {
    const int code = libraries().nccl.ncclCommDestroy(*pending.destroy);
    *pending.destroy = nullptr;
    pending.destroy = nullptr;
    if (const Status status = nccl_status(libraries(), code, "ncclCommDestroy"); !status)
      return {PollState::kFailed, status.error().message};
  }
  return {};
}

void NcclTransport::abort() {
  aborted_ = true;
  for (auto& [key, own] : members_) {
    if (own.handle == nullptr) continue;
    static_cast<void>(rank_of(key.second).device.use());
    libraries().nccl.ncclCommAbort(own.handle);
    own.handle = nullptr;
  }
}

}  // namespace plumbline::cuda

#include "sim/lifecycle.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "engine/base/assert.h"

namespace plumbline::sim {
namespace {

constexpr const char* kInvalidArgument = "ncclInvalidArgument";

}  // namespace

void Lifecycle::begin_step(const LinkedProgram& linked) {
  linked_ = &linked;
  meetings_.clear();
  calls_.clear();
  members_.clear();
  const Program& program = *linked.program;
  for (const Communicator& communicator : linked.communicators)
    members_.emplace_back(communicator.members.size());
  if (program.comm_calls.empty()) return;
  // A family that some call creates has no communicators at the start.
  std::vector<bool> created(program.families.size());
  for (const auto& rows : linked.comm_calls) {
    for (std::size_t row = 0; row < rows.size(); ++row) {
      if (creates(program.comm_calls[row].kind) && (rows[row].communicator >= 0 || rows[row].parent >= 0))
        created[program.comm_calls[row].family] = true;
    }
  }
  for (std::size_t c = 0; c < members_.size(); ++c) {
    if (!created[linked.communicators[c].family]) continue;
    for (Member& member : members_[c]) member.state = State::kAbsent;
  }
}

void Lifecycle::grow() {
  while (members_.size() < linked_->communicators.size()) {
    members_.emplace_back(linked_->communicators[members_.size()].members.size());
    for (Member& absent : members_.back()) absent.state = State::kAbsent;
  }
}

Lifecycle::Member& Lifecycle::member(std::int32_t communicator, std::int32_t position) {
  return members_[static_cast<std::size_t>(communicator)][static_cast<std::size_t>(position)];
}
const Lifecycle::Member& Lifecycle::member(std::int32_t communicator, std::int32_t position) const {
  return members_[static_cast<std::size_t>(communicator)][static_cast<std::size_t>(position)];
}

std::optional<Refusal> Lifecycle::use(std::int32_t communicator, std::int32_t position) const {
  switch (member(communicator, position).state) {
    case State::kReady:
      return std::nullopt;
    case State::kAbsent:
      return Refusal{kInvalidArgument, "N87",
                     fmt::format("communicator {} does not exist yet on this rank", name(communicator))};
    case State::kJoining:
      return Refusal{kInvalidArgument, "N79",
                     fmt::format("communicator {} is used before its nonblocking call is through; poll "
                                 "ncclCommGetAsyncError until it is",
                                 name(communicator))};
    case State::kFinalized:
      return Refusal{kInvalidArgument, "N77",
                     fmt::format("communicator {} is finalized", name(communicator))};
    case State::kDestroyed:
      return Refusal{kInvalidArgument, "N87",
                     fmt::format("communicator {} is destroyed", name(communicator))};
    case State::kAborted:
      return Refusal{kInvalidArgument, "N87", fmt::format("communicator {} was aborted", name(communicator))};
  }
  return std::nullopt;
}

std::optional<Refusal> Lifecycle::check(const CommCall& call, const LinkedCommCall& linked) const {
  const bool own = linked.communicator >= 0;
  const State state = own ? member(linked.communicator, linked.position).state : State::kAbsent;
  switch (call.kind) {
    case CommCallKind::kInit:
      break;
    case CommCallKind::kSplit:
      if (auto refusal = use(linked.parent, linked.parent_position)) return refusal;
      break;
    case CommCallKind::kShrink:
      // A rank that is left out makes no call.
      if (!own) {
        return Refusal{kInvalidArgument, "N74",
                       fmt::format("a rank that the shrink of {} leaves out calls it", name(linked.parent))};
      }
      if (call.abort_parent && member(linked.parent, linked.parent_position).state != State::kAbsent) break;
      if (auto refusal = use(linked.parent, linked.parent_position)) return refusal;
      break;
    case CommCallKind::kFinalize:
      return use(linked.communicator, linked.position);
    case CommCallKind::kDestroy:
      if (state == State::kFinalized) return std::nullopt;
      return use(linked.communicator, linked.position);
    case CommCallKind::kAbort:
      if (state == State::kJoining || state == State::kFinalized) return std::nullopt;
      return use(linked.communicator, linked.position);
    case CommCallKind::kReady:
      if (state == State::kJoining || state == State::kFinalized) return std::nullopt;
      return use(linked.communicator, linked.position);
  }
  if (own && state == State::kJoining) return use(linked.communicator, linked.position);
  return std::nullopt;
}

Lifecycle::Kind Lifecycle::kind_of(CommCallKind kind) {
  switch (kind) {
    case CommCallKind::kInit:
      return Kind::kInit;
    case CommCallKind::kSplit:
    case CommCallKind::kShrink:
      return Kind::kFromParent;
    case CommCallKind::kDestroy:
      return Kind::kDestroy;
    default:
      return Kind::kNone;
  }
}

std::pair<std::int32_t, std::int32_t> Lifecycle::meets_in(const CommCall& call,
                                                          const LinkedCommCall& linked) {
  // Of a shrink only those who are left meet: they are the members of what it makes.
  if (call.kind == CommCallKind::kSplit) return {linked.parent, linked.parent_position};
  return {linked.communicator, linked.position};
}

void Lifecycle::issue(NodeId node, const CommCall& call, const LinkedCommCall& linked) {
  Call& record = calls_[node];
  record.kind = kind_of(call.kind);
  record.communicator = linked.communicator;
  record.own_position = linked.position;
  record.creates = creates(call.kind) && linked.communicator >= 0;
  if (record.kind != Kind::kNone) {
    const auto [communicator, position] = meets_in(call, linked);
    const std::uint32_t number =
        member(communicator, position).calls[static_cast<std::size_t>(record.kind)]++;
    record.key = {record.kind, communicator, number};
    record.position = position;
    Meeting& meeting = meetings_[record.key];
    meeting.needed = members_[static_cast<std::size_t>(communicator)].size();
    meeting.nodes.resize(meeting.needed);
  }
  if (linked.communicator < 0) return;
  Member& own = member(linked.communicator, linked.position);
  if (call.kind != CommCallKind::kReady) own.pending = node;
  if (record.creates) own.state = State::kJoining;
  if (record.creates) own.blocking = !call.nonblocking;
  if (call.kind == CommCallKind::kFinalize) own.state = State::kFinalized;
  if (call.kind == CommCallKind::kDestroy) own.state = State::kDestroyed;
  if (call.kind == CommCallKind::kAbort) own.state = State::kAborted;
}

std::vector<NodeId> Lifecycle::arrive(NodeId node) {
  const Call& call = calls_.at(node);
  if (call.kind == Kind::kNone) return {node};
  Meeting& meeting = meetings_[call.key];
  PL_ASSERT(meeting.nodes[static_cast<std::size_t>(call.position)] == 0);
  meeting.nodes[static_cast<std::size_t>(call.position)] = node;
  if (++meeting.arrived < meeting.needed) return {};
  for (const NodeId over : meeting.nodes) {
    const Call& other = calls_.at(over);
    if (!other.creates) continue;
    Member& made = member(other.communicator, other.own_position);
    if (made.state == State::kJoining) made.state = State::kReady;
  }
  return meeting.nodes;
}

NodeId Lifecycle::pending(std::int32_t communicator, std::int32_t position) const {
  return member(communicator, position).pending;
}

bool Lifecycle::blocking(std::int32_t communicator, std::int32_t position) const {
  return member(communicator, position).blocking;
}

Lifecycle::Waiting Lifecycle::waiting(NodeId node) const {
  Waiting out;
  const auto found = calls_.find(node);
  if (found == calls_.end() || found->second.kind == Kind::kNone) return out;
  const Meeting& meeting = meetings_.at(found->second.key);
  out.communicator = std::get<1>(found->second.key);
  out.number = std::get<2>(found->second.key);
  for (std::size_t position = 0; position < meeting.nodes.size(); ++position) {
    if (meeting.nodes[position] == 0) out.missing.push_back(static_cast<std::int32_t>(position));
  }
  return out;
}

NodeId Lifecycle::counterpart(NodeId node, std::int32_t position) const {
  const Key& key = calls_.at(node).key;
  for (const auto& [other, call] : calls_) {
    if (call.kind != Kind::kNone && call.key == key && call.position == position) return other;
  }
  return 0;
}

bool Lifecycle::same_meeting(NodeId node, const CommCall& call, const LinkedCommCall& linked) const {
  const Call& record = calls_.at(node);
  return record.kind == kind_of(call.kind) && std::get<1>(record.key) == meets_in(call, linked).first;
}

}  // namespace plumbline::sim

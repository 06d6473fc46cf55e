#include "sim/lifecycle.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "engine/base/assert.h"

namespace plumbline::sim {
namespace {

constexpr const char* kInvalidArgument = "ncclInvalidArgument";
constexpr const char* kRemoteError = "ncclRemoteError";

}  // namespace

void Lifecycle::begin_step(const LinkedProgram& linked) {
  linked_ = &linked;
  meetings_.clear();
  calls_.clear();
  broken_.clear();
  ended_.clear();
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
  mark_ended();
}

Lifecycle::Member& Lifecycle::member(std::int32_t communicator, std::int32_t position) {
  return members_[static_cast<std::size_t>(communicator)][static_cast<std::size_t>(position)];
}
const Lifecycle::Member& Lifecycle::member(std::int32_t communicator, std::int32_t position) const {
  return members_[static_cast<std::size_t>(communicator)][static_cast<std::size_t>(position)];
}

// What an asynchronous error makes of every later call (N82).
std::optional<Refusal> Lifecycle::sticky(std::int32_t communicator, std::int32_t position) const {
  const std::string& error = member(communicator, position).error;
  if (error.empty()) return std::nullopt;
  return Refusal{error, "N82",
                 fmt::format("communicator {} has had this error before, and keeps it until ncclCommAbort",
                             name(communicator))};
}

std::optional<Refusal> Lifecycle::use(std::int32_t communicator, std::int32_t position) const {
  switch (member(communicator, position).state) {
    case State::kReady:
      if (member(communicator, position).connecting == 0) return sticky(communicator, position);
      return Refusal{kInvalidArgument, "N79",
                     fmt::format("communicator {} still connects for the nonblocking operation before; poll "
                                 "ncclCommGetAsyncError until it is through",
                                 name(communicator))};
    case State::kRevoked:
      return Refusal{"ncclInvalidUsage", "N76",
                     fmt::format("communicator {} was revoked", name(communicator))};
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
      if (call.duplicate_device)
        return Refusal{
            "ncclInvalidUsage", "N70",
            fmt::format("communicator {} is to have two ranks on one device", name(linked.communicator))};
      if (auto refusal = root_ended(linked)) return refusal;
      break;
    case CommCallKind::kGrow:
      if (linked.parent < 0) break;  // it joins
      if (auto refusal = use(linked.parent, linked.parent_position)) return refusal;
      if (members_[static_cast<std::size_t>(linked.parent)].size() >=
          members_[static_cast<std::size_t>(linked.communicator)].size())
        return Refusal{kInvalidArgument, "N75",
                       fmt::format("{} has no more ranks than {}, of which it is to be grown",
                                   name(linked.communicator), name(linked.parent))};
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
      if (const State parent = member(linked.parent, linked.parent_position).state;
          parent == State::kRevoked || (call.abort_parent && parent != State::kAbsent)) {
        break;
      }
      if (auto refusal = use(linked.parent, linked.parent_position)) return refusal;
      break;
    case CommCallKind::kFinalize:
      return use(linked.communicator, linked.position);
    case CommCallKind::kDestroy:
      if (state == State::kFinalized || state == State::kRevoked)
        return sticky(linked.communicator, linked.position);
      return use(linked.communicator, linked.position);
    case CommCallKind::kAbort:
      // It alone is not stopped by an error.
      if (state == State::kJoining || state == State::kReady || state == State::kFinalized ||
          state == State::kRevoked)
        return std::nullopt;
      return use(linked.communicator, linked.position);
    case CommCallKind::kReady:
    case CommCallKind::kSync:
      if (state == State::kJoining || state == State::kFinalized || state == State::kRevoked ||
          (state == State::kReady && member(linked.communicator, linked.position).connecting != 0))
        return sticky(linked.communicator, linked.position);
      return use(linked.communicator, linked.position);
    case CommCallKind::kTurn:
      return std::nullopt;  // whatever the communicator is good for
    case CommCallKind::kRevoke:
      if (state == State::kRevoked)
        return Refusal{kInvalidArgument, "N76",
                       fmt::format("communicator {} was revoked before", name(linked.communicator))};
      return use(linked.communicator, linked.position);
  }
  if (own && state == State::kJoining) return use(linked.communicator, linked.position);
  return std::nullopt;
}

Lifecycle::Kind Lifecycle::kind_of(CommCallKind kind) {
  switch (kind) {
    case CommCallKind::kInit:
    case CommCallKind::kGrow:
      return Kind::kInit;
    case CommCallKind::kSplit:
    case CommCallKind::kShrink:
      return Kind::kFromParent;
    case CommCallKind::kDestroy:
      return Kind::kDestroy;
    case CommCallKind::kTurn:
      return Kind::kTurn;
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
  record.release = call.release;
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
  const bool polls = call.kind == CommCallKind::kReady || call.kind == CommCallKind::kSync;
  if (!polls) own.pending = node;
  if (record.creates) own.state = State::kJoining;
  if (record.creates) own.blocking = !call.nonblocking;
  if (record.creates) own.error.clear();
  if (call.kind == CommCallKind::kRevoke) own.state = State::kRevoked;
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
  ++meeting.arrived;
  if (meeting.broken || (call.kind != Kind::kInit && ended(std::get<1>(call.key)) >= 0)) {
    break_off(call.key, meeting);
    return {};
  }
  if (meeting.arrived < meeting.needed) return {};
  if (differ(meeting)) return {};
  for (const NodeId over : meeting.nodes) {
    const Call& other = calls_.at(over);
    if (!other.creates) continue;
    Member& made = member(other.communicator, other.own_position);
    if (made.state == State::kJoining) made.state = State::kReady;
  }
  return meeting.nodes;
}

// Members with different releases of NCCL find that out when all have met, and none gets its communicator (N72).
bool Lifecycle::differ(const Meeting& meeting) {
  std::int32_t lowest = 0, highest = 0;
  for (const NodeId node : meeting.nodes) {
    const std::int32_t release = calls_.at(node).release;
    if (release == 0) continue;
    lowest = lowest == 0 ? release : std::min(lowest, release);
    highest = std::max(highest, release);
  }
  if (lowest == highest) return false;
  const auto text = [](std::int32_t release) {
    return fmt::format("{}.{}.{}", release / 10000, release / 100 % 100, release % 100);
  };
  for (const NodeId node : meeting.nodes) {
    const Call& call = calls_.at(node);
    Member& made = member(call.communicator, call.own_position);
    made.state = made.blocking ? State::kAbsent : State::kReady;
    if (!made.blocking) made.error = "ncclInvalidUsage";
    broken_.push_back({node,
                       {"ncclInvalidUsage", "N72",
                        fmt::format("communicator {} is to have ranks with NCCL {} and with {}",
                                    name(call.communicator), text(lowest), text(highest))}});
  }
  return true;
}

// Whoever has come to the meeting gets an error, and what it makes does not come to be.
void Lifecycle::break_off(const Key& key, Meeting& meeting) {
  meeting.broken = true;
  const auto& [kind, communicator, number] = key;
  const std::string why = fmt::format(
      "the process of a rank that takes part in it ended, and with it a "
      "connection of communicator {}'s bootstrap",
      name(communicator));
  for (std::size_t position = 0; position < meeting.nodes.size(); ++position) {
    const NodeId node = std::exchange(meeting.nodes[position], 0);
    if (node == 0) continue;
    const Call& call = calls_.at(node);
    --meeting.arrived;
    if (call.creates) {
      Member& made = member(call.communicator, call.own_position);
      made.state = made.blocking ? State::kAbsent : State::kReady;
      if (!made.blocking) made.error = kRemoteError;
    }
    if (kind == Kind::kFromParent) fail(communicator, call.position, kRemoteError);
    if (!member(communicator, static_cast<std::int32_t>(position)).ended)
      broken_.push_back({node, {kRemoteError, "N83", why}});
  }
}

void Lifecycle::mark_ended() {
  for (std::size_t c = 0; !ended_.empty() && c < members_.size(); ++c) {
    const std::vector<Rank>& ranks = linked_->communicators[c].members;
    for (std::size_t position = 0; position < ranks.size(); ++position)
      members_[c][position].ended = std::find(ended_.begin(), ended_.end(), ranks[position]) != ended_.end();
  }
}

void Lifecycle::end_process(Rank rank) {
  ended_.push_back(rank);
  mark_ended();
  for (auto& [key, meeting] : meetings_) {
    const auto& [kind, communicator, number] = key;
    if (meeting.arrived == meeting.needed) continue;
    bool broken = kind != Kind::kInit && ended(communicator) >= 0;
    for (std::size_t position = 0; position < meeting.nodes.size(); ++position) {
      broken = broken || (meeting.nodes[position] != 0 &&
                          member(communicator, static_cast<std::int32_t>(position)).ended);
    }
    if (broken) break_off(key, meeting);
  }
}

std::int32_t Lifecycle::ended(std::int32_t communicator) const {
  const std::vector<Member>& members = members_[static_cast<std::size_t>(communicator)];
  const auto found =
      std::find_if(members.begin(), members.end(), [](const Member& one) { return one.ended; });
  return found == members.end() ? -1 : static_cast<std::int32_t>(found - members.begin());
}

// The first member made the id, and its process listens for the others.
std::optional<Refusal> Lifecycle::root_ended(const LinkedCommCall& linked) const {
  if (!member(linked.communicator, 0).ended) return std::nullopt;
  return Refusal{"ncclSystemError", "N83",
                 fmt::format("nobody listens at the address in the id of communicator {}: the process of its "
                             "first member has ended",
                             name(linked.communicator))};
}

bool Lifecycle::fail(std::int32_t communicator, std::int32_t position, std::string code) {
  Member& own = member(communicator, position);
  if (!own.error.empty() || own.state == State::kDestroyed || own.state == State::kAborted) return false;
  own.error = std::move(code);
  return true;
}

void Lifecycle::set_connecting(std::int32_t communicator, std::int32_t position, NodeId node) {
  member(communicator, position).connecting = node;
}

NodeId Lifecycle::pending(std::int32_t communicator, std::int32_t position) const {
  const Member& own = member(communicator, position);
  return own.connecting != 0 ? own.connecting : own.pending;
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
  out.turn = found->second.kind == Kind::kTurn;
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

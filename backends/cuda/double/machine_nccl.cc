// Communicators and groups of the doubles.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "backends/cuda/double/capture.h"
#include "backends/cuda/double/machine.h"

namespace plumbline::cuda {
namespace {

int code_named(std::string_view name) {
  return static_cast<int>(std::find(kNcclNames.begin(), kNcclNames.end(), name) - kNcclNames.begin());
}
int code_of(const std::optional<sim::Refusal>& refusal) {
  return refusal ? code_named(refusal->code) : kNcclSuccess;
}

}  // namespace

const std::vector<Rank>& Machine::members(const ncclComm* comm) const {
  return linked_.communicators[static_cast<std::size_t>(comm->communicator)].members;
}

std::int32_t Machine::add_communicator(std::vector<Rank> members) {
  const auto number = static_cast<std::int32_t>(linked_.communicators.size());
  const std::string name = fmt::format("communicator {}", number);
  program_.families.push_back({name, false, {members}});
  linked_.communicators.push_back({name, static_cast<std::uint16_t>(number), std::move(members)});
  world_.grow();
  return number;
}

// Appends the item of a call on a communicator, whose row is made on its first use.
std::uint32_t Machine::comm_call(int device, CommCallKind kind, std::int32_t communicator,
                                 const LinkedCommCall& linked, bool share, bool abort_parent) {
  const std::int32_t about = communicator >= 0 ? communicator : linked.parent;
  const CallKey key{static_cast<int>(kind), about, linked.parent, share, abort_parent};
  const auto [at, fresh] = call_rows_.try_emplace(key, static_cast<unsigned>(program_.comm_calls.size()));
  if (fresh) {
    CommCall row;
    row.name = fmt::format("{} of communicator {}", comm_call_kind_name(kind), about);
    row.kind = kind;
    row.family = static_cast<std::uint16_t>(about);
    row.parent = static_cast<std::uint16_t>(std::max(linked.parent, 0));
    row.nonblocking = true;
    row.share = share;
    row.abort_parent = abort_parent;
    program_.comm_calls.push_back(std::move(row));
    for (auto& rows : linked_.comm_calls) rows.resize(program_.comm_calls.size());
  }
  linked_.comm_calls[static_cast<std::size_t>(device)][at->second] = linked;
  if (fresh && share) world_.grow();  // its queue is its parent's
  return append(make_item(ItemOp::kComm, kNoMicrobatch, 0, at->second, 0), {});
}

void Machine::issue(ncclComm* comm, int device, CommCallKind kind, const LinkedCommCall& linked, bool share,
                    bool abort_parent) {
  const std::uint32_t item = comm_call(device, kind, linked.communicator, linked, share, abort_parent);
  const Result<Issued> issued = world_.comm(static_cast<std::uint32_t>(device), item, program_.items[item]);
  if (comm != nullptr) comm->pending = issued->done;
}

UniqueId Machine::make_id() {
  UniqueId id{};
  std::memcpy(id.internal, &next_id_, sizeof next_id_);
  ++next_id_;
  ids_[std::string(id.internal, sizeof id.internal)] = caller->process;
  return id;
}

int Machine::init(ncclComm** comm, int ranks, const UniqueId& id, int rank, bool blocking) {
  const std::string key(id.internal, sizeof id.internal);
  std::unique_ptr<Meeting>& meeting = inits_[key];
  if (meeting == nullptr) meeting = std::make_unique<Meeting>();
  if (meeting->needed == 0) meeting->needed = static_cast<std::size_t>(ranks);
  if (meeting->needed != static_cast<std::size_t>(ranks) || meeting->members.contains(rank))
    return kNcclInvalidArgument;
  comms_.push_back(std::make_unique<ncclComm>());
  ncclComm* made = *comm = comms_.back().get();
  made->device = caller->device;
  made->position = rank;
  made->blocking = blocking;
  made->meeting = meeting.get();
  made->owner = caller->process;
  caller->process->devices.insert(caller->device);
  meeting->members[rank].made = made;
  // Whoever made the id listens for the others (N83).
  const auto maker = ids_.find(key);
  if (maker != ids_.end() && maker->second->ended) {
    made->meeting = nullptr;
    return made->error = kNcclSystemError;
  }
  if (meeting->broken) break_off(*meeting);
  if (made->error == 0 && meeting->members.size() == meeting->needed) assemble(*meeting);
  // A blocking call would wait here for the others, whom this thread is to play as well.
  if (blocking && made->meeting != nullptr) return kNcclInvalidUsage;
  return made->error != 0 ? made->error : finish(made, made->pending);
}

// All members of an init are there.
void Machine::assemble(Meeting& meeting) {
  meeting.over = true;
  std::vector<Rank> devices;
  for (const auto& [rank, member] : meeting.members) devices.push_back(member.made->device);
  std::vector<Rank> sorted = devices;
  std::sort(sorted.begin(), sorted.end());
  const bool shared = std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end();
  const std::int32_t communicator = shared ? -1 : add_communicator(std::move(devices));
  for (const auto& [rank, member] : meeting.members) {
    member.made->meeting = nullptr;
    member.made->communicator = communicator;
    if (shared) {
      member.made->error = kNcclInvalidUsage;  // two ranks on one device (N71)
    } else {
      issue(member.made, member.made->device, CommCallKind::kInit, {communicator, rank, -1, -1});
    }
  }
}

int Machine::split(ncclComm* parent, int color, int key, ncclComm** made, bool share, bool blocking) {
  if (const int code = use(parent); code != kNcclSuccess) return code;
  std::unique_ptr<Meeting>& meeting = splits_[{parent->communicator, parent->splits++}];
  if (meeting == nullptr) meeting = std::make_unique<Meeting>();
  meeting->needed = members(parent).size();
  meeting->split = true;
  Meeting::Member& member = meeting->members[parent->position];
  member.parent = parent;
  member.color = color;
  member.key = key;
  member.share = share;
  *made = nullptr;
  if (color != kSplitNoColor) {
    comms_.push_back(std::make_unique<ncclComm>());
    member.made = *made = comms_.back().get();
    member.made->device = parent->device;
    member.made->owner = parent->owner;
    member.made->blocking = blocking;
    member.made->meeting = meeting.get();
  }
  parent->meeting = meeting.get();
  if (world_.lifecycle().ended(parent->communicator) >= 0) {
    break_off(*meeting);
  } else if (meeting->members.size() == meeting->needed) {
    assemble_split(*meeting);
  }
  return kNcclInProgress;
}

// Whoever has come is told by its next poll (N83).
void Machine::break_off(Meeting& meeting) {
  meeting.broken = true;
  for (const auto& [rank, member] : meeting.members) {
    for (ncclComm* comm : {member.made, member.parent}) {
      if (comm == nullptr || comm->meeting != &meeting) continue;
      comm->meeting = nullptr;
      comm->error = kNcclRemoteError;
    }
  }
}

void Machine::end_process(int device) {
  world_.end_process(device);
  for (const auto& [id, meeting] : inits_) {
    const auto gone = [&](const auto& at) { return at.second.made->device == device; };
    const auto& members = meeting->members;
    if (!meeting->over && std::any_of(members.begin(), members.end(), gone)) break_off(*meeting);
  }
  for (const auto& [key, meeting] : splits_) {
    if (!meeting->over && world_.lifecycle().ended(key.first) >= 0) break_off(*meeting);
  }
}

void Machine::assemble_split(Meeting& meeting) {
  meeting.over = true;
  std::map<int, std::vector<std::pair<int, int>>> groups;  // color -> (key, old rank)
  for (const auto& [rank, member] : meeting.members) {
    if (member.made != nullptr) groups[member.color].emplace_back(member.key, rank);
  }
  for (auto& [color, group] : groups) {
    std::sort(group.begin(), group.end());
    std::vector<Rank> devices;
    for (const auto& [key, rank] : group) devices.push_back(meeting.members[rank].made->device);
    const std::int32_t communicator = add_communicator(std::move(devices));
    for (std::size_t position = 0; position < group.size(); ++position) {
      ncclComm* made = meeting.members[group[position].second].made;
      made->communicator = communicator;
      made->position = static_cast<int>(position);
    }
  }
  for (const auto& [rank, member] : meeting.members) {
    LinkedCommCall linked{-1, -1, member.parent->communicator, member.parent->position};
    if (member.made != nullptr) {
      linked.communicator = member.made->communicator;
      linked.position = member.made->position;
      member.made->meeting = nullptr;
    }
    member.parent->meeting = nullptr;
    issue(member.made, member.parent->device, CommCallKind::kSplit, linked, member.share);
  }
}

int Machine::shrink(ncclComm* parent, const std::vector<int>& excluded, ncclComm** made, bool abort) {
  if (!abort) {
    if (const int code = use(parent); code != kNcclSuccess) return code;
  }
  if (std::find(excluded.begin(), excluded.end(), parent->position) != excluded.end())
    return kNcclInvalidArgument;
  const auto [at, fresh] = shrinks_.try_emplace({parent->communicator, excluded}, -1);
  const std::vector<Rank> old = members(parent);
  int position = 0;
  std::vector<Rank> left;
  for (int rank = 0; rank < static_cast<int>(old.size()); ++rank) {
    if (std::find(excluded.begin(), excluded.end(), rank) != excluded.end()) continue;
    if (rank == parent->position) position = static_cast<int>(left.size());
    left.push_back(old[static_cast<std::size_t>(rank)]);
  }
  if (fresh) at->second = add_communicator(left);
  comms_.push_back(std::make_unique<ncclComm>(*parent));
  ncclComm* comm = *made = comms_.back().get();
  comm->communicator = at->second;
  comm->position = position;
  comm->splits = 0;
  comm->ended = false;
  issue(comm, comm->device, CommCallKind::kShrink,
        {at->second, position, parent->communicator, parent->position}, false, abort);
  if (abort) parent->ended = true;
  return kNcclInProgress;
}

int Machine::end(ncclComm* comm, CommCallKind kind) {
  if (comm->ended) return kNcclInvalidArgument;
  const bool ends = kind != CommCallKind::kFinalize;
  if (comm->communicator < 0) {  // nobody has met it yet
    comm->ended = ends;
    return kNcclSuccess;
  }
  const LinkedCommCall linked{comm->communicator, comm->position, -1, -1};
  const std::uint32_t item = comm_call(comm->device, kind, comm->communicator, linked, false, false);
  const auto& call = program_.comm_calls[item_ref(program_.items[item])];
  // What is refused leaves it there: an error stays until the abort (N82).
  if (const auto refusal = world_.lifecycle().check(call, linked); refusal) return code_of(refusal);
  comm->ended = ends;
  const Result<Issued> issued =
      world_.comm(static_cast<std::uint32_t>(comm->device), item, program_.items[item]);
  comm->pending = issued->done;
  return kind == CommCallKind::kAbort ? kNcclSuccess : kNcclInProgress;
}

int Machine::async_error(ncclComm* comm) {
  if (polls_step) step();
  if (comm->error != 0) return comm->error;
  if (comm->meeting != nullptr) return kNcclInProgress;
  if (comm->communicator >= 0 && !comm->ended) {
    const std::string& error = world_.lifecycle().error(comm->communicator, comm->position);
    if (!error.empty()) return code_named(error);
  }
  if (comm->pending == 0 || world_.graph()[static_cast<sim::NodeId>(comm->pending)].done) return kNcclSuccess;
  polled_[static_cast<std::size_t>(comm->device)] = comm->pending;
  return kNcclInProgress;
}

int Machine::use(const ncclComm* comm) const {
  if (comm->error != 0) return comm->error;
  if (comm->ended) return kNcclInvalidArgument;
  // A nonblocking call is not through yet (N79).
  if (comm->meeting != nullptr || comm->communicator < 0) return kNcclInvalidArgument;
  if (comm->pending != 0 && !world_.graph()[static_cast<sim::NodeId>(comm->pending)].done)
    return kNcclInvalidArgument;
  return code_of(world_.lifecycle().use(comm->communicator, comm->position));
}

// The table row of an operation, made on its first use.
unsigned Machine::row_of(const GroupedCall& call) {
  const RowKey key{
      static_cast<int>(call.kind),  call.comm->communicator,      call.comm->position, call.peer, call.bytes,
      static_cast<int>(call.dtype), static_cast<int>(call.reduce)};
  const auto [at, fresh] = rows_.try_emplace(key, static_cast<unsigned>(program_.endpoints.size()));
  if (!fresh) return at->second;
  const unsigned row = at->second;
  const Rank peer = call.peer < 0 ? -1 : members(call.comm)[static_cast<std::size_t>(call.peer)];
  Endpoint endpoint;
  endpoint.kind = call.kind;
  endpoint.name = fmt::format("{}.{}", endpoint_kind_name(call.kind), row);
  endpoint.dtype = call.dtype;
  endpoint.reduce = call.reduce;
  endpoint.form = peer < 0 ? PeerForm::kNone : PeerForm::kRank;
  endpoint.peer = peer;
  endpoint.family = static_cast<std::uint16_t>(call.comm->communicator);
  endpoint.bytes = call.bytes;
  program_.endpoints.push_back(std::move(endpoint));
  LinkedEndpoint& linked =
      linked_.endpoints[linked_.windows[static_cast<std::size_t>(call.comm->device)].base + row];
  linked = {call.comm->communicator, peer, call.comm->position, call.peer};
  world_.add_route(static_cast<std::uint32_t>(call.comm->device), row);
  return row;
}

// The outermost ncclGroupEnd: each device's operations become one group of its own (N8, N17).
int Machine::group(const std::vector<GroupedCall>& calls) {
  if (Captures::any(calls)) return captures->group(calls);
  std::map<int, std::vector<const GroupedCall*>> by_device;
  for (const GroupedCall& call : calls) by_device[call.comm->device].push_back(&call);
  if (program_.endpoints.size() + calls.size() > linked_.windows.front().count) return kNcclInternalError;
  int code = kNcclSuccess;
  for (const auto& [device, own] : by_device) {
    if (const int result = group_of(device, own); result != kNcclSuccess) code = result;
  }
  return code;
}

// A collective's buffers are one and the same, as its kind has it, or apart (N62). Those that a rank does not use, not
// being the root, do not count (N64).
void Machine::check_overlap(const GroupedCall& call, std::uint32_t item) {
  const bool root = call.peer == call.comm->position;
  const bool unused = (call.kind == EndpointKind::kReduce || call.kind == EndpointKind::kBroadcast) && !root;
  if (is_p2p(call.kind) || call.from == nullptr || call.to == nullptr || unused) return;
  const Bytes share = call.bytes / static_cast<Bytes>(members(call.comm).size());
  const bool gathers = call.kind == EndpointKind::kAllGather;
  const bool scatters = call.kind == EndpointKind::kReduceScatter;
  const std::byte* from_end = call.from + (gathers ? share : call.bytes);
  const std::byte* to_end = call.to + (scatters ? share : call.bytes);
  const Bytes place = share * call.comm->position;
  const bool in_place = call.from + (scatters ? place : 0) == call.to + (gathers ? place : 0);
  if (in_place || from_end <= call.to || to_end <= call.from ||
      !world_.log().wants(FindingKind::kNotPortable))
    return;
  Finding finding;
  finding.kind = FindingKind::kNotPortable;
  finding.rule = "N62";
  finding.operations = {world_.log().operation(static_cast<std::uint32_t>(call.comm->device), item)};
  finding.why = fmt::format("{} on rank {}: its buffers overlap otherwise than in place, which is undefined",
                            finding.operations.front().text, finding.operations.front().rank);
  world_.log().add(std::move(finding));
}

int Machine::group_of(int device, const std::vector<const GroupedCall*>& calls) {
  const auto thread = static_cast<std::uint32_t>(device);
  // All streams of the group wait for each other: its kernel is behind and ahead of all of them (N5).
  const int stream = calls.front()->stream->index;
  std::vector<int> others;
  for (const GroupedCall* call : calls) {
    const int index = call->stream->index;
    if (index == stream || std::find(others.begin(), others.end(), index) != others.end()) continue;
    others.push_back(index);
    static_cast<void>(world_.stream_wait(thread, stream, *world_.marker(thread, index)));
  }
  const auto first = static_cast<std::uint32_t>(program_.items.size());
  for (const GroupedCall* call : calls) {
    const bool last = call == calls.back();
    Call record;
    record.operation = *call;
    append(make_item(ItemOp::kOp, kNoMicrobatch, last ? 0u : static_cast<unsigned>(kMore), row_of(*call),
                     static_cast<unsigned>(stream)),
           std::move(record));
    check_overlap(*call, static_cast<std::uint32_t>(program_.items.size()) - 1);
  }
  GroupCall group;
  group.thread = thread;
  group.first_item = first;
  group.entries = std::span<const Item>(program_.items).subspan(first);
  group.stream = stream;
  const Result<Issued> issued = world_.group(group);
  if (!issued) return kNcclInvalidArgument;
  for (const int other : others) static_cast<void>(world_.stream_wait(thread, other, issued->done));
  // A nonblocking communicator's connections are set up behind the call, which is under way until then (N2a).
  int code = kNcclSuccess;
  for (const GroupedCall* call : calls) {
    const Token until = issued->host != 0
                            ? issued->host
                            : world_.lifecycle().pending(call->comm->communicator, call->comm->position);
    if (until == 0 || world_.graph()[static_cast<sim::NodeId>(until)].done) continue;
    code = std::max(code, finish(call->comm, until));
  }
  return code;
}

// A call of the communicator is under way until the token is done. A blocking one waits inside the call.
int Machine::finish(ncclComm* comm, Token token) {
  comm->pending = token;
  if (!comm->blocking) return kNcclInProgress;
  while (!world_.graph()[static_cast<sim::NodeId>(token)].done) {
    if (!step()) return comm->error = kNcclInternalError;  // it would stand here for ever
  }
  return kNcclSuccess;
}

std::byte* Machine::data(std::uint32_t item) {
  Call& call = calls_[item];
  GroupedCall& own = call.operation;
  const auto bytes = static_cast<std::size_t>(own.bytes);
  const auto place = static_cast<std::size_t>(own.comm->position);
  const auto mutable_from = [&] {
    // What is only read: sends, and contributions to a root.
    return const_cast<std::byte*>(own.from);
  };
  // memmove: buffers that overlap otherwise than in place are a finding (N62), not an end of the double.
  switch (own.kind) {
    case EndpointKind::kSend:
      return mutable_from();
    case EndpointKind::kRecv:
      return own.to;
    case EndpointKind::kAllReduce:
      if (own.from != own.to) std::memmove(own.to, own.from, bytes);
      return own.to;
    case EndpointKind::kReduce:
      if (own.peer != own.comm->position) return mutable_from();
      if (own.from != own.to) std::memmove(own.to, own.from, bytes);
      return own.to;
    case EndpointKind::kBroadcast:
      return own.peer == own.comm->position ? mutable_from() : own.to;
    case EndpointKind::kAllGather: {
      const std::size_t share = bytes / members(own.comm).size();
      if (own.from != own.to + place * share) std::memmove(own.to + place * share, own.from, share);
      return own.to;
    }
    case EndpointKind::kReduceScatter:
      // Worked on in a copy: of what is sent, only the own share is written, and only in place.
      if (call.scratch.empty()) call.scratch.assign(own.from, own.from + bytes);
      return call.scratch.data();
  }
  return nullptr;
}

void Machine::over(std::uint32_t item) {
  Call& call = calls_[item];
  const GroupedCall& own = call.operation;
  if (own.kind == EndpointKind::kBroadcast && own.peer == own.comm->position && own.from != own.to)
    std::memmove(own.to, own.from, static_cast<std::size_t>(own.bytes));
  if (own.kind != EndpointKind::kReduceScatter || call.scratch.empty()) return;
  const std::size_t share = call.scratch.size() / members(own.comm).size();
  std::memmove(own.to, call.scratch.data() + static_cast<std::size_t>(own.comm->position) * share, share);
  call.scratch.clear();
  call.scratch.shrink_to_fit();
}

}  // namespace plumbline::cuda

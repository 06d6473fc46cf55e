#include <algorithm>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "sim/scenario/examine.h"

namespace plumbline {
namespace {

// Program texts hold names without blanks and commas.
std::string plain(const std::string& name) {
  std::string out = name;
  for (char& c : out) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte <= 0x20 || byte == 0x7F || c == ',' || c == '=' || c == '"') c = '_';
  }
  return out.empty() ? "_" : out;
}

class Translator {
 public:
  explicit Translator(const Scenario& scenario) : scenario_(scenario) {}

  Result<Program> run() {
    program_.name = scenario_.id;
    PL_TRY(frame());
    for (const ScenarioThread& thread : scenario_.threads) {
      rank_ = thread.rank;
      items_ = &threads_[static_cast<std::size_t>(thread.rank)].emplace_back();
      for (const HostOp& op : thread.host_ops) PL_TRY(host_op(op));
    }
    finish();
    PL_TRY(validate_program(program_));
    return std::move(program_);
  }

 private:
  tl::unexpected<Error> unsupported(const std::string& what) const {
    return fail(ErrorCode::kUnsupported, fmt::format("scenario '{}': {}", scenario_.id, what));
  }

  static std::vector<Rank> distinct(const std::vector<Rank>& ranks) {
    std::vector<Rank> out;
    for (const Rank rank : ranks) {
      if (std::find(out.begin(), out.end(), rank) == out.end()) out.push_back(rank);
    }
    return out;
  }

  Status frame() {
    int ranks = 1;
    for (const ScenarioThread& thread : scenario_.threads) {
      ranks = std::max(ranks, thread.rank + 1);
      for (const HostOp& op : thread.host_ops) {
        for (const Rank rank : op.ranks) ranks = std::max(ranks, rank + 1);
      }
    }
    for (const auto& [name, members] : scenario_.communicators)
      ranks = std::max(ranks, *std::max_element(members.begin(), members.end()) + 1);
    RankGrid::Sizes sizes;
    sizes.pp = ranks;
    program_.grid = RankGrid::create(sizes).value();
    program_.fragment = true;
    program_.rank_of_stage = {0};
    program_.kernels.push_back({"work", KernelKind::kOther, 0, {}, {}, {}});
    threads_.resize(static_cast<std::size_t>(ranks));
    std::map<std::string, std::vector<Rank>> communicators = scenario_.communicators;
    for (const ScenarioThread& thread : scenario_.threads) {
      for (const HostOp& op : thread.host_ops) {
        if (creates(op.kind)) communicators.try_emplace(op.communicator, distinct(op.ranks));
      }
    }
    for (const auto& [name, members] : communicators) {
      families_[name] = program_.families.size();
      program_.families.push_back({unused_name(name), false, {members}});
    }
    if (program_.families.size() > static_cast<std::size_t>(kMaxTableRows))
      return unsupported("has more communicators than a Program holds");
    return {};
  }

  // Names that differ only in what a Program cannot write are told apart by their number.
  std::string unused_name(const std::string& name) {
    std::string out = plain(name);
    if (++used_[out] > 1) out += fmt::format("~{}", used_[out]);
    return out;
  }

  Result<unsigned> stream(const std::string& name) {
    const auto [at, fresh] = streams_.try_emplace(name, program_.streams.size());
    if (fresh) program_.streams.push_back(unused_name(name));
    if (fresh && name == scenario_.legacy_stream)
      program_.extras.legacy_stream = static_cast<int>(program_.streams.size()) - 1;
    if (program_.streams.size() > 256) return unsupported("has more streams than the 255 of a Program");
    return static_cast<unsigned>(at->second);
  }

  Result<unsigned> event(const std::string& name) {
    const auto [at, fresh] = events_.try_emplace(name, program_.events.size());
    if (fresh) program_.events.push_back(unused_name(name));
    if (program_.events.size() > static_cast<std::size_t>(kMaxTableRows))
      return unsupported("has more events than a Program holds");
    return static_cast<unsigned>(at->second);
  }

  void add(ItemOp op, unsigned flags, unsigned ref, unsigned aux) {
    items_->push_back(make_item(op, kNoMicrobatch, flags, ref, aux));
  }

  Status host_op(const HostOp& op) {
    unsigned stream = 0, event = 0;
    if (!op.stream.empty()) {
      const Result<unsigned> row = this->stream(op.stream);
      if (!row) return tl::unexpected(row.error());
      stream = *row;
    }
    if (!op.event.empty()) {
      const Result<unsigned> row = this->event(op.event);
      if (!row) return tl::unexpected(row.error());
      event = *row;
    }
    switch (op.kind) {
      case HostOpKind::kGroup:
        return group(stream, op.ops);
      case HostOpKind::kLaunch:
        add(ItemOp::kLaunch, 0, 0, stream);
        return {};
      case HostOpKind::kRecord:
        add(ItemOp::kRecord, 0, event, stream);
        return {};
      case HostOpKind::kWait:
        add(ItemOp::kWaitEvent, 0, event, stream);
        return {};
      case HostOpKind::kSyncStream:
        add(ItemOp::kSyncStream, 0, 0, stream);
        return {};
      case HostOpKind::kSyncEvent:
        add(ItemOp::kSyncEvent, 0, event, 0);
        return {};
      case HostOpKind::kSyncDevice:
        add(ItemOp::kSyncDevice, 0, 0, 0);
        return {};
      case HostOpKind::kGraphBegin:
        program_.extras.graphs = true;
        add(ItemOp::kGraph, 0, 0, stream);
        return {};
      case HostOpKind::kGraphEnd:
        program_.extras.graphs = true;
        add(ItemOp::kGraph, 0, 1, 0);
        return {};
      case HostOpKind::kExit:
      case HostOpKind::kFault:
        program_.extras.failures = true;
        add(ItemOp::kFail, 0, op.kind == HostOpKind::kFault ? 1 : 0, stream);
        return {};
      case HostOpKind::kCommInit:
      case HostOpKind::kCommSplit:
      case HostOpKind::kCommShrink:
      case HostOpKind::kCommFinalize:
      case HostOpKind::kCommDestroy:
      case HostOpKind::kCommAbort:
      case HostOpKind::kCommReady:
      case HostOpKind::kCommSync:
      case HostOpKind::kCommRevoke:
      case HostOpKind::kCommGrow:
      case HostOpKind::kCommInitAll:
      case HostOpKind::kTurn:
        return comm_call(op);
    }
    return {};
  }

  Status comm_call(const HostOp& op) {
    CommCall row;
    if (op.kind <= HostOpKind::kCommRevoke)
      row.kind =
          static_cast<CommCallKind>(static_cast<int>(op.kind) - static_cast<int>(HostOpKind::kCommInit));
    if (op.kind == HostOpKind::kCommGrow) row.kind = CommCallKind::kGrow;
    if (op.kind == HostOpKind::kTurn) row.kind = CommCallKind::kTurn;
    row.duplicate_device = distinct(op.ranks).size() < op.ranks.size();
    row.release = nccl_release(op.release);
    row.family = static_cast<std::uint16_t>(families_.at(op.communicator));
    if (!op.parent.empty()) row.parent = static_cast<std::uint16_t>(families_.at(op.parent));
    row.nonblocking = op.nonblocking;
    row.share = op.share;
    row.abort_parent = op.abort;
    const auto key = std::tuple(row.kind, row.family, row.parent, row.nonblocking, row.share,
                                row.abort_parent, row.duplicate_device, row.release);
    const auto [at, fresh] = comm_calls_.try_emplace(key, program_.comm_calls.size());
    if (fresh) {
      row.name = fmt::format("{}.{}", comm_call_kind_name(row.kind), program_.comm_calls.size());
      program_.comm_calls.push_back(row);
      if (program_.comm_calls.size() > static_cast<std::size_t>(kMaxTableRows))
        return unsupported("makes more calls on communicators than a Program holds");
    }
    add(ItemOp::kComm, 0, static_cast<unsigned>(at->second), 0);
    return {};
  }

  // What a call is made of: of those that NCCL makes of messages, these, by the communicator's ranks (N30).
  std::vector<ScenarioOp> parts(const ScenarioOp& op, Rank rank) const {
    const bool gathers = op.kind == ScenarioOpKind::kGather;
    const bool all = op.kind == ScenarioOpKind::kAllToAll;
    if (!gathers && !all && op.kind != ScenarioOpKind::kScatter) return {op};
    std::vector<ScenarioOp> out;
    const auto add = [&](ScenarioOpKind kind, Rank peer) {
      ScenarioOp& part = out.emplace_back(op);
      part.kind = kind;
      part.peer = peer;
    };
    for (const Rank peer : program_.families[families_.at(op.communicator)].instances.front()) {
      const bool sends = all || (gathers ? peer == op.peer : rank == op.peer);
      const bool receives = all || (gathers ? rank == op.peer : peer == op.peer);
      if (sends) add(ScenarioOpKind::kSend, peer);
      if (receives) add(ScenarioOpKind::kRecv, peer);
    }
    return out;
  }

  Status group(unsigned stream, const std::vector<ScenarioOp>& calls) {
    std::vector<ScenarioOp> ops;
    for (const ScenarioOp& call : calls) {
      for (ScenarioOp& part : parts(call, rank_)) ops.push_back(std::move(part));
    }
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const Result<unsigned> row = endpoint(ops[i]);
      if (!row) return tl::unexpected(row.error());
      unsigned own = stream;
      if (!ops[i].stream.empty()) {
        const Result<unsigned> given = this->stream(ops[i].stream);
        if (!given) return tl::unexpected(given.error());
        own = *given;
      }
      program_.extras.mixed_streams = program_.extras.mixed_streams || own != stream;
      const unsigned flags =
          (i + 1 < ops.size() ? unsigned{kMore} : 0U) | (ops[i].uncaptured ? unsigned{kUncaptured} : 0U);
      add(ItemOp::kOp, flags, *row, own);
    }
    return {};
  }

  static EndpointKind endpoint_kind(ScenarioOpKind kind) {
    switch (kind) {
      case ScenarioOpKind::kSend:
        return EndpointKind::kSend;
      case ScenarioOpKind::kRecv:
        return EndpointKind::kRecv;
      case ScenarioOpKind::kReduce:
        return EndpointKind::kReduce;
      case ScenarioOpKind::kBroadcast:
        return EndpointKind::kBroadcast;
      case ScenarioOpKind::kAllGather:
        return EndpointKind::kAllGather;
      case ScenarioOpKind::kReduceScatter:
        return EndpointKind::kReduceScatter;
      case ScenarioOpKind::kAllReduce:
      case ScenarioOpKind::kBarrier:
      case ScenarioOpKind::kAllToAll:  // these are messages by now
      case ScenarioOpKind::kGather:
      case ScenarioOpKind::kScatter:
        break;
    }
    return EndpointKind::kAllReduce;
  }

  // One slot class a label and communicator; a class of its own stands for "no label".
  Result<unsigned> slot(const ScenarioOp& op) {
    const auto [at, fresh] = slots_.try_emplace({op.communicator, op.label}, program_.slots.size());
    SlotClass row;
    if (fresh) {
      row.name = unused_name(plain(op.label.value_or("data")) + "@" + plain(op.communicator));
      row.dtype = DType::kU8;
      row.per_microbatch = false;
      program_.slots.push_back(row);
      if (program_.slots.size() > static_cast<std::size_t>(kMaxTableRows))
        return unsupported("has more labels than a Program holds");
    }
    Bytes& bytes = program_.slots[at->second].bytes;
    bytes = std::max(bytes, op.bytes);
    return static_cast<unsigned>(at->second);
  }

  Result<unsigned> endpoint(const ScenarioOp& op) {
    const auto key = std::tuple(op.kind, op.communicator, op.peer, op.bytes, op.label);
    const auto [at, fresh] = endpoints_.try_emplace(key, program_.endpoints.size());
    if (!fresh) return static_cast<unsigned>(at->second);
    const Result<unsigned> slot = this->slot(op);
    if (!slot) return tl::unexpected(slot.error());
    Endpoint row;
    row.name = fmt::format("{}.{}", scenario_op_name(op.kind), program_.endpoints.size());
    row.kind = endpoint_kind(op.kind);
    row.dtype = op.kind == ScenarioOpKind::kBarrier ? DType::kI32 : DType::kU8;
    row.form = op.peer >= 0 ? PeerForm::kRank : PeerForm::kNone;
    row.peer = std::max(op.peer, 0);
    row.family = static_cast<std::uint16_t>(families_.at(op.communicator));
    row.slot = static_cast<std::uint16_t>(*slot);
    row.bytes = op.bytes;
    program_.endpoints.push_back(std::move(row));
    if (program_.endpoints.size() > static_cast<std::size_t>(kMaxTableRows))
      return unsupported(fmt::format("has more than the {} different calls of a Program", kMaxTableRows));
    return static_cast<unsigned>(at->second);
  }

  void finish() {
    for (std::size_t rank = 0; rank < threads_.size(); ++rank) {
      if (threads_[rank].empty()) threads_[rank].emplace_back();
      for (const std::vector<Item>& items : threads_[rank]) {
        const auto begin = static_cast<std::uint32_t>(program_.items.size());
        program_.items.insert(program_.items.end(), items.begin(), items.end());
        program_.threads.push_back(
            {static_cast<Rank>(rank), begin, static_cast<std::uint32_t>(program_.items.size())});
      }
    }
  }

  const Scenario& scenario_;
  Program program_;
  std::vector<std::vector<std::vector<Item>>> threads_;  // [rank][thread]
  std::vector<Item>* items_ = nullptr;                   // of the thread that is being translated
  Rank rank_ = 0;                                        // its rank
  std::map<std::string, std::size_t> families_, streams_, events_;
  std::map<std::pair<std::string, std::optional<std::string>>, std::size_t> slots_;
  std::map<std::tuple<ScenarioOpKind, std::string, Rank, Bytes, std::optional<std::string>>, std::size_t>
      endpoints_;
  std::map<std::tuple<CommCallKind, std::uint16_t, std::uint16_t, bool, bool, bool, bool, std::int32_t>,
           std::size_t>
      comm_calls_;
  std::map<std::string, int> used_;
};

}  // namespace

Result<Program> scenario_program(const Scenario& scenario) { return Translator(scenario).run(); }

}  // namespace plumbline

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
      for (const HostOp& op : thread.host_ops) PL_TRY(host_op(thread.rank, op));
    }
    finish();
    PL_TRY(validate_program(program_));
    return std::move(program_);
  }

 private:
  tl::unexpected<Error> unsupported(const std::string& what) const {
    return fail(ErrorCode::kUnsupported, fmt::format("scenario '{}': {}", scenario_.id, what));
  }

  Status frame() {
    if (scenario_.options.max_ops_per_kernel > 0) return unsupported("limits the operations of a kernel");
    int ranks = 1;
    for (const ScenarioThread& thread : scenario_.threads) ranks = std::max(ranks, thread.rank + 1);
    for (const auto& [name, members] : scenario_.communicators)
      ranks = std::max(ranks, *std::max_element(members.begin(), members.end()) + 1);
    RankGrid::Sizes sizes;
    sizes.pp = ranks;
    program_.grid = RankGrid::create(sizes).value();
    program_.fragment = true;
    program_.rank_of_stage = {0};
    program_.kernels.push_back({"work", KernelKind::kOther, 0, {}, {}, {}});
    items_.resize(static_cast<std::size_t>(ranks));
    std::vector<bool> seen(static_cast<std::size_t>(ranks));
    for (const ScenarioThread& thread : scenario_.threads) {
      if (seen[static_cast<std::size_t>(thread.rank)])
        return unsupported(fmt::format("rank {} has several host threads", thread.rank));
      seen[static_cast<std::size_t>(thread.rank)] = true;
    }
    for (const auto& [name, members] : scenario_.communicators) {
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

  void add(Rank rank, ItemOp op, unsigned flags, unsigned ref, unsigned aux) {
    items_[static_cast<std::size_t>(rank)].push_back(make_item(op, kNoMicrobatch, flags, ref, aux));
  }

  Status host_op(Rank rank, const HostOp& op) {
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
        return group(rank, stream, op.ops);
      case HostOpKind::kLaunch:
        add(rank, ItemOp::kLaunch, 0, 0, stream);
        return {};
      case HostOpKind::kRecord:
        add(rank, ItemOp::kRecord, 0, event, stream);
        return {};
      case HostOpKind::kWait:
        add(rank, ItemOp::kWaitEvent, 0, event, stream);
        return {};
      case HostOpKind::kSyncStream:
        add(rank, ItemOp::kSyncStream, 0, 0, stream);
        return {};
      case HostOpKind::kSyncEvent:
        add(rank, ItemOp::kSyncEvent, 0, event, 0);
        return {};
      case HostOpKind::kSyncDevice:
        add(rank, ItemOp::kSyncDevice, 0, 0, 0);
        return {};
      case HostOpKind::kCommInit:
        return unsupported("creates communicators");
    }
    return {};
  }

  Status group(Rank rank, unsigned stream, const std::vector<ScenarioOp>& ops) {
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const Result<unsigned> row = endpoint(ops[i]);
      if (!row) return tl::unexpected(row.error());
      add(rank, ItemOp::kOp, i + 1 < ops.size() ? unsigned{kMore} : 0U, *row, stream);
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
    for (std::size_t rank = 0; rank < items_.size(); ++rank) {
      const auto begin = static_cast<std::uint32_t>(program_.items.size());
      program_.items.insert(program_.items.end(), items_[rank].begin(), items_[rank].end());
      program_.threads.push_back(
          {static_cast<Rank>(rank), begin, static_cast<std::uint32_t>(program_.items.size())});
    }
  }

  const Scenario& scenario_;
  Program program_;
  std::vector<std::vector<Item>> items_;
  std::map<std::string, std::size_t> families_, streams_, events_;
  std::map<std::pair<std::string, std::optional<std::string>>, std::size_t> slots_;
  std::map<std::tuple<ScenarioOpKind, std::string, Rank, Bytes, std::optional<std::string>>, std::size_t>
      endpoints_;
  std::map<std::string, int> used_;
};

}  // namespace

Result<Program> scenario_program(const Scenario& scenario) { return Translator(scenario).run(); }

}  // namespace plumbline

// long-file: one grammar, a function a line
#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "engine/base/text.h"
#include "engine/program/names.h"
#include "engine/program/text.h"
#include "engine/program/text_cursor.h"
#include "engine/program/text_names.h"

namespace plumbline {
namespace {

constexpr std::int64_t kMostRanks = 1 << 20;

class Parser {
 public:
  Parser(std::string_view text, const std::string& name) : cursor_(text, name) {}

  Result<Program> run() {
    if (!cursor_.next_line() || cursor_.word() != "plumbline-program")
      return bad("a program starts with 'plumbline-program 1'");
    if (const auto version = number("version"); !version || *version != 1)
      return bad("this version of plumbline reads program text version 1");
    program_.streams.clear();
    while (cursor_.next_line()) {
      const std::string_view head = cursor_.word();
      PL_TRY(in_block_ ? block_line(head) : head_line(head));
    }
    PL_TRY(finish());
    if (const Status status = validate_program(program_); !status)
      return fail(status.error().code, status.error().message, cursor_.where());
    return std::move(program_);
  }

 private:
  tl::unexpected<Error> bad(std::string message) const {
    return fail(ErrorCode::kParse, std::move(message), cursor_.where());
  }

  Result<std::int64_t> number(std::string_view what) { return number_in(cursor_.word(), what); }
  Result<std::int64_t> number_in(std::string_view text, std::string_view what) const {
    const auto value = parse_integer(text);
    if (!value || *value < 0) return bad(fmt::format("{} '{}' is not a number from 0", what, text));
    return value;
  }
  template <typename T>
  Status small_number(std::string_view text, std::string_view what, std::int64_t limit, T& out) const {
    const auto value = number_in(text, what);
    if (!value) return tl::unexpected(value.error());
    if (*value >= limit) return bad(fmt::format("{} {} is beyond {}", what, *value, limit - 1));
    out = static_cast<T>(*value);
    return {};
  }
  template <typename Enum, std::size_t N>
  Status choice(const std::array<std::string_view, N>& names, std::string_view text, std::string_view what,
                Enum& out) const {
    const auto value = enum_of<Enum>(names, text);
    if (!value) return bad(fmt::format("'{}' is not a {} ({})", text, what, fmt::join(names, ", ")));
    out = *value;
    return {};
  }
  Status dtype(std::string_view text, DType& out) const {
    const auto value = dtype_from_name(text);
    if (!value)
      return bad(fmt::format("'{}' is not an element type (u8, i32, i64, f16, bf16, f32, f64)", text));
    out = *value;
    return {};
  }
  Status slot_row(std::string_view text, std::uint16_t& out) const {
    const auto row = slots_.find(text, cursor_.where());
    if (!row) return tl::unexpected(row.error());
    out = static_cast<std::uint16_t>(*row);
    return {};
  }

  static std::pair<std::string_view, std::string_view> key_value(std::string_view word) {
    const std::size_t at = word.find('=');
    if (at == std::string_view::npos) return {word, {}};
    return {word.substr(0, at), word.substr(at + 1)};
  }

  Status head_line(std::string_view head) {
    if (head == "name") {
      program_.name = std::string(cursor_.rest_of_line());
      return {};
    }
    if (head == "grid") return grid();
    if (head == "stages") return small_number(cursor_.word(), "stages", kMaxTableRows + 1, program_.stages);
    if (head == "microbatches")
      return small_number(cursor_.word(), "microbatches", kNoMicrobatch + 1, program_.microbatches);
    if (head == "fragment") return program_.fragment = true, Status();
    if (head == "placement") return placement();
    if (head == "stream") return stream();
    if (head == "extras") return extras();
    if (head == "event") return named(events_, program_.events);
    if (head == "mark") return named(marks_, program_.marks);
    if (head == "slot") return slot();
    if (head == "family") return family();
    if (head == "kernel") return kernel();
    if (head == "endpoint") return endpoint();
    if (head == "communicator") return communicator();
    if (head == "variable") return variable();
    if (head == "ranks") return ranks();
    return bad(
        fmt::format("'{}' begins no line of a program (name, grid, stages, microbatches, fragment, "
                    "placement, stream, extras, slot, "
                    "family, kernel, endpoint, communicator, variable, event, mark, ranks)",
                    head));
  }

  Status stream() {
    PL_TRY(named(streams_, program_.streams));
    const std::string_view word = cursor_.word();
    if (word.empty()) return {};
    if (word != "legacy") return bad(fmt::format("a stream has no '{}'", word));
    if (program_.extras.legacy_stream >= 0) return bad("only one stream is the legacy default stream");
    program_.extras.legacy_stream = static_cast<int>(program_.streams.size()) - 1;
    return {};
  }

  Status extras() {
    for (std::string_view word = cursor_.word(); !word.empty(); word = cursor_.word()) {
      bool* extra = word == "mixed-streams" ? &program_.extras.mixed_streams
                    : word == "graphs"      ? &program_.extras.graphs
                    : word == "failures"    ? &program_.extras.failures
                                            : nullptr;
      if (extra == nullptr) return bad(fmt::format("'{}' is none of mixed-streams, graphs, failures", word));
      *extra = true;
    }
    return {};
  }

  Status grid() {
    RankGrid::Sizes sizes;
    std::string order = "tp-cp-ep-dp-pp";
    for (std::string_view word = cursor_.word(); !word.empty(); word = cursor_.word()) {
      const auto [key, value] = key_value(word);
      if (key == "order") {
        order = std::string(value);
        continue;
      }
      int* target = key == "tp"   ? &sizes.tp
                    : key == "cp" ? &sizes.cp
                    : key == "ep" ? &sizes.ep
                    : key == "dp" ? &sizes.dp
                    : key == "pp" ? &sizes.pp
                                  : nullptr;
      if (target == nullptr) return bad(fmt::format("'{}' is no axis of the grid", key));
      PL_TRY(small_number(value, key, kMostRanks, *target));
    }
    auto made = RankGrid::create(sizes, order);
    if (!made) return bad(made.error().message);
    program_.grid = *made;
    return {};
  }

  Status placement() {
    for (std::string_view word = cursor_.word(); !word.empty(); word = cursor_.word()) {
      std::uint16_t rank = 0;
      PL_TRY(small_number(word, "placement", kMaxTableRows, rank));
      program_.rank_of_stage.push_back(rank);
    }
    return {};
  }

  Status named(NameTable& table, std::vector<std::string>& rows) {
    const std::string_view name = cursor_.word();
    PL_TRY(table.add(name, cursor_.where()));
    rows.emplace_back(name);
    return {};
  }

  Status slot() {
    SlotClass row;
    row.name = std::string(cursor_.word());
    PL_TRY(slots_.add(row.name, cursor_.where()));
    for (std::string_view word = cursor_.word(); !word.empty(); word = cursor_.word()) {
      const auto [key, value] = key_value(word);
      if (key == "kind")
        PL_TRY(choice(kSlotKindNames, value, "slot kind", row.kind));
      else if (key == "stage")
        PL_TRY(small_number(value, key, kMaxTableRows, row.stage));
      else if (key == "dtype")
        PL_TRY(dtype(value, row.dtype));
      else if (key == "bytes")
        PL_TRY(small_number(value, key, std::int64_t{1} << 50, row.bytes));
      else if (word == "step")
        row.per_microbatch = false;
      else if (word == "persistent")
        row.persistent = true;
      else
        return bad(fmt::format("a slot has no '{}'", key));
    }
    program_.slots.push_back(std::move(row));
    return {};
  }

  Status family() {
    CommFamily row;
    row.name = std::string(cursor_.word());
    PL_TRY(families_.add(row.name, cursor_.where()));
    for (std::string_view word = cursor_.word(); !word.empty(); word = cursor_.word()) {
      if (word == "pairs") {
        row.pairs = true;
        continue;
      }
      std::vector<Rank> members;
      for (const std::string_view part : split(word, ',')) {
        Rank rank = 0;
        PL_TRY(small_number(part, "rank", kMostRanks, rank));
        members.push_back(rank);
      }
      row.instances.push_back(std::move(members));
    }
    program_.families.push_back(std::move(row));
    return {};
  }

  Status slot_list(std::string_view text, RowList& out) const {
    for (const std::string_view part : split(text, ',')) {
      std::uint16_t row = 0;
      PL_TRY(slot_row(part, row));
      out.push_back(row);
    }
    return {};
  }

  Status kernel() {
    Kernel row;
    row.name = std::string(cursor_.word());
    PL_TRY(kernels_.add(row.name, cursor_.where()));
    for (std::string_view word = cursor_.word(); !word.empty(); word = cursor_.word()) {
      const auto [key, value] = key_value(word);
      if (key == "kind")
        PL_TRY(choice(kKernelKindNames, value, "kernel kind", row.kind));
      else if (key == "stage")
        PL_TRY(small_number(value, key, kMaxTableRows, row.stage));
      else if (key == "reads")
        PL_TRY(slot_list(value, row.reads));
      else if (key == "frees")
        PL_TRY(slot_list(value, row.frees));
      else if (key == "writes")
        PL_TRY(slot_list(value, row.writes));
      else
        return bad(fmt::format("a kernel has no '{}'", key));
    }
    program_.kernels.push_back(std::move(row));
    return {};
  }

  template <typename Row>
  Status peer(std::string_view text, Row& row) const {
    const std::size_t colon = text.find(':');
    PL_TRY(choice(kPeerFormNames, text.substr(0, colon), "way to name a peer", row.form));
    const auto value = colon == std::string_view::npos ? Result<std::int64_t>(bad("a peer reads form:number"))
                                                       : parse_integer(text.substr(colon + 1));
    if (!value || *value < -kMostRanks || *value > kMostRanks)
      return bad(fmt::format("peer '{}' reads form:number", text));
    row.peer = static_cast<std::int32_t>(*value);
    return {};
  }

  Status endpoint() {
    Endpoint row;
    row.name = std::string(cursor_.word());
    PL_TRY(endpoints_.add(row.name, cursor_.where()));
    for (std::string_view word = cursor_.word(); !word.empty(); word = cursor_.word()) {
      const auto [key, value] = key_value(word);
      if (key == "kind")
        PL_TRY(choice(kEndpointKindNames, value, "operation", row.kind));
      else if (key == "slot")
        PL_TRY(slot_row(value, row.slot));
      else if (key == "dtype")
        PL_TRY(dtype(value, row.dtype));
      else if (key == "bytes")
        PL_TRY(small_number(value, key, std::int64_t{1} << 50, row.bytes));
      else if (key == "offset")
        PL_TRY(small_number(value, key, std::int64_t{1} << 50, row.offset));
      else if (key == "peer")
        PL_TRY(peer(value, row));
      else if (key == "reduce")
        PL_TRY(choice(kReduceOpNames, value, "reduction", row.reduce));
      else if (word == "free-after")
        row.free_after = true;
      else if (key == "family")
        PL_TRY(family_row(value, row.family));
      else
        return bad(fmt::format("an endpoint has no '{}'", key));
    }
    program_.endpoints.push_back(std::move(row));
    return {};
  }

  Status family_row(std::string_view text, std::uint16_t& out) const {
    const auto found = families_.find(text, cursor_.where());
    if (!found) return tl::unexpected(found.error());
    out = static_cast<std::uint16_t>(*found);
    return {};
  }

  Status communicator() {
    CommCall row;
    bool parent = false;
    row.name = std::string(cursor_.word());
    PL_TRY(comm_calls_.add(row.name, cursor_.where()));
    for (std::string_view word = cursor_.word(); !word.empty(); word = cursor_.word()) {
      const auto [key, value] = key_value(word);
      if (key == "call")
        PL_TRY(choice(kCommCallKindNames, value, "call on a communicator", row.kind));
      else if (key == "family")
        PL_TRY(family_row(value, row.family));
      else if (key == "parent" && (parent = true))
        PL_TRY(family_row(value, row.parent));
      else if (key == "peer")
        PL_TRY(peer(value, row));
      else if (word == "nonblocking")
        row.nonblocking = true;
      else if (word == "share")
        row.share = true;
      else if (word == "abort")
        row.abort_parent = true;
      else if (word == "duplicate")
        row.duplicate_device = true;
      else if (key == "release")
        PL_TRY(small_number(value, key, 1 << 24, row.release));
      else
        return bad(fmt::format("a call on a communicator has no '{}'", key));
    }
    if (parent != has_parent(row.kind))
      return bad(fmt::format("{} {} a parent", row.name, parent ? "takes no" : "lacks"));
    program_.comm_calls.push_back(std::move(row));
    return {};
  }

  Status variable() {
    HostVariable row;
    row.name = std::string(cursor_.word());
    PL_TRY(variables_.add(row.name, cursor_.where()));
    const auto [key, value] = key_value(cursor_.word());
    if (key != "slot") return bad("a variable reads: variable NAME slot=SLOT");
    PL_TRY(slot_row(value, row.slot));
    program_.variables.push_back(std::move(row));
    return {};
  }

  void close_block() {
    const auto end = static_cast<std::uint32_t>(program_.items.size());
    for (const Rank rank : block_ranks_) program_.threads[static_cast<std::size_t>(rank)].end = end;
    for (std::size_t i = further_.size(); i-- > 0 && further_open_ > 0; --further_open_)
      further_[i].end = end;
    block_ranks_.clear();
  }

  Status ranks() {
    if (program_.threads.empty()) {
      program_.threads.resize(static_cast<std::size_t>(program_.grid.world()));
      seen_.assign(program_.threads.size(), false);
    }
    close_block();
    const auto begin = static_cast<std::uint32_t>(program_.items.size());
    for (std::string_view word = cursor_.word(); !word.empty(); word = cursor_.word()) {
      const bool further = word[0] == '+';
      std::size_t rank = 0;
      PL_TRY(small_number(word.substr(further ? 1 : 0), "rank", program_.grid.world(), rank));
      if (further) {
        if (further_.size() >= static_cast<std::size_t>(kMaxTableRows))
          return bad(fmt::format("more than {} further threads", kMaxTableRows));
        further_.push_back({static_cast<Rank>(rank), begin, begin});
        ++further_open_;
        continue;
      }
      if (seen_[rank])
        return bad(fmt::format(
            "rank {} has two blocks of items; merge them, or write +{} for another host thread", rank, rank));
      seen_[rank] = true;
      program_.threads[rank] = {static_cast<Rank>(rank), begin, 0};
      block_ranks_.push_back(static_cast<Rank>(rank));
    }
    if (block_ranks_.empty() && further_open_ == 0) return bad("a block of items names its ranks");
    in_block_ = true;
    return {};
  }

  Status block_line(std::string_view head) {
    if (head == "ranks") return ranks();
    if (program_.items.size() >= 0xFFFFFFFFU) return bad("more than 2^32 items");
    ItemOp op{};
    PL_TRY(choice(kItemOpNames, head, "host operation", op));
    unsigned ref = 0;
    if (const NameTable* table = table_of(op); table != nullptr) {
      const std::string_view name = cursor_.word();
      const auto row = table->find(name, cursor_.where());
      if (!row) return tl::unexpected(row.error());
      ref = *row;
    }
    if (op == ItemOp::kGraph)
      PL_TRY(one_of("begin", "end", "a graph reads 'graph begin stream=NAME' or 'graph end'", ref));
    if (op == ItemOp::kFail)
      PL_TRY(one_of("exit", "fault", "a failure reads 'fail exit' or 'fail fault stream=NAME'", ref));
    return item_rest(op, ref);
  }

  // The next word is the one (0) or the other (1).
  Status one_of(std::string_view zero, std::string_view one, const char* usage, unsigned& out) {
    const std::string_view word = cursor_.word();
    if (word != zero && word != one) return bad(usage);
    out = word == one ? 1 : 0;
    return {};
  }

  const NameTable* table_of(ItemOp op) const {
    switch (op) {
      case ItemOp::kLaunch:
        return &kernels_;
      case ItemOp::kOp:
        return &endpoints_;
      case ItemOp::kRecord:
      case ItemOp::kWaitEvent:
      case ItemOp::kSyncEvent:
        return &events_;
      case ItemOp::kFree:
      case ItemOp::kWaitSlot:
        return &slots_;
      case ItemOp::kRead:
      case ItemOp::kDecide:
        return &variables_;
      case ItemOp::kMark:
        return &marks_;
      case ItemOp::kComm:
        return &comm_calls_;
      case ItemOp::kWait:
      case ItemOp::kSyncStream:
      case ItemOp::kSyncDevice:
      case ItemOp::kGraph:
      case ItemOp::kFail:
        return nullptr;
    }
    return nullptr;
  }

  Status item_rest(ItemOp op, unsigned ref) {
    int microbatch = kNoMicrobatch;
    unsigned flags = 0;
    unsigned stream = 0;
    unsigned queue = 0;
    unsigned count = 0;
    for (std::string_view word = cursor_.word(); !word.empty(); word = cursor_.word()) {
      const auto [key, value] = key_value(word);
      const auto flag = enum_of<unsigned>(kItemFlagNames, word);
      if (flag)
        flags |= 1U << *flag;
      else if (key == "mb")
        PL_TRY(small_number(value, key, kNoMicrobatch, microbatch));
      else if (key == "queue")
        PL_TRY(small_number(value, key, 256, queue));
      else if (key == "count")
        PL_TRY(small_number(value, key, 0x10000, count));
      else if (key == "stream") {
        const auto row = streams_.find(value, cursor_.where());
        if (!row) return tl::unexpected(row.error());
        stream = *row;
      } else
        return bad(fmt::format("an item has no '{}'", key));
    }
    if (op == ItemOp::kWait) ref = queue;
    const unsigned aux = op == ItemOp::kWait ? count : op == ItemOp::kOp ? stream | queue << 8 : stream;
    program_.items.push_back(make_item(op, microbatch, flags, ref, aux));
    return {};
  }

  Status finish() {
    close_block();
    if (!in_block_) return bad("the program has no block of items; add 'ranks 0' and its items");
    for (std::size_t rank = 0; rank < seen_.size(); ++rank) {
      if (!seen_[rank]) return bad(fmt::format("rank {} has no block of items", rank));
    }
    program_.threads.insert(program_.threads.end(), further_.begin(), further_.end());
    std::stable_sort(program_.threads.begin(), program_.threads.end(),
                     [](const Thread& a, const Thread& b) { return a.rank < b.rank; });
    return {};
  }

  TextCursor cursor_;
  Program program_;
  NameTable streams_{"stream"}, slots_{"slot"}, families_{"family"}, kernels_{"kernel"},
      endpoints_{"endpoint"};
  NameTable comm_calls_{"call on a communicator"};
  NameTable variables_{"variable"}, events_{"event"}, marks_{"mark"};
  std::vector<Rank> block_ranks_;
  std::vector<Thread> further_;   // second and later threads of ranks
  std::size_t further_open_ = 0;  // the last ones, which belong to the open block
  std::vector<bool> seen_;
  bool in_block_ = false;
};

}  // namespace

Result<Program> parse_program(std::string_view text, const std::string& name) {
  return Parser(text, name).run();
}

}  // namespace plumbline

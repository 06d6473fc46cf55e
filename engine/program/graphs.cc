#include "engine/program/graphs.h"

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "engine/base/assert.h"

namespace plumbline {
namespace {

constexpr int kFewest = 2;  // launches and groups of a graph: one alone costs as many calls without

// One item, or the items of a group.
struct Unit {
  std::span<const Item> items;
  Item last() const { return items.back(); }
  ItemOp op() const { return item_op(last()); }
};

std::vector<Unit> units_of(std::span<const Item> items) {
  std::vector<Unit> units;
  for (std::size_t begin = 0; begin < items.size();) {
    std::size_t end = begin;
    while ((item_flags(items[end]) & kMore) != 0) ++end;
    units.push_back({items.subspan(begin, end + 1 - begin)});
    begin = end + 1;
  }
  return units;
}

bool host_waits(const Unit& unit) { return (item_flags(unit.last()) & kHostWaits) != 0; }

bool works(const Unit& unit) { return unit.op() == ItemOp::kLaunch || unit.op() == ItemOp::kOp; }

bool can_be_captured(const Unit& unit) {
  switch (unit.op()) {
    case ItemOp::kLaunch:
    case ItemOp::kOp:
    case ItemOp::kWait:
    case ItemOp::kWaitSlot:
    case ItemOp::kRecord:
    case ItemOp::kWaitEvent:
    case ItemOp::kFree:
    case ItemOp::kMark:
      return !host_waits(unit);
    default:
      return false;
  }
}

// The stream that the unit puts something on; none: it names none.
std::optional<int> stream_of(const Unit& unit) {
  switch (unit.op()) {
    case ItemOp::kLaunch:
    case ItemOp::kOp:
      return item_stream(unit.last());
    case ItemOp::kRecord:
    case ItemOp::kWaitEvent:
    case ItemOp::kSyncStream:
      return static_cast<int>(item_aux(unit.last()));
    default:
      return std::nullopt;
  }
}

struct Bracket {
  std::size_t begin = 0, end = 0;  // units [begin, end)
};

// From the first launch or group to the last one, between points that end a capture.
std::vector<Bracket> brackets_of(const std::vector<Unit>& units) {
  std::vector<Bracket> out;
  for (std::size_t at = 0; at < units.size();) {
    if (!can_be_captured(units[at]) || !works(units[at])) {
      ++at;
      continue;
    }
    Bracket bracket{at, at};
    int count = 0;
    for (; at < units.size() && can_be_captured(units[at]); ++at) {
      if (!works(units[at])) continue;
      bracket.end = at + 1;
      ++count;
    }
    if (count >= kFewest) out.push_back(bracket);
  }
  return out;
}

// The items of one host thread, rewritten.
class Rewriter {
 public:
  Rewriter(std::span<const Item> items, unsigned join_event, unsigned graph_event, std::size_t streams)
      : units_(units_of(items)), join_(join_event), graph_(graph_event), streams_(streams) {}

  std::vector<Item> run() {
    std::size_t at = 0;
    for (const Bracket& bracket : brackets_of(units_)) {
      for (; at < bracket.begin; ++at) outside(units_[at]);
      begin();
      for (; at < bracket.end; ++at) inside(units_[at]);
      add(ItemOp::kGraph, 1, kComputeStream);
      graph_end_ = static_cast<std::ptrdiff_t>(out_.size());
      host_knows_ = false;
    }
    for (; at < units_.size(); ++at) outside(units_[at]);
    return std::move(out_);
  }

 private:
  struct Stream {
    bool apart = false;     // has work outside that the compute stream does not wait for
    bool in_graph = false;  // a graph has work of it, which it does not wait for
  };

  void add(ItemOp op, unsigned ref, int stream, unsigned flags = 0) {
    out_.push_back(make_item(op, kNoMicrobatch, flags, ref, static_cast<unsigned>(stream)));
  }
  void copy(const Unit& unit) { out_.insert(out_.end(), unit.items.begin(), unit.items.end()); }

  void begin() {
    for (std::size_t s = 1; s < streams_.size(); ++s) {
      if (!std::exchange(streams_[s].apart, false)) continue;
      add(ItemOp::kRecord, join_, static_cast<int>(s));
      add(ItemOp::kWaitEvent, join_, kComputeStream);
    }
    add(ItemOp::kGraph, 0, kComputeStream);
  }

  void inside(const Unit& unit) {
    if (const std::optional<int> stream = stream_of(unit))
      streams_[static_cast<std::size_t>(*stream)].in_graph = true;
    copy(unit);
  }

  // The event of the last graph's end, recorded directly behind it.
  void record_graph() {
    PL_ASSERT(graph_end_ >= 0);
    if (std::exchange(recorded_, graph_end_) == graph_end_) return;
    out_.insert(out_.begin() + graph_end_,
                make_item(ItemOp::kRecord, kNoMicrobatch, 0, graph_, kComputeStream));
  }

  void outside(const Unit& unit) {
    const unsigned flags = item_flags(unit.last());
    const std::optional<int> stream = stream_of(unit);
    if (stream && *stream != kComputeStream) {
      Stream& own = streams_[static_cast<std::size_t>(*stream)];
      // An event may have been recorded in a graph, on any stream of it.
      const bool behind = graph_end_ >= 0 && (own.in_graph || unit.op() == ItemOp::kWaitEvent);
      const bool ordered = unit.op() == ItemOp::kOp && (flags & kAfterCompute) != 0;
      if (behind && !ordered) {
        record_graph();
        add(ItemOp::kWaitEvent, graph_, *stream);
      }
      if (behind) own.in_graph = false;
      // What the host has waited for is over.
      const bool over = unit.op() == ItemOp::kSyncStream || host_waits(unit);
      const bool always = (flags & (kArmYes | kArmNo)) == 0;
      own.apart = !over || (own.apart && !always);
    }
    const bool waits = unit.op() == ItemOp::kSyncEvent ||
                       ((unit.op() == ItemOp::kWait || unit.op() == ItemOp::kWaitSlot) && host_waits(unit));
    if (waits && graph_end_ >= 0 && !std::exchange(host_knows_, true)) {
      record_graph();
      add(ItemOp::kSyncEvent, graph_, 0);
    }
    copy(unit);
  }

  std::vector<Unit> units_;
  unsigned join_, graph_;  // events
  std::vector<Stream> streams_;
  std::vector<Item> out_;
  std::ptrdiff_t graph_end_ = -1;  // behind the last graph, in out_
  std::ptrdiff_t recorded_ = -2;
  bool host_knows_ = true;  // that the last graph is over
};

}  // namespace

Result<Program> with_graphs(const Program& program) {
  if (!is_plain(program)) {
    return fail(
        ErrorCode::kUnsupported,
        "CUDA graphs are made of Programs with one host thread a rank, no calls on communicators and no "
        "extras; this one has some, and may bracket its graphs itself (graph begin, graph end)");
  }
  if (program.events.size() + 2 > static_cast<std::size_t>(kMaxTableRows))
    return fail(ErrorCode::kUnsupported,
                "CUDA graphs need two more events than the Program's table can hold");
  Program out = program;
  out.name += " as graphs";
  out.extras.graphs = true;
  const auto join = static_cast<unsigned>(out.events.size());
  out.events.insert(out.events.end(), {"graph.joins", "graph.over"});
  out.items.clear();
  std::map<std::pair<std::uint32_t, std::uint32_t>, Thread> made;  // ranges that several ranks share
  for (std::size_t t = 0; t < program.threads.size(); ++t) {
    const Thread& thread = program.threads[t];
    const auto [at, fresh] = made.try_emplace({thread.begin, thread.end});
    if (fresh) {
      at->second.begin = static_cast<std::uint32_t>(out.items.size());
      const std::vector<Item> items =
          Rewriter(program.thread_items(t), join, join + 1, program.streams.size()).run();
      out.items.insert(out.items.end(), items.begin(), items.end());
      at->second.end = static_cast<std::uint32_t>(out.items.size());
    }
    out.threads[t].begin = at->second.begin;
    out.threads[t].end = at->second.end;
  }
  PL_TRY(validate_program(out));
  return out;
}

Program without_graphs(const Program& program) {
  Program out = program;
  out.extras.graphs = false;
  out.items.clear();
  std::vector<std::uint32_t> moved;  // by item, one more at the end
  for (const Item item : program.items) {
    moved.push_back(static_cast<std::uint32_t>(out.items.size()));
    if (item_op(item) != ItemOp::kGraph) out.items.push_back(item);
  }
  moved.push_back(static_cast<std::uint32_t>(out.items.size()));
  for (Thread& thread : out.threads) {
    thread.begin = moved[thread.begin];
    thread.end = moved[thread.end];
  }
  return out;
}

}  // namespace plumbline

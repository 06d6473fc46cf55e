// Step blocks: rows of one step as columns of differences. Neighbouring events resemble each other, so most
// differences fit in a byte: an event of a large pipeline takes about 12.
#include <algorithm>
#include <bit>
#include <limits>

#include <fmt/format.h>

#include "engine/runtime/record_file.h"
#include "engine/runtime/varint.h"

namespace plumbline::record_file {
namespace {

// Every row takes at least a byte a column, which bounds what a hostile count can make us allocate.
constexpr std::size_t kEventColumns = 8;
constexpr std::size_t kMemoryColumns = 3;
constexpr std::size_t kStepRowBytes = 61;

// One column: the difference of each value to the one before. Arithmetic wraps, so that every value has a
// difference.
template <typename Row, typename Value>
void put_column(VarintWriter& out, const std::vector<Row>& rows, std::size_t begin, std::size_t end,
                Value value) {
  std::uint64_t before = 0;
  for (std::size_t i = begin; i < end; ++i) {
    const auto now = static_cast<std::uint64_t>(static_cast<std::int64_t>(value(rows[i])));
    out.put_signed(static_cast<std::int64_t>(now - before));
    before = now;
  }
}

template <typename Row, typename Set>
void get_column(VarintReader& in, std::vector<Row>& rows, std::size_t begin, Set set) {
  std::uint64_t value = 0;
  for (std::size_t i = begin; i < rows.size(); ++i) {
    value += static_cast<std::uint64_t>(in.get_signed());
    set(rows[i], static_cast<std::int64_t>(value));
  }
}

std::int64_t minus(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b));
}
std::int64_t plus(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

void put_step_row(VarintWriter& out, const StepRow& row) {
  out.put_signed(row.iteration);
  out.put((row.evaluation ? 1u : 0u) | (row.skipped ? 2u : 0u) | (row.zeros >= 0 ? 4u : 0u));
  for (const double value : {row.loss, row.scale, row.scale_after, row.grad_norm, row.lr}) {
    out.put_fixed64(std::bit_cast<std::uint64_t>(value));
  }
  out.put_signed(row.consumed_samples);
  out.put_fixed64(row.params_digest);
  out.put_fixed64(row.optimizer_digest);
  out.put_signed(row.begin);
  out.put_signed(row.end);
  if (row.zeros >= 0) out.put_signed(row.zeros);
}

// Narrow fields: what does not fit is noted and reported once.
class Narrow {
 public:
  template <typename T>
  T to(std::int64_t value, std::int64_t least, std::int64_t most, const char* what) {
    if (value >= least && value <= most) return static_cast<T>(value);
    if (fault_ == nullptr) fault_ = what;
    return static_cast<T>(least);
  }
  const char* fault() const { return fault_; }

 private:
  const char* fault_ = nullptr;
};

constexpr std::int64_t kMin32 = std::numeric_limits<std::int32_t>::min();
constexpr std::int64_t kMax32 = std::numeric_limits<std::int32_t>::max();

StepRow get_step_row(VarintReader& in, std::int32_t step, Narrow& narrow) {
  StepRow row;
  row.step = step;
  row.iteration = narrow.to<std::int32_t>(in.get_signed(), kMin32, kMax32, "iteration");
  const std::uint64_t flags = in.get();
  row.evaluation = (flags & 1) != 0;
  row.skipped = (flags & 2) != 0;
  for (double* value : {&row.loss, &row.scale, &row.scale_after, &row.grad_norm, &row.lr}) {
    *value = std::bit_cast<double>(in.get_fixed64());
  }
  row.consumed_samples = in.get_signed();
  row.params_digest = in.get_fixed64();
  row.optimizer_digest = in.get_fixed64();
  row.begin = in.get_signed();
  row.end = in.get_signed();
  if ((flags & 4) != 0) row.zeros = in.get_signed();
  return row;
}

void get_events(VarintReader& in, std::size_t count, std::int32_t step, RunRecord& record, Narrow& narrow) {
  const std::size_t begin = record.events.size();
  const std::int64_t ranks = record.ranks;
  record.events.resize(begin + count);
  get_column(in, record.events, begin, [&](RunEvent& row, std::int64_t value) {
    row.step = step;
    row.rank = narrow.to<Rank>(value, 0, ranks - 1, "rank");
  });
  get_column(in, record.events, begin, [&](RunEvent& row, std::int64_t value) {
    row.label =
        narrow.to<std::uint32_t>(value, 0, static_cast<std::int64_t>(record.labels.size()) - 1, "label");
  });
  get_column(in, record.events, begin, [&](RunEvent& row, std::int64_t value) {
    row.stream =
        narrow.to<std::uint16_t>(value, 0, static_cast<std::int64_t>(record.streams.size()) - 1, "stream");
  });
  get_column(in, record.events, begin, [&](RunEvent& row, std::int64_t value) {
    row.microbatch = narrow.to<std::int32_t>(value, -1, kMax32, "microbatch");
  });
  get_column(in, record.events, begin, [&](RunEvent& row, std::int64_t value) {
    row.peer = narrow.to<Rank>(value, -1, ranks - 1, "peer");
  });
  get_column(in, record.events, begin, [](RunEvent& row, std::int64_t value) { row.start = value; });
  get_column(in, record.events, begin,
             [](RunEvent& row, std::int64_t value) { row.ready = plus(row.start, value); });
  get_column(in, record.events, begin,
             [](RunEvent& row, std::int64_t value) { row.end = plus(row.ready, value); });
  if (record.cores > 0)
    get_column(in, record.events, begin, [](RunEvent& row, std::int64_t value) { row.cpu = value; });
}

}  // namespace

Rows rows_of(const RunRecord& record) {
  return {record.events.size(), record.memory.size(), record.steps.size()};
}

Rows end_of_step(const RunRecord& record, const Rows& from) {
  std::int32_t step = std::numeric_limits<std::int32_t>::max();
  if (from.events < record.events.size()) step = std::min(step, record.events[from.events].step);
  if (from.memory < record.memory.size()) step = std::min(step, record.memory[from.memory].step);
  if (from.steps < record.steps.size()) step = std::min(step, record.steps[from.steps].step);
  Rows to = from;
  while (to.events < record.events.size() && record.events[to.events].step == step) ++to.events;
  while (to.memory < record.memory.size() && record.memory[to.memory].step == step) ++to.memory;
  while (to.steps < record.steps.size() && record.steps[to.steps].step == step) ++to.steps;
  return to;
}

std::string step_payload(const RunRecord& record, const Rows& from, const Rows& to) {
  std::string payload;
  VarintWriter out(payload);
  const std::int32_t step = to.events > from.events   ? record.events[from.events].step
                            : to.memory > from.memory ? record.memory[from.memory].step
                                                      : record.steps[from.steps].step;
  out.put_signed(step);
  out.put(to.events - from.events);
  out.put(to.memory - from.memory);
  out.put(to.steps - from.steps);
  const auto events = [&](auto value) { put_column(out, record.events, from.events, to.events, value); };
  events([](const RunEvent& row) { return row.rank; });
  events([](const RunEvent& row) { return row.label; });
  events([](const RunEvent& row) { return row.stream; });
  events([](const RunEvent& row) { return row.microbatch; });
  events([](const RunEvent& row) { return row.peer; });
  events([](const RunEvent& row) { return row.start; });
  events([](const RunEvent& row) { return minus(row.ready, row.start); });
  events([](const RunEvent& row) { return minus(row.end, row.ready); });
  if (record.cores > 0) events([](const RunEvent& row) { return row.cpu; });
  const auto memory = [&](auto value) { put_column(out, record.memory, from.memory, to.memory, value); };
  memory([](const MemoryPoint& row) { return row.rank; });
  memory([](const MemoryPoint& row) { return row.time; });
  memory([](const MemoryPoint& row) { return row.live; });
  for (std::size_t i = from.steps; i < to.steps; ++i) put_step_row(out, record.steps[i]);
  return payload;
}

Status read_step(std::string_view payload, const Place& place, RunRecord& record) {
  VarintReader in(payload);
  Narrow narrow;
  const auto step = narrow.to<std::int32_t>(in.get_signed(), kMin32, kMax32, "step");
  const std::uint64_t events = in.get();
  const std::uint64_t points = in.get();
  const std::uint64_t steps = in.get();
  if (!in.ok() || events > in.remaining() / kEventColumns || points > in.remaining() / kMemoryColumns ||
      steps > in.remaining() / kStepRowBytes) {
    return damaged(place, "a step block announces more rows than it holds");
  }
  get_events(in, events, step, record, narrow);
  const std::size_t begin = record.memory.size();
  record.memory.resize(begin + points);
  get_column(in, record.memory, begin, [&](MemoryPoint& row, std::int64_t value) {
    row.step = step;
    row.rank = narrow.to<Rank>(value, 0, record.ranks - 1, "rank");
  });
  get_column(in, record.memory, begin, [](MemoryPoint& row, std::int64_t value) { row.time = value; });
  get_column(in, record.memory, begin, [](MemoryPoint& row, std::int64_t value) { row.live = value; });
  for (std::uint64_t i = 0; i < steps; ++i) record.steps.push_back(get_step_row(in, step, narrow));
  if (!in.ok() || in.remaining() != 0)
    return damaged(place, "the columns of a step block do not fill it exactly");
  if (narrow.fault() != nullptr)
    return damaged(place, fmt::format("a step block has a {} out of range", narrow.fault()));
  return {};
}

}  // namespace plumbline::record_file

#include "backends/cuda/loopback_transport.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "engine/base/assert.h"
#include "sim/collectives.h"
#include "sim/verify/check.h"

namespace plumbline::cuda {
namespace {

constexpr std::size_t kWords = 1 << 16;
constexpr std::uint32_t kReleased = 1u << 30;  // ahead of every count

}  // namespace

std::vector<int> own_streams(const Program& program) {
  std::vector<int> rows(program.streams.size());
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

Status raise_connections() {
  constexpr const char* kName = "CUDA_DEVICE_MAX_CONNECTIONS";
  const char* set = std::getenv(kName);
  if (set == nullptr) {
    setenv(kName, std::to_string(kQueues).c_str(), 1);
    return {};
  }
  if (std::atoi(set) >= kQueues) return {};
  return fail(ErrorCode::kState,
              fmt::format("{} is {}: in loopback streams that wait would hold up others in their "
                          "hardware queue; unset it, or set it to {}",
                          kName, set, kQueues));
}

LoopbackTransport::LoopbackTransport(std::vector<LocalRank> ranks, Mover mover)
    : ranks_(std::move(ranks)), device_(ranks_.front().device), events_(device_, false) {
  if (mover == Mover::kSelfSend) self_sends_ = std::make_unique<SelfSends>(device_);
  for (const LocalRank& rank : ranks_) PL_ASSERT_MSG(rank.device.ordinal == device_.ordinal, "one device");
}

std::string LoopbackTransport::level() const {
  if (self_sends_ == nullptr) return "loopback (stream memory operations)";
  return "self-send (" + nccl_version_text(on().nccl_version) + ", communicators of one)";
}

// Rows of collectives alone become the first of them, if they must and may.
Result<std::vector<int>> LoopbackTransport::stream_rows(const LinkedProgram& linked) {
  if (linked_ == &linked) return rows_;
  linked_ = nullptr;  // counting plans
  const Program& program = *linked.program;
  const std::vector<int> own = own_streams(program);
  if (count_streams(linked, own) <= kQueues || !is_provable(linked)) return own;
  std::vector<int> rows = own;
  std::vector<bool> carries(rows.size(), false), messages(rows.size(), false);
  for (const Item item : program.items) {
    if (item_op(item) != ItemOp::kOp) continue;
    const auto row = static_cast<std::size_t>(item_stream(item));
    carries[row] = true;
    messages[row] = messages[row] || is_p2p(program.endpoints[item_ref(item)].kind);
  }
  int first = -1;
  for (std::size_t row = kComputeStream + 1; row < rows.size(); ++row) {
    if (!carries[row] || messages[row]) continue;
    if (first < 0) first = static_cast<int>(row);
    rows[row] = first;
  }
  if (rows == own) return own;
  CheckOptions options;
  options.makespan = false;
  const Result<Verdict> verdict = check_program(linked, options);
  if (!verdict) return tl::unexpected(verdict.error());
  return verdict->modes.front().completes ? rows : own;
}

Status LoopbackTransport::set_program(const LinkedProgram& linked) {
  if (linked_ == &linked) return {};
  linked_ = nullptr;  // until it is done: a Program that was refused is refused again
  if (linked.program->threads.size() != ranks_.size()) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("loopback needs all {} ranks in one process on one device, which has {}",
                            linked.program->threads.size(), ranks_.size()));
  }
  Result<std::vector<int>> rows = stream_rows(linked);
  if (!rows) return tl::unexpected(rows.error());
  rows_ = std::move(*rows);
  linked_ = &linked;
  const Status planned = plan();
  if (!planned) linked_ = nullptr;
  return planned;
}

// Channels, meetings and streams follow from the Program, so nothing is made during a step.
Status LoopbackTransport::plan() {
  const int wanted = count_streams(*linked_, rows_);
  if (wanted > kQueues) {
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("loopback on one device has {} hardware queues, and {} ranks of this Program need {} "
                    "streams; take fewer ranks, or a communicator map with fewer communicators",
                    kQueues, ranks_.size(), wanted));
  }
  return make();
}

// Plans for this Program, and says how many streams that takes.
int LoopbackTransport::count_streams(const LinkedProgram& linked, const std::vector<int>& rows) {
  channels_.clear();
  meetings_.clear();
  lanes_.clear();
  words_ = 0;
  streams_ = 0;
  events_.reset();
  for (const LocalRank& rank : ranks_) plan_thread(linked, rank.thread, rows);
  for (const auto& [key, lane] : lanes_) streams_ += static_cast<int>(lane.helpers_wanted);
  return streams_;
}

void LoopbackTransport::plan_thread(const LinkedProgram& on, std::uint32_t thread,
                                    const std::vector<int>& row_of) {
  const Program& program = *on.program;
  std::set<int> rows{kComputeStream};
  // By communicator: the lines of the group, and how many messages each has.
  std::map<std::int32_t, std::map<std::pair<ChannelKey, bool>, int>> group;
  for (const Item item : program.thread_items(thread)) {
    if (item_op(item) == ItemOp::kLaunch || item_op(item) == ItemOp::kOp)
      rows.insert(row_of[static_cast<std::size_t>(item_stream(item))]);
    if (item_op(item) != ItemOp::kOp) continue;
    const Endpoint& endpoint = program.endpoints[item_ref(item)];
    const LinkedEndpoint& linked = on.at(thread, item_ref(item));
    Lane& lane = lanes_[{thread, linked.communicator}];
    if (is_p2p(endpoint.kind)) {
      const bool send = endpoint.kind == EndpointKind::kSend;
      const ChannelKey key = send ? ChannelKey{linked.communicator, linked.position, linked.peer_position}
                                  : ChannelKey{linked.communicator, linked.peer_position, linked.position};
      channels_[key].largest = std::max(channels_[key].largest, endpoint.bytes);
      auto& lines = group[linked.communicator];
      ++lines[{key, send}];
      const auto beside = std::count_if(
          lines.begin(), lines.end(), [](const auto& line) { return !line.first.second || line.second > 1; });
      lane.helpers_wanted =
          std::max(lane.helpers_wanted, static_cast<std::size_t>(std::max<std::ptrdiff_t>(beside - 1, 0)));
    } else {
      Meeting& meeting = meetings_[linked.communicator];
      meeting.largest = std::max(meeting.largest, endpoint.bytes);
    }
    if ((item_flags(item) & kMore) == 0) group.clear();
  }
  streams_ += static_cast<int>(rows.size());
}

Status LoopbackTransport::make() {
  const auto assign = [](Result<Memory> made, Memory& out) -> Status {
    if (!made) return tl::unexpected(made.error());
    out = std::move(*made);
    return {};
  };
  if (counters_.get() == nullptr)
    PL_TRY(assign(Memory::allocate(device_, MemoryKind::kHost, kWords * sizeof(std::uint32_t)), counters_));
  std::fill_n(counters_.get(), kWords * sizeof(std::uint32_t), std::byte{0});
  std::size_t line = 0;
  for (auto& [key, channel] : channels_) {
    PL_TRY(assign(Memory::allocate(device_, MemoryKind::kDevice, channel.largest), channel.stage));
    channel.published = words_++;
    channel.taken = words_++;
    channel.line = line++;
  }
  if (self_sends_ != nullptr) PL_TRY(self_sends_->reserve(line));
  for (auto& [communicator, meeting] : meetings_) {
    const auto members = linked_->communicators[static_cast<std::size_t>(communicator)].members.size();
    meeting.calls.assign(members, 0);
    for (std::size_t m = 0; m < members; ++m) {
      PL_TRY(assign(Memory::allocate(device_, MemoryKind::kHost, meeting.largest),
                    meeting.stages.emplace_back()));
      meeting.arrived.push_back(words_++);
    }
    meeting.over = words_++;
  }
  PL_ASSERT_MSG(words_ <= kWords, "counters");
  for (auto& [key, lane] : lanes_) {
    while (lane.helpers.size() < lane.helpers_wanted) {
      Result<Stream> stream = Stream::create(device_);
      if (!stream) return tl::unexpected(stream.error());
      lane.helpers.push_back(std::move(*stream));
      const Result<EventHandle> join = events_.take();
      if (!join) return tl::unexpected(join.error());
      lane.joins.push_back(*join);
    }
  }
  const Result<EventHandle> fork = events_.take();
  if (!fork) return tl::unexpected(fork.error());
  fork_ = *fork;
  return {};
}

Status LoopbackTransport::write(StreamHandle stream, std::size_t word, std::uint32_t value) {
  const auto address = reinterpret_cast<std::uintptr_t>(counters_.get() + word * sizeof(std::uint32_t));
  return cuda_status(on(), on().cuda.stream_write_value32(stream, address, value, kWriteValueDefault),
                     "cuStreamWriteValue32");
}
Status LoopbackTransport::wait(StreamHandle stream, std::size_t word, std::uint32_t value) {
  const auto address = reinterpret_cast<std::uintptr_t>(counters_.get() + word * sizeof(std::uint32_t));
  return cuda_status(on(), on().cuda.stream_wait_value32(stream, address, value, kWaitValueGeq),
                     "cuStreamWaitValue32");
}
Status LoopbackTransport::copy(std::byte* to, const std::byte* from, Bytes bytes, StreamHandle stream) {
  if (bytes == 0) return {};
  PL_CUDA(on(), cudaMemcpyAsync, to, from, static_cast<std::size_t>(bytes), kMemcpyDefault, stream);
  return {};
}
// What is enqueued on `after` from now on starts after what is on `before`.
Status LoopbackTransport::order(StreamHandle before, StreamHandle after, EventHandle event) {
  PL_CUDA(on(), cudaEventRecord, event, before);
  PL_CUDA(on(), cudaStreamWaitEvent, after, event, 0);
  return {};
}

Result<bool> LoopbackTransport::enqueue(const TransportCall& call) {
  if (aborted_) return fail(ErrorCode::kState, "the run was aborted");
  PL_TRY(device_.use());
  std::vector<TransportOp> ops = call.ops;
  const auto place = [](const TransportOp& op) { return std::pair(op.communicator, is_p2p(op.kind)); };
  std::stable_sort(ops.begin(), ops.end(),
                   [&](const TransportOp& a, const TransportOp& b) { return place(a) < place(b); });
  for (std::size_t begin = 0; begin < ops.size();) {
    std::size_t end = begin;
    while (end < ops.size() && place(ops[end]) == place(ops[begin])) ++end;
    PL_TRY(piece(call, {ops.begin() + static_cast<std::ptrdiff_t>(begin),
                        ops.begin() + static_cast<std::ptrdiff_t>(end)}));
    begin = end;
  }
  return true;
}

// Operations of one communicator and kind: behind the last ones of the communicator on this rank (N6).
Status LoopbackTransport::piece(const TransportCall& call, const std::vector<TransportOp>& ops) {
  Lane& lane = lanes_.at({call.thread, ops.front().communicator});
  if (lane.last != nullptr && lane.last_stream != call.stream)
    PL_CUDA(on(), cudaStreamWaitEvent, call.stream, lane.last, 0);
  if (is_p2p(ops.front().kind)) {
    PL_TRY(messages(call, lane, ops));
  } else {
    for (const TransportOp& op : ops) PL_TRY(collective(op, call.stream));
  }
  if (lane.last == nullptr) {
    const Result<EventHandle> event = events_.take();
    if (!event) return tl::unexpected(event.error());
    lane.last = *event;
  }
  PL_CUDA(on(), cudaEventRecord, lane.last, call.stream);
  lane.last_stream = call.stream;
  return {};
}

Status LoopbackTransport::messages(const TransportCall& call, Lane& lane,
                                   const std::vector<TransportOp>& ops) {
  // One direction with one peer each.
  std::vector<Line> lines;
  const auto line_of = [&](const TransportOp& op) -> Line& {
    const bool send = op.kind == EndpointKind::kSend;
    const auto found = std::find_if(lines.begin(), lines.end(), [&](const Line& line) {
      return line.peer == op.peer && line.send == send;
    });
    return found != lines.end() ? *found : lines.emplace_back(Line{op.peer, send, 0, call.stream});
  };
  for (const TransportOp& op : ops) ++line_of(op).messages;
  // What may wait before it is through runs beside the rest; the first of that on the user's stream.
  std::size_t beside = 0;
  for (Line& line : lines) {
    if (!line.beside() || beside++ == 0) continue;
    PL_ASSERT(beside - 2 < lane.helpers.size());
    line.stream = lane.helpers[beside - 2].get();
  }
  // Sends that wait for nobody, before anything that does; then the helpers start.
  for (const TransportOp& op : ops) {
    if (!line_of(op).beside()) PL_TRY(message(op, call.stream, false));
  }
  if (beside > 1) PL_CUDA(on(), cudaEventRecord, fork_, call.stream);
  for (std::size_t helper = 0; helper + 1 < beside; ++helper)
    PL_CUDA(on(), cudaStreamWaitEvent, lane.helpers[helper].get(), fork_, 0);
  for (const TransportOp& op : ops) {
    const Line& line = line_of(op);
    if (line.beside()) PL_TRY(message(op, line.stream, true));
  }
  for (std::size_t helper = 0; helper + 1 < beside; ++helper)
    PL_TRY(order(lane.helpers[helper].get(), call.stream, lane.joins[helper]));
  for (const TransportOp& op : ops) {
    if (!line_of(op).beside()) PL_TRY(wait_until_taken(op, call.stream));
  }
  return {};
}

Status LoopbackTransport::wait_until_taken(const TransportOp& op, StreamHandle stream) {
  const Channel& channel = channels_.at(ChannelKey{op.communicator, op.position, op.peer});
  return wait(stream, channel.taken, channel.sent);
}

Status LoopbackTransport::message(const TransportOp& op, StreamHandle stream, bool waits) {
  const bool send = op.kind == EndpointKind::kSend;
  Channel& channel = channels_.at(send ? ChannelKey{op.communicator, op.position, op.peer}
                                       : ChannelKey{op.communicator, op.peer, op.position});
  // Ends of different size are undefined in NCCL (N23); here they are an error where the second end is enqueued.
  std::deque<Bytes>& own = send ? channel.open_sends : channel.open_receives;
  std::deque<Bytes>& other = send ? channel.open_receives : channel.open_sends;
  if (!other.empty()) {
    const Bytes size = other.front();
    other.pop_front();
    if (size != op.bytes) {
      return fail(ErrorCode::kState,
                  fmt::format("in communicator {}, a send and its receive differ: {} bytes against {}",
                              linked_->communicators[static_cast<std::size_t>(op.communicator)].name,
                              send ? op.bytes : size, send ? size : op.bytes));
    }
  } else {
    own.push_back(op.bytes);
  }
  const std::uint32_t number = send ? ++channel.sent : ++channel.received;
  if (send) {
    PL_TRY(copy(channel.stage.get(), op.data, op.bytes, stream));
    PL_TRY(write(stream, channel.published, number));
    return waits ? wait_until_taken(op, stream) : Status();
  }
  PL_TRY(wait(stream, channel.published, number));
  if (self_sends_ != nullptr) {
    PL_TRY(self_sends_->copy(channel.line, op.data, channel.stage.get(), op.bytes, stream));
  } else {
    PL_TRY(copy(op.data, channel.stage.get(), op.bytes, stream));
  }
  return write(stream, channel.taken, number);
}

// The arithmetic of a collective, once all contributions are there.
struct LoopbackTransport::Reduction {
  Endpoint endpoint;
  std::int32_t root = -1;
  std::vector<std::byte*> slots;

  static void run(void* argument) {
    const std::unique_ptr<Reduction> own(static_cast<Reduction*>(argument));
    sim::run_collective(own->endpoint, own->root, own->endpoint.bytes, own->slots);
  }
};

Status LoopbackTransport::collective(const TransportOp& op, StreamHandle stream) {
  Meeting& meeting = meetings_.at(op.communicator);
  const auto own = static_cast<std::size_t>(op.position);
  const std::uint32_t number = ++meeting.calls[own];
  if (meeting.first.size() < number) meeting.first.push_back(op);
  const TransportOp& first = meeting.first[number - 1];
  if (first.kind != op.kind || first.bytes != op.bytes || first.peer != op.peer || first.dtype != op.dtype ||
      first.reduce != op.reduce) {
    return fail(
        ErrorCode::kState,
        fmt::format("call {} of communicator {} is {} of {} bytes on one member and {} of {} bytes on "
                    "another",
                    number, linked_->communicators[static_cast<std::size_t>(op.communicator)].name,
                    endpoint_kind_name(first.kind), first.bytes, endpoint_kind_name(op.kind), op.bytes));
  }
  std::byte* const stage = meeting.stages[own].get();
  PL_TRY(copy(stage, op.data, op.bytes, stream));
  PL_TRY(write(stream, meeting.arrived[own], number));
  if (own == 0) {
    for (const std::size_t word : meeting.arrived) PL_TRY(wait(stream, word, number));
    auto reduction_call = std::make_unique<Reduction>();
    reduction_call->endpoint.kind = op.kind;
    reduction_call->endpoint.dtype = op.dtype;
    reduction_call->endpoint.reduce = op.reduce;
    reduction_call->endpoint.bytes = op.bytes;
    reduction_call->root = op.peer;
    for (const Memory& each : meeting.stages) reduction_call->slots.push_back(each.get());
    PL_CUDA(on(), cudaLaunchHostFunc, stream, &Reduction::run, reduction_call.get());
    reduction_call.release();
    PL_TRY(write(stream, meeting.over, number));
  }
  PL_TRY(wait(stream, meeting.over, number));
  return copy(op.data, stage, op.bytes, stream);
}

Result<std::uint64_t> LoopbackTransport::comm(std::uint32_t /*thread*/, const CommCall& call,
                                              const LinkedCommCall& /*linked*/) {
  return fail(ErrorCode::kUnsupported, fmt::format("{}: loopback has no calls on communicators", call.name));
}

// Streams still write their own, lower counts on the way; so this is repeated until they are dry.
void LoopbackTransport::abort() {
  aborted_ = true;
  if (counters_.get() == nullptr) return;
  volatile auto* word = reinterpret_cast<std::uint32_t*>(counters_.get());
  for (std::size_t i = 0; i < words_; ++i) word[i] = kReleased;
}

}  // namespace plumbline::cuda

// What a rank says when it is given up.
#include <chrono>
#include <map>
#include <set>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "backends/processes/watchdog.h"
#include "engine/base/hash.h"

namespace plumbline::processes {
namespace {

using Json = nlohmann::json;

const char* dtype_word(DType dtype) {
  switch (dtype) {
    case DType::kU8:
      return "Byte";
    case DType::kI32:
      return "Int";
    case DType::kI64:
      return "Long";
    case DType::kF16:
      return "Half";
    case DType::kBF16:
      return "BFloat16";
    case DType::kF32:
      return "Float";
    case DType::kF64:
      return "Double";
    case DType::kF8E4M3:
      return "Float8_e4m3fn";
    case DType::kF8E5M2:
      return "Float8_e5m2";
  }
  return "Byte";
}

const char* collective_word(EndpointKind kind) {
  switch (kind) {
    case EndpointKind::kAllReduce:
      return "all_reduce";
    case EndpointKind::kReduce:
      return "reduce";
    case EndpointKind::kBroadcast:
      return "broadcast";
    case EndpointKind::kAllGather:
      return "_all_gather_base";
    case EndpointKind::kReduceScatter:
      return "_reduce_scatter_base";
    case EndpointKind::kSend:
    case EndpointKind::kRecv:
      break;
  }
  return "send";
}

// Counters of one process group, as PyTorch keeps them: a group of p2p operations counts once.
struct Sequence {
  int collective = 0, p2p = 0, operation = 0;
  int enqueued = -1, started = -1, completed = -1;
};

}  // namespace

std::string position_json(const RankStatus& status, Rank rank) {
  const RankStatus::Position at = status.position();
  Json json;
  json["rank"] = rank;
  json["step"] = at.step;
  json["in_step"] = at.in_step;
  json["item"] = at.item;
  json["blocked"] = at.blocked;
  json["arm"] = at.arm;
  if (!at.awaits.empty()) json["awaits"] = at.awaits;
  if (at.kernel_item) json["kernel_item"] = *at.kernel_item;
  if (const LinkedProgram* linked = status.program(); linked != nullptr) {
    json["program"] = hex64(program_digest(*linked->program));
    const std::uint32_t end = linked->program->threads[static_cast<std::size_t>(rank)].end;
    json["at"] = at.item >= end ? "the end of its step"
                                : describe_item(*linked->program, rank, linked->program->items[at.item]);
    if (at.kernel_item)
      json["computes"] = describe_item(*linked->program, rank, linked->program->items[*at.kernel_item]);
  }
  return json.dump();
}

std::string flight_recorder_json(const RankStatus& status, Rank rank, const std::string& library) {
  Json json;
  json["version"] = "2.10";
  json["comm_lib_version"] = library;
  json["pg_config"] = Json::object();
  json["pg_status"] = Json::object();
  json["entries"] = Json::array();
  const LinkedProgram* linked = status.program();
  if (linked == nullptr) return json.dump();
  // Times are of the steady clock; the format wants the calendar's.
  const auto nanoseconds = [](auto time) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
  };
  const std::int64_t calendar = nanoseconds(std::chrono::system_clock::now()) -
                                nanoseconds(std::chrono::steady_clock::now()) + status.epoch();
  std::map<std::int32_t, Sequence> sequences;
  int record = 0;
  std::uint64_t group = 0;
  for (const EnqueuedOperation& operation : status.operations()) {
    const Communicator& communicator =
        linked->communicators[static_cast<std::size_t>(operation.communicator)];
    const Endpoint& endpoint = linked->program->endpoints[item_ref(linked->program->items[operation.item])];
    const bool p2p = is_p2p(endpoint.kind);
    Sequence& sequence = sequences[operation.communicator];
    if (operation.group != group || !p2p) ++(p2p ? sequence.p2p : sequence.collective);
    group = operation.group;
    ++sequence.operation;
    const std::int64_t count = endpoint.bytes / dtype_bytes(endpoint.dtype);
    const bool started = operation.start >= 0, completed = operation.end >= 0;
    if (!p2p) {
      sequence.enqueued = sequence.collective;
      if (started) sequence.started = sequence.collective;
      if (completed) sequence.completed = sequence.collective;
    }
    std::string name = fmt::format("nccl:{}", collective_word(endpoint.kind));
    if (endpoint.kind == EndpointKind::kSend)
      name = fmt::format("nccl:send {}->{}", operation.position, operation.peer_position);
    if (endpoint.kind == EndpointKind::kRecv)
      name = fmt::format("nccl:recv {}<-{}", operation.position, operation.peer_position);
    json["entries"].push_back({{"record_id", record++},
                               {"pg_id", operation.communicator},
                               {"process_group", {std::to_string(operation.communicator), communicator.name}},
                               {"collective_seq_id", sequence.collective},
                               {"p2p_seq_id", p2p ? sequence.p2p : 0},
                               {"op_id", sequence.operation},
                               {"profiling_name", name},
                               {"time_created_ns", calendar + operation.created},
                               {"input_sizes", {{count}}},
                               {"output_sizes", {{count}}},
                               {"input_dtypes", {dtype_word(endpoint.dtype)}},
                               {"output_dtypes", {dtype_word(endpoint.dtype)}},
                               {"state", completed ? "completed"
                                         : started ? "started"
                                                   : "scheduled"},
                               {"time_discovered_started_ns", started ? calendar + operation.start : 0},
                               {"time_discovered_completed_ns", completed ? calendar + operation.end : 0},
                               {"retired", completed},
                               {"timeout_ms", 0},
                               {"is_p2p", p2p},
                               {"frames", Json::array()}});
  }
  for (std::size_t c = 0; c < linked->communicators.size(); ++c) {
    const Communicator& communicator = linked->communicators[c];
    const bool own = std::count(communicator.members.begin(), communicator.members.end(), rank) > 0;
    if (!own) continue;
    const std::string id = std::to_string(c);
    json["pg_config"][id] = {{"name", id},
                             {"desc", communicator.name},
                             {"ranks", fmt::format("[{}]", fmt::join(communicator.members, ", "))}};
    const Sequence& sequence = sequences[static_cast<std::int32_t>(c)];
    json["pg_status"][id] = {{"last_enqueued_collective", std::to_string(sequence.enqueued)},
                             {"last_started_collective", std::to_string(sequence.started)},
                             {"last_completed_collective", std::to_string(sequence.completed)}};
  }
  return json.dump();
}

}  // namespace plumbline::processes

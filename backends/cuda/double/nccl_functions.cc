// The functions of NCCL that the driver layer uses, on the Machine of this process or of a server's. Arguments are
// checked where NCCL checks them; what an operation then does, and whether it ever ends, the simulator says.
#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include "backends/cuda/double/forward.h"
#include "backends/cuda/double/machine.h"
#include "backends/cuda/nccl_api.h"

namespace plumbline::cuda {
namespace {

constexpr int kLost = kNcclSystemError;  // the server cannot be reached

Machine& called() {
  ++machine().api_calls;
  return machine();
}

std::optional<DType> dtype_of(int nccl) {
  for (const DType type : {DType::kU8, DType::kI32, DType::kI64, DType::kF16, DType::kBF16, DType::kF32,
                           DType::kF64, DType::kF8E4M3, DType::kF8E5M2}) {
    if (nccl_dtype(type) == nccl) return type;
  }
  return std::nullopt;
}

std::optional<ReduceOp> reduction_of(int nccl) {
  for (const ReduceOp op :
       {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kAvg}) {
    if (nccl_reduction(op) == nccl) return op;
  }
  return std::nullopt;
}

int end_group() {
  Caller& caller = *machine().caller;
  const std::vector<GroupedCall> calls = std::exchange(caller.grouped, {});
  const int error = std::exchange(caller.group_error, kNcclSuccess);
  // An operation that failed takes the whole group with it (N10).
  if (error != kNcclSuccess) return error;
  return calls.empty() ? kNcclSuccess : machine().group(calls);
}

struct Arguments {
  EndpointKind kind;
  const void* from = nullptr;
  void* to = nullptr;
  std::size_t count = 0;
  int dtype = 0;
  int reduction = 0;
  int peer = -1;
  int shares = 0;  // 1: memory holds one share a member
};

// An operation outside a group is a group of its own (N9).
int operation(const Arguments& arguments, CommHandle comm, StreamHandle stream) {
  Machine& at = called();
  const auto check = [&]() -> int {
    if (!at.valid(comm) || !at.valid(stream)) return kNcclInvalidArgument;
    if (const int code = at.use(comm); code != kNcclSuccess) return code;
    const std::optional<DType> dtype = dtype_of(arguments.dtype);
    const auto members = static_cast<int>(at.members(comm).size());
    const bool reduces = arguments.kind == EndpointKind::kAllReduce ||
                         arguments.kind == EndpointKind::kReduce ||
                         arguments.kind == EndpointKind::kReduceScatter;
    const bool peers = is_p2p(arguments.kind) || arguments.kind == EndpointKind::kReduce ||
                       arguments.kind == EndpointKind::kBroadcast;
    if (!dtype || stream->device != comm->device) return kNcclInvalidArgument;
    if (peers && (arguments.peer < 0 || arguments.peer >= members)) return kNcclInvalidArgument;
    const std::optional<ReduceOp> reduction = reduction_of(arguments.reduction);
    if (reduces && !reduction) return kNcclInvalidArgument;
    GroupedCall call;
    call.kind = arguments.kind;
    call.comm = comm;
    call.from = static_cast<const std::byte*>(arguments.from);
    call.to = static_cast<std::byte*>(arguments.to);
    call.dtype = *dtype;
    call.reduce = reduction.value_or(ReduceOp::kSum);
    call.peer = arguments.peer;
    call.stream = stream;
    const auto share = static_cast<Bytes>(arguments.count) * dtype_bytes(*dtype);
    call.bytes = share * (arguments.shares != 0 ? members : 1);
    if (is_p2p(call.kind)) call.dtype = DType::kU8;  // bytes are all that counts (N22)
    const bool sends = call.from != nullptr;
    const bool receives = call.to != nullptr;
    const Bytes from_bytes = call.kind == EndpointKind::kAllGather ? share : call.bytes;
    const Bytes to_bytes = call.kind == EndpointKind::kReduceScatter ? share : call.bytes;
    const bool known =
        (!sends || at.holds(call.from, from_bytes)) && (!receives || at.holds(call.to, to_bytes));
    if (share > 0 && !known) return kNcclInvalidArgument;
    at.caller->grouped.push_back(call);
    return kNcclSuccess;
  };
  const int code = check();
  if (at.caller->depth > 0) {
    if (code != kNcclSuccess) at.caller->group_error = code;
    return code;
  }
  if (code != kNcclSuccess) return code;
  return end_group();
}

}  // namespace
}  // namespace plumbline::cuda

using namespace plumbline::cuda;  // NOLINT: the functions below are C's
using plumbline::CommCallKind;
using plumbline::EndpointKind;

EXPORTED int ncclGetVersion(int* version) {
  const char* other =
      std::getenv("PLUMBLINE_DOUBLE_NCCL");  // a version alone: the double's rules stay those of 2.28
  *version = other == nullptr ? 22809 : std::atoi(other);
  return kNcclSuccess;
}
EXPORTED const char* ncclGetErrorString(int /*code*/) { return "said by the double of NCCL"; }
EXPORTED const char* ncclGetLastError(CommHandle /*comm*/) {
  return remote() != nullptr ? remote()->failure() : "";
}
EXPORTED int ncclGetUniqueId(UniqueId* id) {
  FORWARD(ncclGetUniqueId, id);
  *id = called().make_id();
  return kNcclSuccess;
}

namespace {

bool right(const CommConfig* config) {
  const CommConfig known;
  return config != nullptr && config->size >= sizeof(CommConfig) && config->magic == known.magic;
}

}  // namespace

EXPORTED int ncclCommInitRankConfig(CommHandle* comm, int ranks, UniqueId id, int rank, CommConfig* config) {
  FORWARD(ncclCommInitRankConfig, comm, ranks, id, rank, config);
  if (comm == nullptr || rank < 0 || rank >= ranks || !right(config)) return kNcclInvalidArgument;
  return called().init(comm, ranks, id, rank, config->blocking != 0);
}
EXPORTED int ncclCommSplit(CommHandle comm, int color, int key, CommHandle* made, CommConfig* config) {
  FORWARD(ncclCommSplit, comm, color, key, made, config);
  Machine& at = called();
  if (!at.valid(comm) || made == nullptr) return kNcclInvalidArgument;
  const bool blocking = right(config) ? config->blocking != 0 : comm->blocking;
  if (blocking) return kNcclInvalidUsage;  // it would wait here for ranks that this thread plays as well
  return at.split(comm, color, key, made, right(config) && config->splitShare == 1, blocking);
}
EXPORTED int ncclCommShrink(CommHandle comm, int* excluded, int count, CommHandle* made, CommConfig* config,
                            int flags) {
  if (Remote* const server = remote(); server != nullptr) {
    const RankList ranks =
        excluded == nullptr ? RankList() : RankList(excluded, excluded + std::max(count, 0));
    return server->call(Function::kShrink, &shrink_of_ranks, kLost, comm, ranks, made, config, flags);
  }
  Machine& at = called();
  if (!at.valid(comm) || made == nullptr || count < 1) return kNcclInvalidArgument;
  if (comm->blocking) return kNcclInvalidUsage;
  return at.shrink(comm, std::vector<int>(excluded, excluded + count), made, flags == kShrinkAbort);
}
int plumbline::cuda::shrink_of_ranks(CommHandle comm, RankList excluded, CommHandle* made, CommConfig* config,
                                     int flags) {
  return ::ncclCommShrink(comm, excluded.data(), static_cast<int>(excluded.size()), made, config, flags);
}
EXPORTED int ncclCommFinalize(CommHandle comm) {
  FORWARD(ncclCommFinalize, comm);
  return called().valid(comm) ? machine().end(comm, CommCallKind::kFinalize) : kNcclInvalidArgument;
}
EXPORTED int ncclCommDestroy(CommHandle comm) {
  FORWARD(ncclCommDestroy, comm);
  return called().valid(comm) ? machine().end(comm, CommCallKind::kDestroy) : kNcclInvalidArgument;
}
EXPORTED int ncclCommAbort(CommHandle comm) {
  FORWARD(ncclCommAbort, comm);
  return called().valid(comm) ? machine().end(comm, CommCallKind::kAbort) : kNcclInvalidArgument;
}
EXPORTED int ncclCommGetAsyncError(CommHandle comm, int* error) {
  FORWARD(ncclCommGetAsyncError, comm, error);
  if (!called().valid(comm)) return kNcclInvalidArgument;
  *error = machine().async_error(comm);
  return kNcclSuccess;
}

EXPORTED int ncclGroupStart() {
  FORWARD(ncclGroupStart);
  ++called().caller->depth;
  return kNcclSuccess;
}
EXPORTED int ncclGroupEnd() {
  FORWARD(ncclGroupEnd);
  int& depth = called().caller->depth;
  if (depth == 0) return kNcclInvalidUsage;
  if (--depth > 0) return kNcclSuccess;
  return end_group();
}

EXPORTED int ncclSend(const void* from, std::size_t count, int dtype, int peer, CommHandle comm,
                      StreamHandle stream) {
  FORWARD(ncclSend, from, count, dtype, peer, comm, stream);
  return operation({.kind = EndpointKind::kSend, .from = from, .count = count, .dtype = dtype, .peer = peer},
                   comm, stream);
}
EXPORTED int ncclRecv(void* to, std::size_t count, int dtype, int peer, CommHandle comm,
                      StreamHandle stream) {
  FORWARD(ncclRecv, to, count, dtype, peer, comm, stream);
  return operation({.kind = EndpointKind::kRecv, .to = to, .count = count, .dtype = dtype, .peer = peer},
                   comm, stream);
}
EXPORTED int ncclAllReduce(const void* from, void* to, std::size_t count, int dtype, int reduction,
                           CommHandle comm, StreamHandle stream) {
  FORWARD(ncclAllReduce, from, to, count, dtype, reduction, comm, stream);
  return operation({.kind = EndpointKind::kAllReduce,
                    .from = from,
                    .to = to,
                    .count = count,
                    .dtype = dtype,
                    .reduction = reduction},
                   comm, stream);
}
EXPORTED int ncclReduce(const void* from, void* to, std::size_t count, int dtype, int reduction, int root,
                        CommHandle comm, StreamHandle stream) {
  FORWARD(ncclReduce, from, to, count, dtype, reduction, root, comm, stream);
  return operation({.kind = EndpointKind::kReduce,
                    .from = from,
                    .to = to,
                    .count = count,
                    .dtype = dtype,
                    .reduction = reduction,
                    .peer = root},
                   comm, stream);
}
EXPORTED int ncclBroadcast(const void* from, void* to, std::size_t count, int dtype, int root,
                           CommHandle comm, StreamHandle stream) {
  FORWARD(ncclBroadcast, from, to, count, dtype, root, comm, stream);
  return operation({.kind = EndpointKind::kBroadcast,
                    .from = from,
                    .to = to,
                    .count = count,
                    .dtype = dtype,
                    .peer = root},
                   comm, stream);
}
EXPORTED int ncclAllGather(const void* from, void* to, std::size_t count, int dtype, CommHandle comm,
                           StreamHandle stream) {
  FORWARD(ncclAllGather, from, to, count, dtype, comm, stream);
  return operation(
      {.kind = EndpointKind::kAllGather, .from = from, .to = to, .count = count, .dtype = dtype, .shares = 1},
      comm, stream);
}
EXPORTED int ncclReduceScatter(const void* from, void* to, std::size_t count, int dtype, int reduction,
                               CommHandle comm, StreamHandle stream) {
  FORWARD(ncclReduceScatter, from, to, count, dtype, reduction, comm, stream);
  return operation({.kind = EndpointKind::kReduceScatter,
                    .from = from,
                    .to = to,
                    .count = count,
                    .dtype = dtype,
                    .reduction = reduction,
                    .shares = 1},
                   comm, stream);
}

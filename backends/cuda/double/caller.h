// Caller: what CUDA and NCCL know of the thread that calls - its current device and its open group -, and the process
// it belongs to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "backends/cuda/cuda_api.h"
#include "backends/cuda/nccl_api.h"
#include "engine/base/dtype.h"
#include "engine/base/units.h"
#include "engine/program/program.h"

namespace plumbline::cuda {

// An operation of a group that is being put together.
struct GroupedCall {
  EndpointKind kind = EndpointKind::kSend;
  ncclComm* comm = nullptr;
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  Bytes bytes = 0;  // of the part of memory that takes part: all members' shares together
  DType dtype = DType::kU8;
  ReduceOp reduce = ReduceOp::kSum;
  int peer = -1;  // or root, as a rank of the communicator
  CUstream_st* stream = nullptr;
};

// A host function whose turn has come, for the thread of another process that enqueued it.
struct DueFunction {
  std::uint64_t node = 0;  // by which it is reported when it has run
  HostFunction function = nullptr;
  void* argument = nullptr;
};

struct Process;

struct Caller {
  Process* process = nullptr;
  int device = 0;  // the current one
  // NCCL's group
  int depth = 0;
  int group_error = kNcclSuccess;
  std::vector<GroupedCall> grouped;
  Nanoseconds next_takes = 0;    // the next host function, copy or fill
  std::vector<DueFunction> due;  // to be handed over
};

struct Process {
  bool elsewhere = false;  // not the one that holds the Machine
  bool ended = false;
  std::set<int> devices;                    // on which it has had streams or communicators
  std::map<std::uint32_t, Caller> callers;  // of a process elsewhere, by thread

  Caller& thread(std::uint32_t number) { return callers.try_emplace(number, Caller{this}).first->second; }
};

}  // namespace plumbline::cuda

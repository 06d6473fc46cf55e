// Transport: how the operations of a group reach their peers. Three levels do it: NCCL between devices, stream memory
// operations between ranks on one device (loopback), and NCCL to oneself on a communicator of one (self-send). The
// record says which one ran.
//
// Nothing here blocks. A rank is named by its host thread, as in Backend; a process serves some threads of the
// Program, and a transport is told which.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backends/cuda/device.h"
#include "engine/program/link.h"
#include "engine/runtime/backend.h"

namespace plumbline::cuda {

// A host thread served by this process, and its device.
struct LocalRank {
  std::uint32_t thread = 0;
  Device device;
};

// One operation of a group: memory is the part of the slot that takes part, worked on in place.
struct TransportOp {
  EndpointKind kind = EndpointKind::kSend;
  std::int32_t communicator = -1;
  std::int32_t position = -1;
  std::int32_t peer = -1;  // or root, a position; -1: none
  std::byte* data = nullptr;
  Bytes bytes = 0;
  DType dtype = DType::kF32;
  ReduceOp reduce = ReduceOp::kSum;
  bool operator==(const TransportOp&) const = default;
};

struct TransportCall {
  std::uint32_t thread = 0;
  StreamHandle stream = nullptr;
  std::vector<TransportOp> ops;  // in call order
};

// Every row has a stream of its own.
std::vector<int> own_streams(const Program& program);

class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string level() const = 0;  // "NCCL 2.28.9", "loopback (stream memory operations)"

  // By row of Program::streams, the row whose stream it shares: itself, unless the device has too few queues and the
  // Program completes for certain in any case. Asked before set_program.
  virtual Result<std::vector<int>> stream_rows(const LinkedProgram& linked) {
    return own_streams(*linked.program);
  }
  // The Program to come; outlives its steps. Begins to make what it needs: communicators that exist from the start.
  virtual Status set_program(const LinkedProgram& linked) = 0;
  // Whether that is done; asked before the first step.
  virtual Poll ready() = 0;

  // Enqueues the group on the stream as one unit (N11), after the last group of each of its communicators on this
  // rank (N6). False: it is not on the stream yet, and issued(thread) says when.
  virtual Result<bool> enqueue(const TransportCall& call) = 0;
  virtual Poll issued(std::uint32_t thread) = 0;
  // Whether what enqueue() puts on a stream that is being captured may be replayed again and again.
  virtual bool can_be_captured() const { return false; }

  // A call on a communicator. It is under way until through(number) is done, by the number returned.
  virtual Result<std::uint64_t> comm(std::uint32_t thread, const CommCall& call,
                                     const LinkedCommCall& linked) = 0;
  virtual Poll through(std::uint64_t number) = 0;

  // Something failed or stands still: everything enqueued ends soon, with garbage, so that streams drain. Called
  // again and again until they have. Nothing can be enqueued afterwards.
  virtual void abort() = 0;
};

}  // namespace plumbline::cuda

// Collectives over send and receive. The arithmetic is the engine's own (runtime/reduce.h): contributions are
// combined in member order, so every member gets the bits that the simulator gets. Gloo's own collectives are
// not used: they have no bf16 and another order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backends/gloo/transport.h"
#include "engine/program/program.h"

namespace plumbline::gloo {

// One rank's membership in a communicator, as far as messages need it.
struct Membership {
  std::vector<Rank> members;  // in communicator rank order
  std::int32_t position = 0;  // own place
  std::uint32_t lane = 0;
  // Next tag of a message to (from) a member; both ends count alike, since a communicator is a queue.
  std::uint32_t next_tag(bool send, Rank peer);

 private:
  std::vector<std::uint32_t> counts_;  // by member: sends, then receives
};

// What a collective does and on what. `bytes` from `data` on; `root` is a position.
struct CollectiveCall {
  EndpointKind kind = EndpointKind::kAllReduce;
  DType dtype = DType::kF32;
  ReduceOp reduce = ReduceOp::kSum;
  std::int32_t root = 0;
  std::byte* data = nullptr;
  Bytes bytes = 0;
};

// In place, as sim's run_collective. Blocks until the own part is through.
Status run_collective(Transport& transport, Membership& own, const CollectiveCall& call);

}  // namespace plumbline::gloo

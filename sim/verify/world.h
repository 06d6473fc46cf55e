// CheckWorld: what the checker's passes look up, resolved once from a LinkedProgram and laid out small. A
// link is a directed pair of members of one communicator; links come in pairs, so link ^ 1 is the opposite
// direction. A member is one rank's place in one communicator. Thread numbers are rank numbers
// (validate_program has seen to it).
#pragma once

#include <cstdint>

#include "engine/program/link.h"
#include "sim/verdict.h"
#include "sim/verify/scratch.h"

namespace plumbline::verify {

// Which arm of the decisions is walked. kNone walks up to the first decision.
enum class Arm : std::uint8_t { kNone, kYes, kNo };
// Items with one of these flags are not executed.
constexpr unsigned skipped_flags(Arm arm) {
  return arm == Arm::kYes ? kArmNo : arm == Arm::kNo ? kArmYes : kArmYes | kArmNo;
}

constexpr std::uint32_t kNone32 = 0xFFFFFFFFu;

// One endpoint as used by one thread; parallel to LinkedProgram::endpoints.
struct Port {
  std::uint32_t link = kNone32;    // p2p: the directed link the message travels on
  std::uint32_t member = kNone32;  // the thread's place in the communicator
  std::uint32_t peer = kNone32;    // p2p: the other thread; with a root: the root
  std::uint32_t key = 0;  // equal keys: p2p with equal slot class and bytes, collectives with equal call
  std::uint32_t communicator = 0;
  EndpointKind kind = EndpointKind::kSend;
  bool dropped = false;  // a collective without bytes does nothing (N60)
  std::int8_t side = 0;  // a send 1, a receive -1
  double duration =
      0;  // of one message or collective once all ends are active (lanes.h); timing.h fills it in
};

struct Link {
  std::uint32_t source = 0;       // thread
  std::uint32_t destination = 0;  // thread
  std::uint32_t distance = 0;     // from source to destination, in communicator positions, modulo its size
  std::uint32_t communicator = 0;
  bool mirrored = false;  // the opposite link has the same distance: both travel in one set-up message (N2)
};

struct CheckWorld {
  const LinkedProgram* linked = nullptr;
  const Program* program = nullptr;
  ScratchVector<Port> ports;
  ScratchVector<Link> links;
  RawVector<std::uint32_t> member_base;    // per communicator, one more at the end; member = base + position
  RawVector<std::uint32_t> member_thread;  // per member
  RawVector<std::uint32_t> range_of;       // per thread: which range of items, as threads may share one
  std::uint32_t ranges = 0;                // numbered by the first thread that has them

  std::size_t threads() const { return program->threads.size(); }
  const Port& port(std::size_t thread, unsigned endpoint) const {
    const LinkedProgram::Window& window = linked->windows[thread];
    return ports[window.base + (endpoint - window.first)];
  }
  // Add an endpoint's row, modulo 2^32, for the index of its port.
  std::uint32_t port_offset(std::size_t thread) const {
    return linked->windows[thread].base - linked->windows[thread].first;
  }
  std::size_t communicator_size(std::uint32_t communicator) const {
    return member_base[communicator + 1] - member_base[communicator];
  }
  OperationRef operation(std::size_t thread, std::uint32_t item) const;
};

CheckWorld make_world(const LinkedProgram& linked);

// First item after the group that begins at `item`.
inline std::uint32_t group_end(const Program& program, std::uint32_t item) {
  while ((item_flags(program.items[item]) & kMore) != 0) ++item;
  return item + 1;
}

// Kernels of a group run in this order: by communicator, each one's collectives before its p2p (N15, N16).
constexpr std::uint64_t phase_of(const Port& port) {
  return std::uint64_t{port.communicator} * 2 + (is_p2p(port.kind) ? 1u : 0u);
}

}  // namespace plumbline::verify

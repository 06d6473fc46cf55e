// Faults: one change to a Program that makes it wrong, for tests that ask whether a checker sees it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/program/program.h"

namespace plumbline::props {

enum class FaultKind : std::uint8_t {
  kDrop,       // an operation is left out
  kDuplicate,  // an operation is done twice
  kSwap,       // two operations of one direction and kind change places
  kWrongPeer,  // a message goes to, or is awaited from, another rank
  kWrongRank,  // an operation is done by another rank
};
constexpr int kFaultKinds = 5;
std::string_view fault_kind_name(FaultKind kind);

struct Fault {
  FaultKind kind = FaultKind::kDrop;
  Program program;   // with the fault in it
  std::string what;  // "drop of 2SEND_F5 to rank 3 on rank 2"
};

// The fault that `seed` picks among those of this kind that the Program allows; nothing when it allows none
// (a swap needs two messages of one direction). Operations are computations, sends, receives and collectives.
// The result is a valid Program, and it is never the same Program under another name.
std::optional<Fault> inject(const Program& program, FaultKind kind, std::uint64_t seed);

}  // namespace plumbline::props

// Portability: what a Program does that NCCL leaves undefined, or that depends on its release. None of it needs
// to go wrong on any machine; a Program without it is portable-safe once it is certified.
#pragma once

#include <vector>

#include "engine/program/link.h"
#include "sim/verdict.h"

namespace plumbline {

// Findings of kind kNotPortable, each with its rule: groups cut differently at the two ends of a pair of ranks
// (N12), collectives and messages of one communicator in one group (N15), communicators of a group in another
// order on another rank (N16), groups of more messages than a kernel of an old release holds (N14), collectives
// of no bytes (N60). Of each, the first places; linear in the items.
std::vector<Finding> portability(const LinkedProgram& linked);

}  // namespace plumbline

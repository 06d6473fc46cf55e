// Which parameter groups a run has: the union of all ranks' keys, in one order, so that every rank makes the same
// groups (empty ones where it has no parameter) and any rank's group settings can be saved for all.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/optim/collective.h"
#include "engine/optim/param_overrides.h"

namespace plumbline {

// All members call it together.
Result<std::vector<GroupKey>> agree_group_keys(Collective& world, const std::vector<GroupKey>& own);

// Keys as bytes and back; what travels.
std::vector<std::uint8_t> pack_group_keys(const std::vector<GroupKey>& keys);
Result<std::vector<GroupKey>> unpack_group_keys(std::span<const std::uint8_t> bytes);

}  // namespace plumbline

// Which saved parameter group is which of the optimizer's: by identity, the values of a few settings that
// tell groups apart, never by position (megatron/core/optimizer/optimizer.py,
// _filter_and_reorder_param_groups).
//
// Identity: a missing setting and None are the same, "pre_<name>" counts where <name> is missing, and
// numbers are compared as Python does (1, 1.0 and true are equal). Departures from upstream, each tested:
// two groups of one identity are an error (upstream takes the last saved one for both); every group of the
// optimizer must have its match (upstream stops at the shorter list); a match must have as many parameters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/optim/state_dict.h"

namespace plumbline {

// Which settings make the identity.
enum class GroupIdentity : std::uint8_t {
  kFour,  // wd_mult, lr_mult, is_expert_parallel, is_decoupled_lr: Megatron until 2025, and the default here
  kNine,  // end_wd, max_lr, min_lr, optimizer, start_wd and those: Megatron now; older files cannot match it
};
const std::vector<std::string>& param_group_identifier_keys(GroupIdentity identity = GroupIdentity::kFour);

// "wd_mult=1 lr_mult=None is_expert_parallel=0 is_decoupled_lr=None". A value that is no number, bool,
// text or None is an error.
Result<std::string> param_group_identity(const StateDict& group, const std::vector<std::string>& keys);

// Place in `saved` of each group of `current`; saved groups that none has asked for are left out, which is
// the filter. Both hold dictionaries of settings. Errors (kState) name the group by place and identity: it
// was not saved, it was saved twice, two current groups are alike.
Result<std::vector<std::size_t>> match_param_groups(const StateList& current, const StateList& saved,
                                                    const std::vector<std::string>& keys);

// What "params", the numbers of a group's parameters, become.
enum class Form : std::uint8_t {
  // They are the matched group's, as all else: files in which states have the numbers of the saved order.
  kByIdentity,
  // They stay at their place: distributed checkpoints, where numbers follow the optimizer that loads. The
  // lists must be equally long.
  kByPosition,
};
// The saved settings in the order of `current`, one group each. Where both have "params", their lengths
// must fit.
Result<StateList> filter_and_reorder_param_groups(const StateList& current, const StateList& saved,
                                                  const std::vector<std::string>& keys,
                                                  Form form = Form::kByIdentity);

}  // namespace plumbline

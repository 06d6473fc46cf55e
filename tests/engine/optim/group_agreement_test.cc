#include "engine/optim/group_agreement.h"

#include <algorithm>
#include <thread>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/engine/optim/family_l.h"

namespace plumbline::test {
namespace {

rc::Gen<GroupKey> any_key() {
  const auto number = rc::gen::map(rc::gen::inRange(0, 4), [](int i) {
    return i == 0 ? std::optional<double>() : std::optional<double>(0.1 * i);
  });
  return rc::gen::apply(
      [](std::optional<double> wd, std::optional<double> lr, std::optional<double> eps, int decoupled,
         const std::string& name, bool expert) {
        GroupKey key;
        key.gives.wd_mult = wd;
        key.gives.max_lr = lr;
        key.gives.eps = eps;
        if (decoupled > 0) key.gives.is_decoupled_lr = decoupled == 2;
        if (!name.empty()) key.gives.optimizer = name;
        key.expert = expert;
        return key;
      },
      number, number, number, rc::gen::inRange(0, 3), rc::gen::arbitrary<std::string>(),
      rc::gen::arbitrary<bool>());
}

RC_GTEST_PROP(GroupAgreement, PackedKeysComeBack, ()) {
  const auto keys = *rc::gen::container<std::vector<GroupKey>>(any_key());
  const std::vector<std::uint8_t> bytes = pack_group_keys(keys);
  const auto back = unpack_group_keys(bytes);
  RC_ASSERT(back.has_value());
  RC_ASSERT(*back == keys);
  // Cut anywhere, or longer, they are refused.
  const auto cut = *rc::gen::inRange<std::size_t>(0, bytes.size());
  RC_ASSERT(!unpack_group_keys(std::span(bytes).first(cut)).has_value());
  std::vector<std::uint8_t> longer = bytes;
  longer.push_back(0);
  RC_ASSERT(!unpack_group_keys(longer).has_value());
}

RC_GTEST_PROP(GroupAgreement, EveryRankGetsTheSortedUnion, ()) {
  const int ranks = *rc::gen::inRange(1, 5);
  std::vector<std::vector<GroupKey>> own(static_cast<std::size_t>(ranks));
  std::vector<GroupKey> expected;
  for (auto& keys : own) {
    keys = *rc::gen::resize(4, rc::gen::container<std::vector<GroupKey>>(any_key()));
    expected.insert(expected.end(), keys.begin(), keys.end());
  }
  std::sort(expected.begin(), expected.end(), [](const GroupKey& a, const GroupKey& b) { return a < b; });
  expected.erase(std::unique(expected.begin(), expected.end()), expected.end());
  std::vector<std::vector<GroupKey>> agreed(own.size());
  on_ranks(ranks, [&](int rank, std::shared_ptr<Collective> world) {
    const auto at = static_cast<std::size_t>(rank);
    agreed[at] = value_of(agree_group_keys(*world, own[at]));
  });
  for (const auto& keys : agreed) RC_ASSERT(keys == expected);
}

}  // namespace
}  // namespace plumbline::test

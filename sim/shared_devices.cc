#include "sim/shared_devices.h"

#include <algorithm>
#include <utility>

#include "engine/base/assert.h"

namespace plumbline {
namespace {

std::size_t count_of(const std::vector<std::vector<std::size_t>>& machines) {
  std::size_t most = 0;
  for (const std::vector<std::size_t>& of_replica : machines)
    for (const std::size_t machine : of_replica) most = std::max(most, machine);
  return most + 1;
}

}  // namespace

SharedDevices::SharedDevices(int cores, double interference, std::vector<std::vector<std::size_t>> machines)
    : machines_(std::move(machines)),
      ranks_(machines_.empty() ? 0 : static_cast<std::uint32_t>(machines_.front().size())),
      cores_(cores, interference, count_of(machines_)) {
  PL_ASSERT(ranks_ > 0);
}

// A rank runs one thing at a time, so that its number is its kernel's too.
void SharedDevices::start(int replica, int rank, Nanoseconds work, Nanoseconds now) {
  const std::uint32_t number = number_of(replica, rank);
  cores_.start(machines_[static_cast<std::size_t>(replica)][static_cast<std::size_t>(rank)], number, number,
               work, now);
}

std::optional<Devices::Completion> SharedDevices::next() const {
  const std::optional<sim::Cores::Completion> first = cores_.next();
  if (!first) return std::nullopt;
  return Completion{first->time, static_cast<int>(first->thread / ranks_),
                    static_cast<int>(first->thread % ranks_)};
}

void SharedDevices::complete(const Completion& completion) {
  const std::uint32_t number = number_of(completion.replica, completion.rank);
  cores_.complete({completion.time, number, number});
}

}  // namespace plumbline

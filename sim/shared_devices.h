// The cores of machines, as devices of ranks that share them (engine/schedule/evaluate.h): what `plumbline compare`
// evaluates schedules on where [time] cores is set. Kernels get on as in the simulator (sim/cores.h).
#pragma once

#include <optional>
#include <vector>

#include "engine/schedule/evaluate.h"
#include "sim/cores.h"

namespace plumbline {

class SharedDevices final : public Devices {
 public:
  // `machines`: of each replica, of each of its ranks, from 0. All replicas have as many ranks.
  SharedDevices(int cores, double interference, std::vector<std::vector<std::size_t>> machines);

  void start(int replica, int rank, Nanoseconds work, Nanoseconds now) override;
  std::optional<Completion> next() const override;
  void complete(const Completion& completion) override;

 private:
  std::uint32_t number_of(int replica, int rank) const {
    return static_cast<std::uint32_t>(replica) * ranks_ + static_cast<std::uint32_t>(rank);
  }

  std::vector<std::vector<std::size_t>> machines_;
  std::uint32_t ranks_;  // a replica
  sim::Cores cores_;
};

}  // namespace plumbline

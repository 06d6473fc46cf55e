// Cores: kernels of ranks that share a machine's cores, in virtual time. At most `cores` of them run at once; when
// more want to, all advance alike and more slowly, as under a scheduler that deals time out in slices much shorter
// than a kernel (processor sharing). A kernel's cost is the time that it computes; while other cores of the machine
// are busy too, it may take longer by `interference` (shared caches, memory, threads of one core): nothing alone,
// all of it with every core busy, evenly in between.
//
// All that run on a machine advance at the same rate, so each is over when what the machine has given to one kernel
// reaches a number that is known when it starts. These numbers are integers of 1 / kScale nanoseconds: the same run
// has the same times on every machine.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/base/units.h"
#include "sim/device_graph.h"

namespace plumbline::sim {

class Cores {
 public:
  struct Completion {
    Nanoseconds time = 0;
    std::uint32_t thread = 0;
    NodeId node = 0;
  };

  // `cores` a machine, at least 1.
  Cores(int cores, double interference, std::size_t machines);

  // The node starts to run on the machine at `now`, with `work` > 0 to do.
  void start(std::size_t machine, std::uint32_t thread, NodeId node, Nanoseconds work, Nanoseconds now);
  // What is over first if nothing else starts; of several at one time, that of the lowest thread, then node.
  std::optional<Completion> next() const;
  // Takes it away. Time has come to it.
  void complete(const Completion& completion);
  bool idle() const { return !next().has_value(); }
  void clear();

 private:
  using Work = __int128;                          // in 1 / kScale nanoseconds
  static constexpr std::int64_t kScale = 720720;  // a multiple of all numbers up to 16
  struct Task {
    Work ends = 0;  // of `given`
    std::uint32_t thread = 0;
    NodeId node = 0;
  };
  struct Machine {
    Work given = 0;         // to each that has run since the machine was last idle
    Nanoseconds since = 0;  // when `given` was so much
    std::vector<Task> running;
  };
  // Time that one of `tasks` takes for `work`, and back.
  struct Rate {
    std::int64_t done = 1, of = 1;
  };

  Rate rate(std::size_t tasks) const;
  void advance(Machine& machine, Nanoseconds now) const;
  static const Task& first_of(const Machine& machine);
  Nanoseconds end_of(const Machine& machine, const Task& task) const;

  std::int64_t cores_;
  std::int64_t interference_;  // millionths
  std::vector<Machine> machines_;
};

}  // namespace plumbline::sim

// Programs for the benchmarks of the checker, and clocks and memory to measure it with.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <string>
#include <vector>

#include <malloc.h>

#include "engine/base/rng.h"
#include "engine/program/link.h"
#include "engine/program/lower.h"
#include "engine/program/text.h"
#include "sim/verify/check.h"

namespace plumbline::bench {

struct Shape {
  ScheduleKind kind = ScheduleKind::kOneFOneB;
  int pp = 8, chunks = 1, microbatches = 8, dp = 1;
  P2pStyle p2p = P2pStyle::kBatched;
};

inline RunConfig config_of(const Shape& shape) {
  RunConfig config;
  config.schedule.kind = shape.kind;
  config.parallel.pp = shape.pp;
  config.parallel.dp = shape.dp;
  config.schedule.chunks = shape.chunks;
  config.schedule.microbatches = shape.microbatches;
  config.schedule.group_size = shape.pp;
  config.schedule.p2p = shape.p2p;
  config.model.layers = shape.pp * shape.chunks;
  config.grid = *RankGrid::create({1, 1, 1, shape.dp, shape.pp});
  return config;
}
inline Result<Program> program_of_shape(const Shape& shape) {
  const RunConfig config = config_of(shape);
  return program_of(config, default_sizes(config), {});
}

// Items of its own for every rank, where replicas shared them.
inline void materialise(Program& program) {
  std::size_t count = 0;
  for (const Thread& thread : program.threads) count += thread.end - thread.begin;
  std::vector<Item> items;
  items.reserve(count);
  for (Thread& thread : program.threads) {
    const auto begin = static_cast<std::uint32_t>(items.size());
    items.insert(items.end(), program.items.begin() + thread.begin, program.items.begin() + thread.end);
    thread.begin = begin;
    thread.end = static_cast<std::uint32_t>(items.size());
  }
  program.items = std::move(items);
}

// The same Program, one replica, with its ranks renamed at random, printed and read again: nothing a generator knows
// is left in it.
inline Result<Program> reread_with_ranks_permuted(Program program, std::uint64_t seed) {
  const auto ranks = static_cast<std::size_t>(program.grid.world());
  std::vector<Rank> to(ranks);
  for (std::size_t r = 0; r < ranks; ++r) to[r] = static_cast<Rank>(r);
  const CounterRng rng(seed, "permutation");
  for (std::size_t r = ranks; r > 1; --r) std::swap(to[r - 1], to[rng.below(r, r)]);
  std::vector<Thread> threads(ranks);
  for (const Thread& thread : program.threads) {
    for (std::uint32_t i = thread.begin; i < thread.end; ++i) {
      if (item_op(program.items[i]) != ItemOp::kOp) continue;
      Endpoint& row = program.endpoints[item_ref(program.items[i])];
      if (row.form == PeerForm::kNone || row.form == PeerForm::kRank) continue;
      row.peer = endpoint_peer(program.grid, row, thread.rank);
      row.form = PeerForm::kRank;
    }
    threads[static_cast<std::size_t>(to[static_cast<std::size_t>(thread.rank)])] = thread;
  }
  for (Endpoint& row : program.endpoints) {
    if (row.form == PeerForm::kRank) row.peer = to[static_cast<std::size_t>(row.peer)];
  }
  for (std::size_t r = 0; r < ranks; ++r) threads[r].rank = static_cast<Rank>(r);
  program.threads = std::move(threads);
  for (CommFamily& family : program.families) {
    for (auto& instance : family.instances) {
      for (Rank& rank : instance) rank = to[static_cast<std::size_t>(rank)];
    }
  }
  for (std::uint16_t& coordinate : program.rank_of_stage)
    coordinate = static_cast<std::uint16_t>(to[coordinate]);
  return parse_program(print_program(program), "permuted");
}

// Processor time of this thread: the same as wall time on an idle machine, and still a measure on a busy one.
inline double seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

inline double status_bytes(const char* key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(key, 0) == 0) return 1024.0 * std::stod(line.substr(std::strlen(key)));
  }
  return 0;
}
// Resident memory that `work` takes at its peak beyond what there is before; nothing where the system does not say.
template <typename Work>
double extra_memory(Work work) {
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << "5";  // the peak starts anew
  const double before = status_bytes("VmRSS:");
  work();
  return std::max(0.0, status_bytes("VmHWM:") - before);
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace plumbline::bench

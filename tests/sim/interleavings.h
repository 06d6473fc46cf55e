// Every interleaving of a small world, by a model of its own: hosts, kernels, matches and connections take single
// steps in any order, states are remembered, and all ends that can be reached are collected. It shares no code with
// the simulator or the checker; it is what the confluence theorem (sim/explore.h) is held against.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <tuple>
#include <unordered_set>
#include <utility>
#include <vector>

#include "engine/base/assert.h"

namespace plumbline::test {

enum class SmallKind : std::uint8_t { kSend, kRecv, kAllReduce };

struct SmallOp {
  SmallKind kind = SmallKind::kSend;
  int comm = 0;          // all ranks are members, in rank order
  int peer = 0;          // p2p
  bool chained = false;  // in one group with the operation before it
  bool waited = false;   // the group's last: the host waits for it

  bool operator==(const SmallOp&) const = default;
  auto operator<=>(const SmallOp&) const = default;
};
using SmallWorld = std::vector<std::vector<SmallOp>>;  // by rank

class Interleavings {
 public:
  struct Outcome {
    bool completes = false;  // in the first end found
    bool confluent = true;   // all ends are the same state
    std::int64_t states = 0;
  };

  // Rendezvous; one NCCL kernel at a time a device (strict) or one a communicator and stream; connections there or
  // made by the hosts at first use.
  Interleavings(const SmallWorld& world, bool strict, bool cold) : ranks_(static_cast<int>(world.size())) {
    for (int rank = 0; rank < ranks_; ++rank)
      lay_out(rank, world[static_cast<std::size_t>(rank)], strict, cold);
    settle_exchanges();
  }

  Outcome run() {
    Outcome out;
    PL_ASSERT(at_kernel(kernels_.size()) <= kBytes);
    std::unordered_set<State, Hash> seen{State{}};  // nothing depends on its order
    std::vector<State> open{State{}}, next;
    bool ended = false;
    State end{};
    while (!open.empty()) {
      const State state = open.back();
      open.pop_back();
      next.clear();
      successors(state, next);
      if (next.empty()) {
        if (!ended) {
          end = state;
          out.completes = complete(state);
        } else if (!(state == end)) {
          out.confluent = false;
        }
        ended = true;
      }
      for (const State& to : next) {
        if (seen.insert(to).second) open.push_back(to);
      }
    }
    out.states = static_cast<std::int64_t>(seen.size());
    return out;
  }

 private:
  struct Action {
    enum What : std::uint8_t { kIssue, kWaitGroup, kPost, kReceive } what = kIssue;
    int first = 0, last = 0;  // kernels of the group
    int box = 0, number = 0;  // of a message between hosts
    int content = 0, answers = 0;
    bool paired = false;  // both directions in one message
    bool stops = false;   // the host never gets past it
  };
  struct Part {
    int channel = -1;  // p2p
    int comm = -1;     // collective
    int index = 0;     // which of the channel's, or communicator's, on this side
  };
  struct Kernel {
    std::vector<int> after;
    std::vector<Part> parts;
  };
  struct Channel {
    std::vector<int> sends, receives;  // kernels, in order
  };
  // By byte: what each host has done, collectives completed by communicator, matches by channel, kernels (0 unknown,
  // 1 issued, 2 running, 3 complete).
  static constexpr std::size_t kComms = 4, kBytes = 40;
  using State = std::array<std::uint8_t, kBytes>;
  struct Hash {
    std::size_t operator()(const State& state) const {
      std::uint64_t hash = 0;
      for (std::size_t at = 0; at < kBytes; at += 8) {
        std::uint64_t word = 0;
        std::memcpy(&word, state.data() + at, 8);
        hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 29;
      }
      return hash;
    }
  };
  std::size_t at_collective(std::size_t comm) const { return actions_.size() + comm; }
  std::size_t at_channel(std::size_t channel) const { return actions_.size() + kComms + channel; }
  std::size_t at_kernel(std::size_t kernel) const { return at_channel(channels_.size()) + kernel; }
  std::uint8_t kernel_of(const State& state, int kernel) const {
    return state[at_kernel(static_cast<std::size_t>(kernel))];
  }

  int channel(int comm, int from, int to) {
    const auto [at, fresh] = channel_of_.try_emplace({comm, from, to}, static_cast<int>(channels_.size()));
    if (fresh) channels_.emplace_back();
    return at->second;
  }
  int box(int comm, int from, int to, int distance, int pass) {
    const auto [at, fresh] =
        box_of_.try_emplace({comm, from, to, distance, pass}, static_cast<int>(contents_.size()));
    if (fresh) {
      contents_.emplace_back();
      posts_.emplace_back();
    }
    return at->second;
  }

  void lay_out(int rank, const std::vector<SmallOp>& ops, bool strict, bool cold) {
    actions_.emplace_back();
    std::array<int, 4> on_comm{-1, -1, -1, -1}, on_stream{-1, -1, -1, -1}, calls{};
    int on_device = -1;
    std::set<std::tuple<int, int, SmallKind>> connected;
    for (std::size_t begin = 0; begin < ops.size();) {
      std::size_t end = begin + 1;
      while (end < ops.size() && ops[end].chained) ++end;
      const std::vector<SmallOp> group(ops.begin() + static_cast<std::ptrdiff_t>(begin),
                                       ops.begin() + static_cast<std::ptrdiff_t>(end));
      const auto stream = static_cast<std::size_t>(group.back().comm);
      Action issue;
      issue.first = static_cast<int>(kernels_.size());
      for (int comm = 0; comm < 4; ++comm) {
        if (cold) connect(rank, comm, group, connected);
        for (const bool p2p : {false, true}) {
          Kernel kernel;
          for (const SmallOp& op : group) {
            if (op.comm != comm || (op.kind != SmallKind::kAllReduce) != p2p) continue;
            kernel.parts.push_back(part(rank, op, calls));
          }
          if (kernel.parts.empty()) continue;
          for (const int before :
               {on_comm[static_cast<std::size_t>(comm)], on_stream[stream], strict ? on_device : -1}) {
            if (before >= 0) kernel.after.push_back(before);
          }
          on_comm[static_cast<std::size_t>(comm)] = on_stream[stream] = on_device =
              static_cast<int>(kernels_.size());
          kernels_.push_back(std::move(kernel));
        }
      }
      issue.last = static_cast<int>(kernels_.size());
      actions_.back().push_back(issue);
      Action wait = issue;
      wait.what = Action::kWaitGroup;
      if (group.back().waited) actions_.back().push_back(wait);
      begin = end;
    }
  }

  Part part(int rank, const SmallOp& op, std::array<int, 4>& calls) {
    Part out;
    if (op.kind == SmallKind::kAllReduce) {
      out.comm = op.comm;
      out.index = calls[static_cast<std::size_t>(op.comm)]++;
      callers_[{op.comm, out.index}].push_back(static_cast<int>(kernels_.size()));
      return out;
    }
    const bool sends = op.kind == SmallKind::kSend;
    out.channel = sends ? channel(op.comm, rank, op.peer) : channel(op.comm, op.peer, rank);
    std::vector<int>& side = sends ? channels_[static_cast<std::size_t>(out.channel)].sends
                                   : channels_[static_cast<std::size_t>(out.channel)].receives;
    out.index = static_cast<int>(side.size());
    side.push_back(static_cast<int>(kernels_.size()));
    return out;
  }

  // The exchange of NCCL's first use (N2): by distance, in two passes.
  void connect(int rank, int comm, const std::vector<SmallOp>& group,
               std::set<std::tuple<int, int, SmallKind>>& connected) {
    std::set<std::pair<int, SmallKind>> fresh;
    for (const SmallOp& op : group) {
      if (op.comm != comm || op.kind == SmallKind::kAllReduce || op.peer == rank) continue;
      if (connected.insert({comm, op.peer, op.kind}).second) fresh.insert({op.peer, op.kind});
    }
    if (fresh.empty()) return;
    for (int pass = 0; pass < 2; ++pass) {
      for (int d = 1; d < ranks_; ++d) {
        const int to = (rank + d) % ranks_, from = (rank - d + ranks_) % ranks_;
        const int sends = fresh.count({to, SmallKind::kSend}) > 0 ? 1 : 0;
        const int receives = fresh.count({from, SmallKind::kRecv}) > 0 ? 2 : 0;
        std::vector<Action> posts, waits;
        const auto with = [&](int peer, int content, bool paired) {
          Action post;
          post.what = Action::kPost;
          post.box = box(comm, rank, peer, d, pass);
          post.content = content;
          post.number = static_cast<int>(contents_[static_cast<std::size_t>(post.box)].size());
          contents_[static_cast<std::size_t>(post.box)].push_back(content);
          posts.push_back(post);
          Action wait = post;
          wait.what = Action::kReceive;
          wait.answers = post.box;
          wait.paired = paired && pass == 0;
          wait.box = box(comm, peer, rank, d, pass);
          waits.push_back(wait);
        };
        if (to == from) {
          if (sends + receives > 0) with(to, sends | receives, true);
        } else {
          if (sends > 0) with(to, 1, false);
          if (receives > 0) with(from, 2, false);
        }
        std::vector<Action>& mine = actions_.back();
        for (const Action& post : posts) {
          posts_[static_cast<std::size_t>(post.box)].push_back({rank, static_cast<int>(mine.size())});
          mine.push_back(post);
        }
        mine.insert(mine.end(), waits.begin(), waits.end());
      }
    }
  }

  // Messages of different numbers of directions stop both hosts.
  void settle_exchanges() {
    for (auto& actions : actions_) {
      for (Action& action : actions) {
        if (action.what != Action::kReceive || !action.paired) continue;
        const std::vector<int>& theirs = contents_[static_cast<std::size_t>(action.box)];
        if (action.number >= static_cast<int>(theirs.size())) continue;
        const auto directions = [](int content) { return (content & 1) + (content >> 1 & 1); };
        action.stops =
            directions(action.content) != directions(theirs[static_cast<std::size_t>(action.number)]);
      }
    }
  }

  bool able(const State& state, const Action& action) const {
    switch (action.what) {
      case Action::kIssue:
      case Action::kPost:
        return true;
      case Action::kWaitGroup:
        return action.last == action.first || kernel_of(state, action.last - 1) == 3;
      case Action::kReceive: {
        const auto& posts = posts_[static_cast<std::size_t>(action.box)];
        if (action.stops || action.number >= static_cast<int>(posts.size())) return false;
        const auto [rank, at] = posts[static_cast<std::size_t>(action.number)];
        return state[static_cast<std::size_t>(rank)] > at;
      }
    }
    return false;
  }

  bool done(const State& state, const Part& part) const {
    const std::size_t at = part.channel >= 0 ? at_channel(static_cast<std::size_t>(part.channel))
                                             : at_collective(static_cast<std::size_t>(part.comm));
    return state[at] > part.index;
  }
  bool runs(const State& state, int kernel) const { return kernel_of(state, kernel) >= 2; }

  void successors(const State& state, std::vector<State>& out) const {
    const auto step = [&](std::size_t at) -> State& {
      State& to = out.emplace_back(state);
      ++to[at];
      return to;
    };
    for (std::size_t rank = 0; rank < actions_.size(); ++rank) {
      if (state[rank] == actions_[rank].size() || !able(state, actions_[rank][state[rank]])) continue;
      const Action& action = actions_[rank][state[rank]];
      State& to = step(rank);
      for (int k = action.first; action.what == Action::kIssue && k < action.last; ++k)
        to[at_kernel(static_cast<std::size_t>(k))] = 1;
    }
    for (std::size_t k = 0; k < kernels_.size(); ++k) {
      const auto over = [&](int before) { return kernel_of(state, before) == 3; };
      const auto finished = [&](const Part& part) { return done(state, part); };
      const Kernel& kernel = kernels_[k];
      const std::uint8_t now = state[at_kernel(k)];
      if ((now == 1 && std::all_of(kernel.after.begin(), kernel.after.end(), over)) ||
          (now == 2 && std::all_of(kernel.parts.begin(), kernel.parts.end(), finished)))
        step(at_kernel(k));
    }
    for (std::size_t c = 0; c < channels_.size(); ++c) {
      const std::size_t next = state[at_channel(c)];
      const Channel& channel = channels_[c];
      if (next >= channel.sends.size() || next >= channel.receives.size()) continue;
      if (runs(state, channel.sends[next]) && runs(state, channel.receives[next])) step(at_channel(c));
    }
    for (std::size_t comm = 0; comm < kComms; ++comm) {
      const auto at = callers_.find({static_cast<int>(comm), state[at_collective(comm)]});
      if (at == callers_.end() || static_cast<int>(at->second.size()) < ranks_) continue;
      if (std::all_of(at->second.begin(), at->second.end(), [&](int kernel) { return runs(state, kernel); }))
        step(at_collective(comm));
    }
  }

  bool complete(const State& state) const {
    for (std::size_t rank = 0; rank < actions_.size(); ++rank) {
      if (state[rank] != actions_[rank].size()) return false;
    }
    for (std::size_t k = 0; k < kernels_.size(); ++k) {
      if (state[at_kernel(k)] != 3) return false;
    }
    return true;
  }

  int ranks_;
  std::vector<std::vector<Action>> actions_;
  std::vector<Kernel> kernels_;
  std::vector<Channel> channels_;
  std::map<std::tuple<int, int, int>, int> channel_of_;
  std::map<std::tuple<int, int, int, int, int>, int> box_of_;
  std::vector<std::vector<int>> contents_;               // by box
  std::vector<std::vector<std::pair<int, int>>> posts_;  // by box: rank, action
  std::map<std::pair<int, int>, std::vector<int>> callers_;
};

}  // namespace plumbline::test

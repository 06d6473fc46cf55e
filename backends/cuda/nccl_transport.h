// NcclTransport: groups through NCCL, one communicator handle a (rank, communicator). All communicators are
// nonblocking (N79): no call waits for a peer, and ncclCommGetAsyncError is what is polled. They are made once a run -
// Programs that name the same members under the same name share them - in the order of their numbers, the same on
// all ranks (N69).
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/cuda/transport.h"

namespace plumbline::cuda {

// Brings the id that the first member of a communicator makes to the others. `key` names the communicator; the
// caller gives the id where it is the first member. Nothing: it is not there yet.
class IdExchange {
 public:
  virtual ~IdExchange() = default;
  virtual Status publish(const std::string& key, const UniqueId& id) = 0;
  virtual Result<std::optional<UniqueId>> look_up(const std::string& key) = 0;
  // The communicator is there, so that all members have its id: it is wanted no more.
  virtual Status retire(const std::string& /*key*/) { return {}; }
};

// All members are in this process.
class LocalIds final : public IdExchange {
 public:
  Status publish(const std::string& key, const UniqueId& id) override {
    ids_[key] = id;
    return {};
  }
  Result<std::optional<UniqueId>> look_up(const std::string& key) override {
    const auto found = ids_.find(key);
    return found == ids_.end() ? std::optional<UniqueId>() : std::optional<UniqueId>(found->second);
  }
  Status retire(const std::string& key) override {
    ids_.erase(key);
    return {};
  }

 private:
  std::map<std::string, UniqueId> ids_;
};

class NcclTransport final : public Transport {
 public:
  // `ids` outlives this.
  NcclTransport(std::vector<LocalRank> ranks, IdExchange& ids);
  ~NcclTransport() override;

  std::string level() const override;
  Status set_program(const LinkedProgram& linked) override;
  Poll ready() override;
  Result<bool> enqueue(const TransportCall& call) override;
  Poll issued(std::uint32_t thread) override;
  bool can_be_captured() const override { return true; }
  Result<std::uint64_t> comm(std::uint32_t thread, const CommCall& call,
                             const LinkedCommCall& linked) override;
  Poll through(std::uint64_t number) override;
  void abort() override;

 private:
  // A communicator of one rank.
  struct Member {
    CommHandle handle = nullptr;
    bool wanted = false;  // from the start of the Program; waits for its id
    bool ready = false;
    bool finalized = false;
    int generation = 0;     // how often it was made
    std::string published;  // its id is out, under this key, by this member
  };
  using Key = std::pair<std::string, std::uint32_t>;  // name and members, thread

  // What a call on a communicator is polled for.
  struct Pending {
    std::vector<CommHandle*> polled;
    CommHandle* destroy = nullptr;  // when that is through
  };

  const Libraries& libraries() const { return *ranks_.front().device.libraries; }
  const LocalRank& rank_of(std::uint32_t thread) const;
  Key key_of(std::int32_t communicator, std::uint32_t thread) const;
  Member& member(std::int32_t communicator, std::uint32_t thread) {
    return members_[key_of(communicator, thread)];
  }
  Status publish(const std::string& key);
  Result<bool> join(std::int32_t communicator, std::int32_t position, std::uint32_t thread);
  Status one(const TransportOp& op, CommHandle comm, StreamHandle stream) const;
  Poll state(CommHandle handle) const;

  std::vector<LocalRank> ranks_;
  IdExchange* ids_;
  const LinkedProgram* linked_ = nullptr;
  std::map<Key, Member> members_;
  std::vector<std::pair<std::int32_t, std::int32_t>> to_join_;  // communicator, position; in order
  std::map<std::uint32_t, std::vector<CommHandle>>
      unissued_;  // by thread: communicators of its group under way
  std::map<std::uint64_t, Pending> pending_;
  std::uint64_t next_call_ = 1;
  bool aborted_ = false;
};

}  // namespace plumbline::cuda

// Machine: the devices behind the doubles. It turns each call of CUDA's and NCCL's API into a call of the simulator's
// World (sim/live.h), which judges and executes it; nothing about streams, groups, matching or communicators is
// decided here. What is here: handles, memory, which devices are the members of a communicator, and the checks of
// arguments that the real libraries make on entry.
//
// Who calls is a Caller: a thread of this process, or - where a server plays the devices (server.h) - of another one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/cuda/double/arena.h"
#include "backends/cuda/double/caller.h"
#include "engine/config/run_config.h"
#include "engine/program/link.h"
#include "sim/live.h"
#include "sim/world.h"

struct CUstream_st {
  int device = 0;
  int index = 0;  // of the World's streams on that device
  bool destroyed = false;
  plumbline::cuda::Process* owner = nullptr;
  unsigned long long capture = 0;  // that it is in; 0: none
};
struct CUevent_st {
  bool timing = true;
  bool recorded = false;
  plumbline::Token token = 0;
  unsigned long long capture = 0;  // of the stream that it was recorded in last; 0: none
  std::size_t point = 0;           // of that capture
};

namespace plumbline::cuda {
struct Meeting;
class Captures;
}  // namespace plumbline::cuda

struct ncclComm {
  int device = 0;
  int position = -1;
  std::int32_t communicator = -1;  // -1: its members are not all known yet
  bool blocking = true;
  bool ended = false;                           // destroyed or aborted
  int error = 0;                                // ncclResult_t that stays
  plumbline::Token pending = 0;                 // of the last call
  plumbline::cuda::Meeting* meeting = nullptr;  // members it waits for
  std::uint32_t splits = 0;                     // it took part in
  plumbline::cuda::Process* owner = nullptr;
};

namespace plumbline::cuda {

// Members of a communicator to be, as they come.
struct Meeting {
  std::size_t needed = 0;
  struct Member {
    ncclComm* made = nullptr;  // null: a split that leaves it without
    ncclComm* parent = nullptr;
    int color = 0, key = 0;
    bool share = false;
  };
  std::map<int, Member> members;  // by rank
  bool split = false;
  bool over = false;    // all have come
  bool broken = false;  // the process of one that had come has ended
};

class Machine final : public sim::LiveCalls {
 public:
  // Memory is taken from the arena, or from the heap.
  Machine(int devices, const RunConfig& config, std::shared_ptr<Arena> arena = nullptr);

  // Whoever calls: a thread of this process, or of one elsewhere that has joined.
  Caller* caller = &own_caller_;
  Process& join();
  // The process of the callers has ended: so do its host functions that run, and those to come do nothing. Ranks
  // whose communicators it has not ended end as by end_process; without any, its devices are as before it came.
  void leave(Process& process);
  ~Machine() override;

  // CUDA
  int devices() const { return devices_; }
  void* allocate(std::size_t bytes, int device);  // device -1: on the host; null: none left
  // False: no such block, or work is enqueued on a device, which the real call would wait for: of several processes,
  // on a device of the caller's.
  bool release(void* block);
  bool holds(const void* data, Bytes bytes) const;
  CUstream_st* create_stream();
  CUevent_st* create_event(bool timing);
  bool valid(const CUstream_st* stream) const;
  bool valid(const CUevent_st* event) const;
  using Closure = std::function<void()>;
  // What a kernel does: here, or by a function of a process elsewhere.
  struct Work {
    Closure closure;
    HostFunction function = nullptr;
    void* argument = nullptr;
    Nanoseconds takes = 0;
  };
  void kernel(CUstream_st* stream, unsigned row, Closure closure);
  // Called in its turn; a process elsewhere is handed it (Caller::due), and says when it has run.
  void host_function(CUstream_st* stream, HostFunction function, void* argument);
  bool host_function_done(std::uint64_t node);  // false: the caller's process has none of that number
  void write_value(CUstream_st* stream, std::uint32_t* address, std::uint32_t value);
  void wait_value(CUstream_st* stream, const std::uint32_t* address, std::uint32_t value);
  void record(CUevent_st* event, CUstream_st* stream);
  void wait(CUstream_st* stream, const CUevent_st* event);
  bool done(const CUevent_st* event);
  bool idle(CUstream_st* stream);
  Nanoseconds time_of(const CUevent_st* event) const;
  std::unique_ptr<Captures> captures;  // streams that are captured (capture.h)
  int refuses_unsafe();                // of the caller's process (Captures::refuses_unsafe)
  int launch(CUgraphExec_st* graph, CUstream_st* stream);

  // NCCL; codes are ncclResult_t.
  UniqueId make_id();
  int init(ncclComm** comm, int ranks, const UniqueId& id, int rank, bool blocking);
  int split(ncclComm* parent, int color, int key, ncclComm** made, bool share, bool blocking);
  int shrink(ncclComm* parent, const std::vector<int>& excluded, ncclComm** made, bool abort);
  int end(ncclComm* comm, CommCallKind kind);
  int async_error(ncclComm* comm);
  int use(const ncclComm* comm) const;  // what an operation on it would return at once
  int group(const std::vector<GroupedCall>& calls);
  const std::vector<Rank>& members(const ncclComm* comm) const;
  bool valid(const ncclComm* comm) const;

  // Control
  bool step();
  void end_process(int device);
  bool ended(int device) const { return world_.ended(device); }
  bool polls_step = false;
  long long api_calls = 0;
  Nanoseconds now() const { return world_.now(); }
  int incomplete() const { return static_cast<int>(world_.graph().incomplete()); }
  Bytes peak(int device) const { return device_peak_[static_cast<std::size_t>(device)]; }
  std::string verdict(bool with_deadlock);

  // LiveCalls
  std::optional<Nanoseconds> start(sim::NodeId node, std::uint32_t item) override;
  std::byte* data(std::uint32_t item) override;
  void over(std::uint32_t item) override;

 private:
  CUstream_st* destroyed_stream();
  // What an item does: one entry an item.
  struct Call {
    Caller* caller = nullptr;  // of what is on a stream, except groups
    Work work;
    const std::uint32_t* awaited = nullptr;  // a wait for a value
    std::uint32_t value = 0;
    GroupedCall operation;
    std::vector<std::byte> scratch;  // of a collective out of place
  };
  struct Block {
    std::unique_ptr<std::byte[]> memory;  // null: the arena's
    std::size_t bytes = 0;
    int device = -1;
    Process* owner = nullptr;
  };
  // A host function that runs elsewhere.
  struct Outstanding {
    Process* process = nullptr;
    Nanoseconds end = 0;  // at the earliest
  };
  using Blocks = std::map<const std::byte*, Block>;  // by address

  std::uint32_t append(Item item, Call call);
  void launch(int device, int stream, unsigned row, Call call);
  void enqueue(CUstream_st* stream, unsigned row, Work work);
  bool busy(const Process& process) const;
  void drop(Blocks::iterator block);
  unsigned row_of(const GroupedCall& call);
  std::int32_t add_communicator(std::vector<Rank> members);
  std::uint32_t comm_call(int device, CommCallKind kind, std::int32_t communicator,
                          const LinkedCommCall& linked, bool share, bool abort_parent);
  void issue(ncclComm* comm, int device, CommCallKind kind, const LinkedCommCall& linked, bool share = false,
             bool abort_parent = false);
  void assemble(Meeting& meeting);
  void assemble_split(Meeting& meeting);
  void break_off(Meeting& meeting);
  void check_overlap(const GroupedCall& call, std::uint32_t item);
  int group_of(int device, const std::vector<const GroupedCall*>& calls);
  int finish(ncclComm* comm, Token token);
  void wake_waiters();

  Process own_process_;
  Caller own_caller_{&own_process_};
  std::vector<std::unique_ptr<Process>> joined_;
  std::shared_ptr<Arena> arena_;
  int devices_;
  Program program_;
  LinkedProgram linked_;
  sim::World world_;
  std::vector<Call> calls_;
  std::vector<std::unique_ptr<CUstream_st>> streams_;
  std::map<const CUevent_st*, std::unique_ptr<CUevent_st>> events_;
  std::vector<std::unique_ptr<ncclComm>> comms_;
  std::vector<int> next_stream_;  // by device
  std::vector<Token> polled_;     // by device: the last thing found not to be done
  Blocks blocks_;
  std::vector<Bytes> device_bytes_, device_peak_;
  unsigned long long next_id_ = 1;
  std::map<std::string, Process*> ids_;                    // who made them
  std::map<std::string, std::unique_ptr<Meeting>> inits_;  // by the bytes of the id
  std::map<std::pair<std::int32_t, std::uint32_t>, std::unique_ptr<Meeting>> splits_;  // parent, number
  std::map<std::pair<std::int32_t, std::vector<int>>, std::int32_t> shrinks_;          // parent, excluded
  using RowKey = std::tuple<int, std::int32_t, int, int, Bytes, int, int>;
  std::map<RowKey, unsigned> rows_;
  using CallKey = std::tuple<int, std::int32_t, std::int32_t, bool, bool>;
  std::map<CallKey, unsigned> call_rows_;
  std::vector<std::pair<sim::NodeId, std::uint32_t>> waiters_;  // running waits for a value: node, item
  std::map<sim::NodeId, Outstanding> outstanding_;
};

// The machine of this process, and what the last failing control call had to say.
Machine& machine();
void set_machine(std::unique_ptr<Machine> machine);
std::string& control_error();

}  // namespace plumbline::cuda

// Scenario: a small NCCL program written down by hand or by a tool - communicators, host threads and their
// calls, without kernels' meaning or tensors. It is the form in which a hang is reported and in which
// reference models exchange test cases.
//
// Two texts mean the same (docs/scenarios.md): JSON lines, one scenario a line; and TOML, one scenario a file,
// with a line of words for each host operation. Reading is strict: an unknown key, a name that nothing
// defines, a number out of range or a value of the wrong type is an error with its place - file and line, and
// in JSON the path of the value, as in "cases.jsonl:7: threads[1].host_ops[0].ops[2].peer: ...".
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/result.h"
#include "engine/base/units.h"
#include "engine/config/rank_grid.h"

namespace plumbline {

// Limits of a scenario; what is larger is lowered from a configuration or written as a Program.
constexpr Rank kMostScenarioRanks = 4096;
constexpr Bytes kMostScenarioBytes = Bytes{1} << 50;

enum class ScenarioOpKind : std::uint8_t {
  kSend,
  kRecv,
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kBarrier,
  kAllToAll,  // these three are messages, one to and from each peer or the root (N30)
  kGather,
  kScatter,
};
constexpr int kScenarioOpKinds = 11;
constexpr bool is_rooted(ScenarioOpKind kind) {
  return kind == ScenarioOpKind::kReduce || kind == ScenarioOpKind::kBroadcast ||
         kind == ScenarioOpKind::kGather || kind == ScenarioOpKind::kScatter;
}
std::string_view scenario_op_name(ScenarioOpKind kind);  // "all_reduce"

struct ScenarioOp {
  ScenarioOpKind kind = ScenarioOpKind::kSend;
  std::string communicator;
  Rank peer = -1;                    // of send and recv; root of what has one
  Bytes bytes = 0;                   // of kAllToAll and the two after it: of one message
  std::optional<std::string> label;  // of send and recv: which data; none equals none
  std::string stream;                // empty: the group's
  bool uncaptured = false;  // between graph_begin and graph_end: on a stream that the capture does not reach

  bool operator==(const ScenarioOp&) const = default;
};

enum class HostOpKind : std::uint8_t {
  kGroup,       // stream, ops: ncclGroupStart ... ncclGroupEnd; one op: a call alone
  kLaunch,      // stream: a compute kernel, which always ends
  kRecord,      // stream, event
  kWait,        // stream, event: the stream waits for the event's latest record
  kSyncStream,  // stream: the host waits
  kSyncEvent,   // event: the host waits
  kSyncDevice,  // the host waits for everything enqueued on its rank
  // Calls on communicators; those that create one may be nonblocking.
  kCommInit,      // communicator, ranks: ncclCommInitRank
  kCommSplit,     // communicator, ranks, parent, share: ncclCommSplit; a caller not in ranks passes no colour
  kCommShrink,    // communicator, ranks, parent, abort: ncclCommShrink
  kCommFinalize,  // communicator
  kCommDestroy,   // communicator
  kCommAbort,     // communicator
  kCommReady,     // communicator: the host polls until the last call on it is through
  kCommSync,      // communicator: the host polls until what is enqueued on it is complete or it has an error
  kCommRevoke,    // communicator: ncclCommRevoke
  kGraphBegin,    // stream: what follows is replayed by a CUDA graph, launched there
  kGraphEnd,
  kFault,        // stream: a kernel that ends in an illegal address
  kExit,         // the process of the rank ends, with all its threads
  kCommGrow,     // communicator, ranks, parent: ncclCommGrow, by the ranks of the parent and by new ones
  kCommInitAll,  // communicator, ranks: ncclCommInitAll; a rank named twice is a device named twice
  kTurn,  // communicator: one host thread drives its ranks; their hosts meet, as it goes from one to the next
};
constexpr int kHostOpKinds = 23;
std::string_view host_op_name(HostOpKind kind);  // "sync_stream"
constexpr bool creates(HostOpKind kind) {
  return (kind >= HostOpKind::kCommInit && kind <= HostOpKind::kCommShrink) ||
         kind == HostOpKind::kCommGrow || kind == HostOpKind::kCommInitAll;
}

struct HostOp {
  HostOpKind kind = HostOpKind::kGroup;
  std::string stream;
  std::string event;
  std::string communicator;
  std::string parent;
  std::vector<Rank> ranks;
  std::string release;  // comm_init: of the NCCL that the caller has, "2.28.9"; empty: as all others
  bool nonblocking = false;
  bool share = false;
  bool abort = false;
  std::vector<ScenarioOp> ops;

  bool operator==(const HostOp&) const = default;
};

struct ScenarioThread {
  Rank rank = 0;
  std::vector<HostOp> host_ops;

  bool operator==(const ScenarioThread&) const = default;
};

// What a scenario says about the machine it runs on, whatever mode it is examined in.
struct ScenarioOptions {
  bool launch_blocking = false;       // CUDA_LAUNCH_BLOCKING=1
  int max_ops_per_kernel = 0;         // items a p2p kernel holds before the group is split (N14); 0: no limit
  bool plan_restarts_rounds = false;  // N14: each of the kernels scans from the first round again
  int ranks_per_node = 0;             // links between nodes are network links (N83); 0: one node

  bool operator==(const ScenarioOptions&) const = default;
};

struct Scenario {
  std::string id;
  std::string source, category, note;  // for people; "class" in the texts is the category
  // Those that exist from the start, with their members in order of their communicator rank. Others are created.
  std::map<std::string, std::vector<Rank>> communicators;
  std::vector<ScenarioThread> threads;
  ScenarioOptions options;
  std::string legacy_stream;                    // the name of the legacy default stream, if it is used
  std::map<std::string, std::string> expected;  // "verdict": mode name -> value, where the text has one
  int line = 0;                                 // where it begins; not compared

  bool operator==(const Scenario& other) const;
};

// "2.28.9" as 22809; 0 where it is none.
int nccl_release(std::string_view text);

// What a text is, by its content and its file's name.
enum class ScenarioForm : std::uint8_t { kNone, kJsonLines, kToml };
ScenarioForm scenario_form(const std::string& name, std::string_view text);

// `name` is the file's name for messages. At least one scenario; ids are unique in a file.
Result<std::vector<Scenario>> parse_scenarios(std::string_view text, const std::string& name);
Result<std::vector<Scenario>> parse_scenario_lines(std::string_view text, const std::string& name);
Result<Scenario> parse_scenario_toml(std::string_view text, const std::string& name);

// One line of JSON without its line end, and a TOML file; parsing either yields the same scenario again.
std::string print_scenario_json(const Scenario& scenario);
std::string print_scenario_toml(const Scenario& scenario);

}  // namespace plumbline

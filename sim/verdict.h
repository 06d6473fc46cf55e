// Verdict: the answer of a check or of a simulation, as a value. Command line, HTML, DOT and JSON render it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/base/units.h"
#include "engine/config/rank_grid.h"

namespace plumbline {

enum class FindingKind : std::uint8_t {
  kDeadlock,            // quiescent with unfinished work
  kLabelMismatch,       // a receive gets another tensor than its reader needs
  kSizeMismatch,        // matched ends differ in bytes (N23, N24)
  kUnmatched,           // more sends than receives on a channel, or the reverse
  kCollectiveMismatch,  // the i-th collective of a communicator differs between members (N57)
  kCrossWired,          // a cold two-rank connection sets up opposite directions (N2)
  kReadUnwritten,       // a slot is read before anything wrote it
  kReadFreed,           // a slot is read after its release
  kDoubleWrite,         // a slot is written again while live
  kFreeInUse,           // a release not ordered after the last reader
  kLeak,                // a slot is still live at the end of the step
  kDecideUnagreed,      // an arm depends on a value that not every communicating rank shares
  kMemoryLimit,         // peak above the limit
  kPayloadMismatch,     // received bytes are not those that were sent under the label (runs with tensors)
  kStructure,           // the schedule itself: missing, duplicate, order, placement
  kNcclError,           // a call returns an error code (Finding::code)
  kNotPortable,         // undefined by NCCL, or dependent on its release (Finding::rule)
};
std::string_view finding_kind_name(FindingKind kind);

struct OperationRef {
  Rank rank = 0;
  std::int64_t item = -1;  // index into Program::items; -1: not an item
  std::int32_t microbatch = -1;
  std::string text;  // "2SEND_F5 to rank 3"
};

// `from` cannot go on before `to` has.
struct WaitEdge {
  OperationRef from;
  OperationRef to;
  std::string
      reason;  // "needs its receive", "is behind it in communicator pp[0]", "host has not got to it yet"
};

struct Finding {
  FindingKind kind = FindingKind::kDeadlock;
  std::vector<OperationRef> operations;  // the operations it is about, the culprit first
  std::string why;                       // one or two sentences
  std::string code;                      // the ncclResult_t that a call returns, where one does; else empty
  std::string rule;  // the rule of NCCL behind it, where its kind does not tell; else empty
  // Of a deadlock: "cycle", "creation-order", "peer-finished", "process-ended", "missing-participant" or
  // "count-mismatch".
  std::string cause;
  std::string hint;  // a change that, re-simulated, completes; else empty
  std::vector<WaitEdge>
      cycle;  // deadlock with a cycle: edge i ends where edge i+1 starts, the last closes it
  std::vector<WaitEdge> waits;  // deadlock: the whole wait-for graph, the cycle's edges included
};

// What the verdict of a mode rests on, when it holds.
enum class Evidence : std::uint8_t {
  kProved,  // every interleaving: by confluence from one run, or by going through all schedules
  kTested,  // a number of schedules, drawn from a seed
};

// The outcome in one execution mode.
struct ModeVerdict {
  std::string mode;  // NcclModel::name()
  bool completes = true;
  std::vector<Finding> findings;  // of this mode: deadlock, cross-wiring
  Nanoseconds makespan = 0;       // virtual time of completion, when it completes
  Evidence evidence = Evidence::kProved;
  std::int64_t schedules = 1;  // examined; 1: one run decides for all
  std::uint64_t seed = 0;      // kTested
};
// "PROVED(every interleaving)", "TESTED(1000 schedules, seed 1)", "DEADLOCK" or "FINDING".
std::string verdict_class(const ModeVerdict& verdict);

// One knob of the NCCL model, turned alone (sim/sensitivity.h).
struct SensitivityRow {
  std::string knob;    // "cross"
  std::string breaks;  // the kindest setting that breaks the Program: "strict"; empty: none does
  bool holds = true;
  std::string words;  // "hangs when kernels of different communicators run one at a time, ..."
};

struct RankMemory {
  Bytes peak = 0;
  Bytes peak_activations = 0;   // activations, gradients and stashes only
  std::int64_t peak_item = -1;  // the item at which the peak is reached
  std::string peak_text;
  int live_stashes = 0;  // most microbatch-chunks held for backward at one time
};

struct Verdict {
  std::string program;  // name
  std::int64_t operations = 0;
  std::vector<Finding> findings;   // independent of the mode: matching, labels, buffers, structure, memory
  std::vector<ModeVerdict> modes;  // certification first, then default
  bool portability_checked = false;
  std::vector<Finding> portability;         // kNotPortable; do not count against holds()
  std::vector<SensitivityRow> sensitivity;  // where it was asked for
  std::vector<RankMemory> memory;           // per rank
  std::uint64_t trace_hash = 0;             // fold over all threads of (rank, item)

  bool holds() const;      // no finding at all and every mode completes
  bool certified() const;  // holds, under the certification model
  // Certified, and nothing in it is undefined by NCCL or dependent on its release.
  bool portable_safe() const { return certified() && portability_checked && portability.empty(); }
  // Exit code by DESIGN's precedence: 3 deadlock, then 5 memory, then 1 anything else, 0.
  int exit_code() const;
};

std::string verdict_json(const Verdict& verdict);
// Inverse of verdict_json.
Result<Verdict> parse_verdict_json(std::string_view text, const std::string& name);

}  // namespace plumbline

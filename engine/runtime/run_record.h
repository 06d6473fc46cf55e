// RunRecord: what happened in a run, whoever executed it. Format and versions: docs/run-record.md. The file
// is columnar and binary with a JSON header, appended and flushed a step at a time, so that the file of a
// killed rank is readable up to its last whole step; files of several ranks merge.
//
// Times are integer nanoseconds from the run's start. Events name a row of `labels`, which carries kind,
// stage and the rest, so that a record is drawn without the Program.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "engine/base/units.h"
#include "engine/config/rank_grid.h"
#include "engine/program/program.h"

namespace plumbline {

// 2: zeros of the gradient. 3: the cores that ranks shared, and computing time of kernels; a record without them is
// written as version 2.
constexpr int kRunRecordVersion = 3;

// One row for each kernel and each endpoint of the Program.
struct EventLabel {
  bool communication = false;
  std::string name;                             // "F.3", "send.activation.3"
  KernelKind kernel = KernelKind::kOther;       // computation
  EndpointKind endpoint = EndpointKind::kSend;  // communication
  std::int32_t stage = 0;                       // stage of the kernel; of the slot's tensor for communication
  SlotKind slot = SlotKind::kOther;             // communication: what travels
  Bytes bytes = 0;
  bool operator==(const EventLabel&) const = default;
};

struct RunEvent {
  std::int32_t step = 0;
  Rank rank = 0;
  std::uint32_t label = 0;
  std::uint16_t stream = 0;      // 0 compute, the others communication: row of Program::streams
  std::int32_t microbatch = -1;  // -1: none
  Rank peer = -1;                // p2p: the other rank
  Nanoseconds start = 0;         // occupies its stream from here
  Nanoseconds ready = 0;  // p2p and collectives: all participants have started; = start for computations
  Nanoseconds end = 0;
  Nanoseconds cpu =
      0;  // computations: time that the kernel's thread computed; 0: not known (written if `cores` is)
  bool operator==(const RunEvent&) const = default;
};

// Memory of one rank in host order: bytes live after an allocation or release, at the host operation's time.
struct MemoryPoint {
  std::int32_t step = 0;
  Rank rank = 0;
  Nanoseconds time = 0;
  Bytes live = 0;
  bool operator==(const MemoryPoint&) const = default;
};

struct StepRow {
  std::int32_t step = 0;       // counted from 0 over all steps of the run, evaluations included
  std::int32_t iteration = 0;  // optimizer iteration, counted from 1; evaluations carry the one before
  bool evaluation = false;
  bool skipped = false;  // overflow: the step was not applied
  double loss = 0.0;     // mean over microbatches and replicas; NaN: none
  double scale = 1.0;    // loss scale used by the step
  double scale_after = 1.0;
  double grad_norm = -1.0;  // -1: none
  std::int64_t zeros = -1;  // elements of the gradient that are 0, before clipping; -1: not counted
  double lr = 0.0;
  std::int64_t consumed_samples = 0;
  std::uint64_t params_digest = 0;     // over all parameters of the model, layout-independent; 0: none
  std::uint64_t optimizer_digest = 0;  // over moments, main parameters and step counts; 0: none
  Nanoseconds begin = 0;
  Nanoseconds end = 0;
  bool operator==(const StepRow&) const = default;
};

struct RunRecord {
  // Header
  std::string producer;     // "plumbline 0.1.0"
  std::string backend;      // "sim"
  std::string schedule;     // name of the schedule
  std::string config;       // the configuration as TOML, complete
  std::string command;      // the line that repeats the run
  std::string data_digest;  // digest of the training text; empty: none
  std::uint64_t seed = 0;
  std::uint64_t program_digest = 0;
  std::int32_t ranks = 0;  // world
  std::int32_t stages = 0;
  std::int32_t microbatches = 0;
  std::int32_t cores = 0;            // that the ranks of a machine shared; 0: not known, or no processes
  std::int32_t ranks_a_machine = 0;  // where `cores` is known
  std::int32_t resumed_from = 0;     // iteration of the checkpoint that the run went on from; 0: none
  std::vector<std::int32_t> pipeline_coordinate;  // per rank
  std::vector<std::int32_t> replica;              // per rank: data-parallel coordinate
  std::vector<std::string> streams;               // names, index = RunEvent::stream
  std::vector<EventLabel> labels;
  // Columns
  std::vector<RunEvent> events;  // by step, then rank, then start, then host order
  std::vector<MemoryPoint> memory;
  std::vector<StepRow> steps;
  std::string verdict_json;  // of a run that did not complete (sim/verdict.h); empty: completed

  // Digest of everything but producer, command, resumed_from, cores and version: same seed, config and version give
  // the same one.
  std::uint64_t digest() const;
};

// Streams, labels, rank tables and program digest from a Program.
RunRecord record_for(const Program& program);
// The row of the Program's first label in the record. A Program the record does not know yet (evaluation
// beside training) gets its labels appended; do that before a RecordWriter is made, since the header is
// written once.
std::uint32_t label_base(RunRecord& record, const Program& program);

std::string serialize_record(const RunRecord& record);
// Reads whole steps up to the end or to where the file was cut off; a file that is not a record is an error,
// as is a version from the future. `truncated`, if given, says whether a partial tail was dropped.
Result<RunRecord> parse_record(std::string_view bytes, const std::string& name, bool* truncated = nullptr);

// Appends steps to a file as they finish, each flushed.
class RecordWriter {
 public:
  static Result<RecordWriter> create(const std::string& path, const RunRecord& header);
  RecordWriter(RecordWriter&&) noexcept;
  RecordWriter& operator=(RecordWriter&&) noexcept;
  ~RecordWriter();
  // Writes the rows of `record` that were not there at the last call: whole steps, in the record's order. Its
  // header must still be the one given to create().
  Status append(const RunRecord& record);
  // append(), then the verdict and the closing digest, which parse_record() compares. Nothing may follow.
  Status finish(const RunRecord& record);

 private:
  RecordWriter() = default;
  struct Impl;
  Impl* impl_ = nullptr;
};

// Merges the files of several ranks of one run. Headers must agree in all but command and producer. Rows of
// the same step are joined: what only one rank knows (a loss that is not NaN, a norm that is not -1, a digest
// that is not 0) is taken over, and what two ranks know must be the same.
Result<RunRecord> merge_records(const std::vector<RunRecord>& parts);

}  // namespace plumbline

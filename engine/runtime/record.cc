#include <algorithm>

#include <fmt/format.h>

#include "engine/base/hash.h"
#include "engine/base/version.h"
#include "engine/runtime/run_record.h"

namespace plumbline {
namespace {

void hash_rows(Hasher& hasher, const RunRecord& record) {
  hasher.u64(record.events.size());
  for (const RunEvent& row : record.events) {
    hasher.i64(row.step);
    hasher.i64(row.rank);
    hasher.u64(row.label);
    hasher.u64(row.stream);
    hasher.i64(row.microbatch);
    hasher.i64(row.peer);
    hasher.i64(row.start);
    hasher.i64(row.ready);
    hasher.i64(row.end);
  }
  hasher.u64(record.memory.size());
  for (const MemoryPoint& row : record.memory) {
    hasher.i64(row.step);
    hasher.i64(row.rank);
    hasher.i64(row.time);
    hasher.i64(row.live);
  }
  hasher.u64(record.steps.size());
  for (const StepRow& row : record.steps) {
    hasher.i64(row.step);
    hasher.i64(row.iteration);
    hasher.u64((row.evaluation ? 1u : 0u) | (row.skipped ? 2u : 0u));
    for (const double value : {row.loss, row.scale, row.scale_after, row.grad_norm, row.lr})
      hasher.f64(value);
    hasher.i64(row.consumed_samples);
    hasher.u64(row.params_digest);
    hasher.u64(row.optimizer_digest);
    hasher.i64(row.begin);
    hasher.i64(row.end);
    if (row.zeros >= 0) hasher.i64(row.zeros);
  }
}

}  // namespace

std::uint64_t RunRecord::digest() const {
  Hasher hasher;
  for (const std::string* text : {&backend, &schedule, &config, &data_digest, &verdict_json})
    hasher.text(*text);
  hasher.u64(seed);
  hasher.u64(program_digest);
  for (const std::int32_t value : {ranks, stages, microbatches}) hasher.i64(value);
  for (const auto* table : {&pipeline_coordinate, &replica}) {
    hasher.u64(table->size());
    for (const std::int32_t value : *table) hasher.i64(value);
  }
  hasher.u64(streams.size());
  for (const std::string& stream : streams) hasher.text(stream);
  hasher.u64(labels.size());
  for (const EventLabel& label : labels) {
    hasher.text(label.name);
    hasher.u64((label.communication ? 1u : 0u) | static_cast<std::uint64_t>(label.kernel) << 8 |
               static_cast<std::uint64_t>(label.endpoint) << 16 |
               static_cast<std::uint64_t>(label.slot) << 24);
    hasher.i64(label.stage);
    hasher.i64(label.bytes);
  }
  hash_rows(hasher, *this);
  return hasher.digest();
}

namespace {

// Kernels first, then endpoints: an event's label is its row in these tables.
std::vector<EventLabel> labels_of(const Program& program) {
  std::vector<EventLabel> labels;
  for (const Kernel& kernel : program.kernels) {
    EventLabel label;
    label.name = kernel.name;
    label.kernel = kernel.kind;
    label.stage = kernel.stage;
    labels.push_back(std::move(label));
  }
  for (const Endpoint& endpoint : program.endpoints) {
    const SlotClass& slot = program.slots[endpoint.slot];
    EventLabel label;
    label.communication = true;
    label.name = endpoint.name;
    label.endpoint = endpoint.kind;
    label.stage = slot.stage;
    label.slot = slot.kind;
    label.bytes = endpoint.bytes;
    labels.push_back(std::move(label));
  }
  return labels;
}

}  // namespace

RunRecord record_for(const Program& program) {
  RunRecord record;
  record.producer = fmt::format("plumbline {}", version());
  record.program_digest = program_digest(program);
  record.ranks = program.grid.world();
  record.stages = program.stages;
  record.microbatches = program.microbatches;
  for (Rank rank = 0; rank < record.ranks; ++rank) {
    record.pipeline_coordinate.push_back(program.grid.coordinate(rank, Axis::kPp));
    record.replica.push_back(program.grid.coordinate(rank, Axis::kDp));
  }
  record.streams = program.streams;
  record.labels = labels_of(program);
  return record;
}

std::uint32_t label_base(RunRecord& record, const Program& program) {
  const std::vector<EventLabel> wanted = labels_of(program);
  const auto found = std::search(record.labels.begin(), record.labels.end(), wanted.begin(), wanted.end());
  const auto base = static_cast<std::uint32_t>(found - record.labels.begin());
  if (found == record.labels.end()) record.labels.insert(found, wanted.begin(), wanted.end());
  return base;
}

}  // namespace plumbline

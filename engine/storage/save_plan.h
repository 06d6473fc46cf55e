// The messages of a save, and what all ranks conclude from them. Pure: same messages, same conclusion, so
// that no rank needs to be told.
#pragma once

#include <string>
#include <vector>

#include "engine/storage/save.h"

namespace plumbline {

// What one rank will save, without its data.
std::string print_offer(const CheckpointToSave& request);

// The manifest of all offers, without digests: pieces carry the index of the rank as their file. An error
// (kState) names the tensor and the ranks: a hole, an overlap, another shape or type, an object without owner
// or with two, copies of an object that differ.
Result<Manifest> plan_save(const std::vector<std::string>& offers);

struct ShardReport {
  std::string error;  // empty: written
  std::uint64_t bytes = 0;
  std::uint64_t digest = 0;
  struct Row {
    std::string key;
    std::string tensor;  // the piece's name in its file
    std::uint64_t digest = 0;
    bool written = false;  // false: a copy that is compared
  };
  std::vector<Row> rows;
};

std::string print_report(const ShardReport& report);
Result<ShardReport> parse_report(const std::string& text);

// Puts the digests in and drops ranks that wrote nothing. An error (kState) names the rank that failed, or
// the piece whose copies differ and where.
Status apply_reports(const std::vector<std::string>& reports, Manifest& plan);

std::string shard_name(int rank, int ranks);  // "shard_00002_of_00004.safetensors"

}  // namespace plumbline

// The parts of a run record's file (docs/run-record.md), shared by the one-piece form, the writer and the
// parser. A file is the magic, then blocks; a block is a head with kind and size, a payload, and the
// payload's checksum.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/base/result.h"
#include "engine/runtime/run_record.h"

namespace plumbline::record_file {

constexpr std::string_view kMagic = "plumbrec";

enum class BlockKind : std::uint8_t { kHeader = 'H', kStep = 'S', kEnd = 'E' };

constexpr std::size_t kHeadBytes = 16;  // kind, 3 zeros, 4 bytes of the head's hash, 8 bytes payload size
constexpr std::size_t kChecksumBytes = 8;

void append_block(std::string& out, BlockKind kind, std::string_view payload);

// The file's name and a position in it, for messages.
struct Place {
  std::string_view name;
  std::size_t offset = 0;
};
tl::unexpected<Error> damaged(const Place& place, const std::string& what);

enum class Found : std::uint8_t { kBlock, kEndOfFile, kCutOff };
struct Block {
  Found found = Found::kEndOfFile;
  BlockKind kind = BlockKind::kHeader;
  std::string_view payload;
  std::size_t offset = 0;  // of the payload in the file
};
// Reads the block at `offset` and moves it behind. The error is for a damaged one.
Result<Block> next_block(std::string_view file, const std::string& name, std::size_t& offset);

std::string header_json(const RunRecord& record);
Status read_header(std::string_view json, const std::string& name, RunRecord& record);

// How many rows of each column have been written, or are to be.
struct Rows {
  std::size_t events = 0;
  std::size_t memory = 0;
  std::size_t steps = 0;
  bool operator==(const Rows&) const = default;
};
Rows rows_of(const RunRecord& record);
// The rows from `from` on that belong to the first step there: a step block holds one step's rows of all
// columns.
Rows end_of_step(const RunRecord& record, const Rows& from);
std::string step_payload(const RunRecord& record, const Rows& from, const Rows& to);
Status read_step(std::string_view payload, const Place& place, RunRecord& record);

// The closing block: digest, then the verdict.
std::string end_payload(const RunRecord& record);

}  // namespace plumbline::record_file

#include <fmt/format.h>

#include "engine/base/hash.h"
#include "engine/runtime/record_file.h"
#include "engine/runtime/varint.h"

namespace plumbline {

using record_file::Block;
using record_file::BlockKind;
using record_file::Found;
using record_file::Rows;

std::string serialize_record(const RunRecord& record) {
  std::string out(record_file::kMagic);
  append_block(out, BlockKind::kHeader, record_file::header_json(record));
  const Rows all = record_file::rows_of(record);
  for (Rows from; from != all;) {
    const Rows to = record_file::end_of_step(record, from);
    append_block(out, BlockKind::kStep, record_file::step_payload(record, from, to));
    from = to;
  }
  append_block(out, BlockKind::kEnd, record_file::end_payload(record));
  return out;
}

Result<RunRecord> parse_record(std::string_view bytes, const std::string& name, bool* truncated) {
  if (truncated != nullptr) *truncated = false;
  if (!bytes.starts_with(record_file::kMagic)) {
    return fail(ErrorCode::kParse, "not a run record: it does not begin with 'plumbrec'", Where{name, 0, 0});
  }
  RunRecord record;
  bool have_header = false;
  for (std::size_t offset = record_file::kMagic.size();;) {
    const Result<Block> block = record_file::next_block(bytes, name, offset);
    if (!block) return tl::unexpected(block.error());
    const record_file::Place place{name, block->offset};
    if (block->found != Found::kBlock) {
      if (!have_header)
        return fail(ErrorCode::kParse, "a run record that ends within its header", Where{name, 0, 0});
      // A file without its closing block is one whose writer was stopped, wherever the cut lies.
      if (truncated != nullptr) *truncated = true;
      return record;
    }
    if (have_header == (block->kind == BlockKind::kHeader)) {
      return damaged(place, have_header ? "a second header" : "the first block is not the header");
    }
    if (block->kind == BlockKind::kHeader) {
      PL_TRY(record_file::read_header(block->payload, name, record));
      have_header = true;
    } else if (block->kind == BlockKind::kStep) {
      PL_TRY(record_file::read_step(block->payload, place, record));
    } else {
      VarintReader in(block->payload);
      const std::uint64_t digest = in.get_fixed64();
      if (!in.ok()) return damaged(place, "the closing block is too short");
      record.verdict_json = std::string(block->payload.substr(in.position()));
      if (digest != record.digest()) return damaged(place, "the closing digest does not match the content");
      if (offset != bytes.size())
        return damaged(record_file::Place{name, offset}, "bytes after the closing block");
      return record;
    }
  }
}

}  // namespace plumbline

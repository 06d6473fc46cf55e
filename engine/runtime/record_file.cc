#include "engine/runtime/record_file.h"

#include <fmt/format.h>

#include "engine/base/hash.h"
#include "engine/runtime/varint.h"

namespace plumbline::record_file {
namespace {

// Guards kind and size: without it a damaged size would look like a file that was cut off.
std::uint32_t head_hash(char kind, std::uint64_t size) {
  std::string text(1, kind);
  VarintWriter(text).put_fixed64(size);
  return static_cast<std::uint32_t>(hash64(text));
}

bool known(char kind) { return kind == 'H' || kind == 'S' || kind == 'E'; }

}  // namespace

tl::unexpected<Error> damaged(const Place& place, const std::string& what) {
  return fail(ErrorCode::kParse, fmt::format("damaged run record: {}, at byte {}", what, place.offset),
              Where{std::string(place.name), 0, 0});
}

void append_block(std::string& out, BlockKind kind, std::string_view payload) {
  const auto letter = static_cast<char>(kind);
  out.push_back(letter);
  out.append(3, '\0');
  const std::uint32_t hash = head_hash(letter, payload.size());
  for (int i = 0; i < 4; ++i) out.push_back(static_cast<char>(hash >> (8 * i)));
  VarintWriter writer(out);
  writer.put_fixed64(payload.size());
  out.append(payload);
  writer.put_fixed64(hash64(payload));
}

Result<Block> next_block(std::string_view file, const std::string& name, std::size_t& offset) {
  Block block;
  if (offset == file.size()) return block;
  const Place place{name, offset};
  const std::string_view rest = file.substr(offset);
  if (!known(rest[0])) return damaged(place, "a block of unknown kind");
  block.found = Found::kCutOff;
  if (rest.size() < kHeadBytes) return block;
  // The hash is the low half of the eight bytes at 4; the size follows it.
  const auto hash = static_cast<std::uint32_t>(VarintReader(rest.substr(4, 8)).get_fixed64());
  const std::uint64_t size = VarintReader(rest.substr(8, 8)).get_fixed64();
  if (rest.substr(1, 3) != std::string_view("\0\0\0", 3) || hash != head_hash(rest[0], size)) {
    return damaged(place, "the head of a block does not match its hash");
  }
  if (size > rest.size() - kHeadBytes || rest.size() - kHeadBytes - size < kChecksumBytes) return block;
  block.found = Found::kBlock;
  block.kind = static_cast<BlockKind>(rest[0]);
  block.payload = rest.substr(kHeadBytes, size);
  block.offset = offset + kHeadBytes;
  VarintReader checksum(rest.substr(kHeadBytes + size, kChecksumBytes));
  if (checksum.get_fixed64() != hash64(block.payload))
    return damaged(place, "the checksum of a block does not match");
  offset += kHeadBytes + size + kChecksumBytes;
  return block;
}

std::string end_payload(const RunRecord& record) {
  std::string payload;
  VarintWriter(payload).put_fixed64(record.digest());
  return payload + record.verdict_json;
}

}  // namespace plumbline::record_file

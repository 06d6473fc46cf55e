#include "reports/html/columns.h"

#include <array>

#include <zlib.h>

#include "engine/base/assert.h"

namespace plumbline {
namespace {

constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr int kGzipWindow = 15 + 16;  // 32 KiB window, gzip header

Bytef* input_of(std::string_view bytes) {
  // zlib reads through a pointer that is not const.
  return reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
}

}  // namespace

void Column::add(std::int64_t value) {
  std::uint64_t bits = (static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63);
  while (bits >= 0x80) {
    bytes_ += static_cast<char>((bits & 0x7F) | 0x80);
    bits >>= 7;
  }
  bytes_ += static_cast<char>(bits);
  ++count_;
}

Result<std::vector<std::int64_t>> read_column(std::string_view bytes, std::int64_t count) {
  std::vector<std::int64_t> values;
  std::uint64_t bits = 0;
  int shift = 0;
  for (const char c : bytes) {
    const std::uint64_t byte = static_cast<unsigned char>(c);
    if (shift < 64) bits |= (byte & 0x7F) << shift;
    shift += 7;
    if ((byte & 0x80) != 0) continue;
    values.push_back(static_cast<std::int64_t>(bits >> 1) ^ -static_cast<std::int64_t>(bits & 1));
    bits = 0;
    shift = 0;
  }
  if (shift != 0) return fail(ErrorCode::kParse, "the column ends inside a number");
  if (static_cast<std::int64_t>(values.size()) != count) {
    return fail(ErrorCode::kParse, "the column does not hold as many numbers as its head says");
  }
  return values;
}

std::string pack_block(std::string_view head, const std::vector<const Column*>& columns) {
  std::string block;
  for (int shift = 0; shift < 32; shift += 8) block += static_cast<char>((head.size() >> shift) & 0xFF);
  block += head;
  for (const Column* column : columns) block += column->bytes();
  return block;
}

std::string gzip(std::string_view bytes) {
  z_stream stream{};
  int status = deflateInit2(&stream, 7, Z_DEFLATED, kGzipWindow, 9, Z_DEFAULT_STRATEGY);
  PL_ASSERT(status == Z_OK);
  gz_header header{};
  header.os = 255;  // "unknown", so that the bytes do not tell the system
  deflateSetHeader(&stream, &header);
  std::string out(deflateBound(&stream, static_cast<uLong>(bytes.size())) + 32, '\0');
  stream.next_in = input_of(bytes);
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  status = deflate(&stream, Z_FINISH);
  PL_ASSERT(status == Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

Result<std::string> gunzip(std::string_view bytes) {
  z_stream stream{};
  if (inflateInit2(&stream, kGzipWindow) != Z_OK) return fail(ErrorCode::kState, "zlib could not start");
  stream.next_in = input_of(bytes);
  stream.avail_in = static_cast<uInt>(bytes.size());
  std::string out;
  int status = Z_OK;
  while (status == Z_OK) {
    std::array<char, 65536> piece;
    stream.next_out = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_out = static_cast<uInt>(piece.size());
    status = inflate(&stream, Z_NO_FLUSH);
    out.append(piece.data(), piece.size() - stream.avail_out);
  }
  inflateEnd(&stream);
  if (status != Z_STREAM_END) return fail(ErrorCode::kParse, "not a whole gzip stream");
  return out;
}

std::string base64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      group = group << 8 | (at + k < bytes.size() ? static_cast<unsigned char>(bytes[at + k]) : 0u);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      out += at + k <= bytes.size() ? kAlphabet[group >> (18 - 6 * k) & 63] : '=';
    }
  }
  return out;
}

Result<std::string> from_base64(std::string_view text) {
  std::string out;
  std::uint32_t bits = 0;
  int have = 0;
  for (const char c : text) {
    if (c == '=' || c == '\n') continue;
    const std::size_t value = kAlphabet.find(c);
    if (value == std::string_view::npos) return fail(ErrorCode::kParse, "not base64");
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    have += 6;
    if (have < 8) continue;
    have -= 8;
    out += static_cast<char>(bits >> have & 0xFF);
  }
  return out;
}

}  // namespace plumbline

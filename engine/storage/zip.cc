// Layout of the records: PKWARE's APPNOTE.TXT, 4.3.
#include "engine/storage/zip.h"

#include <algorithm>
#include <cstring>
#include <set>

#include <fmt/format.h>
#include <zlib.h>

namespace plumbline {
namespace {

constexpr std::uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50, kEnd64 = 0x06064b50,
                        kEnd64Locator = 0x07064b50;
constexpr std::size_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22, kEnd64Bytes = 56,
                      kLocatorBytes = 20;
constexpr std::uint64_t kMaxDirectory = 64u << 20;
constexpr std::uint64_t kMaxRatio = 1032;  // of deflate

tl::unexpected<Error> refuse(const std::string& path, const std::string& why) {
  return fail(ErrorCode::kParse, fmt::format("{}: {}", path, why));
}

std::uint64_t number(std::string_view bytes, std::size_t at, std::size_t width) {
  std::uint64_t value = 0;
  for (std::size_t i = width; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

void put_number(std::string& out, std::uint64_t value, std::size_t width) {
  for (std::size_t i = 0; i < width; ++i) out += static_cast<char>(value >> (8 * i) & 0xFF);
}

bool good_name(const std::string& name) {
  if (name.empty() || name.front() == '/' || name.find('\\') != std::string::npos ||
      name.find('\0') != std::string::npos)
    return false;
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t end = std::min(name.find('/', at), name.size());
    if (name.substr(at, end - at) == "..") return false;
    at = end + 1;
  }
  return true;
}

struct Directory {
  std::uint64_t offset = 0;  // in the slice
  std::uint64_t bytes = 0;
  std::uint64_t entries = 0;
};

// The record at the end, 22 bytes and a comment that torch never writes but the format allows.
Result<Directory> find_directory(const FileForReading& file, std::uint64_t begin, std::uint64_t size) {
  const std::uint64_t tail = std::min<std::uint64_t>(size, 65535 + kEndBytes + kLocatorBytes);
  std::string bytes(tail, '\0');
  PL_TRY(file.read_at(begin + size - tail, bytes.data(), bytes.size()));
  std::size_t at = std::string::npos;
  for (std::size_t i = bytes.size() >= kEndBytes ? bytes.size() - kEndBytes + 1 : 0; i-- > 0;) {
    if (number(bytes, i, 4) == kEnd && i + kEndBytes + number(bytes, i + 20, 2) == bytes.size()) {
      at = i;
      break;
    }
  }
  if (at == std::string::npos) return refuse(file.path(), "no zip container: it has no directory at its end");
  Directory directory{number(bytes, at + 16, 4), number(bytes, at + 12, 4), number(bytes, at + 10, 2)};
  if (number(bytes, at + 4, 2) != number(bytes, at + 6, 2))
    return refuse(file.path(), "a container over several disks");
  if (at >= kLocatorBytes && number(bytes, at - kLocatorBytes, 4) == kEnd64Locator) {
    const std::uint64_t where = number(bytes, at - kLocatorBytes + 8, 8);
    if (where > size || size - where < kEnd64Bytes)
      return refuse(file.path(), "the zip64 directory lies outside");
    std::string record(kEnd64Bytes, '\0');
    PL_TRY(file.read_at(begin + where, record.data(), record.size()));
    if (number(record, 0, 4) != kEnd64)
      return refuse(file.path(), fmt::format("byte {}: no zip64 record", begin + where));
    directory = {number(record, 48, 8), number(record, 40, 8), number(record, 32, 8)};
  }
  if (directory.bytes > kMaxDirectory)
    return refuse(file.path(),
                  fmt::format("directory of {} bytes, the limit is {}", directory.bytes, kMaxDirectory));
  if (directory.offset > size || directory.bytes > size - directory.offset)
    return refuse(file.path(), "the directory lies outside");
  return directory;
}

// Sizes that do not fit 32 bits stand in extra field 1, in the order in which their short forms are full.
bool read_zip64(std::string_view extra, std::uint64_t& size, std::uint64_t& compressed,
                std::uint64_t& header) {
  for (std::size_t at = 0; at + 4 <= extra.size();) {
    const std::uint64_t id = number(extra, at, 2), length = number(extra, at + 2, 2);
    at += 4;
    if (length > extra.size() - at) return false;
    if (id == 1) {
      std::size_t field = at;
      for (std::uint64_t* value : {&size, &compressed, &header}) {
        if (*value != UINT32_MAX) continue;
        if (field + 8 > at + length) return false;
        *value = number(extra, field, 8);
        field += 8;
      }
    }
    at += static_cast<std::size_t>(length);
  }
  return true;
}

}  // namespace

Result<ZipReader> ZipReader::open(const FileForReading& file, std::uint64_t begin, std::uint64_t size) {
  if (begin > file.size() || size > file.size() - begin)
    return refuse(file.path(), fmt::format("bytes {} to {} are wanted, the file has {}", begin, begin + size,
                                           file.size()));
  ZipReader reader;
  reader.file_ = &file;
  PL_TRY(reader.parse(begin, size));
  return reader;
}

Status ZipReader::parse(std::uint64_t begin, std::uint64_t size) {
  const std::string& path = file_->path();
  const Result<Directory> directory = find_directory(*file_, begin, size);
  if (!directory) return tl::unexpected(directory.error());
  std::string bytes(directory->bytes, '\0');
  PL_TRY(file_->read_at(begin + directory->offset, bytes.data(), bytes.size()));
  std::set<std::string> names;
  std::size_t at = 0;
  for (std::uint64_t i = 0; i < directory->entries; ++i) {
    const std::string where = fmt::format("directory entry {}", i);
    if (bytes.size() - at < kCentralBytes || number(bytes, at, 4) != kCentral)
      return refuse(path, where + " is cut off");
    ZipEntry entry;
    const std::uint64_t flags = number(bytes, at + 8, 2), method = number(bytes, at + 10, 2);
    entry.crc = static_cast<std::uint32_t>(number(bytes, at + 16, 4));
    entry.compressed = number(bytes, at + 20, 4);
    entry.size = number(bytes, at + 24, 4);
    const std::size_t name = number(bytes, at + 28, 2), extra = number(bytes, at + 30, 2),
                      comment = number(bytes, at + 32, 2);
    std::uint64_t header = number(bytes, at + 42, 4);
    at += kCentralBytes;
    if (bytes.size() - at < name + extra + comment) return refuse(path, where + " is cut off");
    entry.name = bytes.substr(at, name);
    if (!read_zip64(std::string_view(bytes).substr(at + name, extra), entry.size, entry.compressed, header))
      return refuse(path, where + ": bad zip64 sizes");
    at += name + extra + comment;
    if ((flags & 0x2041) != 0) return refuse(path, fmt::format("'{}' is encrypted", entry.name));
    if (method != 0 && method != 8)
      return refuse(path, fmt::format("'{}': compression {} is not read", entry.name, method));
    entry.deflated = method == 8;
    if (!good_name(entry.name))
      return refuse(path, fmt::format("'{}' is no name inside a folder", entry.name));
    if (!names.insert(entry.name).second) return refuse(path, fmt::format("'{}' comes twice", entry.name));
    const bool plausible =
        entry.deflated ? entry.size / kMaxRatio <= entry.compressed + 1 : entry.size == entry.compressed;
    if (!plausible)
      return refuse(path, fmt::format("'{}': {} bytes out of {}", entry.name, entry.size, entry.compressed));
    PL_TRY(locate(entry, header, begin, directory->offset));
    entries_.push_back(std::move(entry));
  }
  if (at != bytes.size()) return refuse(path, "the directory has more than its entries");
  std::vector<const ZipEntry*> order;
  for (const ZipEntry& entry : entries_) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](auto* a, auto* b) { return a->begin < b->begin; });
  for (std::size_t i = 1; i < order.size(); ++i) {
    // A local header and a name lie between any two.
    if (order[i - 1]->begin + order[i - 1]->compressed + kLocalBytes > order[i]->begin)
      return refuse(path, fmt::format("'{}' and '{}' overlap", order[i - 1]->name, order[i]->name));
  }
  return {};
}

Status ZipReader::locate(ZipEntry& entry, std::uint64_t header, std::uint64_t begin,
                         std::uint64_t size) const {
  const std::string& path = file_->path();
  if (header > size || size - header < kLocalBytes)
    return refuse(path, fmt::format("'{}' lies outside", entry.name));
  std::string local(kLocalBytes, '\0');
  PL_TRY(file_->read_at(begin + header, local.data(), local.size()));
  const std::uint64_t name = number(local, 26, 2), extra = number(local, 28, 2);
  if (number(local, 0, 4) != kLocal)
    return refuse(path, fmt::format("byte {}: no header of '{}'", begin + header, entry.name));
  const std::uint64_t room = size - header - kLocalBytes;
  if (name + extra > room || entry.compressed > room - name - extra)
    return refuse(path, fmt::format("'{}' is cut off", entry.name));
  std::string own(name, '\0');
  PL_TRY(file_->read_at(begin + header + kLocalBytes, own.data(), own.size()));
  if (own != entry.name)
    return refuse(path, fmt::format("'{}' is called '{}' at its place", entry.name, own));
  entry.begin = begin + header + kLocalBytes + name + extra;
  return {};
}

const ZipEntry* ZipReader::find(std::string_view name) const {
  for (const ZipEntry& entry : entries_) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

Status ZipReader::read_into(const ZipEntry& entry, void* data) const {
  if (!entry.deflated) {
    PL_TRY(file_->read_at(entry.begin, data, static_cast<std::size_t>(entry.size)));
  } else {
    std::string packed(entry.compressed, '\0');
    PL_TRY(file_->read_at(entry.begin, packed.data(), packed.size()));
    z_stream stream{};
    if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return fail(ErrorCode::kIo, "zlib cannot start");
    if (packed.size() > UINT32_MAX || entry.size > UINT32_MAX) {
      inflateEnd(&stream);
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{}: '{}': deflated and over 4 GB", file_->path(), entry.name));
    }
    stream.next_in = reinterpret_cast<Bytef*>(packed.data());
    stream.avail_in = static_cast<uInt>(packed.size());
    stream.next_out = static_cast<Bytef*>(data);
    stream.avail_out = static_cast<uInt>(entry.size);
    const int code = inflate(&stream, Z_FINISH);
    const bool whole = code == Z_STREAM_END && stream.avail_out == 0;
    inflateEnd(&stream);
    if (!whole) return refuse(file_->path(), fmt::format("'{}': damaged deflated data", entry.name));
  }
  const auto crc = static_cast<std::uint32_t>(
      crc32_z(0, static_cast<const Bytef*>(data), static_cast<z_size_t>(entry.size)));
  // torch can be told to leave checksums out; it writes 0 then.
  if (crc != entry.crc && entry.crc != 0)
    return refuse(file_->path(),
                  fmt::format("'{}', bytes {} to {}: damaged, checksum {:08x} instead of {:08x}", entry.name,
                              entry.begin, entry.begin + entry.compressed, crc, entry.crc));
  return {};
}

Result<std::string> ZipReader::read(const ZipEntry& entry, std::uint64_t limit) const {
  if (entry.size > limit)
    return refuse(file_->path(),
                  fmt::format("'{}': {} bytes, the limit is {}", entry.name, entry.size, limit));
  std::string content(entry.size, '\0');
  PL_TRY(read_into(entry, content.data()));
  return content;
}

Status ZipWriter::put(std::string_view bytes) {
  at_ += bytes.size();
  return write_all(file_, bytes.data(), bytes.size());
}

Status ZipWriter::add(const std::string& name, const void* data, std::uint64_t size) {
  const Row row{
      name, at_, size,
      static_cast<std::uint32_t>(crc32_z(0, static_cast<const Bytef*>(data), static_cast<z_size_t>(size)))};
  const bool large = size >= UINT32_MAX;
  std::string extra;
  if (large) {
    put_number(extra, 1, 2);
    put_number(extra, 16, 2);
    put_number(extra, size, 8);
    put_number(extra, size, 8);
  }
  // Field "FB" pads, as torch's own writer does.
  const std::uint64_t before = at_ + kLocalBytes + name.size() + extra.size() + 4;
  const std::uint64_t padding = (64 - before % 64) % 64;
  extra += "FB";
  put_number(extra, padding, 2);
  extra.append(padding, 'Z');
  std::string header;
  put_number(header, kLocal, 4);
  put_number(header, large ? 45 : 20, 2);
  put_number(header, 0x0800, 2);  // names are UTF-8
  put_number(header, 0, 2);
  put_number(header, 0x00210000, 4);  // 1980-01-01 00:00, the earliest there is
  put_number(header, row.crc, 4);
  put_number(header, large ? UINT32_MAX : size, 4);
  put_number(header, large ? UINT32_MAX : size, 4);
  put_number(header, name.size(), 2);
  put_number(header, extra.size(), 2);
  PL_TRY(put(header + name + extra));
  at_ += size;
  PL_TRY(write_all(file_, data, static_cast<std::size_t>(size)));
  rows_.push_back(row);
  return {};
}

Status ZipWriter::finish() {
  const std::uint64_t begin = at_;
  for (const Row& row : rows_) {
    const bool large = row.size >= UINT32_MAX, far = row.header >= UINT32_MAX;
    std::string extra;
    if (large || far) {
      put_number(extra, 1, 2);
      put_number(extra, (large ? 16 : 0) + (far ? 8 : 0), 2);
      if (large) put_number(extra, row.size, 8);
      if (large) put_number(extra, row.size, 8);
      if (far) put_number(extra, row.header, 8);
    }
    std::string out;
    put_number(out, kCentral, 4);
    put_number(out, large || far ? 45 : 20, 2);
    put_number(out, large || far ? 45 : 20, 2);
    put_number(out, 0x0800, 2);
    put_number(out, 0, 2);
    put_number(out, 0x00210000, 4);
    put_number(out, row.crc, 4);
    put_number(out, large ? UINT32_MAX : row.size, 4);
    put_number(out, large ? UINT32_MAX : row.size, 4);
    put_number(out, row.name.size(), 2);
    put_number(out, extra.size(), 2);
    out.append(10, '\0');  // comment, disk, internal and external attributes
    put_number(out, far ? UINT32_MAX : row.header, 4);
    PL_TRY(put(out + row.name + extra));
  }
  const std::uint64_t bytes = at_ - begin;
  std::string out;
  if (rows_.size() >= UINT16_MAX || begin >= UINT32_MAX || bytes >= UINT32_MAX) {
    const std::uint64_t record = at_;
    put_number(out, kEnd64, 4);
    put_number(out, kEnd64Bytes - 12, 8);
    put_number(out, 45, 2);
    put_number(out, 45, 2);
    put_number(out, 0, 8);
    put_number(out, rows_.size(), 8);
    put_number(out, rows_.size(), 8);
    put_number(out, bytes, 8);
    put_number(out, begin, 8);
    put_number(out, kEnd64Locator, 4);
    put_number(out, 0, 4);
    put_number(out, record, 8);
    put_number(out, 1, 4);
  }
  const std::uint64_t count = std::min<std::uint64_t>(rows_.size(), UINT16_MAX);
  put_number(out, kEnd, 4);
  put_number(out, 0, 4);
  put_number(out, count, 2);
  put_number(out, count, 2);
  put_number(out, std::min<std::uint64_t>(bytes, UINT32_MAX), 4);
  put_number(out, std::min<std::uint64_t>(begin, UINT32_MAX), 4);
  put_number(out, 0, 2);
  return put(out);
}

}  // namespace plumbline

#include "engine/storage/read.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>

#include <fmt/format.h>

#include "engine/base/assert.h"
#include "engine/base/hash.h"
#include "engine/storage/parallel.h"

namespace plumbline {
namespace {

constexpr std::uint64_t kMaxManifest = 256u << 20;
constexpr std::size_t kBlock = 1u << 20;  // hashed and copied while it is in the processor's cache

tl::unexpected<Error> refuse(const std::string& path, const std::string& why) {
  return fail(ErrorCode::kParse, fmt::format("{}: {}", path, why));
}

}  // namespace

Result<CheckpointReader> CheckpointReader::open(FileLayer& files, const std::string& path) {
  CheckpointReader reader;
  reader.path_ = path;
  const std::string manifest_path = join_path(path, kManifestName);
  const Result<PathKind> kind = files.kind(manifest_path);
  if (!kind) return tl::unexpected(kind.error());
  if (*kind == PathKind::kAbsent)
    return refuse(path,
                  fmt::format("no {} in it: not a checkpoint of plumbline's own format", kManifestName));
  const Result<std::string> text = read_small_file(files, manifest_path, kMaxManifest);
  if (!text) return tl::unexpected(text.error());
  Result<Manifest> manifest = parse_manifest(*text, manifest_path);
  if (!manifest) return tl::unexpected(manifest.error());
  reader.manifest_ = std::move(*manifest);
  PL_TRY(reader.open_shards(files));
  PL_TRY(reader.check_pieces());
  return reader;
}

Status CheckpointReader::open_shards(FileLayer& files) {
  for (const ManifestFile& row : manifest_.files) {
    const std::string path = join_path(path_, row.name);
    Result<std::unique_ptr<FileForReading>> file = files.open(path);
    if (!file) return tl::unexpected(file.error());
    if ((*file)->size() != row.bytes)
      return refuse(path, fmt::format("{} at byte {}, the manifest says {} bytes",
                                      (*file)->size() < row.bytes ? "truncated" : "goes on",
                                      std::min((*file)->size(), row.bytes), row.bytes));
    Result<SafetensorsHeader> header = read_safetensors_header(**file);
    if (!header) return tl::unexpected(header.error());
    shards_.push_back({std::move(*file), std::move(*header)});
  }
  return {};
}

Status CheckpointReader::check_pieces() const {
  std::set<std::pair<int, std::string>> claimed;
  for (const ManifestTensor& tensor : manifest_.tensors) {
    for (const ManifestPiece& piece : tensor.pieces) {
      const Shard& shard = shards_[static_cast<std::size_t>(piece.file)];
      const SafetensorsEntry* entry = shard.header.find(piece.tensor);
      const std::string& file = shard.file->path();
      if (entry == nullptr) return refuse(file, fmt::format("has no tensor '{}'", piece.tensor));
      const Shape shape = piece.place.flattened ? Shape{piece.place.count} : piece.place.shape;
      if (entry->type != tensor.type || entry->shape != shape)
        return refuse(file, fmt::format("tensor '{}' is {} {}, the manifest says {} {}", piece.tensor,
                                        element_name(entry->type), shape_text(entry->shape),
                                        element_name(tensor.type), shape_text(shape)));
      if (!claimed.emplace(piece.file, piece.tensor).second)
        return refuse(file, fmt::format("tensor '{}' is two pieces of the manifest", piece.tensor));
    }
  }
  std::size_t tensors = 0;
  for (const Shard& shard : shards_) tensors += shard.header.tensors.size();
  if (tensors != claimed.size())
    return refuse(path_,
                  fmt::format("the files hold {} tensors, the manifest names {}", tensors, claimed.size()));
  return {};
}

Status CheckpointReader::verify_header(const Shard& shard, std::uint64_t digest) {
  std::string header(shard.header.data_begin, '\0');
  PL_TRY(shard.file->read_at(0, header.data(), header.size()));
  const std::uint64_t found = hash64(header);
  if (found == digest) return {};
  return refuse(shard.file->path(),
                fmt::format("damaged between byte 0 and byte {}: its header has digest {}, it should be {}",
                            header.size(), hex64(found), hex64(digest)));
}

struct CheckpointReader::ToVerify {
  const Shard* shard;
  const SafetensorsEntry* entry;  // null: the header
  std::uint64_t digest;
};

Status CheckpointReader::verify_piece(const ToVerify& row) {
  const FileForReading& file = *row.shard->file;
  const std::uint64_t begin = row.shard->header.data_begin + row.entry->begin,
                      end = row.shard->header.data_begin + row.entry->end;
  std::vector<char> block(std::min<std::uint64_t>(kBlock, end - begin));
  Hasher hasher;
  for (std::uint64_t at = begin; at < end; at += kBlock) {
    const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(kBlock, end - at));
    PL_TRY(file.read_at(at, block.data(), size));
    hasher.bytes(block.data(), size);
  }
  if (hasher.digest() == row.digest) return {};
  return refuse(file.path(),
                fmt::format("damaged between byte {} and byte {}: tensor '{}' has digest {}, it should be {}",
                            begin, end, row.entry->name, hex64(hasher.digest()), hex64(row.digest)));
}

std::vector<CheckpointReader::ToVerify> CheckpointReader::to_verify(int rank, int ranks) const {
  std::vector<ToVerify> rows;
  const auto mine = [&](int file) { return file % ranks == rank; };
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    if (mine(static_cast<int>(i))) rows.push_back({&shards_[i], nullptr, manifest_.files[i].digest});
  }
  for (const ManifestTensor& tensor : manifest_.tensors) {
    for (const ManifestPiece& piece : tensor.pieces) {
      const Shard& shard = shards_[static_cast<std::size_t>(piece.file)];
      if (mine(piece.file)) rows.push_back({&shard, shard.header.find(piece.tensor), piece.digest});
    }
  }
  return rows;
}

Status CheckpointReader::verify_all(const std::vector<ToVerify>& rows, const StorageProgress& progress) {
  const auto bytes = [](const ToVerify& row) {
    return row.entry == nullptr ? row.shard->header.data_begin : row.entry->end - row.entry->begin;
  };
  std::uint64_t total = 0, done = 0;
  for (const ToVerify& row : rows) total += bytes(row);
  std::mutex mutex;
  const auto verify_row = [&](std::size_t i) -> Status {
    const ToVerify& row = rows[i];
    PL_TRY(row.entry == nullptr ? verify_header(*row.shard, row.digest) : verify_piece(row));
    if (!progress) return {};
    const std::scoped_lock lock(mutex);
    done += bytes(row);
    progress(done, total, row.shard->file->path());
    return {};
  };
  return for_each_at_once(rows.size(), total, verify_row, Bound::kDisk);
}

Status CheckpointReader::verify(const StorageProgress& progress, int rank, int ranks) const {
  PL_TRY(verify_all(to_verify(rank, ranks), progress));
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    if (static_cast<int>(i) % ranks == rank) shards_[i].verified = true;
  }
  return {};
}

// Block by block, so that no more than a block is in memory beside the target: a second copy of a shard, in memory that
// is touched for the first time, takes longer than reading it again from the page cache. Where a digest is needed it is
// of the whole piece, also when only some of it is wanted.
Status CheckpointReader::read_piece(const ManifestTensor& tensor, const ManifestPiece& piece,
                                    const std::vector<Stretch>& wanted, std::byte* target) const {
  const Shard& shard = shards_[static_cast<std::size_t>(piece.file)];
  const SafetensorsEntry* entry = shard.header.find(piece.tensor);
  PL_ASSERT(entry != nullptr);  // check_pieces()
  const std::uint64_t begin = shard.header.data_begin + entry->begin, size = entry->end - entry->begin;
  const bool direct = wanted.size() == 1 && wanted.front().from == 0 && wanted.front().bytes == size;
  std::vector<std::byte> block(direct ? 0 : std::min<std::uint64_t>(kBlock, size));
  Hasher hasher;
  std::size_t next = 0;
  for (std::uint64_t at = 0; at < size; at += kBlock) {
    const auto now = static_cast<std::size_t>(std::min<std::uint64_t>(kBlock, size - at));
    std::byte* data = direct ? target + wanted.front().to + at : block.data();
    PL_TRY(shard.file->read_at(begin + at, data, now));
    if (!shard.verified) hasher.bytes(data, now);
    while (!direct && next < wanted.size()) {
      const Stretch& stretch = wanted[next];
      const std::uint64_t first = std::max(at, stretch.from),
                          last = std::min(at + now, stretch.from + stretch.bytes);
      if (first < last)
        std::memcpy(target + stretch.to + (first - stretch.from), data + (first - at), last - first);
      if (stretch.from + stretch.bytes > at + now) break;
      ++next;
    }
  }
  const bool same = shard.verified ? shard.file->unchanged() : hasher.digest() == piece.digest;
  if (same) return {};
  return refuse(shard.file->path(),
                fmt::format("tensor '{}' ({}) changed since it was verified", piece.tensor, tensor.key));
}

Status CheckpointReader::read_place(const ManifestTensor& tensor, const Place& place, const Shape& global,
                                    void* data) const {
  PL_TRY(check_place(place, global, fmt::format("tensor '{}'", tensor.key)));
  const std::vector<Run> wanted = runs_of(place, global);
  const std::uint64_t width = static_cast<std::uint64_t>(element_bits(tensor.type)) / 8;
  const bool whole = place == whole_place(tensor.shape) && tensor.pieces.size() == 1;
  if (width == 0 && !whole)
    return fail(ErrorCode::kUnsupported, fmt::format("tensor '{}': parts of {} are smaller than a byte",
                                                     tensor.key, element_name(tensor.type)));
  for (const ManifestPiece& piece : tensor.pieces) {
    std::vector<Stretch> stretches;
    for_each_common(runs_of(piece.place, tensor.shape), wanted,
                    [&](std::int64_t from, std::int64_t to, std::int64_t length) {
                      stretches.push_back({static_cast<std::uint64_t>(from) * width,
                                           static_cast<std::uint64_t>(to) * width,
                                           static_cast<std::uint64_t>(length) * width});
                    });
    if (stretches.empty()) continue;
    if (width == 0) stretches = {{0, 0, *byte_count(tensor.type, tensor.shape)}};
    PL_TRY(read_piece(tensor, piece, stretches, static_cast<std::byte*>(data)));
  }
  return {};
}

Result<std::optional<std::int64_t>> newest_whole(FileLayer& files, const std::string& directory) {
  const Result<std::vector<std::int64_t>> iterations = list_iterations(files, directory);
  if (!iterations) return tl::unexpected(iterations.error());
  for (auto it = iterations->rbegin(); it != iterations->rend(); ++it) {
    const Result<std::string> path = resolve_folder(files, directory, iteration_name(*it));
    if (!path) continue;
    const Result<CheckpointReader> reader = CheckpointReader::open(files, *path);
    if (reader && reader->verify()) return std::optional<std::int64_t>(*it);
  }
  return std::optional<std::int64_t>{};
}

Result<std::optional<FoundCheckpoint>> find_checkpoint(FileLayer& files, ControlChannel& channel,
                                                       const std::string& directory,
                                                       std::optional<std::int64_t> iteration) {
  std::string own;  // "", "release", the iteration, or "!" and an error
  if (iteration) {
    own = std::to_string(*iteration);
  } else {
    const Result<std::optional<Tracker>> tracker = read_tracker(files, directory);
    if (!tracker) {
      own = "!" + tracker.error().message;
    } else if (*tracker) {
      own = (*tracker)->release ? "release" : std::to_string((*tracker)->iteration);
    }
  }
  const Result<std::vector<std::string>> all = channel.exchange(own);
  if (!all) return tl::unexpected(all.error());
  Tracker best{false, -1};
  for (const std::string& text : *all) {
    if (text.starts_with("!")) return fail(ErrorCode::kParse, text.substr(1));
    if (text == "release") best.release = true;
    if (text != "release" && !text.empty())
      best.iteration = std::max(best.iteration, static_cast<std::int64_t>(std::stoll(text)));
  }
  if (!best.release && best.iteration < 0) return std::optional<FoundCheckpoint>{};
  if (best.release) best.iteration = 0;
  const Result<std::string> path = resolve_folder(files, directory, tracker_folder(best));
  return std::optional<FoundCheckpoint>(
      FoundCheckpoint{best, path ? *path : join_path(directory, tracker_folder(best))});
}

Result<CheckpointReader> open_verified(FileLayer& files, ControlChannel& channel,
                                       const std::string& directory, const FoundCheckpoint& found,
                                       const StorageProgress& progress) {
  Result<CheckpointReader> reader = CheckpointReader::open(files, found.path);
  std::string own;
  if (!reader) {
    own = reader.error().message;
  } else if (!found.tracker.release && reader->manifest().iteration != found.tracker.iteration) {
    own = fmt::format("{}: is of iteration {}", found.path, reader->manifest().iteration);
  } else if (const Status whole = reader->verify(progress, channel.rank(), channel.size()); !whole) {
    own = whole.error().message;
  }
  const Result<std::vector<std::string>> all = channel.exchange(own);
  if (!all) return tl::unexpected(all.error());
  const auto bad =
      std::find_if(all->begin(), all->end(), [](const std::string& text) { return !text.empty(); });
  if (bad == all->end()) return reader;
  const Result<std::optional<std::int64_t>> other = newest_whole(files, directory);
  std::string hint = "no other checkpoint there is whole";
  if (other && *other) hint = fmt::format("the newest whole checkpoint is {}", iteration_name(**other));
  return fail(ErrorCode::kState, fmt::format("{}; {}", *bad, hint));
}

}  // namespace plumbline

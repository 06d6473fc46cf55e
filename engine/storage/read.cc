#include "engine/storage/read.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include <fmt/format.h>

#include "engine/base/assert.h"
#include "engine/base/hash.h"

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

Status CheckpointReader::verify_shard(std::size_t index, const StorageProgress& progress) const {
  const Shard& shard = shards_[index];
  const FileForReading& file = *shard.file;
  std::vector<char> block(std::min<std::uint64_t>(kBlock, file.size()));
  Hasher whole;
  const auto read = [&](std::uint64_t begin, std::uint64_t end, Hasher* part) -> Status {
    while (begin < end) {
      const std::size_t size = static_cast<std::size_t>(std::min<std::uint64_t>(block.size(), end - begin));
      PL_TRY(file.read_at(begin, block.data(), size));
      whole.bytes(block.data(), size);
      if (part != nullptr) part->bytes(block.data(), size);
      begin += size;
    }
    return {};
  };
  std::map<std::string_view, std::uint64_t> expected;
  for (const ManifestTensor& tensor : manifest_.tensors) {
    for (const ManifestPiece& piece : tensor.pieces) {
      if (static_cast<std::size_t>(piece.file) == index) expected[piece.tensor] = piece.digest;
    }
  }
  PL_TRY(read(0, shard.header.data_begin, nullptr));
  for (const SafetensorsEntry& entry : shard.header.tensors) {
    Hasher part;
    const std::uint64_t begin = shard.header.data_begin + entry.begin,
                        end = shard.header.data_begin + entry.end;
    PL_TRY(read(begin, end, &part));
    if (part.digest() != expected.at(entry.name))
      return refuse(
          file.path(),
          fmt::format("damaged between byte {} and byte {}: tensor '{}' has digest {}, it "
                      "should be {}",
                      begin, end, entry.name, hex64(part.digest()), hex64(expected.at(entry.name))));
    if (progress) progress(end, file.size(), file.path());
  }
  if (whole.digest() != manifest_.files[index].digest)
    return refuse(
        file.path(),
        fmt::format("damaged between byte 0 and byte {}: the file has digest {}, it should "
                    "be {}",
                    shard.header.data_begin, hex64(whole.digest()), hex64(manifest_.files[index].digest)));
  return {};
}

Status CheckpointReader::verify(const StorageProgress& progress, int rank, int ranks) const {
  for (std::size_t i = static_cast<std::size_t>(rank); i < shards_.size();
       i += static_cast<std::size_t>(ranks))
    PL_TRY(verify_shard(i, progress));
  return {};
}

// Block by block, so that no more than a block is in memory beside the target. The digest is of the whole piece, also
// when only some of it is wanted.
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
    hasher.bytes(data, now);
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
  if (hasher.digest() == piece.digest) return {};
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

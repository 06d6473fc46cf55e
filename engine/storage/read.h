// Reading checkpoints of plumbline's own format: nothing is believed that was not verified, and a checkpoint
// that is damaged, cut off, foreign or of another version is refused with file, offset and reason.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/storage/control_channel.h"
#include "engine/storage/file_layer.h"
#include "engine/storage/layout.h"
#include "engine/storage/manifest.h"
#include "engine/storage/safetensors.h"

namespace plumbline {

class CheckpointReader {
 public:
  // Reads manifest and headers; all files must be there with the sizes, names and types the manifest says.
  static Result<CheckpointReader> open(FileLayer& files, const std::string& path);

  const std::string& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }

  // Every byte of every file against the digests, up to 16 blocks of 1 MiB at a time. Of several ranks each takes its
  // share (rank of ranks).
  Status verify(const StorageProgress& progress = {}, int rank = 0, int ranks = 1) const;

  // The elements of `place`, in its order, into `data`, with no more than a block of 1 MiB in memory beside it. Of
  // files that this reader has verified it is enough that nobody has written to them since; what others verified, or
  // nobody, is checked against its digests here.
  Status read_place(const ManifestTensor& tensor, const Place& place, void* data) const {
    return read_place(tensor, place, tensor.shape, data);
  }
  // ... of a tensor of another number of rows: elements that the file does not have stay as they are.
  Status read_place(const ManifestTensor& tensor, const Place& place, const Shape& global, void* data) const;

 private:
  struct Shard {
    std::unique_ptr<FileForReading> file;
    SafetensorsHeader header;
    mutable bool verified = false;  // by verify(): nothing of the checkpoint
  };
  struct Stretch {
    std::uint64_t from = 0, to = 0, bytes = 0;  // in the piece, in the target
  };
  Status read_piece(const ManifestTensor& tensor, const ManifestPiece& piece,
                    const std::vector<Stretch>& wanted, std::byte* target) const;
  Status open_shards(FileLayer& files);
  Status check_pieces() const;
  struct ToVerify;
  std::vector<ToVerify> to_verify(int rank, int ranks) const;
  static Status verify_all(const std::vector<ToVerify>& rows, const StorageProgress& progress);
  static Status verify_header(const Shard& shard, std::uint64_t digest);
  static Status verify_piece(const ToVerify& row);

  std::string path_;
  Manifest manifest_;
  std::vector<Shard> shards_;
};

// The newest checkpoint below `directory` that verifies as a whole; absent when there is none.
Result<std::optional<std::int64_t>> newest_whole(FileLayer& files, const std::string& directory);

struct FoundCheckpoint {
  Tracker tracker;
  std::string path;
};

// What a load should read: `iteration` if given, else what the tracker says. Absent (and not an error) when
// there is no tracker: nothing has been saved yet. Ranks that read different trackers (a file system that
// lags) agree on the larger one.
Result<std::optional<FoundCheckpoint>> find_checkpoint(FileLayer& files, ControlChannel& channel,
                                                       const std::string& directory,
                                                       std::optional<std::int64_t> iteration = {});

// Opens and verifies, all ranks together and with the same result: after this the model may be touched. The
// error of a checkpoint that cannot be used ends with the newest whole one.
Result<CheckpointReader> open_verified(FileLayer& files, ControlChannel& channel,
                                       const std::string& directory, const FoundCheckpoint& found,
                                       const StorageProgress& progress = {});

}  // namespace plumbline

// Saving in plumbline's own format, all ranks together: a checkpoint is committed or absent.
//
//   offer    everyone tells what it will save; all check, with the same result, that every tensor is covered
//            exactly once and every object has one owner
//   stage    rank 0 locks the directory, cleans up after crashes, makes .saving_iter_0000100
//   write    every rank writes and syncs its shard and reports digests; copies that are not saved must have the
//            digest of the one that is
//   commit   rank 0 writes and syncs the manifest and the directory, renames it to iter_0000100, syncs, replaces
//            the tracker, syncs
//
// Any failure before the rename, or a rank that does not come, is the same error on every rank, and the old
// checkpoint stays the newest. What a failed save leaves is never taken for a checkpoint and is removed by
// the next one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/result.h"
#include "engine/storage/control_channel.h"
#include "engine/storage/file_layer.h"
#include "engine/storage/manifest.h"
#include "engine/storage/safetensors.h"

namespace plumbline {

struct PieceToSave {
  std::string key;
  ElementType type = ElementType::kF32;
  Shape global;
  Place place;
  int replica = 0;  // 0 is saved; others are compared with it
  const void* data = nullptr;
};

struct ObjectToSave {
  std::string key;
  JsonValue value;
  int replica = 0;
};

struct CheckpointToSave {
  std::int64_t iteration = 0;
  bool release = false;  // saved as "release", iteration kept inside
  std::vector<PieceToSave> pieces;
  std::vector<ObjectToSave> objects;
  std::vector<std::pair<std::string, std::string>> aliases;  // second name -> key
};

struct SaveOptions {
  int keep_last = 0;           // checkpoints to keep, the new one among them; 0: all
  bool compare_copies = true;  // digests of what other replicas hold
  StorageProgress progress;    // of this rank's shard
};

struct Saved {
  std::string path;
  std::uint64_t bytes = 0;           // this rank's shard
  std::vector<std::string> notices;  // "old checkpoint not removed: ...": nothing that makes it a failure
};

Result<Saved> save_checkpoint(FileLayer& files, ControlChannel& channel, const std::string& directory,
                              const CheckpointToSave& request, const SaveOptions& options = {});

}  // namespace plumbline

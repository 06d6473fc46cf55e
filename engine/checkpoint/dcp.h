// PyTorch's distributed checkpoints (torch.distributed.checkpoint): a pickle `.metadata` that says which
// chunks each tensor has, and `__<rank>_<n>.distcp` files of torch.save containers behind each other. Read
// for any number of ranks, written as those classes of torch are called in 2.x, or in 1.13.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/optim/sharded_tensor.h"
#include "engine/storage/file_layer.h"
#include "engine/storage/place.h"

namespace plumbline {

struct DcpBlob {
  std::string file;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

struct DcpChunk {
  Place place;
  DcpBlob blob;
};

struct DcpTensor {
  std::string key;
  at::ScalarType type = at::kFloat;
  Shape shape;
  std::vector<DcpChunk> chunks;  // cover it exactly
};

struct DcpObject {
  std::string key;
  DcpBlob blob;
};

class DcpReader {
 public:
  // Refuses (kParse) chunks that leave a hole or overlap, blobs outside their files, file names with a path.
  static Result<DcpReader> open(FileLayer& files, const std::string& directory);

  const std::vector<DcpTensor>& tensors() const { return tensors_; }  // by key
  const std::vector<DcpObject>& objects() const { return objects_; }  // by key
  // Into target.data, by target's key and place.
  Status read(const ShardedTensor& target) const;
  Result<at::Tensor> read_tensor(const std::string& key) const;
  Result<StateValue> read_object(const std::string& key) const;

 private:
  Status check_blob(const DcpBlob& blob, const std::string& what);
  const FileForReading& file(const DcpBlob& blob) const;

  FileLayer* files_ = nullptr;
  std::string directory_;
  std::vector<DcpTensor> tensors_;
  std::vector<DcpObject> objects_;
  std::vector<std::unique_ptr<FileForReading>> open_;
};

enum class DcpDialect : std::uint8_t { kTorch2, kTorch1 };  // where torch keeps the classes

// What each rank holds, from one process: conversions. Parts must not be flattened. The directory is made;
// `.metadata` comes last, which is what makes it a checkpoint. Everything is synced.
Status write_dcp(FileLayer& files, const std::string& directory, const std::vector<ShardedStateDict>& ranks,
                 DcpDialect dialect = DcpDialect::kTorch2);

}  // namespace plumbline

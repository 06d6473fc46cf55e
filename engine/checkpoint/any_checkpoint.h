// One view of every format that is read here, for tools: what tensors and objects there are, and their
// values.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/optim/state_dict.h"
#include "engine/storage/element_type.h"
#include "engine/storage/file_layer.h"
#include "engine/storage/safetensors.h"

namespace plumbline {

class AnyCheckpoint {
 public:
  struct Tensor {
    std::string key;
    at::ScalarType type = at::kFloat;
    Shape shape;
  };

  // A directory of checkpoints (the one its tracker names), one checkpoint of plumbline's own format, a
  // distributed checkpoint of PyTorch, a model of Hugging Face, a safetensors file, or a file of torch.save,
  // whose tensors get the path to them as key: "model.layers.0.weight", "optimizer.state.0.exp_avg",
  // "rng_state[0].torch_rng_state".
  static Result<std::unique_ptr<AnyCheckpoint>> open(FileLayer& files, const std::string& path);
  virtual ~AnyCheckpoint() = default;

  virtual std::string format() const = 0;  // "plumbline checkpoint, version 1"
  virtual std::vector<Tensor> tensors() const = 0;
  virtual std::vector<std::string> objects() const = 0;
  virtual Result<at::Tensor> tensor(const std::string& key) const = 0;
  virtual Result<StateValue> object(const std::string& key) const = 0;
  // Every byte, where the format has digests; otherwise reads everything there is.
  virtual Status verify(const StorageProgress& progress) const;
};

// Where two checkpoints differ, tensors by tensor and object by object, up to `most` places; empty: equal.
// Shapes, types and bits count, the layout of the files does not. With `within` above 0, tensors of floating-point
// numbers are equal where no element is further apart than that; a NaN is near a NaN alone.
Result<std::vector<std::string>> difference(const AnyCheckpoint& left, const AnyCheckpoint& right,
                                            std::size_t most, double within = 0.0);

enum class CheckpointFormat : std::uint8_t { kNative, kDcp, kHuggingface, kTorch };

struct ConvertOptions {
  CheckpointFormat to = CheckpointFormat::kNative;
  int ranks = 1;               // native and DCP: parts along the first dimension
  std::int64_t iteration = 0;  // native: of the checkpoint
  bool drop_objects = false;   // Hugging Face's files hold tensors only; without this, objects are an error
};

// Writes what `from` holds to `path`: a new file (torch), else a directory.
Status convert(FileLayer& files, const AnyCheckpoint& from, const std::string& path,
               const ConvertOptions& options);

}  // namespace plumbline

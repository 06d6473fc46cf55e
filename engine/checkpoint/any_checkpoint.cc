#include "engine/checkpoint/any_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "engine/checkpoint/dcp.h"
#include "engine/checkpoint/sharded.h"
#include "engine/checkpoint/tensor_types.h"
#include "engine/checkpoint/torch_file.h"
#include "engine/storage/huggingface.h"

namespace plumbline {
namespace {

tl::unexpected<Error> absent(const std::string& what) {
  return fail(ErrorCode::kState, fmt::format("no '{}' in it", what));
}

class Native : public AnyCheckpoint {
 public:
  explicit Native(CheckpointReader reader) : reader_(std::move(reader)) {}
  std::string format() const override {
    return fmt::format("plumbline checkpoint, version {}, iteration {}, saved by {} ranks in {} files",
                       kManifestVersion, reader_.manifest().iteration, reader_.manifest().ranks,
                       reader_.manifest().files.size());
  }
  std::vector<Tensor> tensors() const override {
    std::vector<Tensor> out;
    for (const ManifestTensor& tensor : reader_.manifest().tensors) {
      const Result<at::ScalarType> type = scalar_type_of(tensor.type);
      if (type && !tensor.key.starts_with(kObjectTensor)) out.push_back({tensor.key, *type, tensor.shape});
    }
    return out;
  }
  std::vector<std::string> objects() const override {
    std::vector<std::string> out;
    for (const ManifestObject& object : reader_.manifest().objects) out.push_back(object.key);
    return out;
  }
  Result<at::Tensor> tensor(const std::string& key) const override { return read_tensor(reader_, key); }
  Result<StateValue> object(const std::string& key) const override { return read_object(reader_, key); }
  Status verify(const StorageProgress& progress) const override { return reader_.verify(progress); }

 private:
  CheckpointReader reader_;
};

class Dcp : public AnyCheckpoint {
 public:
  explicit Dcp(DcpReader reader) : reader_(std::move(reader)) {}
  std::string format() const override { return "distributed checkpoint of PyTorch"; }
  std::vector<Tensor> tensors() const override {
    std::vector<Tensor> out;
    for (const DcpTensor& tensor : reader_.tensors()) out.push_back({tensor.key, tensor.type, tensor.shape});
    return out;
  }
  std::vector<std::string> objects() const override {
    std::vector<std::string> out;
    for (const DcpObject& object : reader_.objects()) out.push_back(object.key);
    return out;
  }
  Result<at::Tensor> tensor(const std::string& key) const override { return reader_.read_tensor(key); }
  Result<StateValue> object(const std::string& key) const override { return reader_.read_object(key); }

 private:
  DcpReader reader_;
};

class Huggingface : public AnyCheckpoint {
 public:
  explicit Huggingface(HuggingfaceReader reader) : reader_(std::move(reader)) {}
  std::string format() const override { return "safetensors files of Hugging Face"; }
  std::vector<Tensor> tensors() const override {
    std::vector<Tensor> out;
    for (const HuggingfaceReader::Row& row : reader_.tensors()) {
      if (const Result<at::ScalarType> type = scalar_type_of(row.entry.type))
        out.push_back({row.entry.name, *type, row.entry.shape});
    }
    return out;
  }
  std::vector<std::string> objects() const override { return {}; }
  Result<at::Tensor> tensor(const std::string& key) const override {
    const HuggingfaceReader::Row* row = reader_.find(key);
    if (row == nullptr) return absent(key);
    const Result<at::ScalarType> type = scalar_type_of(row->entry.type);
    if (!type) return tl::unexpected(type.error());
    at::Tensor out = at::empty(row->entry.shape, at::TensorOptions(*type));
    PL_TRY(reader_.read(*row, out.data_ptr()));
    return out;
  }
  Result<StateValue> object(const std::string& key) const override { return absent(key); }

 private:
  HuggingfaceReader reader_;
};

// All in memory, as the format wants it.
class TorchSave : public AnyCheckpoint {
 public:
  explicit TorchSave(const StateValue& value) { walk("", value); }
  std::string format() const override { return "file of torch.save"; }
  std::vector<Tensor> tensors() const override {
    std::vector<Tensor> out;
    for (const auto& [key, tensor] : tensors_)
      out.push_back({key, tensor.scalar_type(), tensor.sizes().vec()});
    return out;
  }
  std::vector<std::string> objects() const override {
    std::vector<std::string> out;
    for (const auto& [key, value] : objects_) out.push_back(key);
    return out;
  }
  Result<at::Tensor> tensor(const std::string& key) const override {
    const auto found = tensors_.find(key);
    return found == tensors_.end() ? Result<at::Tensor>(absent(key)) : found->second;
  }
  Result<StateValue> object(const std::string& key) const override {
    const auto found = objects_.find(key);
    return found == objects_.end() ? Result<StateValue>(absent(key)) : found->second;
  }

 private:
  void walk(const std::string& path, const StateValue& value) {
    const std::string name = path.empty() ? "value" : path;
    if (const auto* tensor = value.get<at::Tensor>()) {
      tensors_.emplace(name, *tensor);
    } else if (const auto* list = value.get<StateList>()) {
      if (list->empty()) objects_.emplace(name, value);
      for (std::size_t i = 0; i < list->size(); ++i) walk(fmt::format("{}[{}]", path, i), (*list)[i]);
    } else if (const auto* dict = value.get<StateDict>()) {
      if (dict->empty()) objects_.emplace(name, value);
      for (const auto& [key, entry] : *dict) walk(path.empty() ? key : path + "." + key, entry);
    } else {
      objects_.emplace(name, value);
    }
  }
  std::map<std::string, at::Tensor> tensors_;
  std::map<std::string, StateValue> objects_;
};

template <typename View, typename T>
Result<std::unique_ptr<AnyCheckpoint>> wrap(Result<T> reader) {
  if (!reader) return tl::unexpected(reader.error());
  return std::unique_ptr<AnyCheckpoint>(std::make_unique<View>(std::move(*reader)));
}

Result<bool> has(FileLayer& files, const std::string& directory, std::string_view name) {
  const Result<PathKind> kind = files.kind(join_path(directory, name));
  if (!kind) return tl::unexpected(kind.error());
  return *kind != PathKind::kAbsent;
}

Result<std::unique_ptr<AnyCheckpoint>> open_directory(FileLayer& files, const std::string& path) {
  for (const std::string_view name : {kManifestName, std::string_view(".metadata"), kHuggingfaceIndex,
                                      std::string_view("model.safetensors"), kTrackerName}) {
    const Result<bool> there = has(files, path, name);
    if (!there) return tl::unexpected(there.error());
    if (!*there) continue;
    if (name == kManifestName) return wrap<Native>(CheckpointReader::open(files, path));
    if (name == ".metadata") return wrap<Dcp>(DcpReader::open(files, path));
    if (name != kTrackerName) return wrap<Huggingface>(HuggingfaceReader::open(files, path));
    const Result<std::optional<FoundCheckpoint>> found = find_checkpoint(files, lone_channel(), path);
    if (!found) return tl::unexpected(found.error());
    if (*found && (*found)->path != path) return open_directory(files, (*found)->path);
  }
  return fail(
      ErrorCode::kParse,
      fmt::format(
          "{}: no checkpoint of a known format (looked for {}, .metadata, {}, model.safetensors, {}); "
          "of a directory of Megatron's, name one file",
          path, kManifestName, kHuggingfaceIndex, kTrackerName));
}

class SafetensorsFile : public AnyCheckpoint {
 public:
  SafetensorsFile(std::unique_ptr<FileForReading> file, SafetensorsHeader header)
      : file_(std::move(file)), header_(std::move(header)) {}
  std::string format() const override { return "safetensors file"; }
  std::vector<Tensor> tensors() const override {
    std::vector<Tensor> out;
    for (const SafetensorsEntry& entry : header_.tensors) {
      if (const Result<at::ScalarType> type = scalar_type_of(entry.type))
        out.push_back({entry.name, *type, entry.shape});
    }
    return out;
  }
  std::vector<std::string> objects() const override { return {}; }
  Result<at::Tensor> tensor(const std::string& key) const override {
    const SafetensorsEntry* entry = header_.find(key);
    if (entry == nullptr) return absent(key);
    const Result<at::ScalarType> type = scalar_type_of(entry->type);
    if (!type) return tl::unexpected(type.error());
    at::Tensor out = at::empty(entry->shape, at::TensorOptions(*type));
    PL_TRY(file_->read_at(header_.data_begin + entry->begin, out.data_ptr(), out.nbytes()));
    return out;
  }
  Result<StateValue> object(const std::string& key) const override { return absent(key); }

 private:
  std::unique_ptr<FileForReading> file_;
  SafetensorsHeader header_;
};

}  // namespace

Result<std::unique_ptr<AnyCheckpoint>> AnyCheckpoint::open(FileLayer& files, const std::string& path) {
  const Result<PathKind> kind = files.kind(path);
  if (!kind) return tl::unexpected(kind.error());
  if (*kind == PathKind::kDirectory) return open_directory(files, path);
  if (!path.ends_with(".safetensors")) return wrap<TorchSave>(read_torch_file(files, path));
  Result<std::unique_ptr<FileForReading>> file = files.open(path);
  if (!file) return tl::unexpected(file.error());
  Result<SafetensorsHeader> header = read_safetensors_header(**file);
  if (!header) return tl::unexpected(header.error());
  return std::unique_ptr<AnyCheckpoint>(
      std::make_unique<SafetensorsFile>(std::move(*file), std::move(*header)));
}

Status AnyCheckpoint::verify(const StorageProgress& progress) const {
  const std::vector<Tensor> all = tensors();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (const Result<at::Tensor> value = tensor(all[i].key); !value) return tl::unexpected(value.error());
    if (progress) progress(i + 1, all.size(), all[i].key);
  }
  for (const std::string& key : objects()) {
    if (const Result<StateValue> value = object(key); !value) return tl::unexpected(value.error());
  }
  return {};
}

namespace {

// The largest difference of two floating-point tensors of one type and shape; infinite where one has a NaN that the
// other does not, nothing for other tensors and values.
std::optional<double> distance(const StateValue& a, const StateValue& b) {
  const auto *x = a.get<at::Tensor>(), *y = b.get<at::Tensor>();
  if (x == nullptr || y == nullptr || !x->is_floating_point() || x->scalar_type() != y->scalar_type() ||
      x->sizes() != y->sizes() || x->numel() == 0)
    return std::nullopt;
  const at::Tensor wide = x->to(at::kDouble), other = y->to(at::kDouble);
  const at::Tensor same = wide.eq(other) | (wide.isnan() & other.isnan());  // infinities and NaNs too
  const double apart = (wide - other).abs().masked_fill(same, 0.0).max().item<double>();
  return std::isnan(apart) ? std::numeric_limits<double>::infinity() : apart;
}

}  // namespace

Result<std::vector<std::string>> difference(const AnyCheckpoint& left, const AnyCheckpoint& right,
                                            std::size_t most, double within) {
  std::vector<std::string> out;
  const auto compare = [&](const std::vector<std::string>& a, const std::vector<std::string>& b,
                           const auto& read) -> Status {
    for (const std::string& key : a) {
      if (out.size() >= most) return {};
      if (std::find(b.begin(), b.end(), key) == b.end()) {
        out.push_back(key + ": only in the first");
        continue;
      }
      const Result<StateValue> one = read(left, key), two = read(right, key);
      if (!one) return tl::unexpected(one.error());
      if (!two) return tl::unexpected(two.error());
      const std::string text = first_difference(*one, *two);
      if (!text.empty() && within > 0.0) {
        const std::optional<double> apart = distance(*one, *two);
        if (apart && *apart <= within) continue;
        if (apart) {
          out.push_back(fmt::format("{}: elements {:.3g} apart, {:.3g} is allowed", key, *apart, within));
          continue;
        }
      }
      if (!text.empty())
        out.push_back(key + (text.starts_with("the value: ") ? text.substr(9)
                                                             : (text.starts_with("[") ? "" : ".") + text));
    }
    for (const std::string& key : b) {
      if (out.size() < most && std::find(a.begin(), a.end(), key) == a.end())
        out.push_back(key + ": only in the second");
    }
    return {};
  };
  const auto keys = [](const AnyCheckpoint& one) {
    std::vector<std::string> names;
    for (const AnyCheckpoint::Tensor& tensor : one.tensors()) names.push_back(tensor.key);
    return names;
  };
  PL_TRY(compare(keys(left), keys(right),
                 [](const AnyCheckpoint& from, const std::string& key) -> Result<StateValue> {
                   Result<at::Tensor> value = from.tensor(key);
                   if (!value) return tl::unexpected(value.error());
                   return StateValue(std::move(*value));
                 }));
  PL_TRY(compare(left.objects(), right.objects(),
                 [](const AnyCheckpoint& from, const std::string& key) { return from.object(key); }));
  return out;
}

}  // namespace plumbline

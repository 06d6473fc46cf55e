#include "engine/checkpoint/torch_file.h"

#include <map>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "engine/storage/zip.h"

namespace plumbline {
namespace {

constexpr std::uint64_t kMaxPickle = std::uint64_t{1} << 30;

tl::unexpected<Error> refuse(const std::string& path, const std::string& why) {
  return fail(ErrorCode::kParse, fmt::format("{}: {}", path, why));
}

// Torch calls the folder after the file, so it is wherever data.pkl is.
const ZipEntry* find_pickle(const ZipReader& zip, std::string& root) {
  for (const ZipEntry& entry : zip.entries()) {
    const std::string tail = "/data.pkl";
    if (!entry.name.ends_with(tail) || entry.name.find('/') != entry.name.size() - tail.size()) continue;
    root = entry.name.substr(0, entry.name.size() - tail.size());
    return &entry;
  }
  return nullptr;
}

Result<StateValue> read_zip(const ZipReader& zip, const std::string& path, const PythonOptions& options) {
  std::string root;
  const ZipEntry* entry = find_pickle(zip, root);
  if (entry == nullptr) return refuse(path, "no data.pkl in it: not a file of torch.save");
  if (zip.find(root + "/constants.pkl") != nullptr)
    return refuse(path, "a TorchScript archive; only what torch.save wrote of data is read");
  if (const ZipEntry* order = zip.find(root + "/byteorder")) {
    const Result<std::string> text = zip.read(*order, 64);
    if (!text) return tl::unexpected(text.error());
    if (*text != "little") return refuse(path, fmt::format("byte order '{}', only little is read", *text));
  }
  const Result<std::string> bytes = zip.read(*entry, kMaxPickle);
  if (!bytes) return tl::unexpected(bytes.error());
  const std::string what = path + ": " + entry->name;
  const Result<Pickle> pickle = parse_pickle(*bytes, what);
  if (!pickle) return tl::unexpected(pickle.error());
  const auto storages = [&](const StorageRequest& request) -> Result<at::Tensor> {
    const std::string name = root + "/data/" + request.key;
    const ZipEntry* data = zip.find(name);
    if (data == nullptr) return fail(ErrorCode::kParse, fmt::format("'{}' is missing", name));
    const auto width = static_cast<std::uint64_t>(c10::elementSize(request.type));
    if (data->deflated || data->size % width != 0 ||
        data->size / width != static_cast<std::uint64_t>(request.elements))
      return fail(ErrorCode::kParse, fmt::format("'{}' has {} bytes, {} elements of {} are wanted", name,
                                                 data->size, request.elements, at::toString(request.type)));
    at::Tensor storage = at::empty({request.elements}, at::TensorOptions(request.type));
    PL_TRY(zip.read_into(*data, storage.data_ptr()));
    return storage;
  };
  return state_from_pickle(*pickle, what, storages, options);
}

// Before 1.6: pickles of a magic number, a version, the machine, the object and the storages' keys; then each
// storage in the order of the keys, its number of elements first. Storages are needed before their place is
// known, so that all are made first and filled at the end.
Result<StateValue> read_legacy(const std::string& bytes, const std::string& path,
                               const PythonOptions& options) {
  std::string_view rest = bytes;
  std::vector<Pickle> pickles;
  for (int i = 0; i < 5; ++i) {
    std::size_t used = 0;
    Result<Pickle> pickle = parse_pickle(rest, fmt::format("{}: pickle {}", path, i), {}, &used);
    if (!pickle) return tl::unexpected(pickle.error());
    pickles.push_back(std::move(*pickle));
    rest.remove_prefix(used);
  }
  std::map<std::string, at::Tensor> made;
  const auto storages = [&](const StorageRequest& request) -> Result<at::Tensor> {
    const auto width = static_cast<std::int64_t>(c10::elementSize(request.type));
    if (request.elements > static_cast<std::int64_t>(rest.size()) / width)
      return fail(ErrorCode::kParse, fmt::format("storage '{}' of {} elements is larger than the file",
                                                 request.key, request.elements));
    return made[request.key] = at::zeros({request.elements}, at::TensorOptions(request.type));
  };
  Result<StateValue> value = state_from_pickle(pickles[3], path, storages, options);
  if (!value) return value;
  for (const PickleRef ref : pickles[4].at(pickles[4].root).items) {
    const auto found = made.find(pickles[4].at(ref).text);
    if (rest.size() < 8) return refuse(path, "cut off before a storage");
    std::uint64_t elements = 0;
    for (std::size_t i = 8; i-- > 0;) elements = elements << 8 | static_cast<unsigned char>(rest[i]);
    rest.remove_prefix(8);
    if (found == made.end() || static_cast<std::uint64_t>(found->second.numel()) != elements ||
        found->second.nbytes() > rest.size())
      return refuse(
          path, fmt::format("storage '{}' of {} elements does not fit", pickles[4].at(ref).text, elements));
    std::copy_n(rest.data(), found->second.nbytes(), static_cast<char*>(found->second.data_ptr()));
    rest.remove_prefix(found->second.nbytes());
    made.erase(found);
  }
  if (!made.empty()) return refuse(path, fmt::format("storage '{}' is missing", made.begin()->first));
  return value;
}

class StringFile : public FileForWriting {
 public:
  Result<std::size_t> write_some(const void* data, std::size_t size) override {
    content.append(static_cast<const char*>(data), size);
    return size;
  }
  Status sync() override { return {}; }
  Status close() override { return {}; }
  const std::string& path() const override { return path_; }
  std::string content;

 private:
  std::string path_ = "memory";
};

Status write_container(FileForWriting& file, const StateValue& value, const std::string& root) {
  std::vector<at::Tensor> storages;
  const Result<Pickle> pickle = pickle_from_state(value, [&](const at::Tensor& whole) {
    storages.push_back(whole);
    return std::to_string(storages.size() - 1);
  });
  if (!pickle) return tl::unexpected(pickle.error());
  const Result<std::string> bytes = print_pickle(*pickle);
  if (!bytes) return tl::unexpected(bytes.error());
  ZipWriter zip(file);
  PL_TRY(zip.add(root + "/data.pkl", bytes->data(), bytes->size()));
  PL_TRY(zip.add(root + "/byteorder", "little", 6));
  for (std::size_t i = 0; i < storages.size(); ++i)
    PL_TRY(zip.add(fmt::format("{}/data/{}", root, i), storages[i].data_ptr(), storages[i].nbytes()));
  PL_TRY(zip.add(root + "/version", "3\n", 2));
  return zip.finish();
}

}  // namespace

Result<StateValue> read_torch_slice(const FileForReading& file, std::uint64_t begin, std::uint64_t size,
                                    const PythonOptions& options) {
  const Result<ZipReader> zip = ZipReader::open(file, begin, size);
  if (!zip) return tl::unexpected(zip.error());
  return read_zip(*zip, file.path(), options);
}

Result<StateValue> read_torch_file(FileLayer& files, const std::string& path, const PythonOptions& options) {
  const Result<std::unique_ptr<FileForReading>> file = files.open(path);
  if (!file) return tl::unexpected(file.error());
  char begin[4] = {};
  const std::size_t some = static_cast<std::size_t>(std::min<std::uint64_t>(4, (*file)->size()));
  PL_TRY((*file)->read_at(0, begin, some));
  if (static_cast<unsigned char>(begin[0]) == 0x80 && static_cast<unsigned char>(begin[2]) == 0x8a) {
    const Result<std::string> bytes = read_small_file(files, path, std::uint64_t{1} << 36);
    if (!bytes) return tl::unexpected(bytes.error());
    return read_legacy(*bytes, path, options);
  }
  return read_torch_slice(**file, 0, (*file)->size(), options);
}

Status write_torch_file(FileLayer& files, const std::string& path, const StateValue& value,
                        const std::string& root) {
  Result<std::unique_ptr<FileForWriting>> file = files.create(path);
  if (!file) return tl::unexpected(file.error());
  PL_TRY(write_container(**file, value, root));
  PL_TRY((*file)->sync());
  return (*file)->close();
}

Result<std::string> torch_file_bytes(const StateValue& value, const std::string& root) {
  StringFile file;
  PL_TRY(write_container(file, value, root));
  return std::move(file.content);
}

}  // namespace plumbline

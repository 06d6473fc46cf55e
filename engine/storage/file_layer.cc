#include "engine/storage/file_layer.h"

#include <algorithm>

#include <fmt/format.h>

namespace plumbline {

std::string join_path(std::string_view directory, std::string_view name) {
  std::string path(directory);
  if (!path.empty() && path.back() != '/') path += '/';
  path += name;
  return path;
}

std::string parent_path(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return std::string(path.substr(0, std::max<std::size_t>(slash, 1)));
}

std::string file_name(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

Status write_all(FileForWriting& file, const void* data, std::size_t size) {
  const auto* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const Result<std::size_t> taken = file.write_some(bytes, size);
    if (!taken) return tl::unexpected(taken.error());
    if (*taken == 0 || *taken > size)
      return fail(ErrorCode::kIo, fmt::format("{}: a write of {} bytes took {}", file.path(), size, *taken));
    bytes += *taken;
    size -= *taken;
  }
  return {};
}

Status write_new_file(FileLayer& files, const std::string& path, std::string_view content) {
  Result<std::unique_ptr<FileForWriting>> file = files.create(path);
  if (!file) return tl::unexpected(file.error());
  PL_TRY(write_all(**file, content.data(), content.size()));
  PL_TRY((*file)->sync());
  return (*file)->close();
}

Status replace_file(FileLayer& files, const std::string& path, std::string_view content) {
  const std::string fresh = path + ".tmp";
  PL_TRY(remove_tree(files, fresh));
  PL_TRY(write_new_file(files, fresh, content));
  PL_TRY(files.rename(fresh, path));
  return files.sync_directory(parent_path(path));
}

Result<std::string> read_small_file(FileLayer& files, const std::string& path, std::uint64_t limit) {
  const Result<std::unique_ptr<FileForReading>> file = files.open(path);
  if (!file) return tl::unexpected(file.error());
  const std::uint64_t size = (*file)->size();
  if (size > limit)
    return fail(ErrorCode::kParse, fmt::format("{}: {} bytes, the limit is {}", path, size, limit));
  std::string content(size, '\0');
  PL_TRY((*file)->read_at(0, content.data(), content.size()));
  return content;
}

Status remove_tree(FileLayer& files, const std::string& path, int depth_limit) {
  const Result<PathKind> kind = files.kind(path);
  if (!kind) return tl::unexpected(kind.error());
  if (*kind == PathKind::kAbsent) return {};
  if (*kind != PathKind::kDirectory) return files.remove_file(path);
  if (depth_limit == 0)
    return fail(ErrorCode::kIo, fmt::format("{}: too many levels of directories to remove", path));
  const Result<std::vector<std::string>> names = files.list(path);
  if (!names) return tl::unexpected(names.error());
  for (const std::string& name : *names) PL_TRY(remove_tree(files, join_path(path, name), depth_limit - 1));
  return files.remove_directory(path);
}

Status make_directories(FileLayer& files, const std::string& path) {
  const Result<PathKind> kind = files.kind(path);
  if (!kind) return tl::unexpected(kind.error());
  if (*kind == PathKind::kDirectory) return {};
  if (*kind != PathKind::kAbsent)
    return fail(ErrorCode::kIo, fmt::format("{}: there is a file of this name, not a directory", path));
  const std::string parent = parent_path(path);
  if (parent != path) PL_TRY(make_directories(files, parent));
  const Status made = files.make_directory(path);
  if (!made) {  // another process may have been faster
    const Result<PathKind> now = files.kind(path);
    if (!now || *now != PathKind::kDirectory) return made;
  }
  return files.sync_directory(parent);
}

}  // namespace plumbline

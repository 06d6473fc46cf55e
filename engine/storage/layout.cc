#include "engine/storage/layout.h"

#include <algorithm>

#include <fmt/format.h>

#include "engine/base/text.h"
#include "engine/storage/manifest.h"

namespace plumbline {
namespace {

constexpr std::string_view kStaging = ".saving_", kAside = ".old_", kTrash = ".trash_";

}  // namespace

std::string iteration_name(std::int64_t iteration) { return fmt::format("iter_{:07}", iteration); }

std::optional<std::int64_t> iteration_from_name(std::string_view name) {
  if (!name.starts_with("iter_")) return std::nullopt;
  const Result<std::int64_t> value = parse_integer(name.substr(5));
  if (!value || *value < 0 || iteration_name(*value) != name) return std::nullopt;
  return *value;
}

std::string tracker_folder(const Tracker& tracker) {
  return tracker.release ? "release" : iteration_name(tracker.iteration);
}

Result<std::optional<Tracker>> read_tracker(FileLayer& files, const std::string& directory) {
  const std::string path = join_path(directory, kTrackerName);
  const Result<PathKind> kind = files.kind(path);
  if (!kind) return tl::unexpected(kind.error());
  if (*kind == PathKind::kAbsent) return std::optional<Tracker>{};
  const Result<std::string> text = read_small_file(files, path, 4096);
  if (!text) return tl::unexpected(text.error());
  const std::string_view word = trim(*text);
  if (word == "release") return std::optional<Tracker>(Tracker{true, 0});
  const Result<std::int64_t> iteration = parse_integer(word);
  if (!iteration || *iteration < 0)
    return fail(ErrorCode::kParse,
                fmt::format("{}: must be an iteration or 'release', it is '{}'", path, word.substr(0, 40)));
  return std::optional<Tracker>(Tracker{false, *iteration});
}

Status write_tracker(FileLayer& files, const std::string& directory, const Tracker& tracker) {
  return replace_file(files, join_path(directory, kTrackerName),
                      tracker.release ? std::string("release") : std::to_string(tracker.iteration));
}

Result<std::vector<std::int64_t>> list_iterations(FileLayer& files, const std::string& directory) {
  const Result<std::vector<std::string>> names = files.list(directory);
  if (!names) return tl::unexpected(names.error());
  std::vector<std::int64_t> iterations;
  for (const std::string& name : *names) {
    std::string_view bare = name;
    if (bare.starts_with(kAside)) bare.remove_prefix(kAside.size());
    if (const auto iteration = iteration_from_name(bare)) iterations.push_back(*iteration);
  }
  std::sort(iterations.begin(), iterations.end());
  iterations.erase(std::unique(iterations.begin(), iterations.end()), iterations.end());
  return iterations;
}

Result<std::string> resolve_folder(FileLayer& files, const std::string& directory, const std::string& name) {
  for (const std::string& path : {join_path(directory, name), aside_path(directory, name)}) {
    const Result<PathKind> kind = files.kind(path);
    if (!kind) return tl::unexpected(kind.error());
    if (*kind == PathKind::kDirectory) return path;
  }
  return fail(ErrorCode::kIo, fmt::format("{}: no such directory", join_path(directory, name)));
}

Status clean_up(FileLayer& files, const std::string& directory) {
  const Result<std::vector<std::string>> names = files.list(directory);
  if (!names) return tl::unexpected(names.error());
  bool changed = false;
  for (const std::string& name : *names) {
    const std::string path = join_path(directory, name);
    if (name.starts_with(kAside)) {
      const std::string home = join_path(directory, name.substr(kAside.size()));
      const Result<PathKind> kind = files.kind(home);
      if (!kind) return tl::unexpected(kind.error());
      if (*kind == PathKind::kAbsent) {
        PL_TRY(files.rename(path, home));
      } else {
        PL_TRY(files.sync_directory(directory));  // what replaced it stays, before this goes
        PL_TRY(retire(files, directory, name));
      }
      changed = true;
    } else if (name.starts_with(kStaging) || name.starts_with(kTrash)) {
      PL_TRY(remove_tree(files, path));
      changed = true;
    }
  }
  return changed ? files.sync_directory(directory) : Status{};
}

std::string staging_path(const std::string& directory, const std::string& name) {
  return join_path(directory, std::string(kStaging) + name);
}
std::string aside_path(const std::string& directory, const std::string& name) {
  return join_path(directory, std::string(kAside) + name);
}
std::string lock_path(const std::string& directory) { return join_path(directory, ".lock"); }

Status retire(FileLayer& files, const std::string& directory, const std::string& name) {
  const std::string trash = join_path(directory, std::string(kTrash) + name);
  PL_TRY(remove_tree(files, trash));
  PL_TRY(files.rename(join_path(directory, name), trash));
  PL_TRY(files.sync_directory(directory));
  return remove_tree(files, trash);
}

Status retire_iterations(FileLayer& files, const std::string& directory,
                         const std::vector<std::int64_t>& iterations) {
  for (const std::int64_t iteration : iterations) {
    const std::string name = iteration_name(iteration);
    const Result<PathKind> manifest = files.kind(join_path(join_path(directory, name), kManifestName));
    if (!manifest) return tl::unexpected(manifest.error());
    if (*manifest == PathKind::kFile) PL_TRY(retire(files, directory, name));
  }
  return {};
}

Status forget_later(FileLayer& files, const std::string& directory, std::int64_t iteration) {
  const Result<PathKind> kind = files.kind(directory);
  if (!kind) return tl::unexpected(kind.error());
  if (*kind == PathKind::kAbsent) return {};
  const Result<std::unique_ptr<FileLock>> held = files.lock(lock_path(directory));
  if (!held) return tl::unexpected(held.error());
  PL_TRY(clean_up(files, directory));
  Result<std::vector<std::int64_t>> later = list_iterations(files, directory);
  if (!later) return tl::unexpected(later.error());
  std::erase_if(*later, [&](std::int64_t i) { return i <= iteration; });
  if (later->empty()) return {};
  const Result<std::optional<Tracker>> tracker = read_tracker(files, directory);
  if (!tracker) return tl::unexpected(tracker.error());
  if (*tracker && (*tracker)->iteration > iteration) {
    PL_TRY(files.remove_file(join_path(directory, kTrackerName)));
    PL_TRY(files.sync_directory(directory));
  }
  return retire_iterations(files, directory, *later);
}

}  // namespace plumbline

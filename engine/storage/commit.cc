#include "engine/storage/commit.h"

#include <memory>

#include <fmt/format.h>

namespace plumbline {
namespace {

Status share(ControlChannel& channel, const Status& own) {
  const Result<std::vector<std::string>> all = channel.exchange(own ? "" : own.error().message);
  if (!all) return tl::unexpected(all.error());
  std::string text;
  for (std::size_t rank = 0; rank < all->size(); ++rank) {
    if (!(*all)[rank].empty())
      text += fmt::format("{}rank {}: {}", text.empty() ? "" : "; ", rank, (*all)[rank]);
  }
  if (text.empty()) return {};
  return fail(own ? ErrorCode::kIo : own.error().code, "nothing was saved: " + text);
}

}  // namespace

Result<std::string> commit_directory(FileLayer& files, ControlChannel& channel, const std::string& directory,
                                     const Tracker& tracker,
                                     const std::function<Status(const std::string&)>& write) {
  const std::string name = tracker_folder(tracker), staging = staging_path(directory, name);
  const std::string path = join_path(directory, name);
  std::unique_ptr<FileLock> lock;
  const bool leads = channel.rank() == 0;
  const auto stage = [&]() -> Status {
    PL_TRY(make_directories(files, directory));
    Result<std::unique_ptr<FileLock>> held = files.lock(lock_path(directory));
    if (!held) return tl::unexpected(held.error());
    lock = std::move(*held);
    PL_TRY(clean_up(files, directory));
    return files.make_directory(staging);
  };
  const auto commit = [&]() -> Status {
    PL_TRY(files.sync_directory(staging));
    const Result<PathKind> there = files.kind(path);
    if (!there) return tl::unexpected(there.error());
    if (*there != PathKind::kAbsent) {
      PL_TRY(files.rename(path, aside_path(directory, name)));
      PL_TRY(files.sync_directory(directory));
    }
    PL_TRY(files.rename(staging, path));
    PL_TRY(files.sync_directory(directory));
    PL_TRY(write_tracker(files, directory, tracker));
    if (*there != PathKind::kAbsent) (void)retire(files, directory, file_name(aside_path(directory, name)));
    return {};
  };
  PL_TRY(share(channel, leads ? stage() : Status{}));
  if (const Status written = share(channel, write(staging)); !written) {
    if (leads) (void)remove_tree(files, staging);
    return tl::unexpected(written.error());
  }
  PL_TRY(share(channel, leads ? commit() : Status{}));
  return path;
}

}  // namespace plumbline

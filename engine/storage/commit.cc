#include "engine/storage/commit.h"

namespace plumbline {

DirectoryCommit::DirectoryCommit(FileLayer& files, ControlChannel& channel, const std::string& directory,
                                 const Tracker& tracker)
    : files_(files),
      channel_(channel),
      directory_(directory),
      tracker_(tracker),
      name_(tracker_folder(tracker)),
      staging_(staging_path(directory, name_)),
      path_(join_path(directory, name_)) {}

Status DirectoryCommit::share(const Status& own) {
  const Status all = agree(channel_, own);
  return all ? all : fail(all.error().code, "nothing was saved: " + all.error().message);
}

Status DirectoryCommit::stage() {
  PL_TRY(make_directories(files_, directory_));
  Result<std::unique_ptr<FileLock>> held = files_.lock(lock_path(directory_));
  if (!held) return tl::unexpected(held.error());
  lock_ = std::move(*held);
  PL_TRY(clean_up(files_, directory_));
  return files_.make_directory(staging_);
}

Status DirectoryCommit::begin() { return share(leads() ? stage() : Status{}); }

Status DirectoryCommit::put_in_place(const std::function<Status()>& last,
                                     const std::function<Status()>& after,
                                     std::vector<std::string>& notices) {
  PL_TRY(last());
  PL_TRY(files_.sync_directory(staging_));
  const Result<PathKind> there = files_.kind(path_);
  if (!there) return tl::unexpected(there.error());
  const std::string aside = aside_path(directory_, name_);
  const bool replaces = *there != PathKind::kAbsent;
  if (replaces) {
    PL_TRY(files_.rename(path_, aside));
    PL_TRY(files_.sync_directory(directory_));
  }
  PL_TRY(files_.rename(staging_, path_));
  PL_TRY(files_.sync_directory(directory_));
  PL_TRY(write_tracker(files_, directory_, tracker_));
  const auto notice = [&](const Status& status) {
    if (!status) notices.push_back("old checkpoint not removed: " + status.error().message);
  };
  if (replaces) notice(retire(files_, directory_, file_name(aside)));
  notice(after());
  lock_.reset();
  return {};
}

Status DirectoryCommit::commit(const std::function<Status()>& last, const std::function<Status()>& after,
                               std::vector<std::string>& notices) {
  return share(leads() ? put_in_place(last, after, notices) : Status{});
}

void DirectoryCommit::abandon() {
  if (leads()) (void)remove_tree(files_, staging_);
}

Result<std::string> commit_directory(FileLayer& files, ControlChannel& channel, const std::string& directory,
                                     const Tracker& tracker,
                                     const std::function<Status(const std::string&)>& write) {
  DirectoryCommit commit(files, channel, directory, tracker);
  PL_TRY(commit.begin());
  if (const Status written = commit.share(write(commit.staging())); !written) {
    commit.abandon();
    return tl::unexpected(written.error());
  }
  const auto nothing = [] { return Status{}; };
  std::vector<std::string> notices;  // the formats that come this way have nowhere to tell them
  PL_TRY(commit.commit(nothing, nothing, notices));
  return commit.path();
}

}  // namespace plumbline

// The protocol by which all ranks together make a directory a checkpoint, whatever its format (save.h says what it
// promises): staged beside its place, written by everyone, renamed, tracker last. A failure anywhere is the same error
// on every rank and leaves the old checkpoint the newest.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/storage/control_channel.h"
#include "engine/storage/file_layer.h"
#include "engine/storage/layout.h"

namespace plumbline {

// One commit, step by step. begin() and commit() are called by all ranks; rank 0 does what touches the directory.
class DirectoryCommit {
 public:
  DirectoryCommit(FileLayer& files, ControlChannel& channel, const std::string& directory,
                  const Tracker& tracker);

  const std::string& staging() const { return staging_; }  // below which everyone writes, and syncs
  const std::string& path() const { return path_; }        // of the committed checkpoint

  // Locks the directory, clears away what dead savers left, and makes the staging directory.
  Status begin();
  // `last` is what rank 0 still writes when everyone has written; `after` what it does when the checkpoint is
  // committed, still under the lock. What fails from then on is no failure of this save: it is a notice.
  Status commit(const std::function<Status()>& last, const std::function<Status()>& after,
                std::vector<std::string>& notices);
  // Removes what was staged, when everyone has stopped writing.
  void abandon();
  // Everyone's status, so that all return the same error.
  Status share(const Status& own);

 private:
  bool leads() const { return channel_.rank() == 0; }
  Status stage();
  Status put_in_place(const std::function<Status()>& last, const std::function<Status()>& after,
                      std::vector<std::string>& notices);

  FileLayer& files_;
  ControlChannel& channel_;
  std::string directory_;
  Tracker tracker_;
  std::string name_, staging_, path_;
  std::unique_ptr<FileLock> lock_;
};

// A commit of files that need nothing in between. `write` puts this rank's files below the path it gets, and syncs them
// and the directories it makes there. Returns the checkpoint's path.
Result<std::string> commit_directory(FileLayer& files, ControlChannel& channel, const std::string& directory,
                                     const Tracker& tracker,
                                     const std::function<Status(const std::string&)>& write);

}  // namespace plumbline

// FileLayer: the few file operations a checkpoint needs, so that the same saving code runs on a POSIX file
// system and on a simulated disk that loses power (simulated_disk.h). Small on purpose: files are written
// once, from begin to end, and never opened again for writing; what must replace a file is written beside it
// and renamed.
//
// What is durable: the bytes of a file after sync() of it, an entry of a directory (made, renamed, removed)
// after sync_directory() of that directory. Nothing else.
//
// Errors are kIo and name the path and the system's reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"

namespace plumbline {

class FileForWriting {
 public:
  virtual ~FileForWriting() = default;  // closes; what was not synced may be lost
  // How many bytes were taken, at least one: like write(2), possibly fewer than given. Use write_all().
  virtual Result<std::size_t> write_some(const void* data, std::size_t size) = 0;
  virtual Status sync() = 0;
  virtual Status close() = 0;
  virtual const std::string& path() const = 0;
};

// May be used by several threads at once.
class FileForReading {
 public:
  virtual ~FileForReading() = default;
  virtual std::uint64_t size() const = 0;
  // Exactly `size` bytes; fewer in the file is an error that names the offset.
  virtual Status read_at(std::uint64_t offset, void* data, std::size_t size) const = 0;
  // Whether nobody has written to it since it was opened, as far as the file system can tell.
  virtual bool unchanged() const = 0;
  virtual const std::string& path() const = 0;
};

// Held as long as the object lives; a process that dies lets go.
class FileLock {
 public:
  virtual ~FileLock() = default;
};

enum class PathKind : std::uint8_t { kAbsent, kFile, kDirectory, kOther };

class FileLayer {
 public:
  virtual ~FileLayer() = default;

  virtual Result<std::unique_ptr<FileForWriting>> create(
      const std::string& path) = 0;  // refuses one there is
  virtual Result<std::unique_ptr<FileForReading>> open(const std::string& path) = 0;
  virtual Result<PathKind> kind(const std::string& path) = 0;  // symbolic links are not followed
  virtual Result<std::vector<std::string>> list(const std::string& directory) = 0;  // names, sorted
  // Atomic; replaces a file `to`. Both lie in one directory.
  virtual Status rename(const std::string& from, const std::string& to) = 0;
  virtual Status remove_file(const std::string& path) = 0;
  virtual Status make_directory(const std::string& path) = 0;    // one level; refuses one there is
  virtual Status remove_directory(const std::string& path) = 0;  // an empty one
  virtual Status sync_directory(const std::string& path) = 0;
  // The lock file is made when absent and stays. Someone else holding it is an error (kState), which on a real file
  // system names the process and its host; a process that gets it just now may not have written its name yet.
  virtual Result<std::unique_ptr<FileLock>> lock(const std::string& path) = 0;
};

// The machine's own file system.
FileLayer& posix_files();

// --- what is made of these

std::string join_path(std::string_view directory, std::string_view name);
std::string parent_path(std::string_view path);  // "." for a bare name
std::string file_name(std::string_view path);

Status write_all(FileForWriting& file, const void* data, std::size_t size);
// A new file with this content, synced. Its directory is not.
Status write_new_file(FileLayer& files, const std::string& path, std::string_view content);
// Old content or new content, whatever happens; durable on return. Leaves of earlier tries are removed.
Status replace_file(FileLayer& files, const std::string& path, std::string_view content);
// The whole file; one larger than `limit` is refused before anything is read.
Result<std::string> read_small_file(FileLayer& files, const std::string& path, std::uint64_t limit);
// With everything in it; a symbolic link is removed, not followed. Fine when there is none.
Status remove_tree(FileLayer& files, const std::string& path, int depth_limit = 8);
// mkdir -p, each made level synced into its parent.
Status make_directories(FileLayer& files, const std::string& path);

}  // namespace plumbline

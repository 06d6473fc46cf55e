// FileLayer over POSIX calls. EINTR is retried, except after close() and fsync(): a failed fsync may have
// dropped the pages, so a second one that succeeds proves nothing.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/storage/file_layer.h"

namespace plumbline {
namespace {

tl::unexpected<Error> system_error(const std::string& path, const char* what, int code) {
  return fail(ErrorCode::kIo, fmt::format("{}: {}: {}", path, what, std::strerror(code)));
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

int open_retrying(const std::string& path, int flags, mode_t mode = 0) {
  int fd = -1;
  do {
    fd = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

class PosixWriting : public FileForWriting {
 public:
  PosixWriting(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  Result<std::size_t> write_some(const void* data, std::size_t size) override {
    while (true) {
      const ssize_t taken = ::write(fd_.get(), data, std::min<std::size_t>(size, 1u << 30));
      if (taken >= 0) {
        write_back(static_cast<std::uint64_t>(taken));
        return static_cast<std::size_t>(taken);
      }
      if (errno != EINTR) return system_error(path_, "write", errno);
    }
  }
  Status sync() override {
    if (::fsync(fd_.get()) != 0) return system_error(path_, "fsync", errno);
    return {};
  }
  Status close() override {
    if (::close(fd_.release()) != 0) return system_error(path_, "close", errno);
    return {};
  }
  const std::string& path() const override { return path_; }

 private:
  // Lets the disk begin while more is on its way, so that sync() has less to wait for. A hint: failures do not matter.
  void write_back(std::uint64_t taken) {
    constexpr std::uint64_t kEvery = 16u << 20;
    written_ += taken;
    if (written_ - begun_ < kEvery) return;
#ifdef SYNC_FILE_RANGE_WRITE
    (void)::sync_file_range(fd_.get(), static_cast<off64_t>(begun_), static_cast<off64_t>(written_ - begun_),
                            SYNC_FILE_RANGE_WRITE);
#endif
    begun_ = written_;
  }

  std::string path_;
  Descriptor fd_;
  std::uint64_t written_ = 0, begun_ = 0;
};

class PosixReading : public FileForReading {
 public:
  PosixReading(std::string path, int fd, const struct stat& info)
      : path_(std::move(path)),
        fd_(fd),
        size_(static_cast<std::uint64_t>(info.st_size)),
        written_(info.st_mtim) {
    (void)::posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);  // a hint
  }
  std::uint64_t size() const override { return size_; }
  Status read_at(std::uint64_t offset, void* data, std::size_t size) const override {
    if (offset > size_ || size > size_ - offset)
      return fail(ErrorCode::kIo, fmt::format("{}: bytes {} to {} are wanted, the file has {}", path_, offset,
                                              offset + size, size_));
    auto* bytes = static_cast<char*>(data);
    while (size > 0) {
      const ssize_t got =
          ::pread(fd_.get(), bytes, std::min<std::size_t>(size, 1u << 30), static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return system_error(path_, "read", errno);
      if (got == 0)
        return fail(ErrorCode::kIo, fmt::format("{}: ends at byte {}, it had {}", path_, offset, size_));
      bytes += got;
      offset += static_cast<std::uint64_t>(got);
      size -= static_cast<std::size_t>(got);
    }
    return {};
  }
  bool unchanged() const override {
    struct stat info {};
    return ::fstat(fd_.get(), &info) == 0 && static_cast<std::uint64_t>(info.st_size) == size_ &&
           info.st_mtim.tv_sec == written_.tv_sec && info.st_mtim.tv_nsec == written_.tv_nsec;
  }
  const std::string& path() const override { return path_; }

 private:
  std::string path_;
  Descriptor fd_;
  std::uint64_t size_;
  struct timespec written_;
};

// While it is held the file says by whom, for the message that others get. The name is no part of the lock: one that
// cannot be written does no harm, and one that a killed process left is overwritten by the next.
class PosixLock : public FileLock {
 public:
  explicit PosixLock(int fd) : fd_(fd) {
    std::array<char, 256> host{};
    if (::gethostname(host.data(), host.size() - 1) != 0) host.front() = '?';
    const std::string owner = fmt::format("process {} on {}", ::getpid(), host.data());
    if (::ftruncate(fd, 0) == 0) (void)!::pwrite(fd, owner.data(), owner.size(), 0);
  }
  ~PosixLock() override { (void)!::ftruncate(fd_.get(), 0); }
  PosixLock(const PosixLock&) = delete;
  PosixLock& operator=(const PosixLock&) = delete;

 private:
  Descriptor fd_;
};

// What PosixLock wrote, in brackets; empty when there is nothing yet.
std::string owner_of(int fd) {
  std::array<char, 320> text{};
  const ssize_t got = ::pread(fd, text.data(), text.size(), 0);
  return got > 0 ? fmt::format(" ({})", std::string_view(text.data(), static_cast<std::size_t>(got)))
                 : std::string();
}

class PosixFiles : public FileLayer {
 public:
  Result<std::unique_ptr<FileForWriting>> create(const std::string& path) override {
    const int fd = open_retrying(path, O_WRONLY | O_CREAT | O_EXCL, 0666);
    if (fd < 0) return system_error(path, "create", errno);
    return std::make_unique<PosixWriting>(path, fd);
  }

  Result<std::unique_ptr<FileForReading>> open(const std::string& path) override {
    const int fd = open_retrying(path, O_RDONLY);
    if (fd < 0) return system_error(path, "open", errno);
    Descriptor owned(fd);
    struct stat info {};
    if (::fstat(fd, &info) != 0) return system_error(path, "stat", errno);
    if (!S_ISREG(info.st_mode)) return fail(ErrorCode::kIo, fmt::format("{}: not a regular file", path));
    return std::make_unique<PosixReading>(path, owned.release(), info);
  }

  Result<PathKind> kind(const std::string& path) override {
    struct stat info {};
    if (::lstat(path.c_str(), &info) != 0) {
      if (errno == ENOENT || errno == ENOTDIR) return PathKind::kAbsent;
      return system_error(path, "stat", errno);
    }
    if (S_ISREG(info.st_mode)) return PathKind::kFile;
    return S_ISDIR(info.st_mode) ? PathKind::kDirectory : PathKind::kOther;
  }

  Result<std::vector<std::string>> list(const std::string& directory) override {
    DIR* opened = ::opendir(directory.c_str());
    if (opened == nullptr) return system_error(directory, "list", errno);
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = ::readdir(opened)) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") names.push_back(name);
    }
    const int code = errno;
    ::closedir(opened);
    if (code != 0) return system_error(directory, "list", code);
    std::sort(names.begin(), names.end());
    return names;
  }

  Status rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) return system_error(from, "rename", errno);
    return {};
  }
  Status remove_file(const std::string& path) override {
    if (::unlink(path.c_str()) != 0) return system_error(path, "remove", errno);
    return {};
  }
  Status make_directory(const std::string& path) override {
    if (::mkdir(path.c_str(), 0777) != 0) return system_error(path, "make directory", errno);
    return {};
  }
  Status remove_directory(const std::string& path) override {
    if (::rmdir(path.c_str()) != 0) return system_error(path, "remove directory", errno);
    return {};
  }
  Status sync_directory(const std::string& path) override {
    const int fd = open_retrying(path, O_RDONLY | O_DIRECTORY);
    if (fd < 0) return system_error(path, "open directory", errno);
    const Descriptor owned(fd);
    if (::fsync(fd) != 0) return system_error(path, "fsync directory", errno);
    return {};
  }

  Result<std::unique_ptr<FileLock>> lock(const std::string& path) override {
    const int fd = open_retrying(path, O_RDWR | O_CREAT, 0666);
    if (fd < 0) return system_error(path, "open lock", errno);
    Descriptor owned(fd);
    if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return system_error(path, "lock", errno);
      return fail(ErrorCode::kState,
                  fmt::format("{}: held by another process that saves here{}", path, owner_of(fd)));
    }
    return std::make_unique<PosixLock>(owned.release());
  }
};

}  // namespace

FileLayer& posix_files() {
  static PosixFiles files;
  return files;
}

}  // namespace plumbline

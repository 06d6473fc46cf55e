// The machine's own file system: the same saving code, killed by a real SIGKILL before each writing call, and
// limits that real calls give.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/storage/read.h"
#include "engine/storage/save.h"

namespace plumbline::test {
namespace {

class Folder {
 public:
  Folder() {
    std::string pattern = testing::TempDir() + "plumbline_storage_XXXXXX";
    path_ = ::mkdtemp(pattern.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Kills its own process before the n-th changing call.
class KillingFiles : public FileLayer {
 public:
  explicit KillingFiles(int at) : left_(at) {}
  Result<std::unique_ptr<FileForWriting>> create(const std::string& path) override {
    tick();
    auto file = posix_files().create(path);
    if (!file) return file;
    return std::make_unique<Writing>(*this, std::move(*file));
  }
  Result<std::unique_ptr<FileForReading>> open(const std::string& path) override {
    return posix_files().open(path);
  }
  Result<PathKind> kind(const std::string& path) override { return posix_files().kind(path); }
  Result<std::vector<std::string>> list(const std::string& path) override { return posix_files().list(path); }
  Status rename(const std::string& from, const std::string& to) override {
    return tick(), posix_files().rename(from, to);
  }
  Status remove_file(const std::string& path) override { return tick(), posix_files().remove_file(path); }
  Status make_directory(const std::string& path) override {
    return tick(), posix_files().make_directory(path);
  }
  Status remove_directory(const std::string& path) override {
    return tick(), posix_files().remove_directory(path);
  }
  Status sync_directory(const std::string& path) override {
    return tick(), posix_files().sync_directory(path);
  }
  Result<std::unique_ptr<FileLock>> lock(const std::string& path) override {
    return tick(), posix_files().lock(path);
  }

 private:
  struct Writing : FileForWriting {
    Writing(KillingFiles& files, std::unique_ptr<FileForWriting> file)
        : files_(files), file_(std::move(file)) {}
    Result<std::size_t> write_some(const void* data, std::size_t size) override {
      return files_.tick(), file_->write_some(data, std::max<std::size_t>(1, size / 2));
    }
    Status sync() override { return files_.tick(), file_->sync(); }
    Status close() override { return files_.tick(), file_->close(); }
    const std::string& path() const override { return file_->path(); }
    KillingFiles& files_;
    std::unique_ptr<FileForWriting> file_;
  };
  void tick() {
    if (left_-- == 0) ::kill(::getpid(), SIGKILL);
  }
  int left_;
};

CheckpointToSave request_of(std::int64_t iteration, const std::vector<float>& values) {
  CheckpointToSave request;
  request.iteration = iteration;
  const auto count = static_cast<std::int64_t>(values.size());
  request.pieces.push_back({"p", ElementType::kF32, {count}, whole_place({count}), 0, values.data()});
  return request;
}

std::int64_t newest(const std::string& directory) {
  const auto found = find_checkpoint(posix_files(), lone_channel(), directory);
  EXPECT_TRUE(found) << (found ? "" : found.error().message);
  if (!found || !*found) return -1;
  const auto reader = open_verified(posix_files(), lone_channel(), directory, **found);
  EXPECT_TRUE(reader) << (reader ? "" : reader.error().message);
  if (!reader) return -2;
  std::vector<float> values(16);
  EXPECT_TRUE(reader->read_place(reader->manifest().tensors.front(), whole_place({16}), values.data()));
  for (const float value : values) EXPECT_EQ(value, static_cast<float>(reader->manifest().iteration));
  return reader->manifest().iteration;
}

TEST(PosixFiles, KilledBeforeEveryWritingCall) {
  bool survived = false;
  int killed = 0, newer = 0;
  for (int at = 0; !survived && at < 200; ++at) {
    const Folder folder;
    const std::string directory = folder.path() + "/deep/ckpt";
    ASSERT_TRUE(save_checkpoint(posix_files(), lone_channel(), directory,
                                request_of(1, std::vector<float>(16, 1.0f))));
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      KillingFiles files(at);
      SaveOptions options;
      options.keep_last = 1;
      const auto saved = save_checkpoint(files, lone_channel(), directory,
                                         request_of(2, std::vector<float>(16, 2.0f)), options);
      ::_exit(saved ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    survived = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!survived) {
      ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
      ++killed;
    }
    const std::int64_t found = newest(directory);
    EXPECT_TRUE(found == 1 || found == 2) << found;
    newer += found == 2 ? 1 : 0;
    // The lock went with the process.
    ASSERT_TRUE(save_checkpoint(posix_files(), lone_channel(), directory,
                                request_of(3, std::vector<float>(16, 3.0f))));
    EXPECT_EQ(newest(directory), 3);
    EXPECT_FALSE(std::filesystem::exists(directory + "/.saving_iter_0000002"));
  }
  EXPECT_TRUE(survived);
  EXPECT_GT(killed, 25);
  EXPECT_GT(newer, 1);
}

TEST(PosixFiles, FileTooLargeIsAnErrorAndTheOldOneStays) {
  const Folder folder;
  ASSERT_TRUE(save_checkpoint(posix_files(), lone_channel(), folder.path(),
                              request_of(1, std::vector<float>(16, 1.0f))));
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{64 << 10, 64 << 10};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const auto saved = save_checkpoint(posix_files(), lone_channel(), folder.path(),
                                       request_of(2, std::vector<float>(1 << 20, 2.0f)));
    ::_exit(!saved && saved.error().message.find("File too large") != std::string::npos ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(newest(folder.path()), 1);
}

TEST(PosixFiles, SecondSaverIsToldAndSymbolicLinksAreNotFollowed) {
  const Folder folder;
  const std::string directory = folder.path() + "/ckpt";
  ASSERT_TRUE(make_directories(posix_files(), directory));
  const auto held = posix_files().lock(lock_path(directory));
  ASSERT_TRUE(held);
  const auto saved =
      save_checkpoint(posix_files(), lone_channel(), directory, request_of(1, std::vector<float>(16, 1.0f)));
  ASSERT_FALSE(saved);
  EXPECT_NE(saved.error().message.find("held by another process that saves here"), std::string::npos);

  std::ofstream(folder.path() + "/precious") << "kept";
  std::filesystem::create_directory(folder.path() + "/tree");
  std::filesystem::create_symlink(folder.path(), folder.path() + "/tree/link");
  ASSERT_TRUE(remove_tree(posix_files(), folder.path() + "/tree"));
  EXPECT_TRUE(std::filesystem::exists(folder.path() + "/precious"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/tree"));
}

TEST(PosixFiles, MessagesNamePathAndReason) {
  const Folder folder;
  const std::string missing = folder.path() + "/none/file";
  EXPECT_EQ(posix_files().create(missing).error().message, missing + ": create: No such file or directory");
  EXPECT_EQ(posix_files().open(missing).error().message, missing + ": open: No such file or directory");
  ASSERT_TRUE(write_new_file(posix_files(), folder.path() + "/a", "0123"));
  EXPECT_EQ(posix_files().create(folder.path() + "/a").error().message,
            folder.path() + "/a: create: File exists");
  EXPECT_EQ(posix_files().open(folder.path()).error().message, folder.path() + ": not a regular file");
  char buffer[8];
  const auto file = posix_files().open(folder.path() + "/a");
  EXPECT_TRUE((*file)->read_at(1, buffer, 3));
  EXPECT_FALSE((*file)->read_at(1, buffer, 4));
  EXPECT_FALSE((*file)->read_at(UINT64_MAX, buffer, 2));
  EXPECT_EQ(read_small_file(posix_files(), folder.path() + "/a", 3).error().code, ErrorCode::kParse);
}

}  // namespace
}  // namespace plumbline::test

// The machine's own file system: the same saving code, killed by a real SIGKILL before each writing call, and
// limits that real calls give.
#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/storage/layout.h"
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
  const Shape shape = reader->manifest().tensors.front().shape;
  std::vector<float> values(static_cast<std::size_t>(shape.front()));
  EXPECT_TRUE(reader->read_place(reader->manifest().tensors.front(), whole_place(shape), values.data()));
  const auto iteration = static_cast<float>(reader->manifest().iteration);
  EXPECT_EQ(std::count(values.begin(), values.end(), iteration), shape.front());
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
  EXPECT_NE(saved.error().message.find(
                fmt::format("held by another process that saves here (process {} on ", ::getpid())),
            std::string::npos)
      << saved.error().message;

  std::ofstream(folder.path() + "/precious") << "kept";
  std::filesystem::create_directory(folder.path() + "/tree");
  std::filesystem::create_symlink(folder.path(), folder.path() + "/tree/link");
  ASSERT_TRUE(remove_tree(posix_files(), folder.path() + "/tree"));
  EXPECT_TRUE(std::filesystem::exists(folder.path() + "/precious"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/tree"));
}

// What a saver of TwoProcesses went through.
struct Told {
  int saved = 0, refused = 0;
  int wrong = 0;  // other errors, or a refusal that names the saver itself
};

// Saves `iterations` one after the other in a process of its own; one that is refused because the other saves is tried
// again. `begin` is closed by the parent when both are there; what happened comes out of `told`.
pid_t start_saver(const std::string& directory, const std::vector<std::int64_t>& iterations, int keep_last,
                  const std::array<int, 2>& begin, int told) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::close(begin[1]);
  char none = 0;
  (void)!::read(begin[0], &none, 1);
  Told own;
  for (std::size_t i = 0; i < iterations.size() && own.wrong == 0;) {
    const std::vector<float> values(1 << 16, static_cast<float>(iterations[i]));
    SaveOptions options;
    options.keep_last = keep_last;
    const auto saved =
        save_checkpoint(posix_files(), lone_channel(), directory, request_of(iterations[i], values), options);
    if (saved) {
      ++own.saved, ++i;
      own.wrong += saved->notices.empty() ? 0 : 1;
      continue;
    }
    const std::string& message = saved.error().message;
    const bool held = saved.error().code == ErrorCode::kState &&
                      message.find("held by another process that saves here") != std::string::npos;
    const bool itself = message.find(fmt::format("process {} on ", ::getpid())) != std::string::npos;
    ++(held && !itself ? own.refused : own.wrong);
  }
  (void)!::write(told, &own, sizeof own);
  ::_exit(0);
}

// `meanwhile` runs in this process until both savers have ended.
std::vector<Told> two_savers(const std::string& directory, const std::vector<std::int64_t>& first,
                             const std::vector<std::int64_t>& second, int keep_last,
                             const std::function<void()>& meanwhile) {
  std::array<int, 2> begin{}, told{};
  if (::pipe(begin.data()) != 0 || ::pipe(told.data()) != 0) return {};
  std::vector<pid_t> children = {start_saver(directory, first, keep_last, begin, told[1]),
                                 start_saver(directory, second, keep_last, begin, told[1])};
  for (const int fd : {begin[0], begin[1], told[1]}) ::close(fd);
  while (!children.empty()) {
    meanwhile();
    std::erase_if(children, [](pid_t child) { return ::waitpid(child, nullptr, WNOHANG) != 0; });
  }
  std::vector<Told> all(2);
  for (Told& one : all) EXPECT_EQ(::read(told[0], &one, sizeof one), static_cast<ssize_t>(sizeof one));
  ::close(told[0]);
  return all;
}

TEST(PosixFiles, TwoProcessesThatSaveAtOnceAndAReader) {
  const Folder folder;
  ASSERT_TRUE(save_checkpoint(posix_files(), lone_channel(), folder.path(),
                              request_of(0, std::vector<float>(16, 0.0f))));
  std::vector<std::int64_t> odd, even;
  for (std::int64_t i = 1; i <= 60; ++i) (i % 2 == 1 ? odd : even).push_back(i);
  int reads = 0;
  const std::vector<Told> told = two_savers(folder.path(), odd, even, 0, [&] {
    EXPECT_GE(newest(folder.path()), 0);  // whole, whoever is writing
    ++reads;
  });
  ASSERT_EQ(told.size(), 2u);
  for (const Told& saver : told) EXPECT_TRUE(saver.saved == 30 && saver.wrong == 0) << saver.wrong;
  EXPECT_GT(told[0].refused + told[1].refused, 0);  // they did meet
  EXPECT_GT(reads, 1);
  for (std::int64_t i = 1; i <= 60; ++i) {
    const auto found = find_checkpoint(posix_files(), lone_channel(), folder.path(), i);
    ASSERT_TRUE(found && *found) << i;
    EXPECT_TRUE(open_verified(posix_files(), lone_channel(), folder.path(), **found)) << i;
  }
}

// The same iterations in both: each replaces what the other saved, and removes older ones.
TEST(PosixFiles, TwoProcessesThatReplaceEachOthersCheckpoints) {
  const Folder folder;
  std::vector<std::int64_t> iterations;
  for (std::int64_t i = 1; i <= 30; ++i) iterations.push_back(i);
  const std::vector<Told> told = two_savers(folder.path(), iterations, iterations, 1, [] { ::usleep(1000); });
  ASSERT_EQ(told.size(), 2u);
  for (const Told& saver : told) EXPECT_TRUE(saver.saved == 30 && saver.wrong == 0) << saver.wrong;
  EXPECT_GT(told[0].refused + told[1].refused, 0);
  EXPECT_EQ(newest(folder.path()), 30);
  const std::vector<std::string> left = *posix_files().list(folder.path());
  EXPECT_EQ(left, (std::vector<std::string>{".lock", "iter_0000030", std::string(kTrackerName)}));
  EXPECT_EQ(std::filesystem::file_size(lock_path(folder.path())), 0u);
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

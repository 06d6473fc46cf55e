#include "engine/storage/simulated_disk.h"

#include <algorithm>

#include <fmt/format.h>

#include "engine/base/hash.h"
#include "engine/base/rng.h"

namespace plumbline {

// Draws in the order of the calls.
class DiskDice {
 public:
  explicit DiskDice(std::uint64_t seed) : rng_(seed, "loss of power") {}
  std::uint64_t below(std::uint64_t bound) { return bound == 0 ? 0 : rng_.below(next_++, bound); }

 private:
  CounterRng rng_;
  std::uint64_t next_ = 0;
};

namespace {

constexpr std::size_t kSector = 64;  // small, so that small test files have several

tl::unexpected<Error> refused(const std::string& path, const std::string& what, const char* why) {
  return fail(ErrorCode::kIo, fmt::format("{}: {}: {}", path, what, why));
}

std::vector<std::string> parts_of(const std::string& path) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at < path.size();) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    const std::string part = path.substr(at, end - at);
    if (!part.empty() && part != ".") parts.push_back(part);
    at = end + 1;
  }
  return parts;
}

}  // namespace

SimulatedDisk::SimulatedDisk() {
  nodes_.emplace_back();
  nodes_.front().directory = true;
}

int SimulatedDisk::find(const std::string& path) const {
  int node = 0;
  for (const std::string& part : parts_of(path)) {
    const Node& here = nodes_[static_cast<std::size_t>(node)];
    const auto found = here.entries.find(part);
    if (!here.directory || found == here.entries.end()) return -1;
    node = found->second;
  }
  return node;
}

void SimulatedDisk::change(int directory, Change change) {
  Node& node = nodes_[static_cast<std::size_t>(directory)];
  for (const auto& [name, target] : change.names) {
    if (target < 0) {
      node.entries.erase(name);
    } else {
      node.entries[name] = target;
    }
  }
  node.pending.push_back(std::move(change));
}

void SimulatedDisk::lose_data(Node& node, DiskDice& dice) {
  const std::size_t loose = node.data.size() - node.synced;
  if (loose == 0) return;
  std::size_t kept = loose;
  if (dice.below(2) == 0) kept = static_cast<std::size_t>(dice.below(loose + 1));
  node.data.resize(node.synced + kept);
  const std::uint64_t mood = dice.below(4);  // 0: all of it stays as written
  for (std::size_t at = node.synced; at < node.data.size();) {
    const std::size_t end = std::min(node.data.size(), (at / kSector + 1) * kSector);
    const std::uint64_t fate = mood == 0 ? 0 : dice.below(3);
    for (std::size_t i = at; i < end && fate != 0; ++i)
      node.data[i] = fate == 1 ? '\0' : static_cast<char>(dice.below(256));
    at = end;
  }
  node.synced = node.data.size();
}

void SimulatedDisk::lose_power(std::uint64_t seed) {
  const std::scoped_lock lock(mutex_);
  DiskDice dice(seed);
  ++power_;
  locks_.clear();
  for (Node& node : nodes_) {
    if (!node.directory) {
      lose_data(node, dice);
      continue;
    }
    const std::uint64_t mood = dice.below(4);  // 0: none of the changes, 1: all, else each by itself
    for (const Change& change : node.pending) {
      if (mood == 0 || (mood > 1 && dice.below(2) == 0)) continue;
      for (const auto& [name, target] : change.names) {
        if (target < 0) {
          node.durable.erase(name);
        } else {
          node.durable[name] = target;
        }
      }
    }
    node.pending.clear();
    node.entries = node.durable;
  }
}

void SimulatedDisk::sync_everything() {
  const std::scoped_lock lock(mutex_);
  for (Node& node : nodes_) {
    node.synced = node.data.size();
    node.durable = node.entries;
    node.pending.clear();
  }
}

std::string* SimulatedDisk::content(const std::string& path) {
  const std::scoped_lock lock(mutex_);
  const int node = find(path);
  if (node < 0 || nodes_[static_cast<std::size_t>(node)].directory) return nullptr;
  return &nodes_[static_cast<std::size_t>(node)].data;
}

void SimulatedDisk::walk(int at, const std::string& path, std::map<std::string, std::string>& out) const {
  const Node& node = nodes_[static_cast<std::size_t>(at)];
  if (!node.directory) {
    out[path] = node.data;
    return;
  }
  out[path + "/"];
  for (const auto& [name, target] : node.entries) walk(target, path + "/" + name, out);
}

std::map<std::string, std::string> SimulatedDisk::tree() const {
  const std::scoped_lock lock(mutex_);
  std::map<std::string, std::string> out;
  walk(0, "", out);
  return out;
}

class SimulatedWriting : public FileForWriting {
 public:
  SimulatedWriting(SimulatedFiles& files, std::string path, int node)
      : files_(files), path_(std::move(path)), node_(static_cast<std::size_t>(node)) {}

  Result<std::size_t> write_some(const void* data, std::size_t size) override {
    const Result<SimulatedFiles::Verdict> verdict = files_.begin("write", path_);
    if (!verdict) return tl::unexpected(verdict.error());
    const std::scoped_lock lock(files_.disk_.mutex_);
    if (*verdict == SimulatedFiles::Verdict::kShort)
      size = std::min(size, std::max<std::size_t>(1, size / 2));
    const std::uint64_t space = files_.disk_.space_ - std::min(files_.disk_.space_, files_.disk_.used_);
    if (size > 0 && space == 0) return refused(path_, "write", "No space left on device");
    size = static_cast<std::size_t>(std::min<std::uint64_t>(size, space));
    files_.disk_.nodes_[node_].data.append(static_cast<const char*>(data), size);
    files_.disk_.used_ += size;
    files_.end(*verdict);
    return size;
  }
  Status sync() override {
    const Result<SimulatedFiles::Verdict> verdict = files_.begin("fsync", path_);
    if (!verdict) return tl::unexpected(verdict.error());
    const std::scoped_lock lock(files_.disk_.mutex_);
    SimulatedDisk::Node& node = files_.disk_.nodes_[node_];
    node.synced = node.data.size();
    files_.end(*verdict);
    return {};
  }
  Status close() override { return files_.alive(path_); }
  const std::string& path() const override { return path_; }

 private:
  SimulatedFiles& files_;
  std::string path_;
  std::size_t node_;
};

class SimulatedReading : public FileForReading {
 public:
  SimulatedReading(SimulatedFiles& files, std::string path, int node)
      : files_(files),
        path_(std::move(path)),
        node_(static_cast<std::size_t>(node)),
        content_(hash64(files.disk_.nodes_[node_].data)) {}
  std::uint64_t size() const override {
    const std::scoped_lock lock(files_.disk_.mutex_);
    return files_.disk_.nodes_[node_].data.size();
  }
  Status read_at(std::uint64_t offset, void* data, std::size_t size) const override {
    PL_TRY(files_.alive(path_));
    const std::scoped_lock lock(files_.disk_.mutex_);
    const std::string& content = files_.disk_.nodes_[node_].data;
    if (offset > content.size() || size > content.size() - offset)
      return fail(ErrorCode::kIo, fmt::format("{}: bytes {} to {} are wanted, the file has {}", path_, offset,
                                              offset + size, content.size()));
    std::copy_n(content.data() + offset, size, static_cast<char*>(data));
    return {};
  }
  bool unchanged() const override {
    const std::scoped_lock lock(files_.disk_.mutex_);
    return hash64(files_.disk_.nodes_[node_].data) == content_;
  }
  const std::string& path() const override { return path_; }

 private:
  SimulatedFiles& files_;
  std::string path_;
  std::size_t node_;
  std::uint64_t content_;  // its digest when it was opened
};

class SimulatedLock : public FileLock {
 public:
  SimulatedLock(SimulatedDisk& disk, std::string path, std::uint64_t power)
      : disk_(disk), path_(std::move(path)), power_(power) {}
  ~SimulatedLock() override {
    const std::scoped_lock lock(disk_.mutex_);
    if (disk_.power_ == power_) disk_.locks_.erase(path_);
  }
  SimulatedLock(const SimulatedLock&) = delete;
  SimulatedLock& operator=(const SimulatedLock&) = delete;

 private:
  SimulatedDisk& disk_;
  std::string path_;
  std::uint64_t power_;
};

Status SimulatedFiles::alive(const std::string& path) const {
  if (dead_ || power_ != disk_.power_) return refused(path, "call", "this process is gone");
  return {};
}

Result<SimulatedFiles::Verdict> SimulatedFiles::begin(const std::string& what, const std::string& path) {
  if (hook_) hook_(what);
  PL_TRY(alive(path));
  const std::uint64_t call = calls_++;
  if (read_only_) return refused(path, what, "Read-only file system");
  const bool now = call == fault_.at;
  switch (fault_.kind) {
    case Fault::Kind::kNone:
      return Verdict::kGo;
    case Fault::Kind::kKill:
      if (!now) return Verdict::kGo;
      dead_ = true;
      return refused(path, what, "this process is gone");
    case Fault::Kind::kKillAfter:
      return now ? Verdict::kGoThenDie : Verdict::kGo;
    case Fault::Kind::kIoError:
      if (now) return refused(path, what, "Input/output error");
      return Verdict::kGo;
    case Fault::Kind::kShortWrite:
      return call >= fault_.at ? Verdict::kShort : Verdict::kGo;
    case Fault::Kind::kNoSpace:
      if (call >= fault_.at && what != "remove" && what != "fsync")
        return refused(path, what, "No space left on device");
      return Verdict::kGo;
  }
  return Verdict::kGo;
}

void SimulatedFiles::end(Verdict verdict) { dead_ = dead_ || verdict == Verdict::kGoThenDie; }

Result<std::unique_ptr<FileForWriting>> SimulatedFiles::create(const std::string& path) {
  const Result<Verdict> verdict = begin("create", path);
  if (!verdict) return tl::unexpected(verdict.error());
  const std::scoped_lock lock(disk_.mutex_);
  if (disk_.find(path) >= 0) return refused(path, "create", "File exists");
  const int directory = disk_.find(parent_path(path));
  if (directory < 0) return refused(path, "create", "No such file or directory");
  const int node = static_cast<int>(disk_.nodes_.size());
  disk_.nodes_.emplace_back();
  disk_.change(directory, {{{file_name(path), node}}});
  end(*verdict);
  return std::make_unique<SimulatedWriting>(*this, path, node);
}

Result<std::unique_ptr<FileForReading>> SimulatedFiles::open(const std::string& path) {
  PL_TRY(alive(path));
  const std::scoped_lock lock(disk_.mutex_);
  const int node = disk_.find(path);
  if (node < 0) return refused(path, "open", "No such file or directory");
  if (disk_.nodes_[static_cast<std::size_t>(node)].directory)
    return fail(ErrorCode::kIo, fmt::format("{}: not a regular file", path));
  return std::make_unique<SimulatedReading>(*this, path, node);
}

Result<PathKind> SimulatedFiles::kind(const std::string& path) {
  PL_TRY(alive(path));
  const std::scoped_lock lock(disk_.mutex_);
  const int node = disk_.find(path);
  if (node < 0) return PathKind::kAbsent;
  return disk_.nodes_[static_cast<std::size_t>(node)].directory ? PathKind::kDirectory : PathKind::kFile;
}

Result<std::vector<std::string>> SimulatedFiles::list(const std::string& directory) {
  PL_TRY(alive(directory));
  const std::scoped_lock lock(disk_.mutex_);
  const int node = disk_.find(directory);
  if (node < 0 || !disk_.nodes_[static_cast<std::size_t>(node)].directory)
    return refused(directory, "list", "No such directory");
  std::vector<std::string> names;
  for (const auto& [name, target] : disk_.nodes_[static_cast<std::size_t>(node)].entries)
    names.push_back(name);
  return names;
}

Status SimulatedFiles::rename(const std::string& from, const std::string& to) {
  const Result<Verdict> verdict = begin("rename", from);
  if (!verdict) return tl::unexpected(verdict.error());
  const std::scoped_lock lock(disk_.mutex_);
  const int node = disk_.find(from);
  const int directory = disk_.find(parent_path(from));
  if (node < 0) return refused(from, "rename", "No such file or directory");
  if (disk_.find(parent_path(to)) != directory) return refused(from, "rename", "Invalid cross-device link");
  const int old = disk_.find(to);
  if (old >= 0 && disk_.nodes_[static_cast<std::size_t>(old)].directory &&
      !disk_.nodes_[static_cast<std::size_t>(old)].entries.empty())
    return refused(from, "rename", "Directory not empty");
  disk_.change(directory, {{{file_name(from), -1}, {file_name(to), node}}});
  end(*verdict);
  return {};
}

Status SimulatedFiles::remove_file(const std::string& path) {
  const Result<Verdict> verdict = begin("remove", path);
  if (!verdict) return tl::unexpected(verdict.error());
  const std::scoped_lock lock(disk_.mutex_);
  const int node = disk_.find(path);
  if (node < 0) return refused(path, "remove", "No such file or directory");
  if (disk_.nodes_[static_cast<std::size_t>(node)].directory)
    return refused(path, "remove", "Is a directory");
  disk_.used_ -=
      std::min<std::uint64_t>(disk_.used_, disk_.nodes_[static_cast<std::size_t>(node)].data.size());
  disk_.change(disk_.find(parent_path(path)), {{{file_name(path), -1}}});
  end(*verdict);
  return {};
}

Status SimulatedFiles::make_directory(const std::string& path) {
  const Result<Verdict> verdict = begin("make directory", path);
  if (!verdict) return tl::unexpected(verdict.error());
  const std::scoped_lock lock(disk_.mutex_);
  if (disk_.find(path) >= 0) return refused(path, "make directory", "File exists");
  const int directory = disk_.find(parent_path(path));
  if (directory < 0) return refused(path, "make directory", "No such file or directory");
  const int node = static_cast<int>(disk_.nodes_.size());
  disk_.nodes_.emplace_back();
  disk_.nodes_.back().directory = true;
  disk_.change(directory, {{{file_name(path), node}}});
  end(*verdict);
  return {};
}

Status SimulatedFiles::remove_directory(const std::string& path) {
  const Result<Verdict> verdict = begin("remove", path);
  if (!verdict) return tl::unexpected(verdict.error());
  const std::scoped_lock lock(disk_.mutex_);
  const int node = disk_.find(path);
  if (node <= 0) return refused(path, "remove directory", "No such file or directory");
  if (!disk_.nodes_[static_cast<std::size_t>(node)].entries.empty())
    return refused(path, "remove directory", "Directory not empty");
  disk_.change(disk_.find(parent_path(path)), {{{file_name(path), -1}}});
  end(*verdict);
  return {};
}

Status SimulatedFiles::sync_directory(const std::string& path) {
  const Result<Verdict> verdict = begin("fsync", path);
  if (!verdict) return tl::unexpected(verdict.error());
  const std::scoped_lock lock(disk_.mutex_);
  const int node = disk_.find(path);
  if (node < 0) return refused(path, "fsync directory", "No such file or directory");
  SimulatedDisk::Node& directory = disk_.nodes_[static_cast<std::size_t>(node)];
  directory.durable = directory.entries;
  directory.pending.clear();
  end(*verdict);
  return {};
}

Result<std::unique_ptr<FileLock>> SimulatedFiles::lock(const std::string& path) {
  PL_TRY(alive(path));
  const std::scoped_lock lock(disk_.mutex_);
  if (disk_.find(parent_path(path)) < 0) return refused(path, "open lock", "No such file or directory");
  if (!disk_.locks_.emplace(path, disk_.power_).second)
    return fail(ErrorCode::kState, fmt::format("{}: held by another process that saves here", path));
  return std::make_unique<SimulatedLock>(disk_, path, disk_.power_);
}

}  // namespace plumbline

// SimulatedDisk: a file system in memory that can fail at any call and lose power. It is the strictest
// reading of POSIX: after a loss of power, bytes of a file that were not synced are kept, zeroed or garbage,
// sector by sector, and the file may end anywhere after its synced part; changes of a directory that were not
// synced are there or not, each by itself, in any combination. A rename is one change: both names or none.
//
// A machine writes through a SimulatedFiles, one a process; `Fault` says what goes wrong with it and when.
// All is deterministic: same calls and same seed, same survivors.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/storage/file_layer.h"

namespace plumbline {

class SimulatedDisk {
 public:
  SimulatedDisk();

  // What is left after the power went: see above. Files that are open afterwards are dead.
  void lose_power(std::uint64_t seed);
  void sync_everything();  // as an orderly shutdown does
  // Bytes of file content that fit; later writes get ENOSPC.
  void limit_space(std::uint64_t bytes) { space_ = bytes; }
  // For tests of damage: the content itself. Null when there is no such file.
  std::string* content(const std::string& path);
  // Every path with its content, for comparison ("" for directories, whose paths end in '/').
  std::map<std::string, std::string> tree() const;

 private:
  friend class SimulatedFiles;
  friend class SimulatedWriting;
  friend class SimulatedReading;
  friend class SimulatedLock;
  struct Change {  // of one directory; node < 0: the name goes
    std::vector<std::pair<std::string, int>> names;
  };
  struct Node {
    bool directory = false;
    std::string data;
    std::size_t synced = 0;              // bytes of data that are durable
    std::map<std::string, int> entries;  // as processes see them
    std::map<std::string, int> durable;
    std::vector<Change> pending;  // from durable to entries
  };

  int find(const std::string& path) const;  // -1: none
  void change(int directory, Change change);
  void lose_data(Node& node, class DiskDice& dice);
  void walk(int node, const std::string& path, std::map<std::string, std::string>& out) const;

  mutable std::mutex mutex_;
  std::vector<Node> nodes_;  // 0: the root
  std::map<std::string, std::uint64_t> locks_;
  std::uint64_t space_ = UINT64_MAX;
  std::uint64_t used_ = 0;
  std::uint64_t power_ = 0;  // how often it was lost; handles of an earlier time are dead
};

// One process' view of a disk.
class SimulatedFiles : public FileLayer {
 public:
  struct Fault {
    enum class Kind : std::uint8_t {
      kNone,
      kKill,        // the process is gone before the call: every call from here on fails
      kKillAfter,   // ... right after it
      kIoError,     // this call fails with EIO, later ones work; a failed sync drops what it should have kept
      kShortWrite,  // from here on writes take one byte to half of what is given
      kNoSpace,     // from here on nothing fits
    };
    Kind kind = Kind::kNone;
    std::uint64_t at = 0;  // changing call, from 0
  };

  explicit SimulatedFiles(SimulatedDisk& disk) : disk_(disk), power_(disk.power_) {}
  void set_fault(Fault fault) { fault_ = fault; }
  // Called before each changing call, for schedulers of tests.
  void set_hook(std::function<void(const std::string& what)> hook) { hook_ = std::move(hook); }
  std::uint64_t calls() const { return calls_; }  // changing calls so far
  bool dead() const { return dead_; }
  void kill() { dead_ = true; }
  void set_read_only(bool flag) { read_only_ = flag; }

  Result<std::unique_ptr<FileForWriting>> create(const std::string& path) override;
  Result<std::unique_ptr<FileForReading>> open(const std::string& path) override;
  Result<PathKind> kind(const std::string& path) override;
  Result<std::vector<std::string>> list(const std::string& directory) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status remove_file(const std::string& path) override;
  Status make_directory(const std::string& path) override;
  Status remove_directory(const std::string& path) override;
  Status sync_directory(const std::string& path) override;
  Result<std::unique_ptr<FileLock>> lock(const std::string& path) override;

 private:
  friend class SimulatedWriting;
  friend class SimulatedReading;
  // Counts a changing call; what to do with it.
  enum class Verdict : std::uint8_t { kGo, kGoThenDie, kShort };
  Result<Verdict> begin(const std::string& what, const std::string& path);
  void end(Verdict verdict);
  Status alive(const std::string& path) const;

  SimulatedDisk& disk_;
  std::uint64_t power_;
  Fault fault_;
  std::function<void(const std::string&)> hook_;
  std::uint64_t calls_ = 0;
  bool dead_ = false;
  bool read_only_ = false;
};

}  // namespace plumbline

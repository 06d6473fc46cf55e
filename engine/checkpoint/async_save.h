// AsyncSaver: training goes on while a checkpoint is written. start() copies the state - the copy is the
// checkpoint, whatever training does afterwards - and a thread of its own saves it with all other ranks'
// threads. One save at a time: start() waits for the one before and returns its error.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "engine/checkpoint/sharded.h"

namespace plumbline {

class AsyncSaver {
 public:
  // `channel` is used by the thread alone, so it needs a group of its own.
  AsyncSaver(FileLayer& files, std::unique_ptr<ControlChannel> channel, std::string directory);
  ~AsyncSaver();  // waits
  AsyncSaver(const AsyncSaver&) = delete;
  AsyncSaver& operator=(const AsyncSaver&) = delete;

  // Every rank calls it for the same iterations, with the same directory; empty: that of the constructor.
  Status start(std::int64_t iteration, const ShardedStateDict& state, const AliasTable& aliases = {},
               SaveOptions options = {}, const std::string& directory = {});
  bool running() const { return running_.load(); }
  // Of this rank's shard; 0 of 0 before it is known.
  std::uint64_t bytes_done() const { return done_.load(); }
  std::uint64_t bytes_total() const { return total_.load(); }
  // The last save's outcome, once; absent when there was none since.
  Result<std::optional<Saved>> wait();

 private:
  FileLayer& files_;
  std::unique_ptr<ControlChannel> channel_;
  std::string directory_;
  std::thread thread_;
  std::atomic<bool> running_{false};
  std::atomic<std::uint64_t> done_{0}, total_{0};
  std::optional<Result<Saved>> outcome_;  // written by the thread, read after join
};

}  // namespace plumbline

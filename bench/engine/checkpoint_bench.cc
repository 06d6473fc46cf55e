// Saving and loading 1 GiB, beside what bounds it and what it replaces. Rounds alternate in one process, in wall time,
// because the disk does the work:
//   plain        write(2) of the same bytes into one file, fsync of it and its directory; pread(2) of them
//   plumbline    save_sharded and open_verified + load_sharded: every byte hashed on the way out and verified on the
//                way in, before the first tensor is touched
//   torch        torch::save, and fsync of its file; torch::load
// Files leave the page cache before each read. `save` and `load` are plain's time over plumbline's, `torch_save` and
// `torch_load` plain's over torch's: medians of the rounds' quotients. `best_save` and `best_load` are the least time
// of plain over the least of plumbline: what both do when nobody else is at the disk, which on a shared machine gives
// a third of its rate in one round and all of it in the next. `extra_MiB` is how far the process' memory grew while it
// loaded.
//
// PLUMBLINE_BENCH_DIR says on which disk (default: here), PLUMBLINE_BENCH_MIB how much (default: 1024),
// PLUMBLINE_BENCH_PAUSE how many seconds a disk that is a file on its host may settle before it is read (default: 3).
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <torch/serialize.h>
#include <unistd.h>

#include "engine/base/assert.h"
#include "engine/base/hash.h"
#include "engine/checkpoint/sharded.h"

namespace plumbline {
namespace {

constexpr int kRounds = 9;
constexpr std::int64_t kTensors = 64;

std::string environment(const char* name, const char* otherwise) {
  const char* given = std::getenv(name);
  return given == nullptr ? otherwise : given;
}

double time_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void sync_path(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  PL_ASSERT_MSG(file >= 0 && ::fsync(file) == 0, path);
  ::close(file);
}

// Out of the page cache; clean pages only, so after a sync.
void forget(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  PL_ASSERT_MSG(file >= 0 && ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) == 0, path);
  ::close(file);
}

// A line of /proc/self/status, in bytes.
std::int64_t memory(const std::string& what) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(what + ":")) return std::atoll(line.c_str() + what.size() + 1) * 1024;
  }
  return 0;
}

void reset_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }

struct Memory {
  std::vector<at::Tensor> tensors;
  std::vector<at::Tensor> loaded;  // by who brings tensors of its own; they count instead
  std::uint64_t digest() const {
    Hasher hasher;
    for (const at::Tensor& tensor : loaded.empty() ? tensors : loaded)
      hasher.bytes(tensor.data_ptr(), tensor.nbytes());
    return hasher.digest();
  }
  void clear() const {
    for (const at::Tensor& tensor : tensors) std::memset(tensor.data_ptr(), 0, tensor.nbytes());
  }
};

Memory any_memory(std::int64_t bytes) {
  Memory memory;
  for (std::int64_t i = 0; i < kTensors; ++i) memory.tensors.push_back(at::randn({bytes / kTensors / 4}));
  return memory;
}

ShardedStateDict state_of(const Memory& memory) {
  ShardedStateDict state;
  for (std::size_t i = 0; i < memory.tensors.size(); ++i) {
    ShardedTensor tensor;
    tensor.key = fmt::format("layer.{:02}", i);
    tensor.data = memory.tensors[i];
    tensor.global_shape = tensor.local_shape = tensor.data.sizes().vec();
    tensor.offset = {0};
    state.tensors.push_back(std::move(tensor));
  }
  return state;
}

void plain_write(const Memory& from, const std::string& path) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  PL_ASSERT(file >= 0);
  for (const at::Tensor& tensor : from.tensors) {
    const auto* data = static_cast<const char*>(tensor.data_ptr());
    for (std::size_t at = 0; at < tensor.nbytes();) {
      const ssize_t done = ::write(file, data + at, tensor.nbytes() - at);
      PL_ASSERT(done > 0);
      at += static_cast<std::size_t>(done);
    }
  }
  PL_ASSERT(::fsync(file) == 0);
  ::close(file);
}

void plain_read(const Memory& into, const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  PL_ASSERT(file >= 0);
  ::posix_fadvise(file, 0, 0, POSIX_FADV_SEQUENTIAL);
  off_t offset = 0;
  for (const at::Tensor& tensor : into.tensors) {
    auto* data = static_cast<char*>(tensor.data_ptr());
    for (std::size_t at = 0; at < tensor.nbytes();) {
      const ssize_t done = ::pread(file, data + at, tensor.nbytes() - at, offset);
      PL_ASSERT(done > 0);
      at += static_cast<std::size_t>(done);
      offset += done;
    }
  }
  ::close(file);
}

void save(const Memory& from, const std::string& directory) {
  SaveOptions options;
  options.keep_last = 1;
  const auto saved = save_sharded(posix_files(), lone_channel(), directory, 1, state_of(from), {}, options);
  PL_ASSERT_MSG(saved.has_value(), saved ? "" : saved.error().text());
}

void load(const Memory& into, const std::string& directory) {
  const auto found = find_checkpoint(posix_files(), lone_channel(), directory);
  PL_ASSERT(found && *found);
  const auto reader = open_verified(posix_files(), lone_channel(), directory, **found);
  PL_ASSERT_MSG(reader.has_value(), reader ? "" : reader.error().text());
  ShardedStateDict state = state_of(into);
  const auto loaded = load_sharded(*reader, lone_channel(), state);
  PL_ASSERT_MSG(loaded.has_value(), loaded ? "" : loaded.error().text());
}

// One way to keep the bytes, in new directories of its own: file systems put these in different places.
struct Way {
  std::string file;
  std::function<void()> save;
  std::function<void()> load;  // into the target
  std::vector<double> save_times, load_times;
};

std::vector<Way> ways_of(const Memory& source, Memory& target, const std::string& base) {
  const std::string plain = base + "/plain/iter_0000001", torch = base + "/torch/iter_0000001",
                    own = base + "/own";
  return {{plain + "/all",
           [=, &source] {
             PL_ASSERT(make_directories(posix_files(), plain));
             plain_write(source, plain + "/all");
             sync_path(plain);
           },
           [=, &target] { plain_read(target, plain + "/all"); },
           {},
           {}},
          {own + "/iter_0000001/shard_00000_of_00001.safetensors",
           [=, &source] { save(source, own); },
           [=, &target] { load(target, own); },
           {},
           {}},
          {torch + "/all.pt",
           [=, &source] {
             PL_ASSERT(make_directories(posix_files(), torch));
             torch::save(source.tensors, torch + "/all.pt");
             sync_path(torch + "/all.pt");
             sync_path(torch);
           },
           [=, &target] {
             std::vector<at::Tensor> loaded;
             torch::load(loaded, torch + "/all.pt");
             target.loaded = std::move(loaded);
           },
           {},
           {}}};
}

// Everybody saves, then everybody loads, in an order that goes round: a disk that others share may still be busy with
// what was written last.
void round_of(std::vector<Way>& ways, int round, std::uint64_t digest, Memory& target, std::int64_t& extra) {
  const auto way = [&](std::size_t i) -> Way& {
    return ways[(i + static_cast<std::size_t>(round)) % ways.size()];
  };
  for (std::size_t i = 0; i < ways.size(); ++i) way(i).save_times.push_back(time_of(way(i).save));
  std::this_thread::sleep_for(
      std::chrono::seconds(std::atoi(environment("PLUMBLINE_BENCH_PAUSE", "3").c_str())));
  for (std::size_t i = 0; i < ways.size(); ++i) {
    forget(way(i).file);
    target.clear();
    reset_peak();
    const std::int64_t before = memory("VmRSS");
    way(i).load_times.push_back(time_of(way(i).load));
    if (&way(i) == &ways[1]) extra = std::max(extra, memory("VmHWM") - before);
    PL_ASSERT(target.digest() == digest);
    target.loaded.clear();
  }
}

void checkpoint_io(benchmark::State& benchmark) {
  const std::int64_t bytes = std::atoll(environment("PLUMBLINE_BENCH_MIB", "1024").c_str()) << 20;
  const std::string base = environment("PLUMBLINE_BENCH_DIR", ".") + "/plumbline_checkpoint_bench";
  (void)remove_tree(posix_files(), base);
  PL_ASSERT(make_directories(posix_files(), base));
  const Memory source = any_memory(bytes);
  Memory target = any_memory(bytes);
  std::vector<Way> ways = ways_of(source, target, base);
  std::int64_t extra = 0;
  for (auto _ : benchmark) {
    for (int round = 0; round < kRounds; ++round) {
      round_of(ways, round, source.digest(), target, extra);
      for (const char* folder : {"/plain", "/torch", "/own"})
        PL_ASSERT(remove_tree(posix_files(), base + folder));
    }
  }
  const auto share = [](const std::vector<double>& of, const std::vector<double>& against) {
    std::vector<double> quotients;
    for (std::size_t i = 0; i < of.size(); ++i) quotients.push_back(against[i] / of[i]);
    return median(quotients);
  };
  const auto best = [](const std::vector<double>& of, const std::vector<double>& against) {
    return *std::min_element(against.begin(), against.end()) / *std::min_element(of.begin(), of.end());
  };
  const Way &plain = ways[0], &own = ways[1], &torch = ways[2];
  benchmark.counters["plain_write_GB/s"] = static_cast<double>(bytes) / 1e9 / median(plain.save_times);
  benchmark.counters["plain_read_GB/s"] = static_cast<double>(bytes) / 1e9 / median(plain.load_times);
  benchmark.counters["save"] = share(own.save_times, plain.save_times);
  benchmark.counters["load"] = share(own.load_times, plain.load_times);
  benchmark.counters["best_save"] = best(own.save_times, plain.save_times);
  benchmark.counters["best_load"] = best(own.load_times, plain.load_times);
  benchmark.counters["torch_save"] = share(torch.save_times, plain.save_times);
  benchmark.counters["torch_load"] = share(torch.load_times, plain.load_times);
  benchmark.counters["extra_MiB"] = static_cast<double>(extra) / (1 << 20);
  (void)remove_tree(posix_files(), base);
}
BENCHMARK(checkpoint_io)->Iterations(1)->UseRealTime()->Unit(benchmark::kSecond);

}  // namespace
}  // namespace plumbline

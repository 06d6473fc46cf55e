// Saving and loading 1 GiB, beside what bounds it and what it replaces. Rounds alternate in one process, in wall time,
// because the disk does the work:
//   plain        write(2) of the same bytes into one file, fsync of it and its directory; pread(2) of them
//   plumbline    save_sharded and open_verified + load_sharded: every byte hashed on the way out and verified on the
//                way in, before the first tensor is touched
//   torch        torch::save, and fsync of its file; torch::load
// Files leave the page cache before each read. `save` and `load` are plain's time over plumbline's, `torch save` and
// `torch load` plain's over torch's: medians of the rounds' quotients. `extra_MiB` is how far the process' memory grew
// while it loaded.
//
// PLUMBLINE_BENCH_DIR says on which disk (default: here), PLUMBLINE_BENCH_MIB how much (default: 1024).
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
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

constexpr int kRounds = 5;
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
  std::uint64_t digest() const {
    Hasher hasher;
    for (const at::Tensor& tensor : tensors) hasher.bytes(tensor.data_ptr(), tensor.nbytes());
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

void checkpoint_io(benchmark::State& benchmark) {
  const std::int64_t bytes = std::atoll(environment("PLUMBLINE_BENCH_MIB", "1024").c_str()) << 20;
  const std::string base = environment("PLUMBLINE_BENCH_DIR", ".") + "/plumbline_checkpoint_bench";
  (void)remove_tree(posix_files(), base);
  PL_ASSERT(make_directories(posix_files(), base));
  const std::string plain = base + "/plain", torch_file = base + "/torch.pt", own = base + "/own";
  const Memory source = any_memory(bytes), target = any_memory(bytes);
  const std::uint64_t digest = source.digest();
  std::vector<double> plain_save, plain_load, saves, loads, torch_saves, torch_loads;
  std::int64_t extra = 0;
  for (auto _ : benchmark) {
    for (int round = 0; round < kRounds; ++round) {
      plain_save.push_back(time_of([&] {
        plain_write(source, plain);
        sync_path(base);
      }));
      saves.push_back(time_of([&] { save(source, own); }));
      torch_saves.push_back(time_of([&] {
        torch::save(source.tensors, torch_file);
        sync_path(torch_file);
        sync_path(base);
      }));
      forget(plain);
      plain_load.push_back(time_of([&] { plain_read(target, plain); }));
      PL_ASSERT(target.digest() == digest);
      target.clear();
      forget(own + "/iter_0000001/" + "shard_00000_of_00001.safetensors");
      reset_peak();
      const std::int64_t before = memory("VmRSS");
      loads.push_back(time_of([&] { load(target, own); }));
      extra = std::max(extra, memory("VmHWM") - before);
      PL_ASSERT(target.digest() == digest);
      target.clear();
      forget(torch_file);
      std::vector<at::Tensor> loaded;
      torch_loads.push_back(time_of([&] { torch::load(loaded, torch_file); }));
      PL_ASSERT((Memory{loaded}.digest() == digest));
      for (const std::string& path : {plain, torch_file}) PL_ASSERT(posix_files().remove_file(path));
      PL_ASSERT(remove_tree(posix_files(), own));
    }
  }
  const auto share = [](const std::vector<double>& of, const std::vector<double>& against) {
    std::vector<double> quotients;
    for (std::size_t i = 0; i < of.size(); ++i) quotients.push_back(against[i] / of[i]);
    return median(quotients);
  };
  const auto rate = [&](const std::vector<double>& times) {
    return static_cast<double>(bytes) / 1e9 / median(times);
  };
  benchmark.counters["plain_write_GB/s"] = rate(plain_save);
  benchmark.counters["plain_read_GB/s"] = rate(plain_load);
  benchmark.counters["save"] = share(saves, plain_save);
  benchmark.counters["load"] = share(loads, plain_load);
  benchmark.counters["torch_save"] = share(torch_saves, plain_save);
  benchmark.counters["torch_load"] = share(torch_loads, plain_load);
  benchmark.counters["extra_MiB"] = static_cast<double>(extra) / (1 << 20);
  (void)remove_tree(posix_files(), base);
}
BENCHMARK(checkpoint_io)->Iterations(1)->UseRealTime()->Unit(benchmark::kSecond);

}  // namespace
}  // namespace plumbline
